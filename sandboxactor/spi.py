"""The interface between the core and its backends: everything a backend may import.

A `Guard` is a property that must hold. A `Step` is one action that makes some guards hold. A `Backend` is a source of
steps: `probe()` really tries this host's kernel, `steps()` is pure. A step is data: it compiles to the few typed
operations below, which the worker executes in order or dies. The worker knows these operations and nothing of policy.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import attrs

from sandboxactor._fds import open_high
from sandboxactor._ops import (
    Bind,
    Birth,
    Filter,
    Identity,
    Landlock,
    Namespaces,
    Op,
    PathRule,
    Pivot,
    Place,
    Prctl,
    Rlimit,
    Root,
    Symlink,
    ThreadStack,
    Tmpfs,
)

if TYPE_CHECKING:
    from sandboxactor._policy import Policy

__all__ = [
    "NO_HOLES",
    "Backend",
    "Bind",
    "Birth",
    "Filter",
    "Group",
    "Guard",
    "Identity",
    "Kind",
    "Landlock",
    "Meter",
    "Namespaces",
    "Op",
    "PathRule",
    "Phase",
    "Place",
    "Pivot",
    "Prctl",
    "Rlimit",
    "Root",
    "SYSTEM_LIBRARIES",
    "Step",
    "Support",
    "Symlink",
    "ThreadStack",
    "Tmpfs",
    "attempt",
    "freeze",
    "open_high",
    "removed_with_host",
]


class Guard(enum.StrEnum):
    """A property that must hold while a module runs."""

    FILES_SCOPED = "files_scoped"
    FILES_HIDDEN = "files_hidden"
    NO_SPAWN = "no_spawn"
    NETWORK_OFF = "network_off"
    NETWORK_DOMAINS = "network_domains"
    MEMORY_MAX = "memory_max"
    CPU_MAX = "cpu_max"
    PROCESSES_MAX = "processes_max"
    WALL_TIME = "wall_time"
    OUTPUT_MAX = "output_max"
    IDENTITY = "identity"
    NO_NEW_PRIVS = "no_new_privs"


class Phase(enum.IntEnum):
    """The one order in the project: how a worker is born, limited, confined, filtered, and what it then runs."""

    LAUNCH = 1
    LIMIT = 2
    CONFINE = 3
    FILTER = 4
    RUN = 5


class Kind(enum.StrEnum):
    """What a worker runs."""

    NATIVE = "native"
    COMMAND = "command"
    WASM = "wasm"


NO_HOLES: frozenset[str] = frozenset()

# Where a dynamic loader looks: what "the system's libraries" means in every backend.
SYSTEM_LIBRARIES = (
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/local/lib",
    "/lib",
    "/lib32",
    "/lib64",
    "/etc/ld.so.cache",
)


@attrs.frozen
class Meter:
    """What the kernel's own counters said of one run; None where this host cannot measure it.

    `breaches` holds `(guard, limit, observed, evidence)`; `outside` names a kill that came from above our own limit.
    """

    memory_peak_bytes: int | None = None
    processes_peak: int | None = None
    throttled_s: float | None = None
    cpu_user_s: float | None = None
    cpu_system_s: float | None = None
    breaches: tuple[tuple[Guard, int, int | None, str], ...] = ()
    outside: str = ""


class Group(Protocol):
    """Host-side work around one worker at a time (a control group): made once, leased run after run, then removed.

    `attach` are descriptors to which the worker writes `0` to join; `clone_into` is a cgroup v2 directory descriptor or
    -1; `before` are (descriptor, bytes) written ahead of a run; `after` are descriptors read behind it, in the order
    that `collect` expects; `release` are (descriptor, bytes) written ahead of a kill, so that a throttled task can die.
    """

    attach: tuple[int, ...]
    clone_into: int
    before: tuple[tuple[int, bytes], ...]
    after: tuple[int, ...]
    release: tuple[tuple[int, bytes], ...]

    def collect(self, readings: tuple[bytes, ...]) -> Meter: ...

    def close(self) -> None: ...


class GroupFactory(Protocol):
    """Makes the groups of one plan. `bases` are directories that the zygote empties and removes if the host dies.
    `stem_group` opens the cgroup v2 folder that stems are cloned into (the caller closes it), or is -1."""

    @property
    def bases(self) -> tuple[str, ...]: ...

    def stem_group(self, uid: int) -> int: ...

    def make(self, uid: int) -> Group: ...


@attrs.frozen
class Step:
    """One action that makes some guards hold.

    `covers` maps each guard to the holes this step leaves open in it (names such as "chmod"): the guard holds only if
    other steps of the plan close every one of them (`closes`). `label` is what `Result.enforced` shows; `summary` is
    what `explain()` prints. A `fallback` step joins a plan only for a guard that nothing before it covers.
    """

    backend: str
    phase: Phase
    label: str
    summary: str
    covers: Mapping[Guard, frozenset[str]] = attrs.field(factory=dict)
    closes: frozenset[str] = NO_HOLES
    ops: tuple[Op, ...] = ()
    kinds: frozenset[Kind] = frozenset(Kind)
    fallback: bool = False
    groups: GroupFactory | None = None


@attrs.frozen
class Support:
    """What a probe found: `facts` are what `steps` needs, `reason` and `remedy` say what is missing and the cure."""

    available: bool
    version: str = ""
    covers: str = ""
    reason: str = ""
    remedy: str = ""
    facts: Mapping[str, object] = attrs.field(factory=dict)


@runtime_checkable
class Backend(Protocol):
    """A source of steps.

    `probe` really tries the primitive, has no side effects and never raises; the registry caches its answer for the
    process. `steps` is pure: the same policy and support give equal steps. `guards` are those it can ever cover: where
    it is not available, its reason and remedy explain them.
    """

    name: str
    guards: frozenset[Guard]

    def probe(self) -> Support: ...

    def steps(self, policy: Policy, support: Support) -> Iterable[Step]: ...


def attempt(ops: Sequence[Op]) -> str:
    """Whether this host can do these operations, tried in a stem that is then gone: "" or what failed. For probes."""
    from sandboxactor._launch import attempt as tried

    return str(tried(ops) or "")


@contextlib.contextmanager
def removed_with_host(folders: Sequence[str]) -> Iterator[None]:
    """While this lasts, the zygote empties and removes these folders if this process is killed. For probes that make
    groups; a plan's own are announced by the core."""
    from sandboxactor._launch import acquire, release

    hold = acquire()
    try:
        if hold.zygote is not None:
            hold.zygote.add_bases(folders)
        yield
    finally:
        release(hold)


def freeze(**holes: Iterable[str]) -> dict[Guard, frozenset[str]]:
    """`freeze(files_scoped=["chmod"])`: a `Step.covers` mapping, holes by guard."""
    return {Guard(name): frozenset(left) for name, left in holes.items()}
