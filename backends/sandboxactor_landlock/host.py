"""Probe and steps of Landlock. See the package's docstring for what it can and cannot hold."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from sandboxactor.spi import (
    SYSTEM_LIBRARIES,
    Guard,
    Kind,
    Landlock,
    PathRule,
    Phase,
    Place,
    Step,
    Support,
    attempt,
    freeze,
)
from sandboxactor_landlock import abi
from sandboxactor_landlock.uapi import version

if TYPE_CHECKING:
    from sandboxactor._policy import Policy

REMEDY = "boot a kernel of 5.13 or later with landlock in its lsm= list (CONFIG_LSM), outside of a filter that hides it"


class LandlockBackend:
    """Files by path, and from ABI 6 on signals, for a domain of each worker's own."""

    name = "landlock"
    guards = frozenset({Guard.FILES_SCOPED})

    def probe(self) -> Support:
        """The ABI version, and whether a ruleset can really be made."""
        found = abi.row(version())
        if found is None:
            return Support(False, reason="this kernel offers no Landlock", remedy=REMEDY)
        failed = attempt([Landlock(found.fs, found.net, found.scoped, (PathRule("/usr", abi.READ),))])
        if failed:
            return Support(False, reason=f"a ruleset cannot be made: {failed}", remedy=REMEDY)
        return Support(
            True,
            f"ABI {found.version}",
            covers=f"{found.note}; leaves to others: {', '.join(sorted(found.leaves))}",
            facts={"abi": found.version},
        )

    def steps(self, policy: Policy, support: Support) -> Iterable[Step]:
        """One step: the module's folder and the libraries to read, what the policy grants beyond, and nothing else."""
        found = abi.row(int(str(support.facts["abi"])))
        assert found is not None  # the probe said so
        execute = abi.EXECUTE if policy.spawn else 0
        rules = [PathRule(p, abi.READ | execute) for p in SYSTEM_LIBRARIES]
        rules += [PathRule(p, abi.READ | execute) for p in policy.read]
        writable = [p for p in ("/tmp" if policy.tmp else None, policy.workspace) if p]
        rules += [PathRule(p, (abi.READ | abi.WRITE | execute) & found.fs) for p in writable]
        own = PathRule(Place.SELF.value, abi.READ | execute)
        # In a granted tree chmod and utimes are at home, and seccomp lets them pass: another wall must hold them.
        leaves = found.leaves | ({"bounded-tmp"} if policy.tmp else set())
        yield Step(
            backend=self.name,
            phase=Phase.CONFINE,
            label=f"landlock ABI {found.version}",
            summary=f"a domain with {len(rules) + 1} rules: reads the module's folder and the libraries"
            + (f", writes {', '.join(writable)}" if writable else ", writes nothing"),
            covers=freeze(files_scoped=leaves),
            closes=frozenset({"signals"}) if found.scoped & abi.SCOPE_SIGNAL else frozenset(),
            ops=(Landlock(found.fs, found.net if not policy.network else 0, found.scoped, (own, *rules)),),
            kinds=frozenset({Kind.NATIVE}),
        )


BACKEND = LandlockBackend()
