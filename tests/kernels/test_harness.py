"""The harness without a VM: which package is chosen, what is packed, what is executed, and what a refusal says."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from . import UnavailableError, __main__, guest, packages, vm

SEARCH = """\
linux-image-6.1.0-47-cloud-amd64-dbg - Debug symbols for linux-image-6.1.0-47-cloud-amd64
linux-image-6.1.0-9-cloud-amd64 - Linux 6.1 for x86-64 cloud (signed)
linux-image-6.1.0-50-cloud-amd64 - Linux 6.1 for x86-64 cloud (signed)
linux-image-6.1.0-57-cloud-amd64-unsigned - Linux 6.1 for x86-64 cloud
linux-image-6.1.0-57-amd64 - Linux 6.1 for 64-bit PCs (signed)
linux-image-6.12-cloud-amd64 - Linux for x86-64 cloud (meta-package)
linux-image-6.12.9+bpo-cloud-amd64 - Linux 6.12 for x86-64 cloud (signed)
linux-image-6.12.100+deb12-cloud-amd64 - Linux 6.12 for x86-64 cloud (signed)
linux-image-6.12.48+deb13-cloud-amd64 - Linux 6.12 for x86-64 cloud (signed)

""".splitlines()


@pytest.mark.parametrize(
    ("series", "package"),
    [
        ("6.1", "linux-image-6.1.0-50-cloud-amd64"),
        ("6.12", "linux-image-6.12.100+deb12-cloud-amd64"),
        ("6.18", None),
    ],
)
def test_newest_signed_cloud_kernel_is_chosen(series, package):
    """Numbers compare as numbers; a series is no prefix of another; debug, unsigned and meta packages do not count."""
    assert packages.choose(series, SEARCH) == package


@pytest.mark.parametrize(
    ("uid", "effective", "machine", "remedy"),
    [
        (1000, 0, "x86_64", "run as root"),
        (0, 1 << packages.CAP_SYS_ADMIN, "x86_64", "outside an unprivileged container"),
        (0, (1 << 41) - 1, "aarch64", "run on an x86_64 machine"),
    ],
)
def test_refusal_names_the_remedy(uid, effective, machine, remedy):
    """A host that cannot make the VM is told why in one line."""
    with pytest.raises(UnavailableError, match=remedy) as refusal:
        packages.require_privileges(uid, effective, machine)
    assert "\n" not in str(refusal.value)


def test_full_root_is_enough():
    """All capabilities on amd64 pass."""
    packages.require_privileges(0, (1 << 41) - 1, "x86_64")


def test_missing_tools_are_named_together(monkeypatch):
    """One line names every missing tool and the packages to install."""
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(UnavailableError, match=r"qemu-system-x86_64, virtiofsd, static busybox: .*busybox-static"):
        packages.tools()


def test_cached_kernel_serves_without_apt(monkeypatch, tmp_path):
    """The cache is enough where apt is not to be had, and nothing in it is taken for another series."""
    monkeypatch.setattr(shutil, "which", lambda name: None)
    kernel = tmp_path / "linux-image-6.1.0-50-cloud-amd64"
    kernel.mkdir()
    assert packages.fetch("6.1", tmp_path) == kernel
    with pytest.raises(UnavailableError, match=r"linux-image-6\.12\.\*-cloud-amd64 known: use a Debian host"):
        packages.fetch("6.12", tmp_path)


def test_failed_download_falls_back_to_the_cache(monkeypatch, tmp_path):
    """A newer kernel that cannot be had does not take away the one at hand; with none at hand it is a refusal."""

    def fail(name: str, cache: Path) -> None:
        raise UnavailableError("no network")

    monkeypatch.setattr(packages, "_search", lambda series: SEARCH)
    monkeypatch.setattr(packages, "_download", fail)
    with pytest.raises(UnavailableError, match="no network"):
        packages.fetch("6.1", tmp_path)
    (tmp_path / "linux-image-6.1.0-9-cloud-amd64").mkdir()
    assert packages.fetch("6.1", tmp_path).name == "linux-image-6.1.0-9-cloud-amd64"


def test_only_static_programs_pass_for_static():
    """Python's own ELF image has an interpreter; a script is no ELF at all."""
    assert not packages.is_static(Path(sys.executable).read_bytes())
    assert not packages.is_static(b"#!/bin/sh\n")
    assert packages.is_static(b"\x7fELF\x02".ljust(64, b"\0"))


@pytest.mark.parametrize(
    ("paths", "shown"),
    [
        (["/srv/work", "/usr"], []),
        (["/tmp/a", "/tmp/a/venv", "/usr"], ["/tmp/a"]),
        (["/tmp", "/dev/shm"], []),
        (["/tmp/a b", "/dev/shm/c", "/tmp/ab"], ["/dev/shm/c", "/tmp/a b", "/tmp/ab"]),
    ],
)
def test_folders_below_fresh_mounts_are_shown_again(paths, shown):
    """Only what a fresh mount hides is shown again, and once."""
    assert guest.shown(paths) == shown


def test_init_mounts_then_switches_root():
    """The root is read-only, controllers are on, nothing is left to fill in, and the last act is switch_root."""
    script = guest.init_script(["/tmp/a b"])
    assert "mount -t virtiofs -o ro root /host" in script
    assert '"+cpu +memory +pids" >/new/sys/fs/cgroup/cgroup.subtree_control' in script
    assert script.index("-t tmpfs -o mode=1777,nosuid,nodev tmp /new/tmp") < script.index("--bind '/host/tmp/a b'")
    assert "for module in virtio_ring virtio " in script
    assert "@" not in script
    assert script.splitlines()[-1].startswith("exec $b switch_root /new")


def test_command_is_quoted():
    """The command's words, its folder and its environment reach it as they are."""
    script = guest.main_script(["echo", "a b'c", "$x"], "/srv/a b", {"HOME": "/tmp/a b"})
    assert "cd '/srv/a b' &&" in script
    assert """/usr/bin/env -i 'HOME=/tmp/a b' /usr/bin/setsid echo 'a b'"'"'c' '$x' </dev/null""" in script


@pytest.mark.parametrize("script", [guest.init_script(["/tmp/it's"]), guest.main_script(["true"], "/", {})])
def test_scripts_parse(script):
    """A shell reads both scripts without complaint."""
    subprocess.run(["sh", "-n"], input=script.encode(), check=True)


def test_environment_is_small():
    """Of the caller's environment only CI and our own switches pass; its python comes first."""
    caller = {"CI": "true", "SANDBOXACTOR_STRICT": "1", "SECRET": "x", "PATH": "/nowhere", "HOME": "/nowhere"}
    environment = guest.environment("/opt/venv/bin/python", caller)
    assert environment["PATH"].startswith("/opt/venv/bin:/usr/local/sbin:")
    assert environment["HOME"].startswith("/tmp/")
    assert environment["SANDBOXACTOR_STRICT"] == "1"
    assert environment.keys() & {"CI", "SECRET"} == {"CI"}


def test_archive_layout():
    """Folders come before their files, every part is padded to four bytes, and a trailer ends it."""
    packed = guest.archive({"modules/a.ko": b"12345", "init": b"#!"})
    assert [packed.index(name) for name in (b"modules\0", b"modules/a.ko\0", b"init\0", b"TRAILER!!!\0")] == sorted(
        packed.index(name) for name in (b"modules\0", b"modules/a.ko\0", b"init\0", b"TRAILER!!!\0")
    )
    assert packed.count(b"070701") == 4
    assert packed[:22] == b"070701" + b"00000001" + b"000041ed"
    assert b"000081ed" in packed
    assert len(packed) % 4 == 0
    assert packed.index(b"12345") % 4 == 0


def test_initramfs_takes_modules_from_the_kernel(tmp_path):
    """Modules travel under their own names; the kernel image does not travel."""
    for name in ("vmlinuz", "fuse.ko", "busybox"):
        (tmp_path / name).write_bytes(name.encode())
    packed = guest.initramfs(str(tmp_path / "busybox"), tmp_path, "INIT", "MAIN")
    assert all(part in packed for part in (b"bin/busybox\0", b"modules/fuse.ko\0", b"INIT", b"MAIN"))
    assert b"vmlinuz" not in packed


def test_qemu_inherits_everything():
    """The VM has the size promised, no network, and no path but the kernel's."""
    argv = vm.qemu_args("qemu", "/k/vmlinuz", 5, 6, {"out": 7, "status": 8, "console": 9})
    line = " ".join(argv)
    assert "-smp 2 -m 2048M" in line
    assert "-accel tcg,thread=multi" in line
    assert "-initrd /proc/self/fd/5" in line
    assert "socket,id=root,fd=6 -device vhost-user-fs-pci,chardev=root,tag=root" in line
    assert {"socket,id=out,fd=7", "socket,id=status,fd=8", "socket,id=console,fd=9"} <= set(argv)
    assert [word for word in argv if word.startswith("/")] == ["/k/vmlinuz", "/proc/self/fd/5"]
    assert "netdev" not in line


def test_virtiofsd_listens_on_a_descriptor():
    """virtiofsd makes no socket and no lock file of its own."""
    argv = vm.virtiofsd_args("virtiofsd", 5)
    assert "--fd=5" in argv
    assert "source=/" in argv
    assert not any(word.startswith("--socket-path") for word in argv)


@pytest.mark.parametrize(
    ("codes", "expected"), [([0, 0], 0), ([0, 77], 77), ([77, 1], 1), ([77, 77], 77), ([2, 124], 2)]
)
def test_verdict(codes, expected):
    """A failure outranks a kernel that could not be had, and that one is never a success."""
    assert __main__.verdict(codes) == expected


def test_command_follows_the_dashes():
    """Options after `--` belong to the command; every kernel is the default."""
    options = __main__.parse(["--timeout", "9", "--", "pytest", "-q", "--kernel", "x"])
    assert (options.kernel, options.timeout, options.command) == ("all", 9.0, ["pytest", "-q", "--kernel", "x"])


def test_python_that_does_not_run_is_a_refusal():
    """A wrong --python is named before anything boots."""
    with pytest.raises(UnavailableError, match="--python"):
        __main__.prefixes("/nonexistent/python")
