"""The plan: which steps hold which guards, decided before anything runs.

Fail closed lives here and nowhere else: `missing = guards - covered - waived` is one set difference in one pure
function, tested by tables without a kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import attrs

from sandboxactor.errors import Missing, Unenforceable
from sandboxactor.spi import Backend, GroupFactory, Guard, Kind, Op, Phase, Step, Support

__all__ = ["Plan", "covered", "plan"]


@attrs.frozen
class Plan:
    """Who enforces what, in order. `enforced` names for each guard of the policy what really holds it."""

    kind: Kind
    steps: tuple[Step, ...]
    enforced: Mapping[Guard, str]
    waived: frozenset[Guard]

    @property
    def ops(self) -> tuple[Op, ...]:
        """Every operation of every step, in the order in which a worker goes through them."""
        return tuple(op for step in self.steps for op in step.ops)

    @property
    def groups(self) -> GroupFactory | None:
        """The source of control groups, if a step brings one."""
        return next((s.groups for s in self.steps if s.groups is not None), None)

    def describe(self) -> str:
        """The plan as people read it: one line a step, then one a guard."""
        lines = [f"plan for {self.kind} modules"]
        lines += [f"  {i}. {s.phase.name:<8}{s.backend:<12} {s.summary}" for i, s in enumerate(self.steps, 1)]
        lines.append("guards")
        lines += [f"  {g.name:<16} {label}" for g, label in sorted(self.enforced.items(), key=lambda i: i[0].name)]
        lines += [f"  {g.name:<16} WAIVED by the host" for g in sorted(self.waived, key=lambda g: g.name)]
        return "\n".join(lines)


def covered(steps: Iterable[Step]) -> dict[Guard, str]:
    """The guards that hold under these steps together, and the labels of all that takes part in holding each.

    A step that claims a guard names the holes it leaves; the guard holds if other steps close every one of them.
    """
    steps = tuple(steps)
    held: dict[Guard, list[str]] = {}
    for step in steps:
        for guard, holes in step.covers.items():
            closers = {hole: [s for s in steps if hole in s.closes] for hole in holes}
            if all(closers.values()):
                names = held.setdefault(guard, [])
                for s in (step, *(c[0] for _, c in sorted(closers.items()))):
                    if s.label not in names:
                        names.append(s.label)
    return {guard: " + ".join(names) for guard, names in held.items()}


def _without_spare_fallbacks(steps: Sequence[Step], wanted: frozenset[Guard]) -> tuple[Step, ...]:
    kept = list(steps)
    for step in [s for s in reversed(steps) if s.fallback]:
        fewer = [s for s in kept if s is not step]
        if covered(fewer).keys() & wanted == covered(kept).keys() & wanted:
            kept = fewer
    return tuple(kept)


def _explain_missing(guard: Guard, offers: Sequence[tuple[Backend, Support]], steps: Sequence[Step]) -> Missing:
    able = [(b, s) for b, s in offers if guard in b.guards]
    if not able:
        tried = ", ".join(b.name for b, _ in offers) or "none"
        remedy = "grant nothing that needs it, or name a backend that holds it in HostPolicy(backends=)"
        return Missing(guard, "no backend", f"none of the chosen backends holds it ({tried})", remedy)
    for backend, support in able:
        if not support.available:
            return Missing(guard, backend.name, support.reason, support.remedy)
    backend, support = able[0]
    open_holes = sorted({h for s in steps for h in s.covers.get(guard, ()) if not any(h in o.closes for o in steps)})
    reason = support.reason or (
        "it leaves open: " + ", ".join(open_holes) if open_holes else "it offers no step for this policy"
    )
    remedy = support.remedy or f"narrow the policy, or let the host waive it: HostPolicy(waive={{Guard.{guard.name}}})"
    return Missing(guard, backend.name, reason, remedy)


def plan(
    kind: Kind,
    guards: frozenset[Guard],
    offers: Sequence[tuple[Backend, Support, Sequence[Step]]],
    waived: frozenset[Guard] = frozenset(),
) -> Plan:
    """The plan for one kind of module, or Unenforceable with every guard that nothing on this host holds. Pure."""
    steps = [s for _, _, offered in offers for s in offered if kind in s.kinds]
    steps.sort(key=lambda s: s.phase)  # stable: within a phase, the registry's order
    chosen = _without_spare_fallbacks(steps, guards - waived)
    held = covered(chosen)
    missing = guards - held.keys() - waived
    faults = [_explain_missing(g, [(b, s) for b, s, _ in offers], steps) for g in sorted(missing)]
    runs = [s for s in chosen if s.phase is Phase.RUN]
    if len(runs) != 1:
        why = "no chosen backend runs this kind of module" if not runs else "several backends run this kind of module"
        faults.append(Missing(None, str(kind), why, "choose exactly one with HostPolicy(backends=)"))
    if sum(s.groups is not None for s in chosen) > 1:
        faults.append(Missing(None, str(kind), "several backends bring control groups", "choose one of them"))
    if faults:
        raise Unenforceable(faults)
    return Plan(kind, chosen, {g: held[g] for g in sorted(guards & held.keys())}, waived & (guards - held.keys()))
