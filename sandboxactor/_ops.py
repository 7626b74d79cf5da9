"""The typed operations that every step compiles to: about a dozen, and the worker knows nothing else.

Each is one thing that sandboxactor/_worker does to itself or to its stem; the bytes are made in _wire.py.
"""

from __future__ import annotations

import enum
from typing import TypeAlias

import attrs


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
