"""The C under AddressSanitizer and UndefinedBehaviorSanitizer, in real runs.

The package is copied beside a `_bin` that build.py makes with other CFLAGS, and a child process plays every way a run
can end against it (sanitized_scene.py). What this machine's sanitizers allow:
- the host library: both, with libasan preloaded into Python, whose own leaks are not looked for;
- zygote, stem and worker: both, under the full plan, where a control group holds the memory: the filter lets all calls
  pass that the runtime makes. ASan reserves terabytes of address space, so the fallback of RLIMIT_AS and RLIMIT_DATA
  cannot hold then: without a control group MEMORY_MAX is waived for this test;
- a signal of the module's own must stay one, so the runtime handles none; a finding aborts, and would be seen as
  `crashed` instead of the outcome that is expected.
With the plain build of UBSan that traps (no runtime, SIGILL), the whole plan is on for everybody, fallbacks too.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sandboxactor import Guard, HostPolicy, Policy, Sandbox, Unenforceable

TOP = Path(__file__).resolve().parent.parent.parent
OPTIONS = """
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "detect_leaks=0:handle_segv=0:handle_sigbus=0:handle_abort=0:handle_sigfpe=0:handle_sigill=0:"
           "abort_on_error=1:use_sigaltstack=0:detect_stack_use_after_return=0";
}
"""
BOTH = "-g -O1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all"
TRAP = "-g -O1 -fsanitize=undefined -fsanitize-undefined-trap-on-error"


def unheld() -> set[Guard]:
    """What this user cannot hold here even with the ordinary build."""
    try:
        Sandbox(Policy.strict()).close()
    except Unenforceable as error:
        return {missing.guard for missing in error.missing if missing.guard}
    return set()


def unheld_by_groups() -> bool:
    return "cgroup" not in Sandbox(Policy.strict(), host=HostPolicy(waive=[Guard.CPU_MAX])).explain()


def package(folder: Path, flags: str) -> dict[str, str]:
    """A copy of the package with an instrumented build; returns the environment that finds it first."""
    copy = folder / "lib" / "sandboxactor"
    shutil.copytree(TOP / "sandboxactor", copy, ignore=shutil.ignore_patterns("_bin", "__pycache__"))
    script = copy / "_worker" / "build.py"
    environment = {**os.environ, "CC": "gcc", "CFLAGS": flags}
    done = subprocess.run(
        [sys.executable, str(script), str(copy / "_bin")], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(copy.parent), str(TOP / "backends")])}


def play(folder: Path, environment: dict[str, str], waive: set[Guard]) -> None:
    modules = folder / "modules"
    modules.mkdir()
    scene = Path(__file__).with_name("sanitized_scene.py")
    command = [sys.executable, str(scene), str(modules), *sorted(guard.name for guard in waive)]
    done = subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stderr + done.stdout
    assert str(folder) in done.stdout
    assert "Sanitizer" not in done.stderr
    assert "runtime error" not in done.stderr


def preloaded() -> str:
    """The runtimes that must be in Python before an instrumented library is loaded."""
    names = ("libasan.so", "libubsan.so")
    found = [subprocess.check_output(["gcc", f"-print-file-name={name}"], text=True).strip() for name in names]
    return ":".join(found)


@pytest.mark.timeout(240)
@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is missing: apt-get install gcc")
def test_runs_under_address_and_undefined_sanitizer(tmp_path: Path) -> None:
    """No run makes host library, zygote, stem or worker touch memory that is not theirs or leave what C defines."""
    options = tmp_path / "options.c"
    options.write_text(OPTIONS)
    environment = package(tmp_path, f"{BOTH} {shlex.quote(str(options))}")
    environment |= {"LD_PRELOAD": preloaded(), "ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "print_stacktrace=1"}
    waive = unheld() | ({Guard.MEMORY_MAX} if unheld_by_groups() else set())
    play(tmp_path, environment, waive)


@pytest.mark.timeout(240)
@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is missing: apt-get install gcc")
def test_runs_under_trapping_undefined_sanitizer(tmp_path: Path) -> None:
    """The same with every guard held: undefined behaviour anywhere would end the run by SIGILL."""
    play(tmp_path, package(tmp_path, TRAP), unheld())
