"""Builds the worker, the host library and its cffi declarations: a C compiler is all it takes.

Called by hatchling as its build hook, or by hand as `python sandboxactor/_worker/build.py [FOLDER]`, which builds in
place or into a folder and takes no warning. CC and CFLAGS are honoured, and the tests' sanitizer builds rely on it.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
WORKER = ("main.c", "zygote.c", "stem.c", "native.c", "ops.c", "mounts.c", "program.c", "spawn.c", "io.c")
# Some distributions define _FORTIFY_SOURCE themselves: to define it anew would be a warning there.
FORTIFY = ("-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2")
FLAGS = ("-std=gnu11", "-O2", "-g0", "-Wall", "-Wextra", "-fstack-protector-strong", *FORTIFY)
HARDEN = ("-Wl,-z,relro,-z,now,-z,noexecstack",)
# For us and our tests only: a newer compiler's new warning must not keep a user from installing.
STRICT = ("-Werror",)
REMEDY = "Remedy: apt-get install gcc libc6-dev"


def compiler() -> list[str]:
    """The C compiler to call, or an exit that says how to get one."""
    cc = shlex.split(os.environ.get("CC", "cc"))
    if shutil.which(cc[0]) is None:
        raise SystemExit(f"sandboxactor: no C compiler ({cc[0]}). {REMEDY}")
    return cc


def declarations() -> str:
    """wire.h and host.h as cffi reads them: the same declarations that the C files include."""
    text = "".join((HERE / name).read_text() for name in ("wire.h", "host.h"))
    return re.sub(r"^#.*$", "", text, flags=re.MULTILINE)


def compile_to(target: Path, arguments: list[str]) -> Path:
    """Compiles beside `target` and puts it in place in one step: whoever runs or maps the old file keeps it."""
    fresh = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        if subprocess.run([*compiler(), *arguments, "-o", str(fresh)], check=False).returncode:
            raise SystemExit(
                f"sandboxactor: {target.name} does not compile; the compiler's words stand above. {REMEDY}"
            )
        fresh.chmod(0o755)
        return fresh.replace(target)
    finally:
        fresh.unlink(missing_ok=True)


def build(out: Path, extra: tuple[str, ...] = ()) -> list[Path]:
    """Compiles into `out` and returns what was made."""
    from cffi import FFI

    out.mkdir(parents=True, exist_ok=True)
    flags = [*FLAGS, *shlex.split(os.environ.get("CFLAGS", "")), *extra]
    sources = [str(HERE / name) for name in WORKER]
    worker = compile_to(out / "sandboxactor-worker", [*flags, "-fPIE", "-pie", *HARDEN, *sources])
    library = compile_to(out / "libsandboxactor.so", [*flags, "-shared", "-fPIC", *HARDEN, str(HERE / "host.c")])
    package = out / "__init__.py"
    package.write_text('"""Built files: the worker, the host library, its declarations."""\n')
    ffi = FFI()
    ffi.cdef(declarations())
    ffi.set_source("sandboxactor._bin._ffi", None)
    ffi.emit_python_code(str(out / "_ffi.py"))
    return [worker, library, out / "_ffi.py", package]


def _interface() -> Any:
    """What hatchling looks for; run by hand, there may be no hatchling."""
    try:
        from hatchling.builders.hooks.plugin.interface import BuildHookInterface
    except ImportError:
        return object
    return BuildHookInterface


class Hook(_interface()):  # type: ignore[misc]
    """The hatchling build hook: one wheel for all Pythons, tied to the platform."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Builds in place for an editable install, in a temporary folder otherwise: the tree may be read-only."""
        self.scratch = None if version == "editable" else tempfile.TemporaryDirectory(prefix="sandboxactor-")
        made = build(Path(self.scratch.name) if self.scratch else Path(self.root) / "sandboxactor" / "_bin")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
        if self.scratch:
            build_data["force_include"].update({str(p): f"sandboxactor/_bin/{p.name}" for p in made})

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """The files are in the wheel by now."""
        if self.scratch:
            self.scratch.cleanup()


def main(out: Path) -> None:
    """Builds into a folder and prints what it made."""
    for path in build(out, STRICT):
        print(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parent / "_bin")
