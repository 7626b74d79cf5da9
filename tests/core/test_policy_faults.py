"""Arguments of Policy and HostPolicy that are refused: at the call, by the field's name, with the cure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sandboxactor._host import HostPolicy
from sandboxactor._policy import Policy
from sandboxactor.errors import InvalidPolicy, SandboxError
from sandboxactor.spi import Guard

BOTH = pytest.mark.parametrize("made", [Policy.strict, HostPolicy], ids=["policy", "host"])
NO_BOOLS: list[object] = [1, 0, "no", None, "true", []]
WRONG: list[tuple[str, Any, str]] = [
    *[("memory", value, "64MiB") for value in ("64mib", 0, -1, None, True, 1.5, float("nan"), "1KiB", 2**63)],
    *[("cpu", value, "500m") for value in ("50%", 0, -1, None, True, float("nan"), float("inf"), "1m", 1025)],
    *[("timeout", value, "60s") for value in ("60", 0, -1, 0.0, None, True, float("nan"), float("inf"), "")],
    *[("processes", value, "30") for value in ("30", 0, -1, None, True, 1.5, 2**23)],
    *[(name, value, "MiB") for name in ("output", "input") for value in ("8MB", 0, -1, None, True)],
    *[("tmp", value, "MiB") for value in ("8MB", 0, -1, True, 1)],
    *[("state_max", value, "MiB") for value in (None, 0, "1M")],
    *[(name, value, "True or False") for name in ("spawn", "state") for value in NO_BOOLS],
    *[(name, "/a", "brackets") for name in ("read", "network", "secrets")],
    *[
        (name, value, "list is wanted")
        for name in ("read", "network", "secrets")
        for value in (None, 5, b"x", {"a": 1})
    ],
    ("read", Path("/a"), "brackets"),
    ("read", ["/a", 5], "no str"),
    ("read", [b"/a"], "no str"),
    ("read", [""], "empty"),
    ("read", ["~/x"], "not expanded"),
    ("read", ["~root"], "not expanded"),
    ("read", ["/a\0b"], "NUL"),
    ("read", ["/\ud800"], "encoded"),
    ("workspace", "", "empty"),
    ("workspace", "~", "not expanded"),
    ("workspace", "/w\0", "NUL"),
    ("workspace", ["/w"], "no str"),
    ("workspace", True, "no str"),
    ("network", ["*.com"], "public suffix"),
    ("network", ["127.0.0.1"], "IP literal"),
    ("network", [None], "quoted host name"),
    ("secrets", [""], "API_KEY"),
    ("secrets", ["../x"], "API_KEY"),
    ("secrets", ["a}}"], "API_KEY"),
    ("secrets", [5], "API_KEY"),
    ("secrets", ["x" * 129], "API_KEY"),
    ("env", None, "mapping"),
    ("env", ["A=1"], "mapping"),
    ("env", "A=1", "mapping"),
    ("env", {"": "1"}, "variable"),
    ("env", {"A=B": "1"}, "variable"),
    ("env", {"A\0": "1"}, "NUL"),
    ("env", {"A": "1\0"}, "NUL"),
    ("env", {"A": 1}, "no str"),
    ("env", {1: "A"}, "no str"),
    ("env", {"A": None}, "no str"),
]


@BOTH
@pytest.mark.parametrize(("field", "value", "cure"), WRONG)
def test_a_bad_argument_names_field_and_cure(made: Callable[..., Any], field: str, value: Any, cure: str) -> None:
    """InvalidPolicy, a SandboxError and a ValueError, at the call, with the field's name in front."""
    with pytest.raises(InvalidPolicy, match=rf"^{field}: .*{cure}") as caught:
        made(**{field: value})
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, SandboxError)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("made", [Policy.strict, Policy, HostPolicy, lambda **k: Policy.for_commands("/w", **k)])
def test_an_unknown_keyword_names_the_nearest_right_one(made: Callable[..., Any]) -> None:
    """A misspelt limit must not be a limit that is silently not there."""
    for wrong, right in (
        ("memroy", "memory"),
        ("time_out", "timeout"),
        ("networking", "network"),
        ("procs", "processes"),
    ):
        with pytest.raises(InvalidPolicy, match=f"unknown keyword '{wrong}'.*'?{right}'?"):
            made(**{wrong: 1})


def test_fields_are_keywords_only() -> None:
    """A position means nothing to a reader."""
    with pytest.raises(TypeError):
        Policy("64MiB")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("field", "value", "cure"),
    [
        ("networks", "10.0.0.0/8", "brackets"),
        ("networks", ["10.0.0.1/8"], "host bits set"),
        ("networks", ["10.0.0.1"], "CIDR"),
        ("networks", ["10.0.0.0/255.0.0.0"], "CIDR"),
        ("networks", ["10.0.0.0/33"], "CIDR"),
        ("networks", ["010.0.0.0/8"], "CIDR"),
        ("networks", ["fe80::%eth0/64"], "CIDR"),
        ("networks", [5], "CIDR"),
        ("networks", [None], "CIDR"),
        ("networks", ["bank.com/8"], "CIDR"),
        ("backends", "landlock", "brackets"),
        ("backends", ["landlock", "landlock"], "twice"),
        ("backends", ["../x"], "no name"),
        ("backends", [None], "no name"),
        ("waive", "CPU_MAX", "brackets"),
        ("waive", Guard.CPU_MAX, "brackets"),
        ("waive", ["CPU"], "did you mean 'CPU_MAX'"),
        ("waive", [5], "Guard.CPU_MAX"),
        ("waive", None, "list is wanted"),
        ("features", "threads", "brackets"),
        ("features", [""], "no name"),
        ("python", "", "empty"),
        ("python", 3, "no str"),
        ("python", "/x\0", "NUL"),
        ("wasm_in_process", 1, "True or False"),
    ],
)
def test_bad_host_arguments(field: str, value: Any, cure: str) -> None:
    """The host's own fields are as strict as the ceilings."""
    with pytest.raises(InvalidPolicy, match=rf"^{field}: .*{cure}"):
        HostPolicy(**{field: value})
