"""Builds the filters with pyseccomp and exports them as BPF. Pure for its arguments, and cached by them.

Every comparison of an int argument looks at its low 32 bits (MASKED_EQ): the kernel ignores the rest, and a filter that
compares 64 is walked around with socket(0x100000002).
"""

from __future__ import annotations

import errno
import functools
import os
import platform
import struct
from typing import Any

import attrs

from sandboxactor_seccomp import profiles as p

INT = 0xFFFFFFFF
KEY_SLOT = 0x5EA1F0A1_C0DEC0DE
PID_SLOT = 0x5EA1B1D5
AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


@attrs.frozen
class Profile:
    """What changes a native filter: whether a tree is writable, processes are granted, a key lets the stem fork, and
    whether another filter is installed behind it."""

    writing: bool
    spawning: bool
    keyed: bool
    open: bool = False


class _Builder:
    """Rules by name. A name that this libseccomp does not know is left to the default, which refuses."""

    def __init__(self, default: int) -> None:
        import pyseccomp

        self.s: Any = pyseccomp
        self.filter = pyseccomp.SyscallFilter(default)
        self.filter.set_attr(pyseccomp.Attr.CTL_OPTIMIZE, 2)  # a binary tree instead of a list
        self.filter.set_attr(pyseccomp.Attr.ACT_BADARCH, pyseccomp.KILL_PROCESS)

    def rule(self, action: int, name: str, *args: Any) -> None:
        try:
            number = self.s.resolve_syscall(self.s.Arch.NATIVE, name)
        except (ValueError, OSError):
            return
        if number >= 0:  # negative: a pseudo-number of another architecture
            self.filter.add_rule_exactly(action, number, *args)

    def allow(self, name: str, *args: Any) -> None:
        self.rule(self.s.ALLOW, name, *args)

    def refuse(self, name: str, error: int, *args: Any) -> None:
        self.rule(self.s.ERRNO(error), name, *args)

    def equal(self, index: int, value: int, mask: int = INT) -> Any:
        return self.s.Arg(index, self.s.MASKED_EQ, mask, value)

    def export(self) -> bytes:
        fd = os.memfd_create("filter", os.MFD_CLOEXEC)
        with os.fdopen(fd, "w+b") as f:
            self.filter.export_bpf(f)
            f.seek(0)
            return f.read()


def _arguments(b: _Builder, profile: Profile) -> None:
    for command in [*p.FCNTL.values(), *(p.FCNTL_LOCKS.values() if profile.writing else ())]:
        b.allow("fcntl", b.equal(1, command))
    for request in p.IOCTL.values():
        b.allow("ioctl", b.equal(1, request))
    for option in p.PRCTL.values():
        b.allow("prctl", b.equal(0, option))
    for option, value in p.PRCTL_EXACT:
        b.allow("prctl", b.equal(0, option), b.s.Arg(1, b.s.EQ, value))
    b.allow("prctl", b.equal(0, p.PR_SET_VMA), b.equal(1, p.PR_SET_VMA_ANON_NAME))
    b.allow("prlimit64", b.equal(0, 0))
    b.allow("mmap", b.equal(3, 0, p.MAP_GROWSDOWN | p.MAP_HUGETLB))
    b.allow("close_range", b.equal(2, 0, p.CLOSE_RANGE_UNSHARE))
    b.allow("landlock_restrict_self", b.equal(1, 0))
    b.allow("tgkill")
    b.allow("kill")
    if profile.open:
        b.allow("seccomp", b.equal(0, p.SECCOMP_SET_MODE_FILTER), b.equal(1, 0))


def _processes(b: _Builder, profile: Profile) -> None:
    if profile.spawning:
        for name in p.SPAWNING:
            b.allow(name, *([b.equal(0, 0, p.NEW_NAMESPACES)] if name == "clone" else []))
    else:
        b.allow("clone", b.equal(0, p.THREAD, p.THREAD | p.NEW_NAMESPACES))
        b.allow("arch_prctl", b.equal(0, p.ARCH_SET_FS))
    if profile.keyed:
        key = b.s.Arg(5, b.s.EQ, KEY_SLOT)
        for name in p.KEYED:
            b.allow(name, key)
        if not profile.spawning:
            b.allow("clone", b.equal(0, 0, p.THREAD | p.NEW_NAMESPACES & ~p.CLONE_NEWUSER), key)


def _files(b: _Builder, profile: Profile) -> None:
    if not profile.writing:
        for name, flags, _ in p.OPENING:
            b.allow(name, b.equal(flags, 0, p.O_WRITES))
        return
    for name in p.WRITING:
        b.allow(name)
    for name, flags, mode in p.OPENING:
        b.allow(name, b.equal(flags, 0, p.O_MAKES))
        b.allow(name, b.equal(mode, 0, p.SPECIAL_BITS))
    for name, index in p.MODES:
        b.allow(name, b.equal(index, 0, p.SPECIAL_BITS))
    for name, index in p.NODES:
        for kind in (p.S_IFIFO, p.S_IFREG):
            b.allow(name, b.equal(index, kind, p.S_IFMT | p.SPECIAL_BITS))


def _unknown_is_enosys(bpf: bytes) -> bytes:
    """Six instructions ahead of the exported ones: numbers past the newest known answer ENOSYS, x32 ones excepted
    (those are left to libseccomp's own check, which kills)."""
    arch = platform.machine()
    prefix = [
        (0x20, 0, 0, 4),  # A = arch
        (0x15, 0, 4, AUDIT_ARCH[arch]),
        (0x20, 0, 0, 0),  # A = number
        (0x25, 0, 2, p.NEWEST[arch]),  # not above: go on
        (0x35, 1, 0, 0x40000000),  # x32: go on
        (0x06, 0, 0, 0x00050000 | errno.ENOSYS),
    ]
    return b"".join(struct.pack("=HBBI", *i) for i in prefix) + bpf


@functools.cache
def native(profile: Profile) -> bytes:
    """The filter that a native worker lives under from before its module is loaded."""
    b = _Builder(_errno(errno.EPERM))
    for name in p.PLAIN:
        b.allow(name)
    for name in p.FALL_BACK:
        unkeyed = [b.s.Arg(5, b.s.NE, KEY_SLOT)] if profile.keyed and name in p.KEYED else []
        b.refuse(name, errno.ENOSYS, *unkeyed)
    _arguments(b, profile)
    _processes(b, profile)
    _files(b, profile)
    return _unknown_is_enosys(b.export())


@functools.cache
def late(shared_memory: bool, signals: bool, leave_open: bool) -> bytes:
    """A second filter that each worker installs itself: no shared maps and record locks, signals to itself."""
    import pyseccomp

    b = _Builder(pyseccomp.ALLOW)
    if shared_memory:
        b.refuse("mmap", errno.EPERM, b.equal(3, p.MAP_SHARED_BITS, p.MAP_SHARED_BITS))
        for command in p.FCNTL_LOCKS.values():
            b.refuse("fcntl", errno.EPERM, b.equal(1, command))
    if signals:
        for name in ("kill", "tgkill"):
            b.refuse(name, errno.EPERM, b.s.Arg(0, b.s.NE, PID_SLOT))
    if not leave_open:
        b.refuse("seccomp", errno.EPERM)
    return b.export()


def _errno(code: int) -> int:
    import pyseccomp

    return int(pyseccomp.ERRNO(code))
