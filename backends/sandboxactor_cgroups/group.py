"""What groups of both versions share: files opened once a lane, counters compared before and behind a run."""

from __future__ import annotations

import contextlib
import itertools
import os
from typing import TYPE_CHECKING

from sandboxactor.spi import Guard, Meter, open_high
from sandboxactor_cgroups.places import base_name, remove, sweep

if TYPE_CHECKING:
    from sandboxactor._policy import Policy

__all__ = ["PERIOD_US", "Counted", "base_below", "counter", "next_name", "quota_us"]

PERIOD_US = 100_000
_numbers = itertools.count()


def next_name() -> str:
    """A name below the base group that no other group of this process has."""
    return str(next(_numbers))


def quota_us(policy: Policy) -> int:
    """Microseconds of CPU in each period of PERIOD_US."""
    return policy.cpu * PERIOD_US // 1000


def base_below(folder: str) -> str:
    """This process's base group in a hierarchy, made where it is not there."""
    base = f"{folder}/{base_name()}"
    if not os.path.isdir(base):
        sweep(folder)
        os.makedirs(base, exist_ok=True)
    return base


def counter(text: bytes, key: str = "") -> int:
    """The whole text as a number, or the value behind `key` in a flat keyed file; 0 where there is none."""
    if not key:
        return int(text or 0)
    for line in text.decode().splitlines():
        name, _, value = line.partition(" ")
        if name == key:
            return int(value)
    return 0


class Counted:
    """Folders and open files of one group, leased run after run; what cannot be reset before a run is compared."""

    attach: tuple[int, ...] = ()
    clone_into: int = -1
    before: tuple[tuple[int, bytes], ...]
    after: tuple[int, ...]
    release: tuple[tuple[int, bytes], ...]

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._owner = os.getpid()
        self._undo = contextlib.ExitStack()
        self._last: tuple[bytes, ...] = ()

    def make(self, path: str) -> None:
        """Makes a folder, which close() removes."""
        os.mkdir(path)
        self._undo.callback(self._remove, path)

    def _remove(self, path: str) -> None:
        if os.getpid() == self._owner:  # a forked child closes its copies of the files, and no more
            remove(path)

    def open(self, path: str, flags: int = os.O_RDONLY) -> int:
        """A descriptor that close() closes."""
        fd = open_high(path, flags)
        self._undo.callback(os.close, fd)
        return fd

    def watch(self, files: tuple[int, ...]) -> None:
        """Names the files that are read behind each run, and reads them for the first comparison."""
        self.after = files
        self._last = tuple(os.pread(fd, 512, 0) for fd in files)

    def grown(self, readings: tuple[bytes, ...], index: int, key: str) -> int:
        """How far a counter went since the last run."""
        if readings[index] == self._last[index]:
            return 0
        return counter(readings[index], key) - counter(self._last[index], key)

    def meter(
        self,
        readings: tuple[bytes, ...],
        peak: int | None,
        *,
        throttled_s: float,
        memory: str,
        outside: str,
        refused: int,
    ) -> Meter:
        """The run's meter: `memory` and `outside` say of a kill that it was this group's own, or somebody else's."""
        self._last = readings
        breaches: list[tuple[Guard, int, int | None, str]] = []
        if memory:
            breaches.append((Guard.MEMORY_MAX, self.policy.memory, peak, memory))
        if refused:
            breaches.append((Guard.PROCESSES_MAX, self.policy.processes, None, f"pids.events max +{refused}"))
        return Meter(peak, throttled_s=throttled_s, breaches=tuple(breaches), outside=outside)

    def close(self) -> None:
        """Closes the files and removes the folders; the worker must be reaped."""
        self._undo.close()
