"""A short run of every fuzz target: they build, start from real messages and find nothing at once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.fuzz.__main__ import TARGETS, build, executed, missing, run

SECONDS = int(os.environ.get("SANDBOXACTOR_FUZZ_SECONDS", "10"))


@pytest.mark.timeout(SECONDS + 110)
@pytest.mark.parametrize("name", TARGETS)
def test_fuzz_target_finds_nothing(name: str, tmp_path: Path) -> None:
    """No input of a short run makes the code that decodes it fail under ASan and UBSan, leak, or keep a descriptor."""
    if why := missing():
        if os.environ.get("SANDBOXACTOR_STRICT") == "1":
            pytest.fail(why)
        pytest.skip(why)
    done = run(build(name, tmp_path), SECONDS, tmp_path / "corpus")
    assert done.returncode == 0, done.stderr[-8000:]
    assert executed(done) > 1000, "the target hardly ran"
