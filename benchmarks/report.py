"""The report: as data, and as people read it."""

from __future__ import annotations

import getpass
import math
import os
import platform
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks import layers
from benchmarks.contestants import BEHIND, WARM, YARDSTICK
from benchmarks.measure import Samples, cpus
from sandboxactor._registry import probe

__all__ = ["TARGET", "import_rows", "machine", "run_rows", "text", "thread_rows"]

TARGET = 0.60
IMPORT_TARGET_MS = 30
WIDTH = 56


def machine() -> dict[str, Any]:
    """What the numbers depend on."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "?"
    return {
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpus": cpus(),
        "cgroups": probe("cgroups").version or "no cgroup",
        "landlock": probe("landlock").version or "none",
        "user": user,
        "uid": os.geteuid(),
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 2),
    }


def run_rows(found: dict[str, Samples]) -> list[dict[str, Any]]:
    """The main table: microseconds, and medians over the yardstick's. Who never ran is among the failures alone."""
    if not found[YARDSTICK].taken:
        raise RuntimeError(f"{YARDSTICK}: {found[YARDSTICK].failure}")
    yard = found[YARDSTICK].p50
    return [
        {
            "name": name,
            "n": len(s.taken),
            "min_us": min(s.taken) / 1e3,
            "p50_us": s.p50 / 1e3,
            "p95_us": s.p95 / 1e3,
            "ratio": s.p50 / yard,
        }
        for name, s in found.items()
        if s.taken
    ]


def thread_rows(found: dict[tuple[str, int], float], ours: str, theirs: str) -> list[dict[str, Any]]:
    """Runs a second, ours beside theirs."""
    return [
        {"threads": n, "sandbox_per_s": found[ours, n], "subprocess_per_s": found[theirs, n]}
        for name, n in found
        if name == ours
    ]


def import_rows(found: dict[str, Samples]) -> list[dict[str, Any]]:
    """Milliseconds of a whole process, and over the bare one (the first)."""
    first = next(iter(found.values()))
    if not first.taken:
        raise RuntimeError(f"no Python starts: {first.failure}")
    bare = first.p50
    return [
        {"name": name, "n": len(s.taken), "p50_ms": s.p50 / 1e6, "over_ms": (s.p50 - bare) / 1e6}
        for name, s in found.items()
        if s.taken
    ]


def text(report: dict[str, Any]) -> str:
    """All of it; the last line is the one that has a target."""
    m = report["machine"]
    lines = [
        f"{m['kernel']}, {m['cpus']} CPUs, {m['cgroups']}, Landlock {m['landlock']}, "
        f"user {m['user']} (uid {m['uid']}), Python {m['python']}, load {m['load']}"
    ]
    lines += [report["note"]] if report["note"] else []
    lines += _runs(report["runs"]) if report["runs"] else []
    lines += _layers(report["layers"]) if report["layers"] else []
    lines += _threads(report["threads"]) if report["threads"] else []
    lines += _imports(report["imports"]) if report["imports"] else []
    lines += [f"FAILED {failure}" for failure in report["failures"]]
    by_name = {row["name"]: row for row in report["runs"]}
    if BEHIND in by_name:
        lines += ["", f"right behind another run, p50 / subprocess p50 = {by_name[BEHIND]['ratio']:.2f}"]
    if WARM in by_name:
        lines += [f"warm p50 / subprocess p50 = {report['ratio']:.2f} (target {TARGET:.2f})"]
    return "\n".join(lines)


def _head(title: str, *columns: str) -> list[str]:
    return ["", f"{title:<{WIDTH}}" + "".join(f"{c:>13}" for c in columns)]


def _line(name: str, *cells: str) -> str:
    return f"{name:<{WIDTH}}" + "".join(f"{c:>13}" for c in cells)


def _runs(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    yield from _head("interleaved, one of each a round, shuffled", "n", "min us", "p50 us", "p95 us", "ratio")
    for r in rows:
        times = [f"{r[f'{what}_us']:.0f}" for what in ("min", "p50", "p95")]
        yield _line(r["name"], str(r["n"]), *times, f"{r['ratio']:.2f}")


def _layers(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    yield from _head("layers, us +- standard error", "warm", "behind", "first")
    for r in rows:
        name = f"  price of {r['layer']}" if r["price"] else r["layer"]
        if r["reason"]:
            yield f"{name}: {r['reason']}"
            continue
        sign, ways = "+" if r["price"] else "", [w for w in layers.WAYS if f"{w}_us" in r]
        cells = [f"{r[f'{w}_us']:{sign}.0f} +-{math.ceil(r[f'{w}_error_us'])}" for w in ways]
        yield _line(name, *cells)
    full = next((r for r in rows if r["layer"] == layers.FULL), None)
    if full and not full["reason"]:
        yield _line("  a stem, its lane and group: first - warm", "", "", f"{full['first_us'] - full['warm_us']:.0f}")
    yield from layers.NOTE


def _threads(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    yield from _head("throughput, runs/s", "Sandbox.run", "subprocess", "ratio")
    for r in rows:
        ours, theirs = r["sandbox_per_s"], r["subprocess_per_s"]
        label = f"{r['threads']} thread{'s' if r['threads'] > 1 else ''}, one Sandbox"
        yield _line(label, f"{ours:.0f}", f"{theirs:.0f}", f"{ours / theirs:.2f}")


def _imports(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    yield from _head(f"start of a Python, ms (target of the import: {IMPORT_TARGET_MS})", "n", "p50 ms", "over bare ms")
    for r in rows:
        yield _line(r["name"], str(r["n"]), f"{r['p50_ms']:.1f}", f"{r['over_ms']:+.1f}")
