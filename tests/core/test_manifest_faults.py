"""Manifests that are refused: hostile files in, every fault with its path and line out."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from core.manifest_kit import CASES, FILES, MINIMAL, box_faults, faults, furnish, load
from sandboxactor._manifest import Manifest
from sandboxactor.errors import ManifestError, SandboxError

NET = "$.sandbox.network.allow[0]"
MEM, CPU, MODULE, NAME, SPAWN = (
    "$.sandbox.memory.max", "$.sandbox.cpu.max", "$.runtime.module", "$.action.name", "$.sandbox.process.spawn",
)  # fmt: skip
# file number -> path, line, a key word of the right reason
REASONS: dict[int, tuple[str, int, str]] = {
    1: (SPAWN, 16, "duplicate"), 3: (SPAWN, 16, "duplicate"), 5: ("$.L1.<<", 2, "merge key"),
    7: ("$.sandbox.process.<<", 16, "merge key"), 9: (MEM, 20, "tag"), 11: ("$", 1, "empty"),
    13: ("$", 1, "mapping"), 15: ("$.sandbox.netwrok", 16, "did you mean 'network'"), 17: (NAME, 1, "required"),
    19: ("$.sandbox.network", 16, "null"), 21: ("$", 1, "deeper than 16"), 23: ("$", 15, "tab"), 25: ("$", 2, "UTF-8"),
    27: (NET, 18, "NUL"), 31: (SPAWN, 15, "true or false"), 33: (SPAWN, 15, "null"), 35: (NET, 18, "quote it"),
    37: (NET, 18, "quote it"), 39: (NAME, 2, "quote it"), 41: (NAME, 2, "dotted parts"),
    43: (NAME, 2, "at most 128"), 45: ("$.sandbox.enabled", 6, "true or false"), 51: (MEM, 20, "such as 64MiB"),
    53: (MEM, 20, "such as 64MiB"), 55: (MEM, 20, "from 4MiB"), 57: (MEM, 20, "such as 64MiB"),
    59: (MEM, 20, "such as 64MiB"), 61: (MEM, 20, "whole number"), 63: (MEM, 20, "such as 64MiB"),
    65: (MEM, 20, "2^63-1"), 67: (MEM, 20, "such as 64MiB"), 69: (MEM, 20, "from 4MiB"), 71: (MEM, 20, "a list"),
    81: (CPU, 22, "from 10m"), 83: (CPU, 22, "such as 500m"), 85: (CPU, 22, "such as 500m"),
    87: (CPU, 22, "such as 500m"), 89: (CPU, 22, "such as 500m"), 91: (CPU, 22, "null"),
    93: (MODULE, 4, "absolute"), 95: (MODULE, 4, "NUL"), 97: (MODULE, 4, "empty"), 99: (MODULE, 4, "absolute"),
    101: (MODULE, 4, "suffix"), 111: (NET, 18, "public suffix"), 113: (NET, 18, "wildcard"),
    115: (NET, 18, "empty label"), 117: (NET, 18, "scheme"), 119: (NET, 18, "userinfo"), 121: (NET, 18, "port"),
    123: (NET, 18, "list"), 125: (NET, 18, "not ASCII"), 127: (NET, 18, "not ASCII"), 129: (NET, 18, "IP literal"),
    131: (NET, 18, "IP literal"), 133: (NET, 18, "IP literal"), 135: (NET, 18, "IP literal"), 137: (NET, 18, "empty"),
    139: (NET, 18, "empty label"), 141: (NET, 18, "253"), 143: (NET, 18, "CIDR"),
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return furnish(tmp_path)


def test_the_cases_are_all_here() -> None:
    """The index, the files and the reasons name the same cases."""
    assert sorted(FILES) == sorted(path.name for path in CASES.glob("*.yaml"))
    assert {int(name.split("_")[1]) for name in FILES if name.startswith("reject")} == set(REASONS)


@pytest.mark.parametrize("file", [name for name in FILES if name.startswith("reject")])
def test_rejected_cases_for_their_reason(folder: Path, file: str) -> None:
    """Each is refused at its path and line for its own reason, and one fault alone where one thing is wrong."""
    found = faults(folder, (CASES / file).read_bytes())
    number = int(file.split("_")[1])
    path, line, word = REASONS[number]
    assert any(f[:2] == (path, line) and word in f[2] for f in found), found
    if number not in {5, 7}:
        assert len(found) == 1, found


MANY_FAULTS = """\
action: {name: 007, title: x}
runtime: {module: ./missing.so}
sandbox:
  enabled: false
  scope: host
  process: {spawn: no, spawn: true, max: 0}
  network: {allow: [api.bank.com, "*.com", 1:30]}
  memory: {max: 64mib}
  cpu: &x {max: 50%}
  timeout: 60
  filesystem:
    self: {read: false}
    workspace: {write: true}
    read: /etc
input: {type: y}
"""
MANY_PLACES = [
    ("$.action.title", 1),
    ("$.action.name", 1),
    ("$.runtime.module", 2),
    ("$.sandbox.enabled", 4),
    ("$.sandbox.scope", 5),
    ("$.sandbox.process.spawn", 6),
    ("$.sandbox.process.spawn", 6),
    ("$.sandbox.process.max", 6),
    ("$.sandbox.network.allow[1]", 7),
    ("$.sandbox.network.allow[2]", 7),
    ("$.sandbox.memory.max", 8),
    ("$.sandbox.cpu", 9),
    ("$.sandbox.cpu.max", 9),
    ("$.sandbox.timeout", 10),
    ("$.sandbox.filesystem.self.read", 12),
    ("$.sandbox.filesystem.workspace.path", 13),
    ("$.sandbox.filesystem.read", 14),
    ("$.input.type", 15),
]


def test_the_report_is_one_line_a_fault(folder: Path) -> None:
    """`FILE:LINE: $.path: message`, in the order of the lines, every kind of fault at once."""
    with pytest.raises(ManifestError) as caught:
        load(folder, MANY_FAULTS)
    error = caught.value
    assert isinstance(error, SandboxError)
    assert isinstance(error, ValueError)
    assert [fault.line for fault in error.faults] == sorted(fault.line for fault in error.faults)
    assert sorted((fault.path, fault.line) for fault in error.faults) == sorted(MANY_PLACES)
    lines = str(error).splitlines()
    assert len(lines) == len(error.faults)
    for line, fault in zip(lines, error.faults, strict=True):
        assert line == f"{folder / 'action.yaml'}:{fault.line}: {fault.path}: {fault.message}"


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("{}\n", ["$.action", "$.runtime", "$.sandbox"]),
        ("action: {}\nruntime: {}\nsandbox: {}\n", ["$.action.name", "$.runtime.module", "$.sandbox.enabled"]),
    ],
)
def test_required_keys(folder: Path, text: str, missing: list[str]) -> None:
    """Three keys are required; each absence is told."""
    assert [(path, "required" in message) for path, _, message in faults(folder, text)] == [(m, True) for m in missing]


@pytest.mark.parametrize(
    ("body", "path", "hint"),
    [
        ("  memmory: {max: 64MiB}", "$.sandbox.memmory", "memory"),
        ("  memory: {maximum: 64MiB}", "$.sandbox.memory.maximum", "max"),
        ("  filesystem: {slef: {read: true}}", "$.sandbox.filesystem.slef", "self"),
        ("  filesystem: {own: {read: true}}", "$.sandbox.filesystem.own", "known are"),
        ("  filesystem: {tmp: {writable: true}}", "$.sandbox.filesystem.tmp.writable", "write"),
        ("  network: {alow: []}", "$.sandbox.network.alow", "allow"),
        ("  enforce: false", "$.sandbox.enforce", "known are"),
        ("  waive: [CPU_MAX]", "$.sandbox.waive", "known are"),
    ],
)
def test_unknown_keys_name_the_nearest(folder: Path, body: str, path: str, hint: str) -> None:
    """A misspelt limit is never a limit left out; and no key can waive a guard."""
    ((where, message),) = box_faults(folder, body)
    assert where == path
    assert "unknown key" in message
    assert hint in message


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (f"  {key}: {value}", f"$.sandbox.{key}")
        for key in ("filesystem", "process", "network", "memory", "cpu", "output")
        for value in ("true", "5", "text", "[]", "''")
    ]
    + [(f"  memory: {{max: {v}}}", MEM) for v in ("true", "[]", "{}", "64.5", "'67108864'", "-1", "1_000", "0x4000000")]
    + [(f"  cpu: {{max: {v}}}", CPU) for v in ("true", "[]", "{}", "0", "-1", "1e1", "0.0001", "1025", ".5", "'0x1'")]
    + [(f"  timeout: {v}", "$.sandbox.timeout") for v in ("60", "0.5", "true", "{max: 60s}", "1:30", "60", "'60'")]
    + [
        (f"  process: {{max: {v}}}", "$.sandbox.process.max")
        for v in ("'30'", "true", "30.0", "0", "[30]", "3e1", "030")
    ]
    + [(f"  process: {{spawn: {v}}}", SPAWN) for v in ("0", "1", "'true'", "True", "yes", "[]", "{}", "text")]
    + [(f"  network: {{allow: {v}}}", "$.sandbox.network.allow") for v in ("api.bank.com", "true", "{a: 1}", "5")]
    + [(f"  network: {{allow: [{v}]}}", NET) for v in ("5", "1.5", "true", "[a.b.com]", "{a: b}", "on", "2001-12-14")]
    + [
        (f"  filesystem: {{read: [{v}]}}", "$.sandbox.filesystem.read[0]")
        for v in ("5", "''", "~x", "true", "no", "[a]")
    ]
    + [(f"  enabled2: {v}", "$.sandbox.enabled2") for v in ("true",)]
    + [(f"  scope: {v}", "$.sandbox.scope") for v in ("host", "true", "Action", "[action]", "''")]
    + [(f"  output: {{max: {v}}}", "$.sandbox.output.max") for v in ("0", "true", "8MB", "-1")]
    + [(f"  filesystem: {{tmp: {{max: {v}}}}}", "$.sandbox.filesystem.tmp.max") for v in ("0", "1", "8MB", "true")],
)
def test_wrong_types_are_errors(folder: Path, body: str, path: str) -> None:
    """Nothing is coerced: a value of another YAML type is one fault at its path."""
    assert [where for where, _ in box_faults(folder, body)] == [path]


@pytest.mark.parametrize("value", ["no", "5", "[]", "{}", "''", "a b", "../x", "'a}}'"])
def test_secrets_are_names(folder: Path, value: str) -> None:
    """A secret is asked for by a name and nothing else."""
    found = box_faults(folder, "", f"permissions: {{secrets: [OK, {value}]}}")
    assert [where for where, _ in found] == ["$.permissions.secrets[1]"]


@pytest.mark.parametrize(
    "name", ["A" * 129, ".A", "A.", "A..B", "1A", "-A", "A.1", "A/B", "'A\\n'", "caf\u00e9", "''", "A B", "true"]
)
def test_bad_action_names(folder: Path, name: str) -> None:
    """What could be a path, an option or another line is no name."""
    assert [path for path, _, _ in faults(folder, MINIMAL.replace("name: A", f"name: {name}"))] == ["$.action.name"]


@pytest.mark.parametrize(
    ("module", "word"),
    [
        ("/bin/true", "absolute"),
        ("../outside.so", "leaves"),
        ("sub/../../outside.so", "leaves"),
        ("out.so", "leaves"),
        ("away/x.so", "leaves"),
        ("missing.so", "No such file"),
        ("a.wasm/x.so", "Not a directory"),
        ("loop.so", "symbolic links"),
        ("dir.so", "regular"),
        ("fifo.so", "regular"),
        ("sub", "suffix"),
        ("x.SO", "suffix"),
        ("plain", "suffix"),
        ("x.so.1", "suffix"),
        (".", "suffix"),
        ("~/x.so", "not expanded"),
        (f"{'a' * 300}.so", "too long"),
        ("proc.so", "leaves"),
    ],
)
def test_modules_that_are_refused(tmp_path: Path, module: str, word: str) -> None:
    """The module is a regular file in the manifest's own folder, symlinks resolved, of a known kind."""
    folder = tmp_path / "action"
    (folder / "sub").mkdir(parents=True)
    (tmp_path / "outside.so").write_bytes(b"")
    (tmp_path / "action2").mkdir()
    (tmp_path / "action2" / "x.so").write_bytes(b"")
    for name in ("a.wasm", "x.SO", "plain", "x.so.1"):
        (folder / name).write_bytes(b"")
    (folder / "out.so").symlink_to("../outside.so")
    (folder / "away").symlink_to("../action2")
    (folder / "loop.so").symlink_to("loop.so")
    (folder / "proc.so").symlink_to("/proc/self/exe")
    (folder / "dir.so").mkdir()
    os.mkfifo(folder / "fifo.so")
    start = time.monotonic()
    ((path, line, message),) = faults(folder, MINIMAL.replace("./a.wasm", f'"{module}"'))
    assert time.monotonic() - start < 2
    assert (path, line) == ("$.runtime.module", 2)
    assert word in message


def test_files_that_are_no_manifests(folder: Path) -> None:
    """Missing, a folder, unreadable names, a FIFO, a device: a ManifestError on line 0, at once."""
    os.mkfifo(folder / "fifo")
    start = time.monotonic()
    for path in (
        folder / "missing.yaml",
        folder,
        folder / "fifo",
        "/dev/zero",
        "a\0b",
        "",
        "x" * 5000,
        folder / "x.SO" / "y",
    ):
        with pytest.raises(ManifestError) as caught:
            Manifest.load(path)
        assert [(fault.path, fault.line) for fault in caught.value.faults] == [("$", 0)]
        assert str(caught.value).isprintable()
    assert time.monotonic() - start < 2
    for wrong in (None, 5, ["action.yaml"]):
        with pytest.raises(TypeError):
            Manifest.load(wrong)  # type: ignore[arg-type]


def test_a_file_s_name_cannot_write_lines(folder: Path) -> None:
    """One line a fault, whatever the file is called."""
    (folder / "a\nb:1: $: forged").write_text("{}")
    with pytest.raises(ManifestError) as caught:
        Manifest.load(folder / "a\nb:1: $: forged")
    assert len(str(caught.value).splitlines()) == len(caught.value.faults) == 3


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ("{a: yes}", "$.input.a"),
        ("{a: [1, {b: 0x1}]}", "$.input.a[1].b"),
        ("[]", "$.input"),
        ("text", "$.input"),
        ("{a: ~}", "$.input.a"),
    ],
)
def test_semantic_types_hold_nothing_unclear(folder: Path, value: str, path: str) -> None:
    """They are kept as they stand, so that what stands there must be plain."""
    assert [where for where, _, _ in faults(folder, MINIMAL + f"input: {value}\n")] == [path]
