"""The interface between the core and its backends: everything a backend may import.

A `Guard` is a property that must hold. A `Step` is one action that makes some guards hold. A `Backend` is a source of
steps: `probe()` really tries this host's kernel, `steps()` is pure. A step is data: it compiles to the few typed
operations below, which the worker executes in order or dies. The worker knows these operations and nothing of policy.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

import attrs

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


class Place(enum.StrEnum):
    """A path of a plan that only a run can name; a step holds the place, the launch binds it."""

    SELF = "{self}"  # the folder of the resolved module
    MODULE = "{module}"  # the resolved module file


@attrs.frozen
class Rlimit:
    """setrlimit(2), soft and hard alike. `above_now` adds the worker's present address space (RLIMIT_AS), in bytes.
    `shared` says that the stem itself can live under the limit and hand it on."""

    resource: int
    value: int
    above_now: bool = False
    shared: bool = False


@attrs.frozen
class Prctl:
    """prctl(2) with two arguments. `shared` says that a forked child inherits the effect."""

    option: int
    argument: int = 0
    shared: bool = True


@attrs.frozen
class Identity:
    """Give up every privilege: capabilities of all five sets, securebits locked; with `change` also the host's user: no
    supplementary groups, the sandbox's uid and gid (for a host that is root)."""

    change: bool


@attrs.frozen
class Namespaces:
    """New namespaces (CLONE_NEW* flags) around the stem; with CLONE_NEWUSER the present ids map to themselves."""

    flags: int


@attrs.frozen
class Birth:
    """New namespaces (CLONE_NEW* flags) that each worker is cloned into, one of its own a run."""

    flags: int


@attrs.frozen
class Root:
    """An empty tmpfs that becomes the new root; the mounts that follow are relative to it until `Pivot`."""


@attrs.frozen
class Bind:
    """A detached copy of the mount at `source` (recursive), attached at `target`: nosuid, nodev, read-only unless
    `writable`, noexec unless `executable`, its owner mapped to the sandbox's user where the host is root
    (mount_setattr(2), `idmap`). A missing source is a fault unless `optional`."""

    source: str
    target: str
    writable: bool = False
    executable: bool = True
    idmap: bool = False
    optional: bool = False


@attrs.frozen
class Tmpfs:
    """A tmpfs of its own for each worker, bounded in bytes and inodes: nosuid, nodev, noexec unless `executable`. What
    the plan bound below `target` (of the paths in `keep`) stays visible there."""

    target: str
    size: int
    inodes: int
    executable: bool = False
    keep: tuple[str, ...] = ()


@attrs.frozen
class Symlink:
    """A symbolic link in the new root (the merged /lib of today's systems)."""

    target: str
    path: str


@attrs.frozen
class Pivot:
    """pivot_root(2) to the new root, made read-only, and the old one detached."""


@attrs.frozen
class PathRule:
    """Landlock: what is allowed below one path. A missing path is skipped, since nothing below it can be reached."""

    path: str
    access: int


@attrs.frozen
class Landlock:
    """A ruleset, built once by the stem; each worker enforces it in a domain of its own (landlock(7))."""

    handled_fs: int
    handled_net: int
    scoped: int
    rules: tuple[PathRule, ...]


@attrs.frozen
class Filter:
    """A seccomp filter, classic BPF as struct sock_filter. `inherited`: the stem installs it and its workers are born
    with it; otherwise each worker installs it after its payload is mapped. `open` is the same filter, but lets another
    one be installed behind it: used for all but the last. `pid_slot` and `key_slot` are 32- and 64-bit constants in the
    program that stand for the worker's own pid and for the stem's secret."""

    bpf: bytes
    open: bytes
    inherited: bool
    pid_slot: int = 0
    key_slot: int = 0


@attrs.frozen
class ThreadStack:
    """Default stack of a new thread, in bytes (pthread_setattr_default_np(3))."""

    size: int


Op: TypeAlias = (
    Rlimit
    | Prctl
    | Identity
    | Namespaces
    | Birth
    | Root
    | Bind
    | Tmpfs
    | Symlink
    | Pivot
    | Landlock
    | Filter
    | ThreadStack
)

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


def freeze(**holes: Iterable[str]) -> dict[Guard, frozenset[str]]:
    """`freeze(files_scoped=["chmod"])`: a `Step.covers` mapping, holes by guard."""
    return {Guard(name): frozenset(left) for name, left in holes.items()}
