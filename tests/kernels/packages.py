"""What has to be on the host: the tools, and one Debian kernel per series, kept in a cache outside the tree."""

import lzma
import os
import platform
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from . import UnavailableError
from .guest import MODULES

SERIES = ("6.12", "6.1")

VIRTIOFSD = ("virtiofsd", "/usr/lib/qemu/virtiofsd", "/usr/libexec/virtiofsd")
INSTALL = (
    "apt-get update && apt-get install -y --no-install-recommends qemu-system-x86 busybox-static"
    " (and virtiofsd from Debian 13 on)"
)
CAP_SYS_CHROOT, CAP_SYS_ADMIN = 18, 21
PT_INTERP = 3
DOWNLOAD_SECONDS = 300


def cache_dir() -> Path:
    """Return the cache folder: kernels are never kept in the tree."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sandboxactor" / "kernels"


def choose(series: str, lines: Iterable[str]) -> str | None:
    """Return the newest signed cloud kernel of a series among lines that start with a package name."""
    pattern = re.compile(rf"linux-image-({re.escape(series)}\.[\w.+~-]+)-cloud-amd64")
    names = [match for line in lines if line.split() and (match := pattern.fullmatch(line.split()[0]))]
    newest = max(names, key=lambda name: [int(n) for n in re.findall(r"\d+", name[1])], default=None)
    return newest and newest[0]


def is_static(program: bytes) -> bool:
    """Tell whether a 64-bit ELF image names no interpreter: the initramfs has no C library."""
    if program[:5] != b"\x7fELF\x02":
        return False
    (start,) = struct.unpack_from("<Q", program, 32)
    size, count = struct.unpack_from("<HH", program, 54)
    return all(struct.unpack_from("<I", program, start + i * size) != (PT_INTERP,) for i in range(count))


def require_privileges(uid: int, effective: int, machine: str) -> None:
    """Refuse where no VM can be made: the whole root is shared, hence root and its capabilities."""
    if machine != "x86_64":
        raise UnavailableError(f"the host is {machine}: the kernels are amd64, run on an x86_64 machine")
    if uid != 0:
        raise UnavailableError("needs root to share the root directory with the VM: run as root")
    if ~effective & (1 << CAP_SYS_ADMIN | 1 << CAP_SYS_CHROOT):
        raise UnavailableError("needs CAP_SYS_ADMIN and CAP_SYS_CHROOT: run as root outside an unprivileged container")


def require_host() -> None:
    """Apply `require_privileges` to this process."""
    status = Path("/proc/self/status").read_text()
    effective = int(re.search(r"^CapEff:\s*(\w+)", status, re.MULTILINE)[1], 16)
    require_privileges(os.geteuid(), effective, platform.machine())


def tools() -> dict[str, str]:
    """Return the paths of qemu, virtiofsd and a static busybox, or refuse naming all that is missing."""
    busybox = shutil.which("busybox")
    found = {
        "qemu-system-x86_64": shutil.which("qemu-system-x86_64"),
        "virtiofsd": next(filter(None, map(shutil.which, VIRTIOFSD)), None),
        "static busybox": busybox if busybox and is_static(Path(busybox).read_bytes()) else None,
    }
    missing = [name for name, path in found.items() if path is None]
    if missing:
        raise UnavailableError(f"missing {', '.join(missing)}: {INSTALL}")
    return {"qemu": found["qemu-system-x86_64"], "virtiofsd": found["virtiofsd"], "busybox": found["static busybox"]}


def fetch(series: str, cache: Path) -> Path:
    """Return a folder with `vmlinuz` and modules of the newest kernel of a series, downloading it at most once."""
    cached = choose(series, sorted(os.listdir(cache)) if cache.is_dir() else [])
    name = choose(series, _search(series)) or cached
    if name is None:
        has_apt = shutil.which("apt-cache")
        remedy = "apt-get update, with a Debian release that has it" if has_apt else "use a Debian host with apt"
        raise UnavailableError(f"no package linux-image-{series}.*-cloud-amd64 known: {remedy}")
    if not (cache / name).is_dir():
        try:
            _download(name, cache)
        except UnavailableError as error:
            if cached is None:
                raise
            print(f"kernels: {error}; using {cached} from the cache", file=sys.stderr)
            name = cached
    return cache / name


def _search(series: str) -> list[str]:
    if shutil.which("apt-cache") is None:
        return []
    pattern = rf"^linux-image-{re.escape(series)}\."
    return _run(["apt-cache", "search", "--names-only", pattern], Path("/")).splitlines()


def _download(name: str, cache: Path) -> None:
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix=".") as temporary:
        work = Path(temporary)
        print(f"kernels: downloading {name}", file=sys.stderr)
        # The cache may be closed to apt's own user, and a mirror that is out of reach must not take minutes.
        options = ["-q", "-o", "APT::Sandbox::User=root", "-o", "Acquire::Retries=1", "-o", "Acquire::http::Timeout=30"]
        _run(["apt-get", *options, "download", name], work)
        _run(["dpkg", "-x", next(work.glob("*.deb")).name, "tree"], work)
        kernel = work / "kernel"
        kernel.mkdir()
        shutil.copy(next((work / "tree" / "boot").glob("vmlinuz-*")), kernel / "vmlinuz")
        _keep_modules(work / "tree", kernel)
        if not (cache / name).is_dir():
            kernel.rename(cache / name)


def _keep_modules(tree: Path, kernel: Path) -> None:
    for module in MODULES:
        for path in tree.glob(f"**/kernel/**/{module}.ko*"):
            data = path.read_bytes()
            plain = lzma.decompress(data) if path.suffix == ".xz" else data
            (kernel / f"{module}.ko").write_bytes(plain)


def _run(argv: list[str], cwd: Path) -> str:
    try:
        done = subprocess.run(argv, cwd=cwd, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS, check=False)
    except FileNotFoundError:
        raise UnavailableError(f"missing {argv[0]}: use a Debian host, the kernels are Debian packages") from None
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"{argv[0]} took over {DOWNLOAD_SECONDS} s: check the network") from None
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise UnavailableError(f"{argv[0]} of {argv[-1]} failed ({reason}): check the network, then apt-get update")
    return done.stdout
