"""What this host has: every primitive that a plan may use, really tried, with the remedy where one is missing.

Nothing here decides: whether a strict policy holds is asked of the same plan that a Sandbox makes.
"""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs

from sandboxactor import _registry, spi
from sandboxactor.errors import Missing, Unenforceable

__all__ = ["Finding", "Report", "examine"]

CLONE_NEWUSER = 0x10000000
USERNS_REMEDY = (
    "allow them: sysctl kernel.unprivileged_userns_clone=1 (Debian), "
    "kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu), user.max_user_namespaces above 0"
)


@attrs.frozen
class Finding:
    """One primitive of this host: `covers` is what it is good for, `reason` what is missing, `remedy` the cure."""

    name: str
    found: bool
    version: str = ""
    covers: str = ""
    reason: str = ""
    remedy: str = ""

    @property
    def lines(self) -> Iterator[str]:
        """The finding as people read it."""
        head = f"{self.name:<16} {'found' if self.found else 'MISSING':<8} {self.version}".rstrip()
        yield f"{head}: {self.covers}" if self.covers else head
        if self.reason:
            yield f"{'':<16} {self.reason}"
        if self.remedy:
            yield f"{'':<16} remedy: {self.remedy}"


@attrs.frozen
class Report:
    """All findings, and the guards of `Policy.strict()` that nothing here holds; `waived` are not asked for."""

    findings: tuple[Finding, ...]
    missing: tuple[Missing, ...]
    waived: tuple[str, ...] = ()

    @property
    def enforceable(self) -> bool:
        """Whether a strict policy holds for native modules on this host."""
        return not self.missing

    @property
    def text(self) -> str:
        """The report as people read it."""
        lines = [line for finding in self.findings for line in finding.lines]
        without = f" (without {', '.join(self.waived)}, waived)" if self.waived else ""
        if self.enforceable:
            lines.append(f"A strict policy for native modules is enforceable here{without}.")
        else:
            lines.append(f"A strict policy for native modules is NOT enforceable here{without}:")
            lines += [f"  {missing}" for missing in self.missing]
        return "\n".join(lines)

    @property
    def data(self) -> dict[str, Any]:
        """The report as plain data, for --json."""
        missing = [
            {"guard": m.guard.name if m.guard else None, "backend": m.backend, "reason": m.reason, "remedy": m.remedy}
            for m in self.missing
        ]
        return {
            "enforceable": self.enforceable,
            "waived": list(self.waived),
            "missing": missing,
            "primitives": [attrs.asdict(f) for f in self.findings],
        }


def _kernel() -> Finding:
    release = platform.release()
    numbers = tuple(int(part) for part in release.split("-")[0].split(".")[:2] if part.isdigit())
    reason = "" if numbers >= (5, 13) else "older than 5.13: no Landlock, no idmapped mounts"
    return Finding(
        "kernel", not reason, release, reason=reason, remedy="boot a kernel of 5.13 or later" if reason else ""
    )


def _machine() -> Finding:
    name = platform.machine()
    known = name in ("x86_64", "aarch64")
    return Finding("architecture", known, name, remedy="" if known else "use x86_64 or aarch64")


def _python() -> Finding:
    return Finding("python", True, f"{platform.python_implementation()} {platform.python_version()}")


def _libc() -> Finding:
    try:
        version = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        version = ""
    return Finding("libc", True, version or "no glibc (musl?)", covers="native modules must be built against it")


class _Version(ctypes.Structure):
    _fields_ = (("major", ctypes.c_uint), ("minor", ctypes.c_uint), ("micro", ctypes.c_uint))


def _libseccomp() -> Finding:
    try:
        library = ctypes.CDLL("libseccomp.so.2")
    except OSError as error:
        return Finding("libseccomp", False, reason=str(error), remedy="apt-get install libseccomp2")
    library.seccomp_version.restype = ctypes.POINTER(_Version)
    found = library.seccomp_version().contents
    return Finding(
        "libseccomp", True, f"{found.major}.{found.minor}.{found.micro}", covers="builds the filters, in the host only"
    )


def _bubblewrap() -> Finding:
    program = shutil.which("bwrap")
    if program is None:
        return Finding("bubblewrap", False, reason="not needed for native modules", remedy="apt-get install bubblewrap")
    try:
        answer = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding(
            "bubblewrap",
            False,
            reason=f"{program} does not run: {error}",
            remedy="apt-get install --reinstall bubblewrap",
        )
    return Finding(
        "bubblewrap",
        True,
        answer.stdout.strip().removeprefix("bubblewrap "),
        covers="commands; not used by native modules",
    )


def _cgroup_mounts() -> Finding:
    """What is mounted; whether this process may use it is the cgroups backend's finding."""
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError as error:
        return Finding("cgroup mounts", False, reason=str(error), remedy="mount /proc")
    kinds = {line.partition(" - ")[2].split(" ", 1)[0] for line in lines}
    versions = [name for kind, name in (("cgroup", "v1"), ("cgroup2", "v2")) if kind in kinds]
    remedy = "" if versions else "mount -t cgroup2 none /sys/fs/cgroup"
    return Finding("cgroup mounts", bool(versions), " and ".join(versions), remedy=remedy)


def _user_namespaces() -> Finding:
    failed = spi.attempt([spi.Namespaces(CLONE_NEWUSER)])
    if failed:
        return Finding("user namespaces", False, reason=failed, remedy=USERNS_REMEDY)
    return Finding("user namespaces", True, covers="a root of its own and a count of tasks for an ordinary user")


HOST: tuple[tuple[str, Callable[[], Finding]], ...] = (
    ("kernel", _kernel),
    ("architecture", _machine),
    ("python", _python),
    ("libc", _libc),
    ("libseccomp", _libseccomp),
    ("bubblewrap", _bubblewrap),
    ("cgroup mounts", _cgroup_mounts),
    ("user namespaces", _user_namespaces),
)


def _tried(name: str, look: Callable[[], Finding]) -> Finding:
    try:
        return look()
    except Exception as error:  # a doctor reports what fails, it does not fail with it
        return Finding(
            name,
            False,
            reason=f"{type(error).__name__}: {error}",
            remedy=f"reinstall the package: {sys.executable} -m pip install --force-reinstall sandboxactor",
        )


def _backend(name: str) -> Finding:
    support = _registry.probe(name)
    guards = ", ".join(sorted(g.name for g in _registry.load(name).guards))
    covers = f"{guards}; {support.covers}" if support.covers else guards
    return Finding(f"[{name}]", support.available, support.version, covers, support.reason, support.remedy)


def examine(waive: tuple[str, ...] = ()) -> Report:
    """Tries every primitive; a missing one is a finding, never an exception."""
    from sandboxactor import HostPolicy, Policy, Sandbox

    host = HostPolicy(waive=waive)
    findings = [_tried(name, look) for name, look in HOST]
    findings += [_tried(f"[{name}]", lambda name=name: _backend(name)) for name in _registry.BUILTIN]  # type: ignore[misc]
    missing: tuple[Missing, ...] = ()
    try:
        Sandbox(Policy.strict(), host=host).close()
    except Unenforceable as error:
        missing = error.missing
    return Report(tuple(findings), missing, tuple(sorted(g.name for g in host.waive)))
