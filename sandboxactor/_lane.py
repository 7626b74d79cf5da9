"""One lane: a concurrency slot of a stem, leased to one run at a time.

A socket to the stem, sealed memory for payload and answer, pipes, a control group, and the struct of the one C call
that does a run.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from typing import Any

from sandboxactor._fds import high, signals_held
from sandboxactor._launch import Stem, _descriptors, _hang_up, _socketpair, send_fds
from sandboxactor._wire import ffi, lib
from sandboxactor.errors import WorkerFault
from sandboxactor.spi import Group, GroupFactory

__all__ = ["Lane"]

KILL_GRACE_NS = 5_000_000_000  # from the kill to giving the stem up; a run's own grace is far below it
MFD_NOEXEC_SEAL = 8
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


def _sealed_memory(size: int) -> int:
    """Shared memory whose size nobody can change any more: else the worker could end the host with SIGBUS."""
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        fd = os.memfd_create("sandboxactor", flags | MFD_NOEXEC_SEAL)
    except OSError:  # Linux before 6.3
        fd = os.memfd_create("sandboxactor", flags)
    fd = high(fd)
    try:
        os.ftruncate(fd, size)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _pages(size: int) -> int:
    return int(-(-size // lib.SA_PAGE) * lib.SA_PAGE)


class Lane:
    """Made for a stem and for payloads up to `input_max` and answers up to `output_max` bytes."""

    def __init__(self, stem: Stem, factory: GroupFactory | None, input_max: int, output_max: int) -> None:
        self.stem = stem
        self.input_max = input_max
        self.group: Group | None = None
        self.fresh = True
        self.handed_over = False
        self.run: Any = None
        self._keep: list[Any] = []
        self._undo = contextlib.ExitStack()
        try:
            with _descriptors(), signals_held():
                self._open(factory, input_max, output_max)
        except BaseException:
            self.close()
            raise

    def _open(self, factory: GroupFactory | None, input_max: int, output_max: int) -> None:
        if factory is not None:
            self.group = factory.make(self.stem.binding.uid)
            self._undo.callback(self.group.close)
        control, theirs = _socketpair(socket.SOCK_NONBLOCK)
        self._undo.callback(_hang_up, control, self.stem.owner)
        with contextlib.ExitStack() as temporary:
            temporary.enter_context(theirs)
            memory = _sealed_memory(lib.SA_PAGE + _pages(input_max) + _pages(output_max))
            self._undo.callback(os.close, memory)
            go_theirs, go = self._pipe(temporary, keep_write=True)
            # A read end of our own: writing to a stem that is gone is then no SIGPIPE, and `control` tells of it.
            self._undo.callback(os.close, high(os.dup(go_theirs)))
            seal, seal_theirs = self._pipe(temporary)
            out, out_theirs = self._pipe(temporary)
            err, err_theirs = self._pipe(temporary)
            self._set((control.fileno(), go, seal, memory, [out, err]), input_max, output_max)
            self._hand_over([theirs.fileno(), go_theirs, seal_theirs, memory, out_theirs, err_theirs])

    def _pipe(self, temporary: contextlib.ExitStack, keep_write: bool = False) -> tuple[int, int]:
        """A pipe (read end, write end): one end stays ours and never blocks, the other is closed once handed over."""
        ends = tuple(high(fd) for fd in os.pipe2(os.O_CLOEXEC))
        ours, theirs = (ends[1], ends[0]) if keep_write else ends
        self._undo.callback(os.close, ours)
        temporary.callback(os.close, theirs)
        os.set_blocking(ours, False)
        return ends[0], ends[1]

    def _set(self, ends: tuple[int, int, int, int, list[int]], input_max: int, output_max: int) -> None:
        run = self.run = ffi.gc(ffi.new("struct sa_run *"), lib.sa_free)
        run.control, run.go, run.seal_end, run.memory, run.pipes = ends
        run.input_max, run.output_max, run.stream_max = input_max, output_max, output_max
        run.grace_ns = KILL_GRACE_NS
        if self.group is None:
            return
        for name, writes in (("before", self.group.before), ("release", self.group.release)):
            for i, (fd, text) in enumerate(writes):
                data = ffi.from_buffer(text)
                self._keep.append(data)
                entry = getattr(run, name)[i]
                entry.fd, entry.size, entry.data = fd, len(text), data
        run.befores, run.releases, run.afters = len(self.group.before), len(self.group.release), len(self.group.after)
        run.after[0 : len(self.group.after)] = list(self.group.after)

    def _hand_over(self, fds: list[int]) -> None:
        attach = self.group.attach if self.group else ()
        into = self.group.clone_into if self.group else -1
        message = ffi.new(
            "struct sa_lane_msg *",
            {
                "type": lib.SA_MSG_LANE,
                "attach": len(attach),
                "group": into >= 0,
                "input_max": self.run.input_max,
                "output_max": self.run.output_max,
            },
        )
        fds = [*fds, *attach, *([into] if into >= 0 else [])]
        try:
            send_fds(self.stem.sock, [ffi.buffer(message)], fds)
            self.handed_over = True
        except OSError as e:
            raise WorkerFault(f"the stem does not answer: {e}") from e

    def expect(self, paths: dict[str, tuple[int, int]]) -> None:
        """At most four paths that must still lead to the same inodes as when the stem was made."""
        for i, (path, (dev, ino)) in enumerate(paths.items()):
            text = ffi.from_buffer(os.fsencode(path) + b"\0")
            self._keep.append(text)
            self.run.path[i], self.run.path_dev[i], self.run.path_ino[i] = text, dev, ino

    def readings(self) -> tuple[bytes, ...]:
        """What the group's files said behind the run."""
        run = self.run
        return tuple(ffi.buffer(run.reading[i], run.reading_size[i])[:] for i in range(run.afters))

    def close(self) -> None:
        """Gives everything back: the worker, parked or running, is reaped before its group is removed."""
        if os.getpid() == self.stem.owner and self.handed_over:
            self.handed_over = False
            lib.sa_retire(self.run)
        if self.run is not None:
            self.run.memory = -1
        self._undo.close()

    def __del__(self) -> None:
        self.close()
