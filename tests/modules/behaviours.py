"""The behaviours of verdicts.c and of the tiny modules as data: what each does unconfined, and the outcome it must get.

`outcomes` names the outcomes of contract.md that are right; more than one where the contract leaves it open. `code` and
`signal` are the Result's, None where there is none. They hold for a policy whose limits are well above the arguments
here; a test that wants `output` or `memory` sets the limit lower than `big:` or `alloc:`.
"""

from __future__ import annotations

import signal as signals
from dataclasses import dataclass

HANGS = None  # Unconfined it runs until it is killed.


@dataclass(frozen=True)
class Behaviour:
    """One payload of verdicts.c, or one module with an empty payload.

    status: of the unconfined loader, as subprocess has it; HANGS where it does not end by itself.
    output: a regular expression that the answer matches as a whole, unconfined and inside; None where there is none.
    """

    payload: bytes
    outcomes: tuple[str, ...]
    status: int | None = 0
    output: bytes | None = None
    code: int | None = None
    signal: int | None = None
    module: str = "verdicts"

    @property
    def id(self) -> str:
        return f"{self.module}:{self.payload.decode('ascii', 'replace')}"


def _dies(payload: bytes, number: int, *outcomes: str) -> Behaviour:
    return Behaviour(payload, outcomes or ("crashed",), -number, signal=number)


def _ok(payload: bytes, output: bytes) -> Behaviour:
    return Behaviour(payload, ("ok",), output=output, code=0)


def _module(
    name: str, outcome: str, status: int | None, output: bytes | None = None, code: int | None = None
) -> Behaviour:
    return Behaviour(b"", (outcome,), status, output, code, module=name)


BEHAVIOURS = (
    _ok(b"echo:hello", b"hello"),
    _ok(b"echo:", b""),
    _ok(b"any other words", b"any other words"),
    _ok(b"nothing", b""),
    _ok(b"static_ptr", b"abc"),
    _ok(b"big:0", b""),
    _ok(b"big:1048576", b"Z{1048576}"),
    Behaviour(b"rc:7", ("error",), code=7),
    Behaviour(b"rc:-1", ("error",), code=-1),
    Behaviour(b"rc:256", ("error",), code=256),
    Behaviour(b"big_rc", ("error",), code=7),
    Behaviour(b"exit:0", ("error",), code=0),
    Behaviour(b"exit:3", ("error",), 3, code=3),
    Behaviour(b"_exit:0", ("error",), code=0),
    Behaviour(b"_exit:121", ("error",), 121, code=121),  # The worker's own status for a set-up that failed.
    Behaviour(b"_exit:255", ("error",), 255, code=255),
    Behaviour(b"null_len", ("error",)),
    Behaviour(b"huge_len", ("output",)),
    _dies(b"bad_ptr", signals.SIGSEGV),
    _dies(b"abort", signals.SIGABRT),
    _dies(b"segv", signals.SIGSEGV),
    _dies(b"fpe", signals.SIGFPE),
    _dies(b"overflow", signals.SIGSEGV),
    _dies(b"raise:15", signals.SIGTERM),
    _dies(b"raise:9", signals.SIGKILL),
    _dies(b"raise:24", signals.SIGXCPU),
    _dies(b"sigsys", signals.SIGSYS, "crashed", "denied"),  # It looks like a filter's kill to the kernel too.
    Behaviour(b"badabi", ("denied",), output=rb"badabi=\d+\n", signal=signals.SIGSYS),
    # The kernel marks the thread that was killed, and only the first one is left to be looked at.
    Behaviour(b"badabi_thread", ("denied", "crashed"), output=rb"badabi=\d+\n", signal=signals.SIGSYS),
    Behaviour(b"badcall", ("ok",), output=rb"badcall=-1 errno=38\n", code=0),
    Behaviour(b"hang", ("timeout",), HANGS),
    Behaviour(b"hang_masked", ("timeout",), HANGS),
    Behaviour(b"sleep_masked", ("timeout",), HANGS),
    Behaviour(b"stop", ("timeout",), HANGS),
    Behaviour(b"closeall", ("ok", "error")),
    Behaviour(b"scribble", ("ok", "error"), output=rb"scribble=\d+\n"),
    _ok(b"scribble_shm", rb"scribble_shm=\d+( unreadable)?\n"),
    _ok(b"bgthreads:3", rb"bgthreads=3\n"),
    _ok(b"threads:8", rb"threads=8 errno=0\n"),
    Behaviour(b"forks:5", ("ok",), output=rb"forks=(5 errno=0|0 errno=(1|38))\n", code=0),
    _ok(b"alloc:16", rb"alloc=16 errno=0\n"),
    _ok(b"flood:1", rb"flood=1048576 1048576 errno=0\n"),
    _ok(b"write:1:text", rb"write=4 errno=0\n"),
    _ok(b"write:2:text", rb"write=4 errno=0\n"),
    _ok(b"write:777:text", rb"write=-1 errno=9\n"),
    _ok(b"sleep:20", rb"sleep=20\n"),
    _ok(b"burn:20", rb"burn=20\n"),
    _ok(b"freecount", rb"freecount\n"),
    _ok(b"stdin", rb"stdin=(0 errno=0|-1 errno=\d+)\n"),
    _module("echo", "ok", 0, b"", 0),
    _module("ctor_hang", "timeout", HANGS),
    _module(
        "dtor_hang", "ok", HANGS, rb"answered\n", 0
    ),  # The loader runs destructors; a worker has its answer before.
    _module("ctor_exit", "error", 0, None, 0),
    _module("no_free", "bad_module", 4),
    _module("no_symbols", "bad_module", 4),
    _module("wants_missing", "bad_module", 3),
    _module("needs_companion", "ok", 0, rb"companion=4711\n", 0),
)
