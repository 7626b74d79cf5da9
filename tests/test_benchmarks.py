"""The benchmarks run, and every row is there. No time is asserted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    argv = [sys.executable, "-m", "benchmarks", "--quick", "--rounds", "2", "--json"]
    done = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=110)
    assert done.returncode == 0, done.stderr + done.stdout
    made: dict[str, Any] = json.loads(done.stdout)
    return made


def test_every_contestant_has_a_row_with_numbers(report: dict[str, Any]) -> None:
    from benchmarks.contestants import BEHIND, COLD, COLD_UP, WARM, YARDSTICK

    rows = {row["name"]: row for row in report["runs"]}
    assert report["failures"] == []
    assert next(iter(rows)) == YARDSTICK
    assert rows[YARDSTICK]["ratio"] == 1.0
    assert {WARM, BEHIND, COLD, COLD_UP} <= rows.keys()
    assert {"64 KiB", "16 MiB"} <= {" ".join(name.split()[-2:]) for name in rows}
    assert sum(name.startswith("C fork") for name in rows) == 2
    assert sum("asleep" in name for name in rows) == 2
    assert all(row["n"] >= 1 and 0 < row["p50_us"] <= row["p95_us"] and row["ratio"] > 0 for row in rows.values())


def test_every_layer_has_a_price_or_a_reason(report: dict[str, Any]) -> None:
    from benchmarks.contestants import YARDSTICK
    from benchmarks.layers import ALWAYS, FULL, NONE
    from sandboxactor._registry import BUILTIN

    rows = {row["layer"]: row for row in report["layers"]}
    assert {YARDSTICK, FULL, NONE, *BUILTIN} - {*ALWAYS} <= rows.keys()
    del rows[YARDSTICK]
    assert all(row["reason"] or {"warm_us", "behind_us", "first_us"} <= row.keys() for row in rows.values())


def test_throughput_starts_and_the_machine_are_there(report: dict[str, Any]) -> None:
    assert [row["threads"] for row in report["threads"]] == [1, 2, 4, 8]
    assert all(row["sandbox_per_s"] > 0 and row["subprocess_per_s"] > 0 for row in report["threads"])
    assert [row["name"] for row in report["imports"]][:2] == ["python -c pass", "import sandboxactor"]
    assert report["machine"].keys() >= {"kernel", "cpus", "cgroups", "user", "python"}
    assert report["ratio"] > 0


def test_the_text_ends_with_the_ratio_and_its_target(report: dict[str, Any]) -> None:
    from benchmarks.report import text

    lines = text(report).splitlines()
    assert lines[0].startswith(report["machine"]["kernel"])
    assert lines[-1] == f"warm p50 / subprocess p50 = {report['ratio']:.2f} (target 0.60)"


def test_a_contestant_that_fails_is_named_and_leaves_the_race() -> None:
    from benchmarks.measure import Contestant, interleave

    calls: list[int] = []

    def fails() -> int:
        calls.append(1)
        raise RuntimeError("broken")

    found = interleave([Contestant("good", lambda: 5), Contestant("bad", fails)], rounds=3)
    assert found["good"].taken == [5, 5, 5]
    assert (found["bad"].failure, found["bad"].taken, len(calls)) == ("RuntimeError: broken", [], 1)
