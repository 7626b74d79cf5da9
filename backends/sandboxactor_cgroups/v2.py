"""Groups of cgroup v2: one folder each, into which the worker is cloned (CLONE_INTO_CGROUP).

Moving a task afterwards waits for an RCU grace period. Cloning into a group asks for write access to `cgroup.procs` of
the target and of the nearest common ancestor, with the credentials of the caller: a stem that gave up root has none on
the host's groups. So the stem itself is born into a leaf of our base group, and in our own groups, nowhere else, that
file is opened to it, which is how the kernel delegates (cgroups(7)). No worker sees the file system.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING

from sandboxactor.errors import WorkerFault
from sandboxactor.spi import Guard, Meter, open_high
from sandboxactor_cgroups.places import CONTROLLERS, base_name, remove, sweep

if TYPE_CHECKING:
    from sandboxactor._policy import Policy

__all__ = ["Factory", "GroupV2"]

PERIOD_US = 100_000
COUNTER_MAX = str((1 << 63) - 4096)  # reads back as "max"
_numbers = itertools.count()


def _put(folder: str, name: str, value: str) -> None:
    path = Path(folder, name)
    path.write_text(value)
    if path.read_text().split() not in (value.split(), ["max"] if value == COUNTER_MAX else None):
        raise WorkerFault(f"{path} reads {path.read_text().strip()!r} after {value!r} was written")


def _keyed(text: bytes, key: str) -> int:
    for line in text.decode().splitlines():
        name, _, value = line.partition(" ")
        if name == key:
            return int(value)
    return 0


def _base(parent: str, uid: int) -> str:
    """Our base group, with the controllers handed to its children and the stems' leaf made."""
    base = f"{parent}/{base_name()}"
    if not os.path.isdir(base):
        sweep(parent)
        os.makedirs(base, exist_ok=True)
    Path(base, "cgroup.subtree_control").write_text(" ".join(f"+{c}" for c in CONTROLLERS))
    os.makedirs(f"{base}/stems", exist_ok=True)
    if uid != os.geteuid():
        # Of every Sandbox's user, each with a group of its own below; nobody else reaches the common ancestor.
        os.chmod(f"{base}/cgroup.procs", 0o666)
    return base


class GroupV2:
    """One group. Its counters cannot all be reset, so it serves one worker's life where `memory.peak` cannot."""

    attach: tuple[int, ...] = ()
    clone_into: int
    before: tuple[tuple[int, bytes], ...]
    after: tuple[int, ...]
    release: tuple[tuple[int, bytes], ...]

    def __init__(self, parent: str, policy: Policy, uid: int) -> None:
        self._limits = policy
        self._owner = os.getpid()
        self._path = f"{_base(parent, uid)}/{next(_numbers)}"
        self._undo = contextlib.ExitStack()
        try:
            os.mkdir(self._path)
            self._undo.callback(self._remove)
            if uid != os.geteuid():
                os.chown(f"{self._path}/cgroup.procs", uid, -1)
            self._limit(policy)
            self._open(policy)
        except BaseException:
            self.close()
            raise

    def _remove(self) -> None:
        if os.getpid() == self._owner:  # a forked child closes its copies of the files, and no more
            remove(self._path)

    def _limit(self, policy: Policy) -> None:
        _put(self._path, "memory.max", str(policy.memory // 4096 * 4096))
        if os.path.exists(f"{self._path}/memory.swap.max"):
            _put(self._path, "memory.swap.max", "0")
        _put(self._path, "memory.oom.group", "1")
        _put(self._path, "cpu.max", f"{policy.cpu * PERIOD_US // 1000} {PERIOD_US}")
        _put(self._path, "pids.max", str(policy.processes + policy.spawn))  # the init of a tree is ours

    def _file(self, name: str, flags: int = os.O_RDONLY) -> int:
        fd = open_high(f"{self._path}/{name}", flags)
        self._undo.callback(os.close, fd)
        return fd

    def _open(self, policy: Policy) -> None:
        self.clone_into = open_high(self._path, os.O_RDONLY | os.O_DIRECTORY)
        self._undo.callback(os.close, self.clone_into)
        quota = self._file("cpu.max", os.O_WRONLY)
        self.before = (
            (quota, f"{policy.cpu * PERIOD_US // 1000} {PERIOD_US}".encode()),  # written anew it refills
        )
        self.release = ((quota, f"max {PERIOD_US}".encode()),)
        names = ["memory.events", "pids.events", "cpu.stat"]
        # Since Linux 6.12 a descriptor can reset memory.peak for itself; before, it is the lane's and not the run's.
        peak = self._resettable_peak()
        if peak is not None:
            self.before += ((peak, b"0"),)
        self.after = (*(self._file(n) for n in names), *(() if peak is None else (peak,)))
        self._last = tuple(os.pread(fd, 512, 0) for fd in self.after)

    def _resettable_peak(self) -> int | None:
        try:
            fd = self._file("memory.peak", os.O_RDWR)
            os.pwrite(fd, b"0", 0)
        except OSError:
            return None
        return fd

    def collect(self, readings: tuple[bytes, ...]) -> Meter:
        """What this run did to the counters."""

        def grown(index: int, key: str) -> int:
            if readings[index] == self._last[index]:
                return 0
            return _keyed(readings[index], key) - _keyed(self._last[index], key)

        kills, own, refused = grown(0, "oom_kill"), grown(0, "oom"), grown(1, "max")
        throttled = grown(2, "throttled_usec")
        self._last = readings
        peak = int(readings[3]) if len(readings) > 3 else None
        limit = self._limits.memory
        breaches: list[tuple[Guard, int, int | None, str]] = []
        if kills and own:
            breaches.append((Guard.MEMORY_MAX, limit, peak, f"memory.events oom +{own}, oom_kill +{kills}"))
        if refused:
            breaches.append((Guard.PROCESSES_MAX, self._limits.processes, None, f"pids.events max +{refused}"))
        outside = f"oom_kill +{kills} without this group's own limit" if kills and not own else ""
        return Meter(peak, None, throttled / 1e6, None, None, tuple(breaches), outside)

    def close(self) -> None:
        """Closes the files and removes the folder; the worker must be reaped."""
        self._undo.close()


class Factory:
    """Makes groups for one policy below one parent group."""

    def __init__(self, parent: str, policy: Policy) -> None:
        self._parent, self._policy = parent, policy

    @property
    def bases(self) -> tuple[str, ...]:
        """The one base."""
        return (f"{self._parent}/{base_name()}",)

    def stem_group(self, uid: int) -> int:
        """The leaf that stems are cloned into."""
        return open_high(f"{_base(self._parent, uid)}/stems", os.O_RDONLY | os.O_DIRECTORY)

    def make(self, uid: int) -> GroupV2:
        """One group."""
        return GroupV2(self._parent, self._policy, uid)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Factory) and (self._parent, self._policy) == (other._parent, other._policy)

    def __hash__(self) -> int:
        return hash((self._parent, self._policy))
