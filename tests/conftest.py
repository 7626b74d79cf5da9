"""Fixtures that several folders share: the attack modules, built once in a folder that any user can read."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter: pytest's own are closed to all but the one who runs it."""
    made = Path(tempfile.mkdtemp(prefix="sandboxactor-test-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture(scope="session")
def modules(open_folder: Path) -> dict[str, Path]:
    """Every attack module by its stem, with the unconfined `loader`."""
    from modules.build import build

    return build(open_folder / "modules")
