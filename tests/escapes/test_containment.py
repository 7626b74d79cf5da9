"""Every attack of the catalogue is refused under `Policy.strict()`, as root and as an ordinary user.

The positive control of each is tests/modules/test_controls.py: there the same modules run unconfined, and succeed.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from modules.catalog import PROBES, SURFACE

from escapes import other_user
from escapes.confined import ROOT, broken, counted, need, survey
from sandboxactor import _registry

# Without Landlock a root of its own may be listed: it holds the libraries and the module's folder, no more.
OWN_ROOT = {"escape_files:list_root", "escape_files:list_etc"}
HIDDEN = {"surface:stat_hidden"}  # Only a mount namespace hides that a name exists.


@pytest.fixture(scope="module")
def python(open_folder: Path) -> tuple[str, Path]:
    """An interpreter of an ordinary user, and the folder that it imports from."""
    staged = other_user.stage(open_folder / "staged")
    found, tried = other_user.interpreter(staged)
    need(found, f"an interpreter that an ordinary user can run ({tried})")
    return found, staged


@pytest.fixture(scope="module")
def surveys() -> dict[str, dict[str, str]]:
    return {}


WHERE = ("here", "ordinary user")


@pytest.fixture(
    params=[f"{who}{without}" for who in WHERE for without in ("", " without namespaces", " without landlock")]
)
def answers(
    request: pytest.FixtureRequest, modules: dict[str, Path], surveys: dict[str, dict[str, str]]
) -> tuple[str, dict[str, str]]:
    """The verdict of each probe, for one user and one choice of backends; surveyed once."""
    where = request.param
    user, _, masked = where.partition(" without ")
    need(ROOT or user == "here", "root, to become another user")
    need(masked == "namespaces" or _registry.probe("namespaces").available, "namespaces")
    need(masked == "landlock" or _registry.probe("landlock").available, "Landlock")
    if where not in surveys:
        built = {name: str(path) for name, path in modules.items()}
        arguments = {"built": built, "without": [masked] if masked else []}
        if user == "here":
            surveys[where] = survey(**arguments)
        else:
            found, staged = request.getfixturevalue("python")
            surveys[where] = other_user.call(found, staged, "survey", **arguments)  # type: ignore[assignment]
    return where, surveys[where]


def test_every_promise_is_kept(answers: tuple[str, dict[str, str]]) -> None:
    """Each probe of surface and escapes gets its confined verdict, and what must go on working works."""
    where, found = answers
    combined = not (counted() and where.startswith("here"))
    failed = broken(found, mount_ns="namespaces" not in where, combined=combined)
    assert {name: said for name, said in failed.items() if "landlock" not in where or name not in OWN_ROOT} == {}


def test_open_surface_is_known_by_name(answers: tuple[str, dict[str, str]]) -> None:
    """Of the kernel surface at most the existence of hidden names is open, and that only without a mount namespace."""
    where, found = answers
    still_open = {p.id for p in SURFACE if found[p.id] not in ("DENIED", "UNSUPPORTED", "SIGSYS")}
    assert still_open == (HIDDEN if "namespaces" in where else set())
    assert len(still_open) <= 3


def test_every_probe_had_its_object(answers: tuple[str, dict[str, str]]) -> None:
    """No verdict stands for an attack that was never made: each object was there to be attacked."""
    _, found = answers
    assert found.keys() == {p.id for p in PROBES}
    assert [name for name, said in found.items() if said in ("missing-key", "no line")] == []


@pytest.mark.skipif(not ROOT, reason="missing: root, to become another user")
def test_ordinary_user_is_one(python: tuple[str, Path]) -> None:
    """The other user's process is no root, in no group of ours: its surveys are about an ordinary user."""
    done = other_user._run(python[0], python[1], ["-c", "import os; print(os.getresuid(), os.getgroups())"], "")
    assert done.stdout.strip() == f"{(other_user.FRESH_ID,) * 3} []"
