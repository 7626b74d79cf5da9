"""What a module does gets the outcome of contract.md, on this kernel; the host and the next run are unharmed."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from escapes.confined import counted, host, need
from modules.behaviours import BEHAVIOURS, HANGS, Behaviour

from sandboxactor import Guard, ModuleFailed, Outcome, Policy, Result, Sandbox

MIB = 1 << 20
TIMEOUT = 1.0
NOISE_S = 0.5  # beyond the promised 250 ms: the machines that run this are shared
# What the kernel can tell, and the contract therefore promises, where behaviours.py leaves two outcomes open.
EXACT = {b"sigsys": "crashed"}


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    with Sandbox(Policy.strict(timeout=TIMEOUT, cpu="2000m"), host=host()) as made:
        yield made


def machine() -> dict[str, object]:
    """What no run may change in its host."""
    return {
        "files": sorted(os.listdir("/proc/self/fd")),
        "handlers": {s: signal.getsignal(s) for s in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGINT)},
        "mask": signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        "folder": os.getcwd(),
        "threads": threading.active_count(),
        "environment": dict(os.environ),
    }


def judged(case: Behaviour, result: Result) -> None:
    assert result.outcome in (EXACT.get(case.payload, result.outcome),)
    assert result.outcome in case.outcomes, result
    if result.outcome is Outcome.TIMEOUT:
        assert result.breach is not None
        assert result.breach.guard is Guard.WALL_TIME
        assert TIMEOUT <= result.usage.wall_s <= TIMEOUT + 0.25 + NOISE_S
    elif result.outcome is Outcome.OUTPUT:
        assert result.breach is not None
        assert result.breach.guard is Guard.OUTPUT_MAX
    elif len(case.outcomes) == 1:
        assert (result.code, result.signal) == (case.code, case.signal)
    assert (result.reason == "") == result.ok
    if result.ok and case.output is not None:
        assert re.fullmatch(case.output, result.output, re.S), result.output[:200]
    if not result.ok:
        with pytest.raises(ModuleFailed):
            _ = result.output


@pytest.mark.parametrize("case", BEHAVIOURS, ids=lambda c: c.id)
def test_behaviour(case: Behaviour, box: Sandbox, modules: dict[str, Path]) -> None:
    """Each behaviour ends in its outcome, in time; the host is as before and the next run is fine."""
    box.run(modules[case.module], b"echo:before")
    before = machine()
    began = time.monotonic()
    result = box.run(modules[case.module], case.payload)
    assert time.monotonic() - began <= TIMEOUT + 0.25 + 2 * NOISE_S
    judged(case, result)
    assert box.run(modules["verdicts"], b"echo:after").output == b"after"
    if case.status is not HANGS:  # a lane whose worker had to be killed is replaced: other numbers
        after = machine()
        before.pop("files"), after.pop("files")
        assert after == before


def test_every_outcome_of_a_module_is_met() -> None:
    """The table misses no outcome that a native module can bring about by itself."""
    met = {outcome for case in BEHAVIOURS for outcome in case.outcomes}
    assert met == {str(o) for o in Outcome} - {"memory", "cancelled"}


def test_own_sigsys_is_a_crash_and_a_filters_kill_a_denial(box: Sandbox, modules: dict[str, Path]) -> None:
    """The kernel tells a SIGSYS that the module sent itself from one that a filter sent; only the latter is listed."""
    own = box.run(modules["verdicts"], b"sigsys")
    assert (own.outcome, own.signal, own.denials) == (Outcome.CRASHED, signal.SIGSYS, ())
    filtered = box.run(modules["verdicts"], b"badabi")
    assert (filtered.outcome, filtered.signal) == (Outcome.DENIED, signal.SIGSYS)
    assert len(filtered.denials) == 1


def test_free_is_called_exactly_once(box: Sandbox, modules: dict[str, Path]) -> None:
    """The module's answer is given back to it once, with its length."""
    assert box.run(modules["verdicts"], b"freecount").stderr == b"free called 1 times, 10 bytes\n"


def test_memory_breach_has_a_counter(modules: dict[str, Path]) -> None:
    """200 MiB in 64 MiB: `memory`, by the counter of the run's own group; the next run has all of it again."""
    need(counted(), "control groups")
    with Sandbox(Policy.strict(memory="64MiB", cpu="2000m"), host=host()) as limited:
        for _ in range(2):
            result = limited.run(modules["verdicts"], b"alloc:200")
            assert result.outcome is Outcome.MEMORY
            assert result.breach is not None
            assert (result.breach.guard, result.breach.limit) == (Guard.MEMORY_MAX, 64 * MIB)
            assert result.breach.evidence
            assert result.usage.memory_peak_bytes is not None
            assert 60 * MIB <= result.usage.memory_peak_bytes <= 64 * MIB
            assert limited.run(modules["verdicts"], b"alloc:48").output == b"alloc=48 errno=0\n"


def test_memory_without_a_counter_is_enomem(modules: dict[str, Path]) -> None:
    """Where no group counts, the module meets ENOMEM, its outcome is its own, and `memory` is never claimed."""
    with Sandbox(Policy.strict(memory="64MiB"), host=host({"cgroups"})) as limited:
        result = limited.run(modules["verdicts"], b"alloc:200")
        assert (result.outcome, result.breach) == (Outcome.OK, None)
        got = re.fullmatch(rb"alloc=(\d+) errno=12\n", result.output)
        assert got is not None
        assert 40 <= int(got[1]) <= 64


def test_cpu_is_held(modules: dict[str, Path]) -> None:
    """A tenth of a core: two seconds of spinning cost a fifth of a second, and the throttling is in the usage."""
    need(counted(), "control groups")
    with Sandbox(Policy.strict(cpu="100m", timeout=2), host=host()) as limited:
        result = limited.run(modules["verdicts"], b"hang")
    assert result.outcome is Outcome.TIMEOUT
    assert result.usage.cpu_user_s is not None
    assert result.usage.cpu_system_s is not None
    assert 0.1 <= result.usage.cpu_user_s + result.usage.cpu_system_s <= 0.35
    assert result.usage.throttled_s is not None
    assert result.usage.throttled_s > 0
    assert result.usage.wall_s <= 2.25 + NOISE_S


def test_threads_share_the_cpu_limit(modules: dict[str, Path]) -> None:
    """Many spinning threads get no more than one: the limit is the tree's."""
    need(counted(), "control groups")
    with Sandbox(Policy.strict(cpu="100m", timeout=10), host=host()) as limited:
        began = time.monotonic()
        result = limited.run(modules["verdicts"], b"burn:300")
        assert result.ok
        assert time.monotonic() - began >= 1.5
        assert limited.run(modules["verdicts"], b"bgthreads:8").usage.cpu_user_s < 1  # type: ignore[operator]


@pytest.mark.parametrize("limit", [1, 2, 7])
@pytest.mark.parametrize("without", ["", "cgroups"])
def test_exactly_so_many_tasks(limit: int, without: str, modules: dict[str, Path]) -> None:
    """`processes=N` gives N tasks, the main thread among them; with a counter the refusal is a breach of the run."""
    need(without or counted(), "control groups")
    with Sandbox(Policy.strict(processes=limit), host=host([without])) as limited:
        result = limited.run(modules["verdicts"], b"threads:20")
        assert result.output == b"threads=%d errno=11\n" % (limit - 1)
        assert limited.run(modules["verdicts"], b"threads:0").breach is None
    if without:
        assert result.breach is None
    else:
        assert result.breach is not None
        assert (result.breach.guard, result.breach.limit) == (Guard.PROCESSES_MAX, limit)


def test_answer_up_to_the_limit_and_no_further(modules: dict[str, Path]) -> None:
    """An answer of exactly `output` bytes is whole; one byte more is `output`, with what was seen."""
    for limit in (4096, 256 * 1024, 256 * 1024 + 1, MIB + 3):
        with Sandbox(Policy.strict(output=limit), host=host()) as limited:
            whole = limited.run(modules["verdicts"], b"big:%d" % limit)
            assert whole.output == b"Z" * limit
            assert whole.usage.output_bytes == limit
            more = limited.run(modules["verdicts"], b"big:%d" % (limit + 1))
            assert more.outcome is Outcome.OUTPUT
            assert more.breach is not None
            assert (more.breach.guard, more.breach.limit, more.breach.observed) == (Guard.OUTPUT_MAX, limit, None)


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_floods_are_cut_and_cost_the_host_nothing(modules: dict[str, Path]) -> None:
    """64 MiB on each of stdout and stderr: the first `output` bytes kept, flagged; the host does not grow."""
    with Sandbox(Policy.strict(output="1MiB", cpu="2000m", timeout=30), host=host()) as limited:
        limited.run(modules["verdicts"], b"flood:2")
        before = _resident()
        for _ in range(3):
            result = limited.run(modules["verdicts"], b"flood:64")
            assert result.output == b"flood=67108864 67108864 errno=0\n"
            assert result.truncated
            assert result.stdout == result.stderr == b"A" * MIB
        assert _resident() - before < 8 * MIB
        small = limited.run(modules["verdicts"], b"write:1:text")
        assert (small.stdout, small.stderr, small.truncated) == (b"text", b"", False)


def test_standard_input_is_at_its_end(box: Sandbox, modules: dict[str, Path]) -> None:
    """A native module reads nothing from descriptor 0, at once: it is not the host's terminal."""
    result = box.run(modules["verdicts"], b"stdin")
    assert result.output == b"stdin=0 errno=0\n"
    assert result.usage.wall_s < 0.5


def test_deadline_counts_constructors(modules: dict[str, Path]) -> None:
    """A constructor that never ends is a timeout of the run, not a hang of the host."""
    with Sandbox(Policy.strict(timeout="300ms"), host=host()) as hurried:
        result = hurried.run(modules["ctor_hang"])
    assert result.outcome is Outcome.TIMEOUT
    assert 0.3 <= result.usage.wall_s <= 0.55 + NOISE_S


def test_throttled_module_still_dies_in_time(modules: dict[str, Path]) -> None:
    """The smallest CPU share does not delay the kill: the quota is lifted first."""
    need(counted(), "control groups")
    with Sandbox(Policy.strict(timeout="500ms", cpu="10m"), host=host()) as slow:
        result = slow.run(modules["verdicts"], b"hang_masked")
    assert result.outcome is Outcome.TIMEOUT
    assert result.usage.wall_s <= 0.75 + NOISE_S
