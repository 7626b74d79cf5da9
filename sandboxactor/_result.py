"""What a run came to. Verdicts are the kernel's: wait status, counters, our own clock; never the module's words."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import cast

import attrs

from sandboxactor._policy import FrozenMap
from sandboxactor.errors import ModuleFailed
from sandboxactor.spi import Guard

__all__ = ["Breach", "Denial", "Outcome", "Result", "Usage"]


class Outcome(enum.StrEnum):
    """How a run ended. Everything but `OK` is the module's own failure, or a limit it met."""

    OK = "ok"
    ERROR = "error"
    CRASHED = "crashed"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    DENIED = "denied"
    OUTPUT = "output"
    BAD_MODULE = "bad_module"
    CANCELLED = "cancelled"


@attrs.frozen
class Breach:
    """A limit that was met: the limit and what was observed (bytes, seconds or tasks), and the kernel's evidence."""

    guard: Guard
    limit: int | float
    observed: int | float | None
    evidence: str


@attrs.frozen
class Denial:
    """A decision made outside the worker: by a gate of the host, or by a filter that kills."""

    guard: Guard
    operation: str
    target: str
    reason: str


@attrs.frozen
class Usage:
    """What the whole tree of a run used. None where this host cannot measure it; `wall_s` is always a number."""

    wall_s: float
    cpu_user_s: float | None = None
    cpu_system_s: float | None = None
    memory_peak_bytes: int | None = None
    processes_peak: int | None = None
    throttled_s: float | None = None
    io_read_bytes: int | None = None
    io_write_bytes: int | None = None
    output_bytes: int = 0
    context_switches: int | None = None
    egress_bytes: int | None = None
    egress_requests: int | None = None


def _frozen(value: Mapping[Guard, str]) -> Mapping[Guard, str]:
    return cast("Mapping[Guard, str]", FrozenMap(cast("Mapping[str, str]", value)))


@attrs.frozen
class Result:
    """The end of one run.

    `output` is the module's answer in bytes and raises ModuleFailed unless `ok`, so that a failure is never read as
    data. `code` is the return code or exit status, `signal` the signal's number: one of them or neither.
    """

    outcome: Outcome
    reason: str
    _output: bytes = attrs.field(repr=False)
    stdout: bytes = attrs.field(repr=False)
    stderr: bytes = attrs.field(repr=False)
    truncated: bool
    code: int | None
    signal: int | None
    breach: Breach | None
    denials: tuple[Denial, ...]
    usage: Usage
    enforced: Mapping[Guard, str] = attrs.field(converter=_frozen)
    waived: frozenset[Guard]

    @property
    def ok(self) -> bool:
        """Whether the module ran to its end and its answer may be used."""
        return self.outcome is Outcome.OK

    @property
    def output(self) -> bytes:
        """The answer. Raises ModuleFailed, with this result, unless `ok`."""
        if not self.ok:
            raise ModuleFailed(self)
        return self._output
