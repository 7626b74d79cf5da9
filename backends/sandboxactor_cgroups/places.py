"""Where this process may make control groups: its own group in each hierarchy, from /proc (cgroups(7)).

Groups are made below the host's own, so that the host's own limits go on to hold. On v2 a group that has processes may
not hand controllers to children, so there the nearest ancestor that does is taken.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
from pathlib import Path

import attrs

from sandboxactor.errors import WorkerFault

__all__ = ["CONTROLLERS", "Places", "base_name", "find", "remove", "remove_tree", "sweep"]

CONTROLLERS = ("memory", "cpu", "pids")
NAME = re.compile(r"sandboxactor-(\d+)-(\d+)-(\d+)")


@attrs.frozen
class Places:
    """`version` 1: a folder for each controller; 2: one folder; 0: none, with the reason and the remedy."""

    version: int
    folders: tuple[tuple[str, str], ...] = ()
    reason: str = ""
    remedy: str = ""


def _mounts() -> list[tuple[str, str, str, set[str]]]:
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        fields, (kind, _, options) = left.split(), right.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            found.append((kind, fields[3], fields[4], set(options.split(","))))
    return found


def _own() -> dict[str, str]:
    """Controller (or "" for v2) to this process's own path in that hierarchy."""
    own = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        own.update(dict.fromkeys(names.split(","), path))
    return own


def _below(mount_root: str, mount_point: str, path: str) -> Path | None:
    if mount_root == "/":
        return Path(mount_point + path)
    if path == mount_root or path.startswith(mount_root + "/"):
        return Path(mount_point + path[len(mount_root) :])
    return None


def _v1(mounts: list[tuple[str, str, str, set[str]]], own: dict[str, str]) -> Places | None:
    folders = []
    for controller in CONTROLLERS:
        for kind, root, point, options in mounts:
            folder = (
                _below(root, point, own.get(controller, "/")) if kind == "cgroup" and controller in options else None
            )
            if folder is not None and folder.is_dir():
                folders.append((controller, str(folder)))
                break
    if len(folders) < len(CONTROLLERS):
        return None
    closed = [f for _, f in folders if not os.access(f, os.W_OK | os.X_OK)]
    if closed:
        return Places(
            0,
            reason=f"{closed[0]} is not writable",
            remedy="as root: make a group in each of the memory, cpu and pids hierarchies, chown it to "
            f"{os.geteuid()} and move this process there; or run as root",
        )
    return Places(1, tuple(folders))


def _v2(mounts: list[tuple[str, str, str, set[str]]], own: dict[str, str]) -> Places:
    wanted = set(CONTROLLERS)
    reason = "no cgroup file system is mounted"
    for kind, root, point, _ in mounts:
        folder = _below(root, point, own.get("", "/")) if kind == "cgroup2" else None
        while folder is not None and str(folder).startswith(point):
            with contextlib.suppress(OSError):
                handed = set((folder / "cgroup.subtree_control").read_text().split())
                if wanted <= handed and os.access(folder, os.W_OK) and os.access(folder / "cgroup.procs", os.W_OK):
                    return Places(2, (("", str(folder)),))
                reason = (
                    f"{folder} is not writable"
                    if wanted <= handed
                    else f"{folder} hands no {', '.join(sorted(wanted - handed))} to children"
                )
            if str(folder) == point:
                break
            folder = folder.parent
    return Places(
        0,
        reason=reason,
        remedy="run under a delegated group (systemd-run --user --scope -p Delegate=yes ...), or as root with the "
        "memory, cpu and pids controllers in cgroup.subtree_control of the group above",
    )


def find() -> Places:
    """v1 where it has the controllers, else v2."""
    try:
        mounts, own = _mounts(), _own()
    except OSError as e:
        if e.errno in (errno.EMFILE, errno.ENFILE):
            raise WorkerFault("no file descriptor left to look for control groups: raise RLIMIT_NOFILE") from e
        return Places(0, reason=f"/proc does not say where control groups are: {e}", remedy="mount /proc")
    return _v1(mounts, own) or _v2(mounts, own)


def _started(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def base_name() -> str:
    """This process's base group, by pid namespace, pid and start time: no other process has the same."""
    return f"sandboxactor-{os.stat('/proc/self/ns/pid').st_ino}-{os.getpid()}-{_started(os.getpid())}"


def remove(path: str) -> None:
    """Removes a group, busy until its dead are reaped; what stays for longer, the zygote or the next host removes."""
    for _ in range(100):
        with contextlib.suppress(FileNotFoundError):
            try:
                os.rmdir(path)
            except OSError as e:
                if e.errno == errno.EBUSY:
                    time.sleep(0.002)
                    continue
                if e.errno != errno.ENOENT:
                    raise
        return


def remove_tree(base: str) -> None:
    """Removes a base group and the groups in it; busy ones stay."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(base):
            if entry.is_dir(follow_symlinks=False):
                with contextlib.suppress(OSError):
                    os.rmdir(entry.path)
        os.rmdir(base)


def sweep(folder: str) -> None:
    """Removes what a host left that was killed with its zygote: only of this pid namespace, only of the dead."""
    here = str(os.stat("/proc/self/ns/pid").st_ino)
    for name in os.listdir(folder):
        match = NAME.fullmatch(name)
        if match and match[1] == here and _started(int(match[2])) != match[3]:
            remove_tree(os.path.join(folder, name))
