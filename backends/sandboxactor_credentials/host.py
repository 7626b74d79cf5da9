"""Probe and steps of credentials(7) and capabilities(7)."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from sandboxactor.spi import Guard, Identity, Phase, Prctl, Step, Support, attempt, freeze

if TYPE_CHECKING:
    from sandboxactor._policy import Policy

PR_SET_NO_NEW_PRIVS = 38


class CredentialsBackend:
    """No new privileges, no capability, never the host's uid 0."""

    name = "credentials"
    guards = frozenset({Guard.IDENTITY, Guard.NO_NEW_PRIVS})

    def probe(self) -> Support:
        """Tries the very drop that a worker does."""
        root = os.geteuid() == 0
        failed = attempt(self._ops(root))
        if failed:
            return Support(
                False,
                reason=f"privileges cannot be given up: {failed}",
                remedy="give the host CAP_SETUID, CAP_SETGID and an id map with uid 1778384896, or be an ordinary user",
            )
        return Support(
            True,
            "root drops to its own ids" if root else f"ordinary user {os.geteuid()}",
            covers="no_new_privs, empty capability sets, ids; leaves signals between workers to others",
            facts={"root": root},
        )

    def _ops(self, root: bool) -> tuple[Prctl, Identity]:
        return Prctl(PR_SET_NO_NEW_PRIVS, 1), Identity(change=root)

    def steps(self, policy: Policy, support: Support) -> Iterable[Step]:
        """One step, in the order in which the kernel needs it: no_new_privs, then the drop."""
        root = bool(support.facts["root"])
        yield Step(
            backend=self.name,
            phase=Phase.CONFINE,
            label="credentials",
            summary="no_new_privs, no capability, "
            + ("ids of its own, no groups" if root else "the host's ordinary user"),
            covers=freeze(identity=["signals"], no_new_privs=[]),
            ops=self._ops(root),
        )


BACKEND = CredentialsBackend()
