"""Verdicts as a table: what the wait status, the counters and the clock say, and what the module only claims."""

from __future__ import annotations

import signal

import attrs
import pytest

from sandboxactor import Guard, Outcome, Policy, WorkerFault
from sandboxactor._plan import Plan
from sandboxactor._result import Usage
from sandboxactor._verdict import Facts, judge
from sandboxactor._wire import lib
from sandboxactor.spi import Kind, Meter

POLICY = Policy.strict(memory="64MiB", timeout=1, output="1KiB")
PLAN = Plan(Kind.NATIVE, (), {Guard.MEMORY_MAX: "cgroup v2"}, frozenset({Guard.CPU_MAX}))
OOM = Meter(breaches=((Guard.MEMORY_MAX, POLICY.memory, POLICY.memory, "memory.events oom +1"),))
TASKS = Meter(breaches=((Guard.PROCESSES_MAX, 30, None, "pids.events max +1"),))
FACTS = Facts(
    wait=0,
    filter_kill=None,
    timed_out=False,
    cancelled=False,
    state=lib.SA_ANSWERED,
    code=0,
    size=3,
    text="",
    output=b"abc",
    stdout=b"",
    stderr=b"",
    truncated=False,
    usage=Usage(wall_s=0.5),
    meter=Meter(),
)
KILLED = int(signal.SIGKILL)


def _exit(code: int) -> int:
    return code << 8


@pytest.mark.parametrize(
    ("change", "outcome", "code", "number"),
    [
        ({}, Outcome.OK, 0, None),
        ({"code": 7}, Outcome.ERROR, 7, None),
        ({"code": -2147483648}, Outcome.ERROR, -2147483648, None),
        ({"state": lib.SA_RUNNING}, Outcome.ERROR, 0, None),
        ({"state": lib.SA_NOT_LOADED, "wait": _exit(3)}, Outcome.ERROR, 3, None),
        ({"wait": _exit(1)}, Outcome.ERROR, 1, None),
        ({"state": lib.SA_BAD_MODULE, "text": "no such file"}, Outcome.BAD_MODULE, None, None),
        ({"state": lib.SA_BAD_MODULE, "wait": _exit(2)}, Outcome.ERROR, 2, None),
        ({"state": lib.SA_OVERSIZE, "size": 1 << 40}, Outcome.OUTPUT, None, None),
        ({"state": lib.SA_NULL_OUTPUT}, Outcome.ERROR, None, None),
        ({"wait": 11}, Outcome.CRASHED, None, 11),
        ({"wait": 6, "state": lib.SA_RUNNING}, Outcome.CRASHED, None, 6),
        ({"wait": KILLED}, Outcome.CRASHED, None, 9),
        ({"wait": 31, "filter_kill": True}, Outcome.DENIED, None, 31),
        ({"wait": 31, "filter_kill": None}, Outcome.DENIED, None, 31),
        ({"wait": 31, "filter_kill": False}, Outcome.CRASHED, None, 31),
        ({"wait": KILLED, "timed_out": True}, Outcome.TIMEOUT, None, None),
        ({"wait": 0, "timed_out": True}, Outcome.OK, 0, None),
        ({"wait": KILLED, "cancelled": True}, Outcome.CANCELLED, None, None),
        ({"wait": None, "cancelled": True}, Outcome.CANCELLED, None, None),
        ({"wait": 0, "cancelled": True}, Outcome.OK, 0, None),
        ({"wait": KILLED, "meter": OOM}, Outcome.MEMORY, None, None),
        ({"wait": 0, "meter": OOM}, Outcome.MEMORY, None, None),
        ({"wait": KILLED, "timed_out": True, "meter": OOM}, Outcome.MEMORY, None, None),
        ({"wait": KILLED, "timed_out": True, "cancelled": True}, Outcome.CANCELLED, None, None),
        ({"meter": TASKS}, Outcome.OK, 0, None),
    ],
)
def test_outcomes(change: dict[str, object], outcome: Outcome, code: int | None, number: int | None) -> None:
    """Each end of a run has exactly one outcome, and a code or a signal or neither."""
    result = judge(attrs.evolve(FACTS, **change), PLAN, POLICY)
    assert (result.outcome, result.code, result.signal) == (outcome, code, number)
    assert (result.reason == "") == (outcome is Outcome.OK)
    assert "\n" not in result.reason
    assert result.enforced == PLAN.enforced
    assert result.waived == PLAN.waived


@pytest.mark.parametrize(
    ("change", "guard", "limit"),
    [
        ({"wait": KILLED, "timed_out": True}, Guard.WALL_TIME, 1.0),
        ({"wait": KILLED, "meter": OOM}, Guard.MEMORY_MAX, POLICY.memory),
        ({"state": lib.SA_OVERSIZE, "size": 4096}, Guard.OUTPUT_MAX, 1024),
        ({"meter": TASKS}, Guard.PROCESSES_MAX, 30),
        ({"wait": 6, "meter": TASKS}, Guard.PROCESSES_MAX, 30),
    ],
)
def test_breaches(change: dict[str, object], guard: Guard, limit: float) -> None:
    """Timeout, memory and output always have a breach; a refused fork has one and leaves the outcome to the module."""
    breach = judge(attrs.evolve(FACTS, **change), PLAN, POLICY).breach
    assert breach is not None
    assert (breach.guard, breach.limit) == (guard, limit)
    assert breach.evidence


@pytest.mark.parametrize("change", [{}, {"code": 7}, {"wait": 11}, {"wait": KILLED, "cancelled": True}])
def test_no_breach_without_a_limit_met(change: dict[str, object]) -> None:
    """A failure of the module's own is no breach."""
    assert judge(attrs.evolve(FACTS, **change), PLAN, POLICY).breach is None


def test_a_kill_from_above_is_no_verdict_on_the_module() -> None:
    """An OOM kill by somebody else's limit is this machine's fault."""
    with pytest.raises(WorkerFault, match="above"):
        judge(attrs.evolve(FACTS, wait=KILLED, meter=Meter(outside="oom_kill +1")), PLAN, POLICY)


def test_a_filter_kill_is_a_denial() -> None:
    """What a filter killed is listed with what was refused."""
    result = judge(attrs.evolve(FACTS, wait=31, filter_kill=True), PLAN, POLICY)
    assert len(result.denials) == 1
    assert "ABI" in result.denials[0].target
