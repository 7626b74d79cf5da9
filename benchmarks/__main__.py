"""`python -m benchmarks [--rounds N] [--quick] [--layers] [--json]`. It asserts no time: the status is 1 only if
something did not run."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from typing import Any

import attrs

from benchmarks import contestants, layers, report
from benchmarks.contestants import YARDSTICK, Workshop
from benchmarks.measure import Samples, interleave, rates
from sandboxactor import SandboxError

THREADS = (1, 2, 4, 8)


@attrs.frozen
class Effort:
    """How much of each part."""

    rounds: int
    layers: int
    slices: int
    slice_s: float
    imports: int


FULL = Effort(rounds=300, layers=150, slices=5, slice_s=0.4, imports=25)
QUICK = Effort(rounds=24, layers=12, slices=1, slice_s=0.15, imports=3)


def _options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="What a run costs, beside a process.")
    parser.add_argument("--rounds", type=int, metavar="N", help=f"rounds of the main table ({FULL.rounds})")
    parser.add_argument("--quick", action="store_true", help="a look in less than 20 seconds")
    parser.add_argument("--layers", action="store_true", help="the prices of the layers alone")
    parser.add_argument("--json", action="store_true", help="everything as one JSON object")
    options = parser.parse_args(argv)
    if options.rounds is not None and options.rounds < 1:
        parser.error("--rounds: at least 1")
    return options


def _effort(options: argparse.Namespace) -> Effort:
    effort = QUICK if options.quick else FULL
    if options.rounds is None:
        return effort
    return attrs.evolve(effort, rounds=options.rounds, layers=max(1, options.rounds // 2))


def _failures(found: dict[str, Samples]) -> list[str]:
    return [f"{name}: {s.failure}" for name, s in found.items() if s.failure]


def measure(shop: Workshop, effort: Effort, *, quick: bool, only_layers: bool) -> dict[str, Any]:
    """The whole report as data."""
    made: dict[str, Any] = {"machine": report.machine(), "note": shop.note, "target": report.TARGET}
    made |= {"runs": [], "layers": [], "threads": [], "imports": [], "failures": [], "ratio": None}
    if not only_layers:
        # Small runs among themselves: one that moves 16 MiB or sleeps leaves cold caches and a halted processor.
        every = list(contestants.runs(shop, quick))
        for group in (every[: contestants.SMALL], [every[0], *every[contestants.SMALL :]]):
            found = interleave(iter(group), effort.rounds)
            rows = report.run_rows(found)
            made["runs"] += rows[1:] if made["runs"] else rows  # each group has the yardstick beside it; shown once
            made["failures"] += _failures(found)
        made["ratio"] = next((r["ratio"] for r in made["runs"] if r["name"] == contestants.WARM), None)
    made["layers"], failures = layers.prices(shop, effort.layers)
    made["failures"] += failures
    if not only_layers:
        box, ours = shop.sandbox(), contestants.WARM
        works = {ours: lambda: contestants.run_once(box, shop.module), YARDSTICK: contestants.subprocess_true}
        rate = rates(works, THREADS, effort.slice_s, effort.slices)  # type: ignore[arg-type]
        made["threads"] = report.thread_rows(rate, ours, YARDSTICK)
        found = interleave(contestants.starts(shop), effort.imports)
        made["imports"] = report.import_rows(found)
        made["failures"] += _failures(found)
    return made


def main(argv: list[str] | None = None) -> int:
    """Measures and prints."""
    options = _options(argv)
    try:
        with Workshop() as shop:
            made = measure(shop, _effort(options), quick=options.quick, only_layers=options.layers)
    except (SandboxError, OSError, RuntimeError, subprocess.CalledProcessError) as e:
        print(f"benchmarks: {type(e).__name__}: {e}", file=sys.stderr)
        return 1
    print(json.dumps(made, indent=1) if options.json else report.text(made))
    return 1 if made["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
