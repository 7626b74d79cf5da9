"""Build the Pix Action with the Zig compiler of PyPI: `python examples/pix/build.py`."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent
MODULE = HERE / "implementation.so"  # Where action.yaml says it is.
OPTIONS = ["-dynamic", "-O", "ReleaseSafe", "-fstrip", "-fno-soname", "-mcpu=baseline"]
MISSING = f"the Zig compiler is missing; get it with: {sys.executable} -m pip install 'ziglang>=0.16'"


def environment() -> dict[str, str]:
    """Ours; Zig's global cache goes beside the source when the folder that Zig would take cannot be written."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    there = next(folder for folder in (cache, *cache.parents) if folder.exists())
    fallback = {} if os.access(there, os.W_OK) else {"ZIG_GLOBAL_CACHE_DIR": str(HERE / ".zig-cache")}
    return fallback | os.environ


def build() -> Path:
    """The module's path, built anew if a source is newer. SystemExit says in one line what is missing."""
    newest = max(source.stat().st_mtime for source in HERE.glob("*.zig"))
    if MODULE.exists() and MODULE.stat().st_mtime >= newest:
        return MODULE
    if find_spec("ziglang") is None:
        raise SystemExit(MISSING)
    fresh = MODULE.with_name(f"{MODULE.name}.{os.getpid()}")
    command = [sys.executable, "-m", "ziglang", "build-lib", *OPTIONS, f"-femit-bin={fresh}", str(HERE / "action.zig")]
    if subprocess.run(command, env=environment(), check=False).returncode:
        raise SystemExit("the Pix Action does not build; what Zig said stands above")
    return fresh.replace(MODULE)  # In one step: whoever maps the old one keeps it, and nobody sees half a file.


if __name__ == "__main__":
    print(build())
