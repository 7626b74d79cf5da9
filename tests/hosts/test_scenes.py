"""Every scene, each as one test: the promise is its docstring."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from . import (
    scenes_conditions,
    scenes_faults,
    scenes_files,
    scenes_forks,
    scenes_life,
    scenes_limits,
    scenes_payloads,
    scenes_signals,
    scenes_threads,
)
from .stage import promise, scenes

MODULES = (
    scenes_threads, scenes_conditions, scenes_forks, scenes_signals, scenes_faults, scenes_limits, scenes_life,
    scenes_payloads, scenes_files,
)  # fmt: skip
ALL = [f"{m.__name__.rpartition('.')[2]}:{name}" for m in MODULES for name in scenes(m)]


@pytest.mark.parametrize("scene", ALL)
def test_scene(scene: str, run_scene: Callable[[str], str]) -> None:
    """The scene's own promise holds, and nothing of its process is left behind it."""
    run_scene(scene)


def test_every_scene_states_its_promise() -> None:
    """A scene without a docstring promises nothing."""
    assert [s for s in ALL if not promise(s)] == []
    assert len(ALL) > 50
