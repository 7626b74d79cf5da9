"""Every built-in backend passes the conformance kit that plug-in authors run; a lying one does not."""

from __future__ import annotations

from collections.abc import Iterable

import attrs
import pytest

from sandboxactor import Guard, Policy, Unenforceable, _registry
from sandboxactor._plan import covered, plan
from sandboxactor.spi import Backend, Kind, Phase, Step, Support, freeze
from sandboxactor.testing import check_backend


@pytest.mark.parametrize("name", list(_registry.BUILTIN))
def test_built_in_conforms(name: str) -> None:
    """Probe without side effects, pure steps, masked means Unenforceable, every covered guard held under attack."""
    backend = _registry.load(name)
    attacked = check_backend(backend)
    support = _registry.probe(name)
    if support.available and name in ("landlock", "seccomp", "cgroups", "native"):
        assert attacked, f"{name} is there, but nothing of it was attacked"


@attrs.frozen
class Liar:
    """Claims a guard and does nothing."""

    name: str = "liar"
    guards: frozenset[Guard] = frozenset({Guard.NO_SPAWN})
    steady: bool = True

    def probe(self) -> Support:
        return Support(True, facts={"at": 0 if self.steady else object()})

    def steps(self, policy: Policy, support: Support) -> Iterable[Step]:
        yield Step("liar", Phase.CONFINE, "nothing", "does nothing", covers=freeze(no_spawn=[]))


def test_a_probe_that_changes_its_answer_is_caught() -> None:
    """Each probe() of a conforming backend gives the same answer."""
    with pytest.raises(AssertionError, match="repeat"):
        check_backend(Liar(steady=False))


def test_a_backend_that_claims_what_it_does_not_hold_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The attack decides: without seccomp, a backend that only claims NO_SPAWN lets a module fork."""
    kept = {k: v for k, v in _registry.BUILTIN.items() if k != "seccomp"}
    monkeypatch.setattr(_registry, "BUILTIN", kept)
    with pytest.raises(AssertionError, match="no_spawn does not hold"):
        check_backend(Liar())


def _step(
    covers: dict[Guard, frozenset[str]],
    closes: Iterable[str] = (),
    fallback: bool = False,
    phase: Phase = Phase.CONFINE,
) -> Step:
    return Step("b", phase, f"{sorted(covers)}{sorted(closes)}", "s", covers, frozenset(closes), fallback=fallback)


RUN = _step({}, phase=Phase.RUN)


class Table:
    """A backend of given steps."""

    name = "b"
    guards = frozenset(Guard)

    def probe(self) -> Support:
        return Support(True)

    def steps(self, policy: Policy, support: Support) -> Iterable[Step]:
        return ()


@pytest.mark.parametrize(
    ("steps", "holds"),
    [
        ([], set()),
        ([_step(freeze(no_spawn=[]))], {Guard.NO_SPAWN}),
        ([_step(freeze(no_spawn=["hole"]))], set()),
        ([_step(freeze(no_spawn=["hole"])), _step({}, ["hole"])], {Guard.NO_SPAWN}),
        ([_step(freeze(no_spawn=["a", "b"])), _step({}, ["a"])], set()),
        ([_step(freeze(no_spawn=["a", "b"])), _step({}, ["a"]), _step({}, ["b"])], {Guard.NO_SPAWN}),
        ([_step(freeze(no_spawn=["a"], network_off=[]))], {Guard.NETWORK_OFF}),
        ([_step(freeze(no_spawn=["a"])), _step(freeze(no_spawn=[]))], {Guard.NO_SPAWN}),
    ],
)
def test_a_guard_holds_only_with_every_hole_closed(steps: list[Step], holds: set[Guard]) -> None:
    """Coverage is honest: a claim with an open hole is no coverage."""
    assert set(covered(steps)) == holds


def _plan(steps: list[Step], guards: set[Guard], waived: frozenset[Guard] = frozenset()) -> list[Step]:
    backend: Backend = Table()
    return list(plan(Kind.NATIVE, frozenset(guards), [(backend, Support(True), [*steps, RUN])], waived).steps)


def test_missing_guards_all_come_at_once() -> None:
    """Unenforceable names every guard without a holder."""
    with pytest.raises(Unenforceable) as e:
        _plan([], {Guard.NO_SPAWN, Guard.CPU_MAX})
    assert {m.guard for m in e.value.missing} == {Guard.NO_SPAWN, Guard.CPU_MAX}
    assert all(m.reason and m.remedy and m.backend for m in e.value.missing)


def test_a_waived_guard_is_not_missing_and_is_shown_only_if_it_does_not_hold() -> None:
    """Degrading is the host's word; what holds all the same is not called waived."""
    made = plan(Kind.NATIVE, frozenset({Guard.CPU_MAX}), [(Table(), Support(True), [RUN])], frozenset({Guard.CPU_MAX}))
    assert made.waived == {Guard.CPU_MAX}
    held = [_step(freeze(cpu_max=[])), RUN]
    made = plan(Kind.NATIVE, frozenset({Guard.CPU_MAX}), [(Table(), Support(True), held)], frozenset({Guard.CPU_MAX}))
    assert made.waived == frozenset()
    assert Guard.CPU_MAX in made.enforced


def test_a_fallback_joins_only_where_it_is_needed() -> None:
    """A fallback step is left out while something else covers its guard, and taken when nothing does."""
    first, spare = _step(freeze(memory_max=[])), _step(freeze(memory_max=["x"]), fallback=True)
    closer = _step({}, ["x"], fallback=True)
    assert _plan([first, spare, closer], {Guard.MEMORY_MAX}) == [first, RUN]
    assert _plan([spare, closer], {Guard.MEMORY_MAX}) == [spare, closer, RUN]


def test_exactly_one_run_step() -> None:
    """No plan without a RUN step, and none with two."""
    backend: Backend = Table()
    for steps in ([], [RUN, RUN]):
        with pytest.raises(Unenforceable):
            plan(Kind.NATIVE, frozenset(), [(backend, Support(True), steps)])


def test_one_order() -> None:
    """LAUNCH, LIMIT, CONFINE, FILTER, RUN, whatever order the backends came in."""
    steps = [_step({}, phase=p) for p in (Phase.FILTER, Phase.LAUNCH, Phase.CONFINE, Phase.LIMIT)]
    assert [s.phase for s in _plan(steps, set())] == list(Phase)
