"""Every exception of the library. Errors carry data and a path, and all faults of one kind come at once.

Three kinds never mix: your request (`ManifestError`, `PolicyDenied`, `InvalidPolicy`, `PayloadTooLarge`,
`InvalidPayload`), this machine (`Unenforceable`, `WorkerFault`) and a bug of ours (`InternalError`). What a module
does wrong is never raised: it is returned as a `Result`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from sandboxactor._result import Result
    from sandboxactor.spi import Guard

__all__ = [
    "Excess",
    "Fault",
    "InternalError",
    "InvalidPayload",
    "InvalidPolicy",
    "ManifestError",
    "Missing",
    "ModuleFailed",
    "PayloadTooLarge",
    "PolicyDenied",
    "SandboxError",
    "Unenforceable",
    "WorkerFault",
]


class SandboxError(Exception):
    """Base of everything this library raises on purpose."""


@attrs.frozen
class Fault:
    """One fault of a manifest: where it stands (`$.path`, line from 1, 0 for the whole file) and what to write."""

    path: str
    line: int
    message: str


class ManifestError(SandboxError, ValueError):
    """A manifest that cannot be accepted. `faults` lists every fault; `str()` is one line a fault."""

    def __init__(self, file: str, faults: Sequence[Fault]) -> None:
        self.file = file
        self.faults = tuple(faults)
        super().__init__(file, self.faults)

    def __str__(self) -> str:
        return "\n".join(f"{self.file}:{f.line}: {f.path}: {f.message}" for f in self.faults)


@attrs.frozen
class Excess:
    """One thing asked for beyond what the host grants: the path in the request, the value asked, the host's ceiling."""

    path: str
    asked: str
    ceiling: str

    def __str__(self) -> str:
        return f"{self.path}: asks for {self.asked}, the host grants {self.ceiling}"


class PolicyDenied(SandboxError):
    """A request that exceeds the host's policy. `excesses` lists every excess; nothing is clipped silently."""

    def __init__(self, excesses: Sequence[Excess]) -> None:
        self.excesses = tuple(excesses)
        super().__init__(self.excesses)

    def __str__(self) -> str:
        return "\n".join(str(e) for e in self.excesses)


class InvalidPolicy(SandboxError, ValueError):
    """A bad argument: the message names the field, the value and the cure. Nothing has started."""


class PayloadTooLarge(SandboxError, ValueError):
    """A payload above the policy's `input` limit."""


class InvalidPayload(SandboxError, ValueError):
    """A payload that its semantic type does not allow."""


@attrs.frozen
class Missing:
    """One guard that nothing on this host can hold: which backend was asked, why not, and the remedy."""

    guard: Guard | None
    backend: str
    reason: str
    remedy: str

    def __str__(self) -> str:
        name = "the run" if self.guard is None else self.guard.name
        return f"{name}: {self.backend}: {self.reason}. Remedy: {self.remedy}"


class Unenforceable(SandboxError):
    """This host cannot enforce the policy, so nothing was started. `missing` lists every guard without a holder."""

    def __init__(self, missing: Sequence[Missing]) -> None:
        self.missing = tuple(missing)
        super().__init__(self.missing)

    def __str__(self) -> str:
        return "\n".join(str(m) for m in self.missing)


class WorkerFault(SandboxError):
    """This machine failed the run: set-up of a worker, a control that did not read back, a kill from above."""


class InternalError(SandboxError):
    """A bug of ours. Please report it."""


class ModuleFailed(SandboxError):
    """Raised by `Result.output` unless the result is ok, so that a failure is never read as data."""

    def __init__(self, result: Result) -> None:
        self.result = result
        super().__init__(result)

    def __str__(self) -> str:
        return f"{self.result.outcome}: {self.result.reason}"
