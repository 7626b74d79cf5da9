"""Manifests: hostile files in, one value or every fault with its path and line out."""

# A fuzzed call may pass or raise, and both are checked (PT017).
# ruff: noqa: PT017

from __future__ import annotations

import csv
import os
import pickle
import shutil
import time
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandboxactor._manifest import Manifest
from sandboxactor._policy import FrozenMap, Policy
from sandboxactor.errors import ManifestError, SandboxError

CASES = Path(__file__).parents[1] / "cases" / "manifests"
with (CASES / "INDEX.tsv").open(encoding="utf-8") as index:
    FILES = [row["file"] for row in csv.DictReader(index, delimiter="\t")]

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
    for name in ("implementation.so", "a.wasm", "x.SO"):
        (tmp_path / name).write_bytes(b"")
    return tmp_path


MINIMAL = "action: {name: A}\nruntime: {module: ./a.wasm}\nsandbox: {enabled: true}\n"


def load(folder: Path, text: str | bytes) -> Manifest:
    (folder / "action.yaml").write_bytes(text.encode() if isinstance(text, str) else text)
    return Manifest.load(folder / "action.yaml")


def box(folder: Path, body: str, rest: str = "", module: str = "./a.wasm") -> Manifest:
    return load(
        folder, f"action: {{name: A}}\nruntime: {{module: {module}}}\nsandbox:\n  enabled: true\n{body}\n{rest}\n"
    )


def faults(folder: Path, text: str | bytes) -> list[tuple[str, int, str]]:
    with pytest.raises(ManifestError) as caught:
        load(folder, text)
    return [(fault.path, fault.line, fault.message) for fault in caught.value.faults]


def box_faults(folder: Path, body: str, rest: str = "", module: str = "./a.wasm") -> list[tuple[str, str]]:
    with pytest.raises(ManifestError) as caught:
        box(folder, body, rest, module)
    return [(fault.path, fault.message) for fault in caught.value.faults]


def test_the_cases_are_all_here() -> None:
    """The index, the files and the reasons name the same cases."""
    assert sorted(FILES) == sorted(path.name for path in CASES.glob("*.yaml"))
    assert {int(name.split("_")[1]) for name in FILES if name.startswith("reject")} == set(REASONS)


@pytest.mark.parametrize("file", [name for name in FILES if name.startswith("accept")])
def test_accepted_cases(folder: Path, file: str) -> None:
    """Each is accepted, and asks for what it spells."""
    shutil.copy(CASES / file, folder / "action.yaml")
    manifest = Manifest.load(folder / "action.yaml")
    if file == "accept_02_minimal.yaml":
        assert (manifest.name, manifest.module, manifest.asked) == ("A", folder / "a.wasm", Policy.strict())
        return
    network = [] if "no_network" in file else ["api.bank.com"]
    assert (manifest.name, manifest.module) == ("Payment.CreatePix", folder / "implementation.so")
    assert manifest.asked == Policy.strict(memory="64MiB", cpu="100m", tmp="64MiB", network=network)
    assert manifest.omitted == {"processes", "timeout", "output", "input", "state_max", "tmp"}


@pytest.mark.parametrize("file", [name for name in FILES if name.startswith("reject")])
def test_rejected_cases_for_their_reason(folder: Path, file: str) -> None:
    """Each is refused at its path and line for its own reason, and one fault alone where one thing is wrong."""
    found = faults(folder, (CASES / file).read_bytes())
    number = int(file.split("_")[1])
    path, line, word = REASONS[number]
    assert any(f[:2] == (path, line) and word in f[2] for f in found), found
    if number not in {5, 7}:
        assert len(found) == 1, found


def test_the_report_is_one_line_a_fault(folder: Path) -> None:
    """`FILE:LINE: $.path: message`, in the order of the lines, every kind of fault at once."""
    text = """\
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
    with pytest.raises(ManifestError) as caught:
        load(folder, text)
    error = caught.value
    assert isinstance(error, SandboxError)
    assert isinstance(error, ValueError)
    assert [fault.line for fault in error.faults] == sorted(fault.line for fault in error.faults)
    assert sorted((fault.path, fault.line) for fault in error.faults) == sorted(
        [
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
    )
    lines = str(error).splitlines()
    assert len(lines) == len(error.faults)
    for line, fault in zip(lines, error.faults, strict=True):
        assert line == f"{folder / 'action.yaml'}:{fault.line}: {fault.path}: {fault.message}"


def test_every_key(folder: Path) -> None:
    """All keys of the contract, and what each becomes."""
    manifest = box(
        folder,
        """\
  scope: action
  filesystem:
    self: {read: true, execute: false}
    tmp: {write: true, max: 8MiB}
    state: {write: true, max: 4MiB}
    workspace: {path: work, write: true}
    read: [/opt/x, ../lib, .]
  process: {spawn: true, max: 3}
  network: {allow: [API.bank.com, "*.eu.bank.com:8443"]}
  memory: {max: 67108864}
  cpu: {max: 0.25}
  timeout: 250ms
  output: {max: 1KiB}""",
        """\
permissions:
  net_outbound: ["api.bank.com:443", b.bank.com]
  secrets: [KEY, API_KEY]
input: {type: object, max_bytes: 10, fields: [{name: a, max_scale: 0.5}]}
output: {type: string, flag: true}""",
    )
    assert manifest.asked == Policy.strict(
        memory="64MiB", cpu="250m", processes=3, timeout="250ms", output="1KiB", tmp="8MiB", spawn=True,
        read=["/opt/x", folder.parent / "lib", folder], workspace=folder / "work", state=True, state_max="4MiB",
        network=["api.bank.com", "*.eu.bank.com:8443", "b.bank.com"], secrets=["API_KEY", "KEY"],
    )  # fmt: skip
    assert manifest.omitted == {"input"}
    assert isinstance(manifest.input, FrozenMap)
    assert manifest.input["fields"][0]["name"] == "a"
    assert manifest.input["max_bytes"] == 10
    assert dict(manifest.output or {}) == {"type": "string", "flag": True}


def test_a_manifest_is_a_value(folder: Path) -> None:
    """Frozen, hashable, picklable, down to its semantic types."""
    manifest = load(folder, MINIMAL + "input: {type: [a, {b: 1}]}\n")
    for other in (load(folder, MINIMAL + "input: {type: [a, {b: 1}]}\n"), pickle.loads(pickle.dumps(manifest))):
        assert other == manifest
        assert hash(other) == hash(manifest)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        manifest.name = "B"  # type: ignore[misc]
    assert manifest.input is not None
    with pytest.raises(TypeError):
        manifest.input["type"] = "c"  # type: ignore[index]


@pytest.mark.parametrize("prefix", [b"\xef\xbb\xbf", b"---\n", b"# caf\xc3\xa9\n"])
def test_harmless_beginnings(folder: Path, prefix: bytes) -> None:
    """A BOM, a document start and comments change nothing."""
    assert load(folder, prefix + MINIMAL.encode()) == load(folder, MINIMAL)


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


@pytest.mark.parametrize("name", ["A", "Payment.CreatePix", "a-b_c.D9", "A" * 128, "A." * 63 + "AB"])
def test_action_names(folder: Path, name: str) -> None:
    """Dotted parts that begin with a letter, at most 128 characters."""
    assert load(folder, MINIMAL.replace("name: A", f"name: {name}")).name == name


@pytest.mark.parametrize(
    "name", ["A" * 129, ".A", "A.", "A..B", "1A", "-A", "A.1", "A/B", "'A\\n'", "caf\u00e9", "''", "A B", "true"]
)
def test_bad_action_names(folder: Path, name: str) -> None:
    """What could be a path, an option or another line is no name."""
    assert [path for path, _, _ in faults(folder, MINIMAL.replace("name: A", f"name: {name}"))] == ["$.action.name"]


def test_self(folder: Path) -> None:
    """Left out means read and execute; what a module cannot run without cannot be switched off."""
    assert box_faults(folder, "  filesystem: {self: {read: false}}")[0][0] == "$.sandbox.filesystem.self.read"
    ((path, message),) = box_faults(folder, "  filesystem: {self: {execute: false}}", module="implementation.so")
    assert path == "$.sandbox.filesystem.self.execute"
    assert "cannot run" in message
    assert box(folder, "  filesystem: {self: {execute: false}}").asked == Policy.strict()


def test_capabilities_need_write_true(folder: Path) -> None:
    """A size or a path alone grants nothing."""
    body = "  filesystem: {tmp: {max: 8MiB}, state: {max: 8MiB}, workspace: {path: w, write: false}}"
    assert box(folder, body).asked == Policy.strict(state_max="8MiB")


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


def test_modules_that_are_accepted(tmp_path: Path) -> None:
    """Links and `..` that stay inside are fine; the path is absolute and its folder resolved, its name kept."""
    real = tmp_path / "real"
    (real / "sub").mkdir(parents=True)
    (tmp_path / "alias").symlink_to(real)
    (real / "libx.so.1").write_bytes(b"")
    (real / "libx.so").symlink_to("libx.so.1")
    (real / "sub" / "m.actonpkg").write_bytes(b"")
    (real / "link").symlink_to("sub")
    (real / "t.wat").write_bytes(b"")
    for folder in (real, tmp_path / "alias"):
        for module, where in (
            ("libx.so", "libx.so"),
            ("sub/../libx.so", "libx.so"),
            ("link/m.actonpkg", "sub/m.actonpkg"),
            ("./t.wat", "t.wat"),
        ):
            manifest = load(folder, MINIMAL.replace("./a.wasm", module))
            assert manifest.module == real / where
            assert manifest.module.is_absolute()


def test_the_module_does_not_depend_on_the_working_directory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths of a manifest are relative to its folder, the manifest's own to the working directory."""
    load(folder, MINIMAL)
    monkeypatch.chdir(folder)
    manifest = Manifest.load("action.yaml")
    monkeypatch.chdir("/")
    assert manifest.module == folder / "a.wasm"


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


def test_loading_leaks_no_descriptor(folder: Path) -> None:
    """A host loads manifests for years."""
    os.mkfifo(folder / "fifo")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        load(folder, MINIMAL)
        for path in (folder, folder / "fifo", folder / "missing"):
            with pytest.raises(ManifestError):
                Manifest.load(path)
    assert len(os.listdir("/proc/self/fd")) == before


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


def only_manifest_errors(folder: Path, data: bytes) -> None:
    start = time.monotonic()
    try:
        load(folder, data)
    except ManifestError as error:
        assert error.faults
        assert len(str(error).splitlines()) == len(error.faults)
        assert all(fault.path.startswith("$") and fault.message for fault in error.faults)
    assert time.monotonic() - start < 5


FUZZ = settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
CANONICAL = (CASES / "accept_01_canonical.yaml").read_bytes()
TOKENS = [
    *"abk:-?[]{},&*!|>'\"%@`# \n\t\0~=<1.",
    "sandbox:",
    "  memory: {max: ",
    "network:",
    "\n  ",
    "---\n",
    "<<: ",
    "&a ",
]


@FUZZ
@given(data=st.binary(max_size=300))
def test_any_bytes(folder: Path, data: bytes) -> None:
    """Nothing but ManifestError is raised, in bounded time."""
    only_manifest_errors(folder, data)


@FUZZ
@given(text=st.lists(st.sampled_from(TOKENS) | st.text(max_size=4), max_size=40).map("".join))
def test_any_text(folder: Path, text: str) -> None:
    """Nor for text that looks like YAML."""
    only_manifest_errors(folder, text.encode("utf-8", "surrogatepass"))
    only_manifest_errors(folder, MINIMAL.encode() + text.encode("utf-8", "surrogatepass"))


@FUZZ
@given(data=st.data())
def test_any_damage_to_a_manifest(folder: Path, data: st.DataObject) -> None:
    """Nor for a manifest of which a part was replaced; and damage never widens what is asked unseen."""
    start = data.draw(st.integers(0, len(CANONICAL)))
    end = data.draw(st.integers(start, min(len(CANONICAL), start + 12)))
    middle = data.draw(st.binary(max_size=6) | st.sampled_from(TOKENS).map(str.encode))
    only_manifest_errors(folder, CANONICAL[:start] + middle + CANONICAL[end:])


SCALARS: st.SearchStrategy[Any] = st.sampled_from(
    [
        "true",
        "false",
        "~",
        "no",
        "5",
        "-1",
        "0.5",
        "1e3",
        "64MiB",
        "100m",
        "60s",
        "a.bank.com",
        "''",
        '"\\0"',
        "[]",
        "{}",
        "[a, 1]",
        "*a",
    ]
)
SECTIONS = st.tuples(st.sampled_from(["max", "allow", "write", "tmp", "spawn"]), SCALARS).map(
    lambda pair: f"{{{pair[0]}: {pair[1]}}}"
)
KEYS = ["enabled", "scope", "filesystem", "process", "network", "memory", "cpu", "timeout", "output", "zzz"]


@FUZZ
@given(pairs=st.dictionaries(st.sampled_from(KEYS), SCALARS | SECTIONS, max_size=5))
def test_any_structure(folder: Path, pairs: dict[str, str]) -> None:
    """Nor for any value in any place."""
    body = "".join(f"  {key}: {value}\n" for key, value in pairs.items())
    only_manifest_errors(
        folder, f"action: {{name: A}}\nruntime: {{module: a.wasm}}\nsandbox:\n{body or '  {}'}\n".encode()
    )
