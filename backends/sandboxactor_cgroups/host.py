"""Probe and steps of control groups, v1 or v2."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from sandboxactor.errors import WorkerFault
from sandboxactor.spi import Group, Guard, Phase, Step, Support, freeze, removed_with_host
from sandboxactor_cgroups import places

if TYPE_CHECKING:
    from sandboxactor._policy import Policy
    from sandboxactor.spi import GroupFactory


def factory(version: int, folders: tuple[tuple[str, str], ...], policy: Policy) -> GroupFactory:
    """The factory of that version; each version's file is imported only where it is used."""
    if version == 1:
        from sandboxactor_cgroups import v1

        return v1.Factory(folders, policy)
    from sandboxactor_cgroups import v2

    return v2.Factory(folders[0][1], policy)


class CgroupsBackend:
    """Memory, CPU and tasks of the whole tree, by kernel counters."""

    name = "cgroups"
    guards = frozenset({Guard.MEMORY_MAX, Guard.CPU_MAX, Guard.PROCESSES_MAX})

    def probe(self) -> Support:
        """Makes a group with all limits set and read back, and removes it."""
        from sandboxactor._policy import Policy

        found = places.find()
        if not found.version:
            return Support(False, reason=found.reason, remedy=found.remedy)
        maker = factory(found.version, found.folders, Policy.strict())
        try:
            with removed_with_host(maker.bases):
                group: Group = maker.make(os.geteuid())
                group.close()
        except OSError as e:
            if e.errno in (errno.EMFILE, errno.ENFILE):
                raise WorkerFault("no file descriptor left to make a control group: raise RLIMIT_NOFILE") from e
            return Support(
                False, reason=f"a group cannot be made: {e}", remedy="run as root, or under a delegated cgroup"
            )
        finally:
            for base in maker.bases:
                places.remove_tree(base)
        where = ", ".join(folder for _, folder in found.folders)
        return Support(
            True,
            f"cgroup v{found.version}",
            covers=f"memory, CPU and tasks, counted for the whole tree, below {where}",
            facts={"version": found.version, "folders": found.folders},
        )

    def steps(self, policy: Policy, support: Support) -> Iterable[Step]:
        """One step: the worker is born into, or first joins, a group of its own."""
        version = int(str(support.facts["version"]))
        folders: tuple[tuple[str, str], ...] = support.facts["folders"]  # type: ignore[assignment]
        yield Step(
            backend=self.name,
            phase=Phase.LAUNCH,
            label=f"cgroup v{version}",
            summary=f"its own group: {policy.memory} bytes, {policy.cpu}m of a core, {policy.processes} tasks",
            covers=freeze(memory_max=[], cpu_max=[], processes_max=[]),
            groups=factory(version, folders, policy),
        )


BACKEND = CgroupsBackend()
