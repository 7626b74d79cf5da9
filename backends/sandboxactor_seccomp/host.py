"""Probe and steps of seccomp(2)."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from typing import TYPE_CHECKING

import attrs

from sandboxactor.spi import Filter, Guard, Kind, Phase, Prctl, Step, Support, attempt, freeze
from sandboxactor_seccomp import filters

if TYPE_CHECKING:
    from sandboxactor._policy import Policy

ALWAYS_CLOSED = frozenset(
    {
        "chown",
        "xattr",
        "mknod",
        "unix-path",
        "ioctl-dev",
        "growsdown",
        "memfd",
        "sysv-ipc",
        "message-queues",
        "pipe-size",
    }
)
CLOSED_UNLESS_WRITING = frozenset({"chmod", "utime", "truncate", "record-locks"})


class SeccompBackend:
    """An allow list of system calls: no socket, no process, no call that changes metadata, no other ABI."""

    name = "seccomp"
    guards = frozenset({Guard.NO_SPAWN, Guard.NETWORK_OFF})

    def probe(self) -> Support:
        """Builds the native filter and really installs it in a process that is then gone."""
        if platform.machine() not in filters.AUDIT_ARCH:
            return Support(False, reason=f"no profile for {platform.machine()}", remedy="use x86_64 or aarch64")
        try:
            import pyseccomp

            bpf = filters.native(filters.Profile(False, False, True))
            api = pyseccomp.get_api()
        except (ImportError, RuntimeError, OSError) as e:
            return Support(False, reason=f"libseccomp cannot be used: {e}", remedy="apt-get install libseccomp2")
        failed = attempt([Prctl(38, 1), Filter(bpf, bpf, True, key_slot=filters.KEY_SLOT)])
        if failed:
            return Support(
                False,
                reason=f"the kernel refuses a filter: {failed}",
                remedy="boot a kernel with CONFIG_SECCOMP_FILTER",
            )
        return Support(
            True,
            f"libseccomp API {api}, {len(bpf) // 8} instructions",
            covers="no socket of any family, no process, no metadata change, no other ABI",
        )

    def steps(self, policy: Policy, support: Support) -> Iterable[Step]:
        """The filter a worker is born with, and as a fallback a second one that it installs itself."""
        writing = bool(policy.tmp or policy.workspace)
        profile = filters.Profile(writing, policy.spawn, keyed=True)
        covers: dict[str, tuple[str, ...]] = {}
        if not policy.spawn:
            covers["no_spawn"] = ()
        if not policy.network:
            covers["network_off"] = ()
        bpf = filters.native(profile)
        yield Step(
            backend=self.name,
            phase=Phase.FILTER,
            label="seccomp",
            summary=f"an allow list of {len(bpf) // 8} instructions: no socket"
            + ("" if policy.spawn else ", no process")
            + (", metadata in granted trees" if writing else ", no metadata change"),
            covers=freeze(**covers),
            closes=ALWAYS_CLOSED if writing else ALWAYS_CLOSED | CLOSED_UNLESS_WRITING,
            ops=(Filter(bpf, filters.native(attrs.evolve(profile, open=True)), True, key_slot=filters.KEY_SLOT),),
            kinds=frozenset({Kind.NATIVE}),
        )
        for hole, summary in (("shared-memory", "no shared maps, no locks"), ("signals", "signals to itself alone")):
            shared, signals = hole == "shared-memory", hole == "signals"
            yield Step(
                backend=self.name,
                phase=Phase.FILTER,
                label=f"seccomp ({summary})",
                summary=f"a second filter of each worker's own: {summary}",
                closes=frozenset({hole, "record-locks"} if shared else {hole}),
                ops=(
                    Filter(
                        filters.late(shared, signals, False),
                        filters.late(shared, signals, True),
                        inherited=False,
                        pid_slot=filters.PID_SLOT if signals else 0,
                    ),
                ),
                kinds=frozenset({Kind.NATIVE}),
                fallback=True,
            )


BACKEND = SeccompBackend()
