"""Compiles the attack modules and the unconfined loader; a target is made again only where sources or flags changed.

`build(out)` gives the path of each by its stem (`surface`, `verdicts`, ...), `loader` and `companion` among them.
`python tests/modules/build.py OUT` does it by hand.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
CC = os.environ.get("CC", "cc")
STRICT = ["-O1", "-Wall", "-Wextra", "-Werror"]
SHARED = ["-shared", "-fPIC", *STRICT, "-pthread"]
SPECIAL = ("companion", "needs_companion", "wants_missing", "loader")


def _digest(sources: list[Path], flags: list[str]) -> str:
    """Hash over the compiler, the flags, every header and the sources themselves."""
    h = hashlib.sha256(repr((CC, flags)).encode())
    for source in [*sorted(HERE.glob("*.h")), *sources]:
        h.update(source.name.encode() + b"\0" + source.read_bytes())
    return h.hexdigest()


def _compile(target: Path, source: Path, before: list[str], after: list[str] | None = None) -> Path:
    after = after or []
    stamp = target.with_name(target.name + ".sha256")
    digest = _digest([source], [*before, *after])
    if target.exists() and stamp.exists() and stamp.read_text() == digest:
        return target
    fresh = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    argv = [CC, *before, "-o", str(fresh), str(source), *after]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(argv)}\n{done.stderr}")
    fresh.replace(target)  # Never written in place: another run may have the old one mapped.
    stamp.write_text(digest)
    return target


def _missing(out: Path) -> Path:
    """The module whose needed library is gone: linked against a stand-in that is removed at once."""
    target = out / "wants_missing.so"
    stand_in = out / "libsa_missing.so"
    _compile(stand_in, HERE / "companion.c", [*SHARED, "-Wl,-soname,libsa_missing.so"])
    try:
        return _compile(target, HERE / "wants_missing.c", SHARED, [str(stand_in)])
    finally:
        stand_in.unlink()
        stand_in.with_name(stand_in.name + ".sha256").unlink()


def build(out: Path) -> dict[str, Path]:
    """Compiles everything into `out` (made if need be); RuntimeError carries the compiler's words."""
    out.mkdir(parents=True, exist_ok=True)
    made = {
        source.stem: _compile(out / f"{source.stem}.so", source, SHARED)
        for source in sorted(HERE.glob("*.c"))
        if source.stem not in SPECIAL
    }
    companion = _compile(out / "libcompanion.so", HERE / "companion.c", [*SHARED, "-Wl,-soname,libcompanion.so"])
    origin = [str(companion), "-Wl,-rpath,$ORIGIN", "-Wl,--enable-new-dtags"]
    made["companion"] = companion
    made["needs_companion"] = _compile(out / "needs_companion.so", HERE / "needs_companion.c", SHARED, origin)
    made["wants_missing"] = _missing(out)
    made["loader"] = _compile(out / "loader", HERE / "loader.c", STRICT, ["-ldl"])
    return made


if __name__ == "__main__":
    for name, path in build(Path(sys.argv[1])).items():
        print(f"{name}\t{path}")
