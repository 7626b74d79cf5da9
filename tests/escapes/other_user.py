"""A child process of an ordinary user who owns nothing here: a staged copy of the library that this user can read."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import sandboxactor
from sandboxactor import _registry

FRESH_ID = 0x6B00_0000 + os.getpid() % 0x10000  # No passwd entry, no files, no processes, no subordinate ids.
TESTS = Path(__file__).resolve().parents[1]
NEEDED = "attr attrs cattr cattrs cffi _cffi_backend pycparser cgroupspy pyseccomp typing_extensions yaml _yaml"


def _origin(name: str) -> Path | None:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent if spec.submodule_search_locations else Path(spec.origin)


def _copy(source: Path, folder: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, folder / source.name, ignore=shutil.ignore_patterns("__pycache__", ".*_cache"))
    else:
        shutil.copy(source, folder / source.name)


def stage(folder: Path) -> Path:
    """The library, its backends, these tests and what they import, readable by all, in `folder`."""
    folder.mkdir(mode=0o755)
    library = Path(sandboxactor.__file__).parent
    backends = [p for p in (_origin(name) for name in _backends()) if p]
    for source in (library, *backends, TESTS / "modules", TESTS / "escapes"):
        _copy(source, folder)
    for name in NEEDED.split():
        if (source := _origin(name)) is not None:
            _copy(source, folder)
    subprocess.run(["chmod", "-R", "a+rX", str(folder)], check=True)
    return folder


def _backends() -> set[str]:
    return {target.partition(".")[0] for target in _registry.BUILTIN.values()}


def _run(python: str, staged: Path, argv: list[str], text: str) -> subprocess.CompletedProcess[str]:
    who = {"user": FRESH_ID, "group": FRESH_ID, "extra_groups": []} if os.geteuid() == 0 else {}
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "PYTHONPATH": str(staged), "PYTHONDONTWRITEBYTECODE": "1"}
    pipes = {"input": text, "capture_output": True, "text": True}
    return subprocess.run([python, "-S", *argv], **pipes, **who, env=env, cwd="/", timeout=100, check=False)


def interpreter(staged: Path) -> tuple[str, str]:
    """A Python that this user can run with the staged imports, or "" and what was tried and why it failed."""
    names = (os.path.realpath(sys.executable), *(f"/usr/bin/python3.{minor}" for minor in (sys.version_info.minor,)))
    tried = []
    for python in dict.fromkeys(names):
        try:
            done = _run(python, staged, ["-c", "import escapes.confined"], "")
        except OSError as e:
            tried.append(f"{python}: {e}")
            continue
        if done.returncode == 0:
            return python, ""
        tried.append(f"{python}: {done.stderr.strip().splitlines()[-1:]}")
    return "", "; ".join(tried)


def call(python: str, staged: Path, function: str, **arguments: object) -> object:
    """The answer of `escapes.confined.FUNCTION(**arguments)` in a process of that user."""
    done = _run(python, staged, ["-m", "escapes.confined", function], json.dumps(arguments))
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)
