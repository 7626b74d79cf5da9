"""Groups of cgroup v1: one folder in each of three hierarchies; the worker joins by writing 0 to each `tasks`.

Another pid written to `tasks`, or any to `cgroup.procs`, waits for an RCU grace period; a task that moves itself does
not. Limits are set through cgroupspy, behind subclasses that refuse what it would silently accept and read back.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from typing import TYPE_CHECKING, Any

from cgroupspy.controllers import Controller, CpuController, MemoryController
from cgroupspy.interfaces import IntegerFile

from sandboxactor.errors import WorkerFault
from sandboxactor.spi import Guard, Meter, open_high
from sandboxactor_cgroups.places import base_name, remove, sweep

if TYPE_CHECKING:
    from sandboxactor._policy import Policy

__all__ = ["Factory", "GroupV1"]

PERIOD_US = 100_000
LAST_CHARGE = 256 << 10  # the kernel charges in batches of 64 pages: the one that failed is not in the peak
_numbers = itertools.count()


class _Node:
    """The one attribute of a cgroupspy node that its controllers use."""

    def __init__(self, full_path: str) -> None:
        self.full_path = os.fsencode(full_path)


class _Guarded:
    """cgroupspy takes any attribute and writes nothing: here an unknown name, or a value that reads otherwise, ends."""

    def put(self: Any, name: str, value: int) -> None:
        if self.get_interface(name) is None:
            raise WorkerFault(f"cgroup v1 has no control {name!r}")
        setattr(self, name, value)
        if getattr(self, name) != value:
            raise WorkerFault(f"{self.node.full_path}: {name} reads {getattr(self, name)} after {value} was written")


class _Memory(_Guarded, MemoryController):  # type: ignore[misc]
    limit_in_bytes = IntegerFile("memory.limit_in_bytes")
    swappiness = IntegerFile("memory.swappiness")
    memsw_limit_in_bytes = IntegerFile("memory.memsw.limit_in_bytes")


class _Cpu(_Guarded, CpuController):  # type: ignore[misc]
    cfs_period_us = IntegerFile("cpu.cfs_period_us")
    cfs_quota_us = IntegerFile("cpu.cfs_quota_us")


class _Pids(_Guarded, Controller):  # type: ignore[misc]
    max = IntegerFile("pids.max")


def _number(text: bytes, key: str = "") -> int:
    """A counter: the whole text, or the value behind `key` in a flat keyed file; 0 where there is none."""
    if not key:
        return int(text or 0)
    for line in text.decode().splitlines():
        name, _, value = line.partition(" ")
        if name == key:
            return int(value)
    return 0


class GroupV1:
    """One group, leased run after run: its counters are reset before each, and those that cannot be are compared."""

    attach: tuple[int, ...]
    clone_into = -1
    before: tuple[tuple[int, bytes], ...]
    after: tuple[int, ...]
    release: tuple[tuple[int, bytes], ...]

    def __init__(self, folders: tuple[tuple[str, str], ...], policy: Policy) -> None:
        self._limits = policy
        self._owner = os.getpid()
        name = f"{base_name()}/{next(_numbers)}"
        self._paths = {controller: f"{folder}/{name}" for controller, folder in folders}
        self._undo = contextlib.ExitStack()
        try:
            for controller, folder in folders:
                base = os.path.dirname(self._paths[controller])
                if not os.path.isdir(base):
                    sweep(folder)
                    os.makedirs(base, exist_ok=True)
                os.mkdir(self._paths[controller])
                self._undo.callback(self._remove, self._paths[controller])
            self._limit(policy)
            self._open(policy)
        except BaseException:
            self.close()
            raise

    def _remove(self, path: str) -> None:
        if os.getpid() == self._owner:  # a forked child closes its copies of the files, and no more
            remove(path)

    def _limit(self, policy: Policy) -> None:
        memory = _Memory(_Node(self._paths["memory"]))
        memory.put("swappiness", 0)
        memory.put("limit_in_bytes", policy.memory // 4096 * 4096)
        if os.path.exists(memory.filepath(b"memory.memsw.limit_in_bytes")):
            memory.put("memsw_limit_in_bytes", policy.memory // 4096 * 4096)
        cpu = _Cpu(_Node(self._paths["cpu"]))
        cpu.put("cfs_period_us", PERIOD_US)
        cpu.put("cfs_quota_us", policy.cpu * PERIOD_US // 1000)
        _Pids(_Node(self._paths["pids"])).put("max", policy.processes)

    def _file(self, controller: str, name: str, flags: int = os.O_RDONLY) -> int:
        fd = open_high(f"{self._paths[controller]}/{name}", flags)
        self._undo.callback(os.close, fd)
        return fd

    def _open(self, policy: Policy) -> None:
        self.attach = tuple(self._file(c, "tasks", os.O_WRONLY) for c in self._paths)
        quota = self._file("cpu", "cpu.cfs_quota_us", os.O_WRONLY)
        self.before = (
            (self._file("memory", "memory.max_usage_in_bytes", os.O_WRONLY), b"0"),
            (
                quota,
                str(policy.cpu * PERIOD_US // 1000).encode(),
            ),  # written anew it refills: no run pays for the last one
        )
        self.release = ((quota, b"-1"),)
        names = [
            ("memory", "memory.max_usage_in_bytes"),
            ("memory", "memory.oom_control"),
            ("pids", "pids.events"),
            ("cpu", "cpu.stat"),
        ]
        self.after = tuple(self._file(c, n) for c, n in names)
        self._last = tuple(os.pread(fd, 512, 0) for fd in self.after)

    def collect(self, readings: tuple[bytes, ...]) -> Meter:
        """What this run did to the counters."""

        def grown(index: int, key: str) -> int:
            if readings[index] == self._last[index]:
                return 0
            return _number(readings[index], key) - _number(self._last[index], key)

        peak = _number(readings[0])
        kills, refused, throttled = grown(1, "oom_kill"), grown(2, "max"), grown(3, "throttled_time")
        self._last = readings
        limit = self._limits.memory
        breaches: list[tuple[Guard, int, int | None, str]] = []
        # memory.failcnt would say it outright, but stays 0 on Linux 6.18: a kill at our own limit shows in the peak.
        own = peak + LAST_CHARGE >= limit
        if kills and own:
            breaches.append(
                (
                    Guard.MEMORY_MAX,
                    limit,
                    peak,
                    f"memory.oom_control oom_kill +{kills}, memory.max_usage_in_bytes {peak}",
                )
            )
        if refused:
            breaches.append((Guard.PROCESSES_MAX, self._limits.processes, None, f"pids.events max +{refused}"))
        outside = f"oom_kill +{kills} at {peak} of {limit} bytes" if kills and not own else ""
        return Meter(peak, None, throttled / 1e9, None, None, tuple(breaches), outside)

    def close(self) -> None:
        """Closes the files and removes the folders; the worker must be reaped."""
        self._undo.close()


class Factory:
    """Makes groups for one policy."""

    def __init__(self, folders: tuple[tuple[str, str], ...], policy: Policy) -> None:
        self._folders, self._policy = folders, policy

    @property
    def bases(self) -> tuple[str, ...]:
        """One base in each hierarchy."""
        return tuple(f"{folder}/{base_name()}" for _, folder in self._folders)

    def stem_group(self, uid: int) -> int:
        """None: on v1 the stem stays in the host's own groups, and workers move themselves."""
        return -1

    def make(self, uid: int) -> GroupV1:
        """One group in each hierarchy."""
        return GroupV1(self._folders, self._policy)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Factory) and (self._folders, self._policy) == (other._folders, other._policy)

    def __hash__(self) -> int:
        return hash((self._folders, self._policy))
