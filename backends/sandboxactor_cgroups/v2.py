"""Groups of cgroup v2: one folder each, into which the worker is cloned (CLONE_INTO_CGROUP).

Moving a task afterwards waits for an RCU grace period. Cloning into a group asks for write access to `cgroup.procs` of
the target and of the nearest common ancestor, with the credentials of the caller: a stem that gave up root has none on
the host's groups. So the stem itself is born into a leaf of our base group, and in our own groups, nowhere else, that
file is opened to it, which is how the kernel delegates (cgroups(7)). No worker sees the file system.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from sandboxactor.errors import WorkerFault
from sandboxactor.spi import open_high
from sandboxactor_cgroups.group import PERIOD_US, Counted, base_below, counter, next_name, quota_us
from sandboxactor_cgroups.places import CONTROLLERS, base_name

if TYPE_CHECKING:
    from sandboxactor._policy import Policy
    from sandboxactor.spi import Meter

__all__ = ["Factory", "GroupV2"]

COUNTER_MAX = str((1 << 63) - 4096)  # reads back as "max"


def _put(folder: str, name: str, value: str) -> None:
    path = Path(folder, name)
    path.write_text(value)
    if path.read_text().split() not in (value.split(), ["max"] if value == COUNTER_MAX else None):
        raise WorkerFault(f"{path} reads {path.read_text().strip()!r} after {value!r} was written")


def _base(parent: str, uid: int) -> str:
    """Our base group, with the controllers handed to its children and the stems' leaf made."""
    base = base_below(parent)
    Path(base, "cgroup.subtree_control").write_text(" ".join(f"+{c}" for c in CONTROLLERS))
    os.makedirs(f"{base}/stems", exist_ok=True)
    if uid != os.geteuid():
        # Of every Sandbox's user, each with a group of its own below; nobody else reaches the common ancestor.
        os.chmod(f"{base}/cgroup.procs", 0o666)
    return base


class GroupV2(Counted):
    """One group. Where `memory.peak` cannot be reset it is not read: it would be the lane's peak, not the run's."""

    def __init__(self, parent: str, policy: Policy, uid: int) -> None:
        super().__init__(policy)
        self._path = f"{_base(parent, uid)}/{next_name()}"
        try:
            self.make(self._path)
            if uid != os.geteuid():
                os.chown(f"{self._path}/cgroup.procs", uid, -1)
            self._limit(policy)
            self._open(policy)
        except BaseException:
            self.close()
            raise

    def _limit(self, policy: Policy) -> None:
        _put(self._path, "memory.max", str(policy.memory // 4096 * 4096))
        if os.path.exists(f"{self._path}/memory.swap.max"):
            _put(self._path, "memory.swap.max", "0")
        _put(self._path, "memory.oom.group", "1")
        _put(self._path, "cpu.max", f"{quota_us(policy)} {PERIOD_US}")
        _put(self._path, "pids.max", str(policy.processes + policy.spawn))  # the init of a tree is ours

    def _file(self, name: str, flags: int = os.O_RDONLY) -> int:
        return self.open(f"{self._path}/{name}", flags)

    def _open(self, policy: Policy) -> None:
        self.clone_into = self.open(self._path, os.O_RDONLY | os.O_DIRECTORY)
        quota = self._file("cpu.max", os.O_WRONLY)
        self.before = ((quota, f"{quota_us(policy)} {PERIOD_US}".encode()),)  # written anew it refills
        self.release = ((quota, f"max {PERIOD_US}".encode()),)
        watched = tuple(self._file(n) for n in ("memory.events", "pids.events", "cpu.stat"))
        peak = self._resettable_peak()
        if peak is not None:
            self.before += ((peak, b"0"),)
            watched += (peak,)
        self.watch(watched)

    def _resettable_peak(self) -> int | None:
        """A descriptor of memory.peak that resets for itself, as Linux 6.12 and later have it."""
        try:
            fd = self._file("memory.peak", os.O_RDWR)
            os.pwrite(fd, b"0", 0)
        except OSError:
            return None
        return fd

    def collect(self, readings: tuple[bytes, ...]) -> Meter:
        """What this run did to the counters."""
        kills, own = self.grown(readings, 0, "oom_kill"), self.grown(readings, 0, "oom")
        return self.meter(
            readings,
            counter(readings[3]) if len(readings) > 3 else None,
            throttled_s=self.grown(readings, 2, "throttled_usec") / 1e6,
            memory=f"memory.events oom +{own}, oom_kill +{kills}" if kills and own else "",
            outside=f"oom_kill +{kills} without this group's own limit" if kills and not own else "",
            refused=self.grown(readings, 1, "max"),
        )


@attrs.frozen
class Factory:
    """Makes groups for one policy below one parent group."""

    parent: str
    policy: Policy

    @property
    def bases(self) -> tuple[str, ...]:
        """The one base."""
        return (f"{self.parent}/{base_name()}",)

    def stem_group(self, uid: int) -> int:
        """The leaf that stems are cloned into."""
        return open_high(f"{_base(self.parent, uid)}/stems", os.O_RDONLY | os.O_DIRECTORY)

    def make(self, uid: int) -> GroupV2:
        """One group."""
        return GroupV2(self.parent, self.policy, uid)
