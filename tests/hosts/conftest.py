"""The modules, compiled once into a folder that any user may enter."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from modules.build import build

from .stage import play


@pytest.fixture(scope="session")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("hosts")
    build(out)
    return out


@pytest.fixture
def run_scene(modules: Path, tmp_path: Path) -> Callable[[str], str]:
    return lambda scene: play(modules, tmp_path, scene)
