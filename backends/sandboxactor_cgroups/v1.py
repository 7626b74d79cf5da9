"""Groups of cgroup v1: one folder in each of three hierarchies; the worker joins by writing 0 to each `tasks`.

Another pid written to `tasks`, or any to `cgroup.procs`, waits for an RCU grace period; a task that moves itself does
not. Limits are set through cgroupspy, behind subclasses that refuse what it would silently accept and read back.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import attrs
from cgroupspy.controllers import Controller, CpuController, MemoryController
from cgroupspy.interfaces import IntegerFile

from sandboxactor.errors import WorkerFault
from sandboxactor_cgroups.group import PERIOD_US, Counted, base_below, counter, next_name, quota_us
from sandboxactor_cgroups.places import base_name

if TYPE_CHECKING:
    from sandboxactor._policy import Policy
    from sandboxactor.spi import Meter

__all__ = ["Factory", "GroupV1"]

LAST_CHARGE = 256 << 10  # the kernel charges in batches of 64 pages: the one that failed is not in the peak


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


class GroupV1(Counted):
    """One group in each of three hierarchies."""

    def __init__(self, folders: tuple[tuple[str, str], ...], policy: Policy) -> None:
        super().__init__(policy)
        name = next_name()
        self._paths = {controller: f"{base_below(folder)}/{name}" for controller, folder in folders}
        try:
            for path in self._paths.values():
                self.make(path)
            self._limit(policy)
            self._open(policy)
        except BaseException:
            self.close()
            raise

    def _limit(self, policy: Policy) -> None:
        memory = _Memory(_Node(self._paths["memory"]))
        memory.put("swappiness", 0)
        memory.put("limit_in_bytes", policy.memory // 4096 * 4096)
        if os.path.exists(memory.filepath(b"memory.memsw.limit_in_bytes")):
            memory.put("memsw_limit_in_bytes", policy.memory // 4096 * 4096)
        cpu = _Cpu(_Node(self._paths["cpu"]))
        cpu.put("cfs_period_us", PERIOD_US)
        cpu.put("cfs_quota_us", quota_us(policy))
        _Pids(_Node(self._paths["pids"])).put("max", policy.processes)

    def _file(self, controller: str, name: str, flags: int = os.O_RDONLY) -> int:
        return self.open(f"{self._paths[controller]}/{name}", flags)

    def _open(self, policy: Policy) -> None:
        self.attach = tuple(self._file(c, "tasks", os.O_WRONLY) for c in self._paths)
        quota = self._file("cpu", "cpu.cfs_quota_us", os.O_WRONLY)
        # A quota written anew refills: no run pays for the last one.
        peak = self._file("memory", "memory.max_usage_in_bytes", os.O_WRONLY)
        self.before = ((peak, b"0"), (quota, str(quota_us(policy)).encode()))
        self.release = ((quota, b"-1"),)
        names = ("memory.max_usage_in_bytes", "memory.oom_control", "pids.events", "cpu.stat")
        self.watch(tuple(self._file(n.partition(".")[0], n) for n in names))

    def collect(self, readings: tuple[bytes, ...]) -> Meter:
        """What this run did to the counters."""
        peak, limit = counter(readings[0]), self.policy.memory
        kills = self.grown(readings, 1, "oom_kill")
        # memory.failcnt would say it outright, but stays 0 on Linux 6.18: a kill at our own limit shows in the peak.
        own = kills and peak + LAST_CHARGE >= limit
        return self.meter(
            readings,
            peak,
            throttled_s=self.grown(readings, 3, "throttled_time") / 1e9,
            memory=f"memory.oom_control oom_kill +{kills}, memory.max_usage_in_bytes {peak}" if own else "",
            outside=f"oom_kill +{kills} at {peak} of {limit} bytes" if kills and not own else "",
            refused=self.grown(readings, 2, "max"),
        )


@attrs.frozen
class Factory:
    """Makes groups for one policy; `folders` holds controller and folder of each hierarchy."""

    folders: tuple[tuple[str, str], ...]
    policy: Policy

    @property
    def bases(self) -> tuple[str, ...]:
        """One base in each hierarchy."""
        return tuple(f"{folder}/{base_name()}" for _, folder in self.folders)

    def stem_group(self, uid: int) -> int:
        """None: on v1 the stem stays in the host's own groups, and workers move themselves."""
        return -1

    def make(self, uid: int) -> GroupV1:
        """One group in each hierarchy."""
        return GroupV1(self.folders, self.policy)
