"""What the tests of manifests share: the cases, a folder with modules, and a manifest's value or its faults."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from sandboxactor._manifest import Manifest
from sandboxactor.errors import ManifestError

CASES = Path(__file__).parents[1] / "cases" / "manifests"
with (CASES / "INDEX.tsv").open(encoding="utf-8") as index:
    FILES = [row["file"] for row in csv.DictReader(index, delimiter="\t")]

MINIMAL = "action: {name: A}\nruntime: {module: ./a.wasm}\nsandbox: {enabled: true}\n"


def furnish(folder: Path) -> Path:
    """Lay the modules that the manifests name into a folder."""
    for name in ("implementation.so", "a.wasm", "x.SO"):
        (folder / name).write_bytes(b"")
    return folder


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
