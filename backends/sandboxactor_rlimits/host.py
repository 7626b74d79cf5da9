"""Probe and steps of setrlimit(2)."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterable
from typing import TYPE_CHECKING

from sandboxactor.spi import (
    Birth,
    Guard,
    Identity,
    Kind,
    Namespaces,
    Op,
    Phase,
    Prctl,
    Rlimit,
    Step,
    Support,
    ThreadStack,
    attempt,
    freeze,
)

if TYPE_CHECKING:
    from sandboxactor._policy import Policy

CLONE_NEWUSER = 0x10000000
RLIMIT_SIGPENDING, RLIMIT_MSGQUEUE, RLIMIT_NICE, RLIMIT_RTPRIO = 11, 12, 13, 14
KIB, MIB = 1 << 10, 1 << 20

# Images of the module, its libraries and their arenas are address space, but RLIMIT_DATA does not count them: the slack
# covers them. It is memory too if the module maps it read-only. Page tables count against nothing: one page mapped in
# each of many far places costs up to two more in tables (162 MiB of them were had with memory=16MiB).
IMAGE_SLACK = 32 * MIB
MEMORY_HOLES = ("shared-memory", "growsdown", "memfd", "sysv-ipc", "message-queues", "pipe-size", "record-locks")

ALWAYS: tuple[Rlimit, ...] = (
    Rlimit(resource.RLIMIT_CORE, 0, shared=True),
    Rlimit(resource.RLIMIT_NOFILE, 1024),
    Rlimit(resource.RLIMIT_MEMLOCK, 64 * KIB, shared=True),
    Rlimit(RLIMIT_SIGPENDING, 256, shared=True),
    Rlimit(RLIMIT_MSGQUEUE, 0, shared=True),
    Rlimit(RLIMIT_NICE, 0, shared=True),
    Rlimit(RLIMIT_RTPRIO, 0, shared=True),
)


class RlimitsBackend:
    """Limits of one process: small ones always; memory and tasks where no control group counts them."""

    name = "rlimits"
    guards = frozenset({Guard.MEMORY_MAX, Guard.PROCESSES_MAX})

    def probe(self) -> Support:
        """Limits are always there; whether a worker may have a user namespace of its own decides about tasks."""
        failed = attempt([Namespaces(CLONE_NEWUSER), Prctl(38, 1), Identity(change=False)])
        reason = f"a user namespace of the worker's own cannot be made ({failed})" if failed else ""
        return Support(
            True,
            "setrlimit",
            covers="memory of a native module together with seccomp; tasks "
            + ("not: " + reason if failed else "in a user namespace"),
            reason=reason,
            remedy="allow unprivileged user namespaces (sysctl kernel.apparmor_restrict_unprivileged_userns=0 or "
            "kernel.unprivileged_userns_clone=1), or delegate a cgroup"
            if failed
            else "",
            facts={"userns": not failed, "root": os.geteuid() == 0},
        )

    def steps(self, policy: Policy, support: Support) -> Iterable[Step]:
        """The small limits; and two fallbacks that a plan takes only where no control group holds the guard."""
        yield Step(
            backend=self.name,
            phase=Phase.LIMIT,
            label="rlimits",
            summary="no core file, 1024 descriptors, no locked memory, no real-time priority",
            ops=ALWAYS,
        )
        if policy.spawn:
            return  # memory is held of each process alone, not of their sum: a tree needs a control group for all of it
        # Files in /tmp are memory too: what it may hold is taken off.
        private = policy.memory - (policy.tmp or 0)
        holes = MEMORY_HOLES if private >= 4 * MIB else (*MEMORY_HOLES, "a /tmp as large as the memory")
        memory: tuple[Op, ...] = (
            Rlimit(resource.RLIMIT_DATA, max(private, 0)),
            Rlimit(resource.RLIMIT_AS, max(private, 0) + IMAGE_SLACK, above_now=True),
            Rlimit(resource.RLIMIT_NOFILE, 64),
            Rlimit(resource.RLIMIT_STACK, min(8 * MIB, max(private // 4, 256 * KIB))),
            ThreadStack(256 * KIB),
        )
        yield Step(
            backend=self.name,
            phase=Phase.LIMIT,
            label="RLIMIT_DATA and RLIMIT_AS (page tables uncounted)",
            summary=f"{private} bytes of private memory and {private + IMAGE_SLACK} of address space, page tables "
            "uncounted; a breach is ENOMEM",
            covers=freeze(memory_max=holes),
            ops=memory,
            kinds=frozenset({Kind.NATIVE}),
            fallback=True,
        )
        # A /tmp of the worker's own is mounted with root's privileges, which are gone in a user namespace.
        if support.facts["userns"] and not (support.facts["root"] and policy.tmp):
            yield Step(
                backend=self.name,
                phase=Phase.LIMIT,
                label="RLIMIT_NPROC in a user namespace",
                summary=f"{policy.processes} tasks, counted in a user namespace of the worker's own",
                covers=freeze(processes_max=[]),
                ops=(Birth(CLONE_NEWUSER), Rlimit(resource.RLIMIT_NPROC, policy.processes)),
                kinds=frozenset({Kind.NATIVE}),
                fallback=True,
            )


BACKEND = RlimitsBackend()
