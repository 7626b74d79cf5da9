"""Builds the worker, the host library and its cffi declarations: a C compiler is all it takes.

Called by hatchling as its build hook, or by hand as `python sandboxactor/_worker/build.py` to build in place.
CC and CFLAGS are honoured, so that the sanitizer builds of the tests use the same lines.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # run by hand
    BuildHookInterface = object

HERE = Path(__file__).resolve().parent
WORKER = ("main.c", "zygote.c", "stem.c", "native.c", "ops.c", "mounts.c", "program.c", "spawn.c", "io.c")
FLAGS = ("-std=gnu11", "-O2", "-g0", "-Wall", "-Wextra", "-Werror", "-fstack-protector-strong", "-D_FORTIFY_SOURCE=2")
HARDEN = ("-Wl,-z,relro,-z,now,-z,noexecstack",)


def compiler() -> list[str]:
    """The C compiler to call, or an exit that says how to get one."""
    cc = shlex.split(os.environ.get("CC", "cc"))
    if shutil.which(cc[0]) is None:
        raise SystemExit(f"sandboxactor: no C compiler ({cc[0]}). Remedy: apt-get install gcc libc6-dev")
    return cc


def declarations() -> str:
    """wire.h and host.h as cffi reads them: the same declarations that the C files include."""
    text = "".join((HERE / name).read_text() for name in ("wire.h", "host.h"))
    return re.sub(r"^#.*$", "", text, flags=re.MULTILINE)


def build(out: Path, extra: tuple[str, ...] = ()) -> list[Path]:
    """Compiles into `out` and returns what was made."""
    from cffi import FFI

    out.mkdir(parents=True, exist_ok=True)
    (out / "__init__.py").write_text('"""Built files: the worker, the host library, its declarations."""\n')
    cc, flags = compiler(), [*FLAGS, *shlex.split(os.environ.get("CFLAGS", "")), *extra]
    worker, library = out / "sandboxactor-worker", out / "libsandboxactor.so"
    subprocess.run([*cc, *flags, "-fPIE", "-pie", *HARDEN, "-o", worker, *(HERE / c for c in WORKER)], check=True)
    subprocess.run([*cc, *flags, "-shared", "-fPIC", *HARDEN, "-o", library, HERE / "host.c"], check=True)
    ffi = FFI()
    ffi.cdef(declarations())
    ffi.set_source("sandboxactor._bin._ffi", None)
    ffi.emit_python_code(str(out / "_ffi.py"))
    return [worker, library, out / "_ffi.py", out / "__init__.py"]


class Hook(BuildHookInterface):  # type: ignore[misc,unused-ignore]
    """The hatchling build hook: one wheel for all Pythons, tied to the platform."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Builds in place for an editable install, beside the tree otherwise (it may be read-only)."""
        editable = version == "editable"
        out = Path(self.root) / "sandboxactor" / "_bin" if editable else Path(self.directory) / "native"
        made = build(out)
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
        if not editable:
            build_data["force_include"].update({str(p): f"sandboxactor/_bin/{p.name}" for p in made})


def main() -> None:
    """Builds into sandboxactor/_bin of this checkout."""
    for path in build(HERE.parent / "_bin"):
        print(path.relative_to(HERE.parent.parent))


if __name__ == "__main__":
    sys.exit(main())
