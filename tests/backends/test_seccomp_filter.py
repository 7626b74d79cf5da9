"""The native filter, asked call by call: what passes, what is refused with which error, what kills."""

from __future__ import annotations

import errno
import platform

import pytest

from backends.bpf import ALLOW, ERRNO, I386, KILL, verdict

pytest.importorskip("pyseccomp", reason="libseccomp2 is missing")
from sandboxactor_seccomp import filters, profiles

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="call numbers of x86_64")

STRICT = filters.native(filters.Profile(writing=False, spawning=False, keyed=True))
WRITING = filters.native(filters.Profile(writing=True, spawning=False, keyed=True))
SPAWNING = filters.native(filters.Profile(writing=False, spawning=True, keyed=True))
EPERM, ENOSYS = ERRNO | errno.EPERM, ERRNO | errno.ENOSYS
KEY = filters.KEY_SLOT
THREAD = 0x003D0F00
HIGH = 1 << 32


@pytest.mark.parametrize(
    ("name", "number", "args", "expected"),
    [
        ("read", 0, (), ALLOW),
        ("clone of a thread", 56, (THREAD,), ALLOW),
        ("clone of a process", 56, (17,), EPERM),
        ("clone of a process, high bits", 56, (17 | HIGH,), EPERM),
        ("clone of a process with the key", 56, (17, 0, 0, 0, 0, KEY), ALLOW),
        ("clone with half of the key", 56, (17, 0, 0, 0, 0, KEY ^ HIGH), EPERM),
        ("clone with the other half", 56, (17, 0, 0, 0, 0, KEY ^ 1), EPERM),
        ("clone with VM alone", 56, (0x100 | 17,), EPERM),
        *(
            (f"thread in new namespace {bit:#x}", 56, (THREAD | bit,), EPERM)
            for bit in (0x80, 0x20000, 1 << 28, 1 << 30)
        ),
        ("clone3", 435, (0, 88), ENOSYS),
        ("clone3 with the key", 435, (0, 88, 0, 0, 0, KEY), ALLOW),
        ("fork", 57, (), EPERM),
        ("vfork", 58, (), EPERM),
        ("execve", 59, (), EPERM),
        ("execveat", 322, (), EPERM),
        ("wait4", 61, (), EPERM),
        ("wait4 with the key", 61, (0, 0, 0, 0, 0, KEY), ALLOW),
        ("recvmsg", 47, (), EPERM),
        ("socket", 41, (2, 1), EPERM),
        ("socket, high bits", 41, (2 | HIGH, 1), EPERM),
        ("socketpair", 53, (1, 1), EPERM),
        ("open to read", 257, (0, 0, 0x80000), ALLOW),
        ("open to write", 257, (0, 0, 1), EPERM),
        ("open to truncate", 257, (0, 0, 0o1000), EPERM),
        ("open to create", 257, (0, 0, 0o100), EPERM),
        ("open to write, high bits", 257, (0, 0, 2 | HIGH), EPERM),
        ("openat2", 437, (), ENOSYS),
        ("chmod", 90, (), EPERM),
        ("mmap private", 9, (0, 4096, 3, 0x22), ALLOW),
        ("mmap that grows down", 9, (0, 4096, 3, 0x122), EPERM),
        ("memfd_create", 319, (), EPERM),
        ("F_SETPIPE_SZ", 72, (1, 1031), EPERM),
        ("F_SETOWN", 72, (1, 8), EPERM),
        ("F_SETLK", 72, (1, 6), EPERM),
        ("TIOCSTI", 16, (0, 0x5412), EPERM),
        ("TIOCSTI, high bits", 16, (0, 0x5412 | HIGH), EPERM),
        ("prlimit of itself", 302, (0,), ALLOW),
        ("prlimit of another", 302, (1,), EPERM),
        ("PR_SET_PDEATHSIG to SIGKILL", 157, (1, 9), ALLOW),
        ("PR_SET_PDEATHSIG off", 157, (1, 0), EPERM),
        ("PR_SET_DUMPABLE on", 157, (4, 1), EPERM),
        ("seccomp", 317, (1, 0), EPERM),
        ("landlock_create_ruleset", 444, (), EPERM),
        ("io_uring_setup", 425, (), ENOSYS),
        ("ptrace", 101, (), EPERM),
        ("personality", 135, (), EPERM),
        ("a call newer than the profile", profiles.NEWEST["x86_64"] + 1, (), ENOSYS),
        ("x32", 0x40000000 + 39, (), KILL),
    ],
)
def test_strict(name: str, number: int, args: tuple[int, ...], expected: int) -> None:
    """A strict worker's calls get exactly these answers."""
    assert verdict(STRICT, number, *args) == expected, name


def test_another_abi_kills() -> None:
    """int 0x80 ends the process, whatever its number."""
    for number in (1, 20, 102, 0x40000000):
        assert verdict(STRICT, number, arch=I386) == KILL


@pytest.mark.parametrize(
    ("name", "number", "args", "expected"),
    [
        ("create", 257, (0, 0, 0o101, 0o644), ALLOW),
        ("create set-user-id", 257, (0, 0, 0o101, 0o4755), EPERM),
        ("O_TMPFILE set-group-id", 257, (0, 0, 0o20200001, 0o2755), EPERM),
        ("open to write with a stray mode", 257, (0, 0, 1, 0o4755), ALLOW),
        ("chmod", 90, (0, 0o755), ALLOW),
        ("chmod set-user-id", 90, (0, 0o4755), EPERM),
        ("fchmod set-group-id", 91, (0, 0o2755), EPERM),
        ("fchmodat set-user-id", 268, (0, 0, 0o4755), EPERM),
        ("mkdir set-group-id", 83, (0, 0o2755), EPERM),
        ("mkfifo", 259, (0, 0, 0o010644), ALLOW),
        ("mknod of a character device", 259, (0, 0, 0o020644, 259), EPERM),
        ("mknod set-user-id", 259, (0, 0, 0o104755), EPERM),
        ("creat", 85, (0, 0o644), EPERM),
        ("setxattr", 188, (), EPERM),
        ("chown", 92, (), EPERM),
    ],
)
def test_writing(name: str, number: int, args: tuple[int, ...], expected: int) -> None:
    """Where a tree is granted to write, modes pass without set-user-id and set-group-id bits, and no device."""
    assert verdict(WRITING, number, *args) == expected, name


def test_spawning() -> None:
    """With processes granted, fork and exec pass; a new namespace still does not."""
    assert verdict(SPAWNING, 59) == ALLOW
    assert verdict(SPAWNING, 56, 17) == ALLOW
    assert verdict(SPAWNING, 56, 17 | 0x10000000) == EPERM


def test_signals_only_to_itself_in_the_late_filter() -> None:
    """The second filter compares the whole argument with the worker's own pid, and lets no third one be installed."""
    late = filters.late(shared_memory=False, signals=True, leave_open=False)
    assert verdict(late, 62, filters.PID_SLOT, 9) == ALLOW
    for pid in (1, filters.PID_SLOT + 1, filters.PID_SLOT | HIGH, -1, 0):
        assert verdict(late, 62, pid, 9) == EPERM
        assert verdict(late, 234, pid, 1, 9) == EPERM
    assert verdict(late, 317, 1, 0) == EPERM


def test_no_shared_memory_in_the_late_filter() -> None:
    """Shared maps of either type and record locks are refused."""
    late = filters.late(shared_memory=True, signals=False, leave_open=False)
    assert verdict(late, 9, 0, 4096, 3, 0x22) == ALLOW
    for flags in (0x21, 0x01, 0x03, 0x01 | HIGH):
        assert verdict(late, 9, 0, 4096, 3, flags) == EPERM
    assert verdict(late, 72, 1, 37) == EPERM


def test_slots_stand_in_comparisons() -> None:
    """The constants that stem and worker replace are really there to be replaced."""
    low, high = KEY & 0xFFFFFFFF, KEY >> 32
    constants = [int.from_bytes(STRICT[at + 4 : at + 8], "little") for at in range(0, len(STRICT), 8)]
    assert constants.count(low) >= 1
    assert constants.count(high) >= 1
