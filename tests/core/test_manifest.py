"""Manifests: what is accepted and what it asks for; and whatever the bytes are, nothing but ManifestError is raised."""

# A fuzzed call may pass or raise, and both are checked (PT017).
# ruff: noqa: PT017

from __future__ import annotations

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

from core.manifest_kit import CASES, FILES, MINIMAL, box, box_faults, furnish, load
from sandboxactor._manifest import Manifest
from sandboxactor._policy import FrozenMap, Policy
from sandboxactor.errors import ManifestError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return furnish(tmp_path)


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


@pytest.mark.parametrize("name", ["A", "Payment.CreatePix", "a-b_c.D9", "A" * 128, "A." * 63 + "AB"])
def test_action_names(folder: Path, name: str) -> None:
    """Dotted parts that begin with a letter, at most 128 characters."""
    assert load(folder, MINIMAL.replace("name: A", f"name: {name}")).name == name


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
