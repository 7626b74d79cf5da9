"""Every example runs as it stands, as root and as an ordinary user."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sandboxactor import Policy, Sandbox, Unenforceable

TOP = Path(__file__).resolve().parent.parent
EXAMPLES = sorted((TOP / "examples").glob("*.py"))
LONGEST = 40


@pytest.fixture(scope="module")
def waiver() -> list[str]:
    """What an ordinary user without a delegated control group must add, visibly: nothing but CPU_MAX is ever waived."""
    missing: set[str] = set()
    try:
        Sandbox(Policy.strict()).close()
    except Unenforceable as error:
        missing = {m.guard.name for m in error.missing if m.guard}
    assert missing <= {"CPU_MAX"}
    return ["--waive", "CPU_MAX"] if missing else []


def run(example: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(example), *arguments]
    path = os.pathsep.join([str(TOP), str(TOP / "backends")])
    environment = os.environ | {"PYTHONPATH": path}
    return subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, timeout=110, check=False)


def test_there_are_examples() -> None:
    """The examples that the README names are there."""
    names = {example.name for example in EXAMPLES}
    assert {"pix_from_manifest.py", "hello_native.py", "refused.py", "asyncio_host.py"} <= names


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example_is_short_and_asserts(example: Path) -> None:
    """An example is at most 40 lines, says what it shows, and proves it."""
    text = example.read_text()
    assert len(text.splitlines()) <= LONGEST
    assert text.startswith('"""')
    assert "assert " in text


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(example: Path, waiver: list[str]) -> None:
    """An example ends well from any folder."""
    if example.stem == "pix_from_manifest" and not (example.parent / "pix" / "implementation.so").exists():
        pytest.importorskip("ziglang", reason="ziglang is missing: pip install 'ziglang>=0.16'")
    done = run(example, *(waiver if "--waive" in example.read_text() else []))
    assert done.returncode == 0, done.stderr


def test_ordinary_user_is_told_how_to_go_on(waiver: list[str]) -> None:
    """Where CPU_MAX cannot be held, the main example says why, the remedy, and the visible way to go without it."""
    if not waiver:
        pytest.skip("CPU_MAX can be enforced here")
    done = run(TOP / "examples" / "pix_from_manifest.py")
    assert done.returncode == 1
    assert "CPU_MAX" in done.stderr
    assert "Remedy:" in done.stderr
    assert "--waive CPU_MAX" in done.stderr
    assert "Traceback" not in done.stderr
