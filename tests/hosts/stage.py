"""Runs scenes: each in a Python of its own, in a session of its own, of which nothing may be left."""

from __future__ import annotations

import importlib
import inspect
import os
import signal
import subprocess
import sys
import time
import types
from collections.abc import Mapping
from pathlib import Path

import pytest

import sandboxactor

from . import kit

HERE = Path(__file__).resolve().parent
PACKAGE = Path(sandboxactor.__file__).resolve().parent.parent


def scenes(module: types.ModuleType) -> list[str]:
    """The names of a module's own public functions with a docstring, in order."""
    found = inspect.getmembers(module, inspect.isfunction)
    own = [f for name, f in found if f.__module__ == module.__name__ and not name.startswith("_")]
    return [f.__name__ for f in sorted(own, key=lambda f: f.__code__.co_firstlineno)]


def start(modules: Path, tmp: Path, scene: str, extra: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """`scenes_x:name` as a process."""
    path = [PACKAGE, PACKAGE / "backends", HERE.parent, os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "PYTHONPATH": ":".join(map(str, path)), "SA_MODULES": str(modules), "TMPDIR": str(tmp)}
    module, _, name = scene.partition(":")
    code = f"from hosts.{module} import {name} as scene; scene()"
    return subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "-c", code],
        cwd=tmp, env={**env, **(extra or {})}, start_new_session=True, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def play(modules: Path, tmp: Path, scene: str, timeout: float = 60) -> str:
    """Runs a scene to its end and looks at what it left. Its line "skip: REASON" is a skip."""
    process = start(modules, tmp, scene)
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)  # faulthandler says where every thread stands
        time.sleep(1)
        os.killpg(process.pid, signal.SIGKILL)  # the forks of the scene; it leads a session of its own
        out, err = process.communicate(timeout=10)
        pytest.fail(f"{scene} does not end within {timeout} s\n{err[-4000:]}")
    if out.startswith("skip: "):
        pytest.skip(out.removeprefix("skip: ").strip())
    assert process.returncode == 0, f"{scene}: status {process.returncode}\n{out[-500:]}\n{err[-4000:]}"
    kit.gone(process.pid)
    left = [p.name for p in tmp.iterdir() if p.name.startswith("sandboxactor")]
    assert not left
    return out


def promise(scene: str) -> str:
    """A scene's docstring: what it attacks."""
    module, _, name = scene.partition(":")
    return inspect.getdoc(getattr(importlib.import_module(f"hosts.{module}"), name)) or ""
