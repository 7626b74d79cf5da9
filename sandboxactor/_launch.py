"""Zygote and stems: the processes that stand between two runs.

One zygote per host process, started by posix_spawn and ended with the last Sandbox. A stem per module of a Sandbox,
forked from the zygote with everything its workers inherit already made.
"""

from __future__ import annotations

import array
import contextlib
import errno
import os
import select
import socket
import threading
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import attrs

from sandboxactor import spi
from sandboxactor._fds import high, signals_held
from sandboxactor._wire import WORKER, Binding, ffi, lib, program, text
from sandboxactor.errors import WorkerFault

__all__ = ["Hold", "Stem", "StemFault", "Zygote", "acquire", "attempt", "release"]

READY_TIMEOUT_S = 10.0
# As host root: the first of the ids that no system allocates, of which each Sandbox takes one.
SANDBOX_ID = 0x6A000000
OP_NAMES = {getattr(lib, n): n.removeprefix("SA_OP_").lower() for n in dir(lib) if n.startswith("SA_OP_")}


@contextlib.contextmanager
def _descriptors() -> Iterator[None]:
    """Turns the host's own limits into a clear error; whoever opened something closes it."""
    try:
        yield
    except OSError as e:
        if e.errno in (errno.EMFILE, errno.ENFILE):
            raise WorkerFault(
                "no file descriptor left for a worker: raise RLIMIT_NOFILE (ulimit -n) or run fewer at once"
            ) from e
        raise WorkerFault(f"cannot set up a worker: {e}") from e


def _socketpair(flags: int = 0) -> tuple[socket.socket, socket.socket]:
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET | flags)
    if a.fileno() > 2 and b.fileno() > 2:
        return a, b
    return tuple(socket.socket(fileno=high(s.detach())) for s in (a, b))  # type: ignore[return-value]


def _hang_up(sock: socket.socket, owner: int) -> None:
    # A fork of the host holds the same socket, and shutdown ends it for all: only the owner may.
    if os.getpid() == owner:
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
    sock.close()


def send_fds(sock: socket.socket, parts: Sequence[Any], fds: Sequence[int]) -> None:
    """socket.send_fds, but a host that did not ignore SIGPIPE outlives it (socket.send_fds drops its flags)."""
    sock.sendmsg(parts, [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))], socket.MSG_NOSIGNAL)


class Zygote:
    """The one small C process of this host, and those that use it."""

    def __init__(self) -> None:
        self.holds: weakref.WeakSet[Hold] = weakref.WeakSet()
        self.closed = False
        self.owner = os.getpid()
        self._bases: set[str] = set()
        with _descriptors(), contextlib.ExitStack() as undo:
            self.sock, theirs = _socketpair()
            undo.enter_context(theirs)
            argv = ["sandboxactor-worker", "serve", "3", str(self.owner)]
            actions = [(os.POSIX_SPAWN_DUP2, theirs.fileno(), 3)]
            self.pid = os.posix_spawn(WORKER, argv, {}, file_actions=actions, setsigmask=[])

    def send(self, kind: int, body: bytes, fds: Sequence[int] = ()) -> None:
        """One packet of a type, its body and descriptors."""
        try:
            send_fds(self.sock, [kind.to_bytes(8, "little"), body], fds)
        except OSError as e:
            self.closed = True
            raise WorkerFault(f"the zygote does not answer: {e}") from e

    def add_bases(self, bases: Sequence[str]) -> None:
        """Folders of control groups to remove if this process is gone before it does so itself."""
        for base in bases:
            if base not in self._bases:
                self._bases.add(base)
                self.send(lib.SA_MSG_BASE, os.fsencode(base) + b"\0")

    def close(self) -> None:
        """Ends it and everything below it, and waits until that is so."""
        self.closed = True
        _hang_up(self.sock, self.owner)
        if os.getpid() == self.owner:
            # The host may ignore SIGCHLD, or reap every child itself: then this answers ECHILD once it is gone.
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.pid, 0)


_lock = threading.RLock()  # a finalizer may run inside acquire() and release another Sandbox's
_zygote: Zygote | None = None


class Hold:
    """One Sandbox's use of the zygote. The last hold to go ends it, also where an exception made it go."""

    def __init__(self) -> None:
        self.zygote: Zygote | None = None

    def __del__(self) -> None:
        release(self)


def acquire() -> Hold:
    """A hold on this process's zygote, started for its first user. After a fork the child starts its own."""
    global _zygote
    hold = Hold()
    with _lock, signals_held():
        if _zygote is None or _zygote.closed:
            _zygote = Zygote()
        hold.zygote = _zygote
        _zygote.holds.add(hold)
        return hold


def release(hold: Hold) -> None:
    """Gives it back; the last one to do so ends it. Idempotent."""
    global _zygote
    with _lock:
        mine, hold.zygote = hold.zygote, None
        if mine is None or mine.owner != os.getpid():
            return
        mine.holds.discard(hold)
        if not mine.holds:
            if mine is _zygote:
                _zygote = None
            mine.close()


def _after_fork_in_child() -> None:
    global _lock, _zygote
    _lock = threading.RLock()  # another thread of the parent may have held it
    if _zygote is not None:
        _zygote.sock.close()
    _zygote = None


os.register_at_fork(after_in_child=_after_fork_in_child)


@attrs.frozen
class StemFault(Exception):
    """A record that the stem could not do on this host."""

    op: str
    error: int
    where: str

    def __str__(self) -> str:
        return f"{self.op or self.where}: {os.strerror(self.error)} ({errno.errorcode.get(self.error, self.error)})"


class Stem:
    """A process that has done its share of a program and forks a worker for each run."""

    def __init__(self, parent: Zygote, ops: Sequence[spi.Op], binding: Binding, group: int = -1) -> None:
        self.owner = os.getpid()
        self.binding = binding
        blob, self.records = program(ops, binding)
        with _descriptors(), signals_held():
            self.sock, theirs = _socketpair()
        try:
            with theirs:
                parent.send(lib.SA_MSG_STEM, blob, [theirs.fileno(), *([group] if group >= 0 else [])])
            self._await_ready()
        except BaseException:
            self.close()
            raise

    def _await_ready(self) -> None:
        self.sock.settimeout(READY_TIMEOUT_S)
        try:
            answer = self.sock.recv(512)
        except OSError as e:
            raise WorkerFault(f"the stem did not come up: {e}") from e
        self.sock.settimeout(None)
        if len(answer) != ffi.sizeof("struct sa_fault_msg"):
            raise WorkerFault("the stem died while it came up")
        fault: Any = ffi.from_buffer("struct sa_fault_msg *", answer)
        if fault.type != lib.SA_MSG_READY:
            raise StemFault(OP_NAMES.get(fault.op, ""), fault.error, text(fault.what))

    def alive(self) -> bool:
        """Whether its end of the socket is still open. A process that dies closes its descriptors one by one: a lane's
        may be gone a moment before this one."""
        poll = select.poll()
        poll.register(self.sock, select.POLLIN)
        if not poll.poll(50):
            return True
        try:
            return self.sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    def close(self) -> None:
        """Ends it; its workers die with it."""
        _hang_up(self.sock, self.owner)


def attempt(ops: Sequence[spi.Op]) -> StemFault | None:
    """Whether a stem of this host can do these operations: tried in a process that is then gone. For probes."""
    here = os.stat("/")
    ids = (here.st_dev, here.st_ino)
    hold = acquire()
    assert hold.zygote is not None
    try:
        Stem(hold.zygote, ops, Binding("/", "/", ids, ids, SANDBOX_ID, SANDBOX_ID, ())).close()
    except StemFault as fault:
        return fault
    finally:
        release(hold)
    return None
