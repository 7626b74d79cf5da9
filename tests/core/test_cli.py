"""The command line: exit statuses, what goes to which stream, and no traceback for a mistake of the user's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sandboxactor import Policy, Sandbox, Unenforceable

TOP = Path(__file__).resolve().parent.parent.parent
ECHO = r"""
#include <stddef.h>
int allascode_action_execute(const unsigned char *in, size_t n, unsigned char **out, size_t *size)
{
    if (n && in[0] == '!') return 5;
    *out = (unsigned char *)in, *size = n;
    return 0;
}
void allascode_action_free(unsigned char *out, size_t n) { (void)out, (void)n; }
"""
MANIFEST = """
action: {name: Test.Echo}
runtime: {module: ./echo.so}
sandbox: {enabled: true, timeout: 5s, memory: {max: 64MiB}%s}
"""


def cli(*arguments: str | Path, stdin: bytes = b"", python: tuple[str, ...] = ()) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, *python, "-m", "sandboxactor", *map(str, arguments)]
    paths = {"PYTHONPATH": os.pathsep.join([str(TOP), str(TOP / "backends")])}
    done = subprocess.run(command, env=os.environ | paths, input=stdin, capture_output=True, timeout=60, check=False)
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    return done


@pytest.fixture(scope="module")
def action(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A manifest beside its module."""
    folder = tmp_path_factory.mktemp("action")
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-o", folder / "echo.so", "-x", "c", "-"], input=ECHO.encode(), check=True
    )
    (folder / "action.yaml").write_text(MANIFEST % "")
    return folder / "action.yaml"


@pytest.fixture(scope="module")
def waiver() -> tuple[str, ...]:
    """The waiver that this user needs here, spelled out."""
    try:
        Sandbox(Policy.strict()).close()
    except Unenforceable as error:
        return tuple(word for missing in error.missing if missing.guard for word in ("--waive", missing.guard.name))
    return ()


def test_run_prints_the_answer_and_reports_beside_it(action: Path, waiver: tuple[str, ...], tmp_path: Path) -> None:
    """Standard output is the answer, byte for byte; the report goes to standard error; the status is 0."""
    (tmp_path / "payload").write_bytes(b"\x00\xff answer")
    done = cli("run", action, "--payload", tmp_path / "payload", *waiver)
    assert (done.returncode, done.stdout) == (0, b"\x00\xff answer"), done.stderr.decode()
    report = done.stderr.decode()
    assert "outcome: ok" in report
    assert "MEMORY_MAX" in report
    assert "wall_s" in report


def test_run_reads_standard_input_and_reports_as_json(action: Path, waiver: tuple[str, ...]) -> None:
    """`--payload -` is standard input; `--json` is one document with every guard, held or waived."""
    done = cli("run", action, "--payload", "-", "--json", *waiver, stdin=b"abc")
    assert (done.returncode, done.stdout) == (0, b"abc")
    report = json.loads(done.stderr)
    assert report["outcome"] == "ok"
    assert report["waived"] == sorted(set(waiver) - {"--waive"})
    assert {"MEMORY_MAX", "FILES_SCOPED", "NETWORK_OFF"} <= report["enforced"].keys()


def test_module_failure_is_status_1(action: Path, waiver: tuple[str, ...]) -> None:
    """A module that returns non-zero prints no answer."""
    done = cli("run", action, "--payload", "-", *waiver, stdin=b"!")
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"outcome: error" in done.stderr


def test_explain_prints_the_plan(action: Path, waiver: tuple[str, ...]) -> None:
    """`explain` is the plan, and nothing runs."""
    done = cli("explain", action, *waiver)
    assert done.returncode == 0, done.stderr.decode()
    assert b"plan for native modules" in done.stdout
    assert done.stdout.count(b"WAIVED") == len(waiver) // 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--memory", "32MiB"], "$.sandbox.memory.max: asks for 64MiB, the host grants 32MiB"),
        (["--memory", "1MB"], "memory"),
        (["--waive", "CPU"], "waive"),
        (["--env", "NAME"], "write NAME=VALUE"),
        (["--env", "=x"], "write NAME=VALUE"),
        (["--network", "localhost"], "network"),
        (["--backends", "nothing"], "backends"),
        (["--no-such-option"], "--no-such-option"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_request_is_status_2(action: Path, arguments: list[str], said: str) -> None:
    """What the caller can mend is status 2 and says what to write."""
    done = cli("explain", action, *arguments)
    assert done.returncode == 2
    assert said in done.stderr.decode()
    assert done.stdout == b""


def test_every_fault_of_a_manifest_is_listed(action: Path) -> None:
    """A bad manifest is status 2, a line for each fault."""
    bad = action.with_name("bad.yaml")
    bad.write_text("action: {name: 1}\nruntime: {module: /etc/passwd}\nsandbox: {enabled: false}\n")
    done = cli("run", bad)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) >= 3
    assert done.stderr.count(b"bad.yaml:") == len(done.stderr.splitlines())


@pytest.mark.parametrize("manifest", ["missing.yaml", "."])
def test_unreadable_files_are_status_2(action: Path, waiver: tuple[str, ...], manifest: str) -> None:
    """A manifest or payload that is not there is the request's fault."""
    assert cli("explain", action.parent / manifest).returncode == 2
    done = cli("run", action, "--payload", action.parent / manifest, *waiver)
    assert done.returncode == 2
    assert b"payload" in done.stderr


def test_payload_above_the_input_limit_is_status_2(action: Path, waiver: tuple[str, ...]) -> None:
    """More than the policy's input is refused, not cut."""
    done = cli("run", action, "--payload", "/dev/zero", *waiver)
    assert done.returncode == 2
    assert b"payload" in done.stderr


def test_unenforceable_is_status_3_and_names_the_way_on(action: Path) -> None:
    """What this machine cannot hold is status 3: guard, remedy, and the visible way to go without."""
    done = cli("explain", action, "--backends", "native", "--backends", "rlimits")
    assert done.returncode == 3
    assert b"NETWORK_OFF" in done.stderr
    assert b"Remedy:" in done.stderr
    assert b"--waive" in done.stderr


def test_doctor_lists_every_primitive(waiver: tuple[str, ...]) -> None:
    """The doctor names each primitive and backend; its status says whether a strict policy is enforceable."""
    plain, data = cli("doctor"), cli("doctor", "--json")
    report = json.loads(data.stdout)
    names = {entry["name"] for entry in report["primitives"]}
    assert {
        "kernel",
        "architecture",
        "python",
        "libc",
        "libseccomp",
        "bubblewrap",
        "cgroup mounts",
        "user namespaces",
    } <= names
    assert {"[landlock]", "[seccomp]", "[cgroups]", "[rlimits]", "[native]"} <= names
    assert all(name in plain.stdout.decode() for name in names)
    assert all(entry["remedy"] for entry in report["primitives"] if not entry["found"])
    assert plain.returncode == data.returncode == (1 if waiver else 0)
    assert report["enforceable"] is not bool(waiver)
    assert cli("doctor", *waiver).returncode == 0


def test_doctor_takes_a_wrong_waiver_as_a_request() -> None:
    """A guard that does not exist is status 2."""
    assert cli("doctor", "--waive", "EVERYTHING").returncode == 2


def test_closed_output_is_no_traceback(action: Path, waiver: tuple[str, ...]) -> None:
    """A reader that has gone ends the command quietly."""
    shell = f'"{sys.executable}" -m sandboxactor doctor | true'
    paths = {"PYTHONPATH": os.pathsep.join([str(TOP), str(TOP / "backends")])}
    done = subprocess.run(["sh", "-c", shell], env=os.environ | paths, capture_output=True, timeout=60, check=False)
    assert b"Traceback" not in done.stderr
    assert b"BrokenPipe" not in done.stderr


@pytest.mark.parametrize("command", [[], ["--help"], ["run"], ["run", "--help"], ["walk"]], ids=" ".join)
def test_usage(command: list[str]) -> None:
    """Usage errors are status 2, help is 0 and documents the exit status."""
    done = cli(*command)
    assert done.returncode == (0 if "--help" in command else 2)
    if command == ["--help"]:
        assert b"exit status" in done.stdout
