"""What runs in the VM before the command: two shell scripts for busybox, packed with it into an initramfs in memory."""

import os
import shlex
import stat
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
HOME = "/tmp/home"
# Mounted fresh in the guest: what the host has below them is out of sight, but for the folders that are shown again.
FRESH = frozenset({"/proc", "/sys", "/dev", "/dev/shm", "/tmp", "/run", "/var/tmp"})
# In the order they must be loaded. Those a kernel has built in are simply not found in its package.
MODULES = (
    "virtio_ring",
    "virtio",
    "virtio_pci_legacy_dev",
    "virtio_pci_modern_dev",
    "virtio_pci",
    "virtio_console",
    "fuse",
    "virtiofs",
)

# A chrooted process may not make user namespaces, hence switch_root. The host's root is mounted read-only in the
# guest; that it cannot be written whatever the guest does is the doing of child.py.
INIT = """\
#!/bin/busybox sh
set -e
b=/bin/busybox
$b mkdir -p /dev /proc /host /new
$b mount -t devtmpfs dev /dev
exec </dev/null >/dev/console 2>&1
for module in @MODULES@; do [ ! -e /modules/$module.ko ] || $b insmod /modules/$module.ko; done
$b mount -t virtiofs -o ro root /host
$b mount --bind /host /new
$b mount -t proc proc /new/proc
$b mount -t sysfs sys /new/sys
$b mount -t securityfs security /new/sys/kernel/security
$b mount -t cgroup2 cgroup /new/sys/fs/cgroup
echo "+cpu +memory +pids" >/new/sys/fs/cgroup/cgroup.subtree_control
$b mount -t devtmpfs dev /new/dev
$b mkdir -p /new/dev/pts /new/dev/shm
$b mount -t devpts -o gid=5,mode=620,ptmxmode=666 pts /new/dev/pts
$b mount -t tmpfs -o mode=1777,nosuid,nodev shm /new/dev/shm
$b ln -sf /proc/self/fd /new/dev/fd
$b ln -sf /proc/self/fd/0 /new/dev/stdin
$b ln -sf /proc/self/fd/1 /new/dev/stdout
$b ln -sf /proc/self/fd/2 /new/dev/stderr
$b mount -t tmpfs -o mode=1777,nosuid,nodev tmp /new/tmp
$b mount -t tmpfs -o mode=755,nosuid,nodev run /new/run
$b mount -t tmpfs -o mode=1777,nosuid,nodev tmp /new/var/tmp
@SHOW@
$b umount /host
$b hostname guest
$b ifconfig lo 127.0.0.1 up
$b mkdir -p /new@HOME@ /new/run/kernels
$b cp /bin/busybox /main /new/run/kernels/
exec $b switch_root /new /run/kernels/busybox sh /run/kernels/main
"""

# The ports can be opened once only and their data is lost to nobody but by a power-off, so the command writes to a
# pipe (whose /dev/stdout may be opened again), everything it left running is killed, and the pipe is drained.
MAIN = """\
b=/run/kernels/busybox
until [ -e /dev/vport*p2 ]; do $b sleep 0.1; done
exec 3>$(echo /dev/vport*p2)
$b mkfifo -m 666 /run/kernels/out
$b cat </run/kernels/out >$(echo /dev/vport*p1) 3>&- &
cat=$!
ulimit -Hn 524288
cd @CWD@ && echo start >&3 &&
@COMMAND@ </dev/null >/run/kernels/out 2>&1 3>&-
code=$?
more=1
while [ $more = 1 ]; do
  more=0
  for process in /proc/[0-9]*; do
    pid=${process#/proc/}
    [ $pid = 1 ] || [ $pid = $cat ] || [ ! -e $process/exe ] || { kill -9 $pid; more=1; }
  done 2>/dev/null
done
wait $cat
echo "exit $code" >&3
$b poweroff -f
"""


def shown(paths: Iterable[str]) -> list[str]:
    """Return the folders among these that a fresh mount would hide, without those inside another."""
    kept: list[str] = []
    for path in sorted(set(paths)):
        parents = {str(parent) for parent in PurePosixPath(path).parents}
        if parents & FRESH and path not in FRESH and parents.isdisjoint(kept):
            kept.append(path)
    return kept


def init_script(show: Sequence[str] = ()) -> str:
    """Return the initramfs's /init, with some of the host's folders shown again below the fresh mounts."""
    lines = []
    for path in show:
        source, target = shlex.quote(f"/host{path}"), shlex.quote(f"/new{path}")
        lines.append(f"$b mkdir -p {target}\n$b mount --bind {source} {target}")
    filled = INIT.replace("@MODULES@", " ".join(MODULES)).replace("@HOME@", HOME)
    return filled.replace("@SHOW@", "\n".join(lines))


def main_script(command: Sequence[str], cwd: str, env: Mapping[str, str]) -> str:
    """Return what runs as PID 1 after switch_root: the command in a session of its own, then its exit status."""
    # The root's env and setsid, as busybox would prefer its own applets to the root's programs.
    words = ["/usr/bin/env", "-i", *(f"{name}={value}" for name, value in env.items()), "/usr/bin/setsid", *command]
    return MAIN.replace("@CWD@", shlex.quote(cwd)).replace("@COMMAND@", shlex.join(words))


def environment(python: str, caller: Mapping[str, str]) -> dict[str, str]:
    """Return the command's environment: little of the caller's, its python first in PATH, and caches in a tmpfs."""
    passed = {name: value for name, value in caller.items() if name == "CI" or name.startswith("SANDBOXACTOR_")}
    return passed | {
        "PATH": f"{os.path.dirname(python)}:{PATH}",
        "HOME": HOME,
        "USER": "root",
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTEST_ADDOPTS": f"-o cache_dir={HOME}/pytest",
        "HYPOTHESIS_STORAGE_DIRECTORY": f"{HOME}/hypothesis",
    }


def archive(files: Mapping[str, bytes]) -> bytes:
    """Return an uncompressed `newc` cpio of executable files and their folders (initramfs buffer format)."""
    folders = {str(parent) for name in files for parent in PurePosixPath(name).parents} - {"."}
    entries = [(name, stat.S_IFDIR, b"") for name in sorted(folders)]
    entries += [(name, stat.S_IFREG, data) for name, data in files.items()]
    packed = b""
    for number, (name, kind, data) in enumerate([*entries, ("TRAILER!!!", 0, b"")], 1):
        path = os.fsencode(name) + b"\0"
        fields = (number, kind and kind | 0o755, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(path), 0)
        header = b"070701" + b"".join(b"%08x" % field for field in fields) + path
        packed += header + bytes(-len(header) % 4) + data + bytes(-len(data) % 4)
    return packed


def initramfs(busybox: str, kernel: Path, init: str, main: str) -> bytes:
    """Return the initramfs: busybox, the two scripts, and the modules this kernel does not have built in."""
    files = {"bin/busybox": Path(busybox).read_bytes(), "init": os.fsencode(init), "main": os.fsencode(main)}
    return archive(files | {f"modules/{path.name}": path.read_bytes() for path in sorted(kernel.glob("*.ko"))})
