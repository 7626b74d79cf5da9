"""Probe and steps of the native kind: the one RUN step for `.so` Actions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from sandboxactor.spi import Guard, Kind, Phase, Step, Support, attempt, freeze

if TYPE_CHECKING:
    from sandboxactor._policy import Policy


class NativeBackend:
    """Loads a shared library in a one-shot worker, and holds its time and its answer."""

    name = "native"
    guards = frozenset({Guard.WALL_TIME, Guard.OUTPUT_MAX})

    def probe(self) -> Support:
        """Whether the worker starts and a stem comes up on this host."""
        failed = attempt([])
        if failed:
            return Support(
                False,
                reason=f"no worker can be started: {failed}",
                remedy="install the package for this platform and libc",
            )
        return Support(
            True, "two-symbol ABI", covers="wall time by the host's clock, the answer's size by sealed memory"
        )

    def steps(self, policy: Policy, support: Support) -> Iterable[Step]:
        """Run it: nothing is set here, all of it is the host's own doing around the worker."""
        yield Step(
            backend=self.name,
            phase=Phase.RUN,
            label="native worker",
            summary=f"dlopen and execute; SIGKILL after {policy.timeout} s; an answer of at most {policy.output} bytes",
            covers=freeze(wall_time=[], output_max=[]),
            kinds=frozenset({Kind.NATIVE}),
        )


BACKEND = NativeBackend()
