"""Probe and steps of the stem's namespaces: a minimal root of its own."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from sandboxactor.spi import (
    SYSTEM_LIBRARIES,
    Bind,
    Birth,
    Guard,
    Kind,
    Namespaces,
    Op,
    Phase,
    Pivot,
    Place,
    Root,
    Step,
    Support,
    Symlink,
    Tmpfs,
    attempt,
    freeze,
)

if TYPE_CHECKING:
    from sandboxactor._policy import Policy

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID = 0x10000000, 0x20000000
AROUND = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID

# A file costs about a kilobyte of kernel memory: one inode for each 16 KiB keeps a full /tmp below a tenth more.
TMP_BYTES_PER_INODE = 16384


class NamespacesBackend:
    """Mount, pid, IPC and UTS namespaces; a user namespace around them where the host is no root."""

    name = "namespaces"
    guards = frozenset({Guard.FILES_SCOPED, Guard.FILES_HIDDEN})

    def probe(self) -> Support:
        """Really makes the namespaces, a new root with one bind in it, and pivots."""
        root = os.geteuid() == 0
        around = AROUND if root else AROUND | CLONE_NEWUSER
        failed = attempt([Namespaces(around), Root(), Bind("/usr/lib", "/usr/lib"), Pivot()])
        if failed:
            return Support(
                False,
                reason=f"namespaces cannot be made: {failed}",
                remedy="run outside of a filter that refuses clone and mount (Docker: --security-opt "
                "seccomp=unconfined --cap-add SYS_ADMIN), or allow unprivileged user namespaces "
                "(sysctl kernel.apparmor_restrict_unprivileged_userns=0 on Ubuntu)",
            )
        links = tuple((p, os.readlink(p)) for p in SYSTEM_LIBRARIES if os.path.islink(p))
        return Support(
            True,
            "mount, pid, ipc, uts" + ("" if root else ", user"),
            covers="files outside the grant are not there at all",
            facts={"root": root, "around": around, "links": links},
        )

    def steps(self, policy: Policy, support: Support) -> Iterable[Step]:
        """The new root; and for a granted /tmp a mount namespace of each worker's own."""
        root = bool(support.facts["root"])
        links: dict[str, str] = dict(support.facts["links"])  # type: ignore[call-overload]
        binds = [Bind(p, p, executable=True, optional=True) for p in SYSTEM_LIBRARIES if p not in links]
        own = [
            Bind(Place.SELF.value, Place.SELF.value, idmap=root),
            Bind(Place.MODULE.value, Place.MODULE.value, idmap=root),
        ]
        read = [Bind(p, p, executable=policy.spawn, idmap=root) for p in policy.read]
        if policy.workspace:
            read.append(Bind(policy.workspace, policy.workspace, writable=True, executable=policy.spawn, idmap=root))
        ops: list[Op] = [Namespaces(int(str(support.facts["around"]))), Root(), *binds, *read, *own]
        ops += [Symlink(target, path) for path, target in links.items()]
        ops.append(Pivot())
        if policy.tmp:
            kept = (Place.SELF.value, *(b.target for b in read))
            ops += [
                Birth(CLONE_NEWNS),
                Tmpfs("/tmp", policy.tmp, max(16, policy.tmp // TMP_BYTES_PER_INODE), keep=kept),
            ]
        if policy.spawn:
            ops.append(Birth(CLONE_NEWPID))  # whatever it starts ends with it
        yield Step(
            backend=self.name,
            phase=Phase.LAUNCH,
            label="mount namespace",
            summary="a root of its own: the libraries and the module's folder, read-only"
            + (f"; {policy.workspace} writable" if policy.workspace else "")
            + (f"; /tmp of {policy.tmp} bytes" if policy.tmp else ""),
            covers=freeze(files_scoped=[], files_hidden=[]),
            closes=frozenset({"bounded-tmp"}),
            ops=tuple(ops),
            kinds=frozenset({Kind.NATIVE}),
        )


BACKEND = NamespacesBackend()
