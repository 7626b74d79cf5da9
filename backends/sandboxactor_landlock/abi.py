"""Landlock's ABI versions as rows: what each added, and what a ruleset of that version still cannot hold.

Source: Documentation/userspace-api/landlock.rst of the kernel; each row was tried on a kernel that has it (1 to 7).
"""

from __future__ import annotations

import attrs

EXECUTE = 1 << 0
WRITE_FILE = 1 << 1
READ_FILE = 1 << 2
READ_DIR = 1 << 3
REMOVE_DIR = 1 << 4
REMOVE_FILE = 1 << 5
MAKE_CHAR = 1 << 6
MAKE_DIR = 1 << 7
MAKE_REG = 1 << 8
MAKE_SOCK = 1 << 9
MAKE_FIFO = 1 << 10
MAKE_BLOCK = 1 << 11
MAKE_SYM = 1 << 12
REFER = 1 << 13
TRUNCATE = 1 << 14
IOCTL_DEV = 1 << 15
BIND_TCP, CONNECT_TCP = 1 << 0, 1 << 1
SCOPE_ABSTRACT_UNIX, SCOPE_SIGNAL = 1 << 0, 1 << 1

READ = READ_FILE | READ_DIR
WRITE = (
    WRITE_FILE | REMOVE_DIR | REMOVE_FILE | MAKE_DIR | MAKE_REG | MAKE_SOCK | MAKE_FIFO | MAKE_SYM | REFER | TRUNCATE
)  # never MAKE_CHAR or MAKE_BLOCK: a device is no file of the module's

# What no version mediates on a path that can be reached: other layers must close it.
NEVER = frozenset({"chmod", "chown", "utime", "xattr", "mknod", "unix-path"})


@attrs.frozen
class Row:
    """One ABI version: everything it handles, and the holes that it leaves in FILES_SCOPED."""

    version: int
    kernel: str
    fs: int
    net: int
    scoped: int
    leaves: frozenset[str]
    note: str


_BASE = (1 << 13) - 1
_ALL = _BASE | REFER | TRUNCATE | IOCTL_DEV
_TCP = BIND_TCP | CONNECT_TCP
_SCOPES = SCOPE_ABSTRACT_UNIX | SCOPE_SIGNAL

ROWS = (
    Row(1, "5.13", _BASE, 0, 0, NEVER | {"truncate", "ioctl-dev"}, "no rename or link across folders, no truncation"),
    Row(2, "5.19", _BASE | REFER, 0, 0, NEVER | {"truncate", "ioctl-dev"}, "renames across folders; no truncation"),
    Row(3, "6.2", _BASE | REFER | TRUNCATE, 0, 0, NEVER | {"ioctl-dev"}, "truncation"),
    Row(4, "6.7", _BASE | REFER | TRUNCATE, _TCP, 0, NEVER | {"ioctl-dev"}, "TCP bind and connect; never UDP"),
    Row(5, "6.10", _ALL, _TCP, 0, NEVER, "ioctl on devices"),
    Row(6, "6.12", _ALL, _TCP, _SCOPES, NEVER, "signals and abstract unix sockets scoped to the domain"),
    Row(7, "6.15", _ALL, _TCP, _SCOPES, NEVER, "audit of denials"),
    Row(
        8,
        "7.0",
        _ALL,
        _TCP,
        _SCOPES,
        NEVER,
        "restriction of all threads at once, which a one-threaded worker needs not",
    ),
)


def row(version: int) -> Row | None:
    """The newest row that a kernel of this ABI version has; None before version 1."""
    known = [r for r in ROWS if r.version <= version]
    return known[-1] if known else None
