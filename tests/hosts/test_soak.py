"""The long runs; SANDBOXACTOR_SOAK=10000 makes them long indeed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from . import scenes_soak
from .stage import play, scenes


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("scene", scenes(scenes_soak))
def test_soak(scene: str, modules: Path, tmp_path: Path) -> None:
    """Nothing grows with the number of runs."""
    limit = 60 + int(os.environ.get("SANDBOXACTOR_SOAK", "1000")) * 0.1
    play(modules, tmp_path, f"scenes_soak:{scene}", limit)
