"""What the tests of the YAML reader share: both parsers, and the value or the faults of a text."""

from __future__ import annotations

import pytest
import yaml

from sandboxactor import _yaml
from sandboxactor._yaml import compose

PARSERS = ["libyaml", "pure"]


def use_parser(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both parsers of PyYAML, since not every wheel has the C one."""
    if name == "pure":
        monkeypatch.setattr(_yaml, "_LOADER", yaml.SafeLoader)
    elif not hasattr(yaml, "CSafeLoader"):
        pytest.skip("PyYAML without libyaml")


def value(text: str) -> object:
    tree = compose(f"k: {text}".encode())
    assert tree.faults == []
    assert isinstance(tree.value, dict)
    return tree.value["k"]


def faults(text: str | bytes) -> list[tuple[str, int, str]]:
    data = text.encode() if isinstance(text, str) else text
    return [(fault.path, fault.line, fault.message) for fault in compose(data).faults]


def check(text: str | bytes, path: str, line: int, word: str) -> None:
    """One of the faults stands at this path and line and says this."""
    found = faults(text)
    assert any(f[:2] == (path, line) and word in f[2] for f in found), found
