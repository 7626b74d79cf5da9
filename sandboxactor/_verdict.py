"""From what the kernel, the stem and our own clock said of a run to its Result. Pure: tested by tables.

The worker's memory is believed for one bounded span of bytes and the module's own return code, which can only harm the
module itself. Everything else comes from the wait status, the counters of the run's control group and the host's clock.
"""

from __future__ import annotations

import errno
import os
import signal
from typing import Any

import attrs

from sandboxactor._launch import OP_NAMES
from sandboxactor._plan import Plan
from sandboxactor._policy import Policy
from sandboxactor._result import Breach, Denial, Outcome, Result, Usage
from sandboxactor._wire import ffi, lib, text
from sandboxactor.errors import WorkerFault
from sandboxactor.spi import Filter, Guard, Landlock, Meter

__all__ = ["Facts", "bad_module", "expected_seal", "facts", "judge"]


@attrs.frozen
class Facts:
    """A finished run as plain data. `wait` None: nothing was reaped; `filter_kill` None: the kernel cannot say."""

    wait: int | None
    filter_kill: bool | None
    timed_out: bool
    cancelled: bool
    state: int
    code: int
    size: int
    text: str
    output: bytes
    stdout: bytes
    stderr: bytes
    truncated: bool
    usage: Usage
    meter: Meter


def expected_seal(plan: Plan, records: int) -> dict[str, int]:
    """What a worker of this plan must report and read back before the module may be touched."""
    ops = plan.ops
    return {
        "applied": records,
        "no_new_privs": 1,
        "seccomp": 2 if any(isinstance(o, Filter) for o in ops) else 0,
        "dumpable": 0,
        "landlock": any(isinstance(o, Landlock) for o in ops),
        "capabilities": 0,
    }


def check_seal(run: Any, expected: dict[str, int], short_of_memory: bool) -> None:
    """Raises WorkerFault unless the worker was sealed exactly as planned."""
    if run.faulted:
        op = OP_NAMES.get(run.fault.op, text(run.fault.what))
        name = errno.errorcode.get(run.fault.error, str(run.fault.error))
        raise WorkerFault(f"the worker could not do {op!r} of its plan: {os.strerror(run.fault.error)} ({name})")
    if run.lost:
        raise WorkerFault("the stem of this Sandbox died or did not answer")
    if not run.sealed:
        if run.timed_out or run.cancelled or short_of_memory:
            return
        raise WorkerFault("the worker died before it was sealed")
    seal = run.seal
    for name, value in expected.items():
        if getattr(seal, name) != value:
            raise WorkerFault(f"the worker's seal reads {name}={getattr(seal, name)}, the plan says {value}")
    if seal.uid == 0 or (seal.gid == 0 and os.getuid() == 0):
        raise WorkerFault("the worker still is user or group 0")


def facts(run: Any, meter: Meter) -> Facts:
    """Copies everything a verdict needs out of the C struct."""
    status, answer = run.status, run.answer
    streams = [ffi.buffer(s.data, s.size)[:] if s.size else b"" for s in run.streams]
    answered = answer.state == lib.SA_ANSWERED and answer.code == 0
    output = ffi.buffer(run.output, answer.size)[:] if answered and answer.size else b""
    measured = meter.memory_peak_bytes
    usage = Usage(
        wall_s=max(0, run.ended_ns - run.begun_ns) / 1e9,
        cpu_user_s=status.user_us / 1e6,
        cpu_system_s=status.system_us / 1e6,
        memory_peak_bytes=status.maxrss_kib * 1024 if measured is None else measured,
        processes_peak=meter.processes_peak,
        throttled_s=meter.throttled_s,
        io_read_bytes=status.read_blocks * 512,
        io_write_bytes=status.write_blocks * 512,
        output_bytes=len(output),
        context_switches=status.switches,
    )
    return Facts(
        wait=status.status if run.reported else None,
        filter_kill={lib.SA_FILTER_NO: False, lib.SA_FILTER_KILLED: True}.get(status.filter),
        timed_out=bool(run.timed_out),
        cancelled=bool(run.cancelled),
        state=answer.state,
        code=answer.code,
        size=answer.size,
        text=text(answer.text) if answer.state == lib.SA_BAD_MODULE else "",
        output=output,
        stdout=streams[0],
        stderr=streams[1],
        truncated=bool(run.streams[0].cut or run.streams[1].cut),
        usage=usage,
        meter=meter,
    )


def _signalled(f: Facts, number: int) -> tuple[Outcome, str]:
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    if number == signal.SIGSYS and f.filter_kill is not False:
        return Outcome.DENIED, "the filter killed the module: a system call of another ABI"
    return Outcome.CRASHED, f"the module was ended by {name}"


def _exited(f: Facts, status: int, policy: Policy) -> tuple[Outcome, str, int | None]:
    if status == 0 and f.state == lib.SA_BAD_MODULE:
        return Outcome.BAD_MODULE, f"the module cannot be loaded: {f.text}", None
    if status == 0 and f.state == lib.SA_OVERSIZE:
        return Outcome.OUTPUT, f"the answer is longer than the granted {policy.output} bytes", None
    if status == 0 and f.state == lib.SA_NULL_OUTPUT:
        return Outcome.ERROR, "the module answered with a length but no bytes (NULL output)", None
    if status == 0 and f.state == lib.SA_ANSWERED:
        if f.code == 0:
            return Outcome.OK, "", 0
        return Outcome.ERROR, f"the module returned {f.code}", f.code
    return Outcome.ERROR, f"the module exited with {status} before it answered", status


def _breach(outcome: Outcome, f: Facts, policy: Policy) -> Breach | None:
    metered = {g: Breach(g, limit, seen, evidence) for g, limit, seen, evidence in f.meter.breaches}
    if outcome is Outcome.TIMEOUT:
        return Breach(Guard.WALL_TIME, policy.timeout, f.usage.wall_s, "CLOCK_MONOTONIC of the host at the kill")
    if outcome is Outcome.OUTPUT:
        return Breach(Guard.OUTPUT_MAX, policy.output, None, "the answer did not fit into the granted span")
    if outcome is Outcome.MEMORY:
        return metered[Guard.MEMORY_MAX]
    return metered.get(Guard.PROCESSES_MAX)


def _outcome(f: Facts, policy: Policy) -> tuple[Outcome, str, int | None, int | None]:
    killed = f.wait is not None and os.WIFSIGNALED(f.wait) and os.WTERMSIG(f.wait) == signal.SIGKILL
    if f.cancelled and (killed or f.wait is None):
        return Outcome.CANCELLED, "the Sandbox was closed, or its caller interrupted", None, None
    if f.wait is None:
        raise WorkerFault("the worker was not reaped")
    if any(g is Guard.MEMORY_MAX for g, *_ in f.meter.breaches):
        return Outcome.MEMORY, f"the kernel ended the module at its {policy.memory} bytes of memory", None, None
    if killed and f.timed_out:
        return Outcome.TIMEOUT, f"the module did not end within {policy.timeout} s", None, None
    if killed and f.meter.outside:
        raise WorkerFault(f"the worker was killed from above its own limit: {f.meter.outside}")
    if os.WIFSIGNALED(f.wait):
        return (*_signalled(f, os.WTERMSIG(f.wait)), None, os.WTERMSIG(f.wait))
    return (*_exited(f, os.waitstatus_to_exitcode(f.wait), policy), None)


def judge(f: Facts, plan: Plan, policy: Policy) -> Result:
    """The Result of a finished run."""
    outcome, reason, code, number = _outcome(f, policy)
    denials: tuple[Denial, ...] = ()
    if outcome is Outcome.DENIED:
        guard = Guard.NO_SPAWN if Guard.NO_SPAWN in plan.enforced else Guard.NO_NEW_PRIVS
        denials = (Denial(guard, "system call", "another ABI (int 0x80 or x32)", reason),)
    return Result(
        outcome=outcome,
        reason=reason,
        output=f.output,
        stdout=f.stdout,
        stderr=f.stderr,
        truncated=f.truncated,
        code=code,
        signal=number,
        breach=_breach(outcome, f, policy),
        denials=denials,
        usage=f.usage,
        enforced=plan.enforced,
        waived=plan.waived,
    )


def bad_module(reason: str, plan: Plan) -> Result:
    """The Result of a module that was never loaded, because its file is not there."""
    return Result(
        outcome=Outcome.BAD_MODULE,
        reason=reason,
        output=b"",
        stdout=b"",
        stderr=b"",
        truncated=False,
        code=None,
        signal=None,
        breach=None,
        denials=(),
        usage=Usage(wall_s=0.0),
        enforced=plan.enforced,
        waived=plan.waived,
    )
