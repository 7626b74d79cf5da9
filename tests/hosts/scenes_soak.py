"""Thousands of runs on one host: what it holds afterwards is what it held before."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import threading
import time
from pathlib import Path

from sandboxactor import Sandbox

from .kit import ECHO, VERDICTS, box, children, echoes, fds, groups, mounts, ours, together, until

RUNS = int(os.environ.get("SANDBOXACTOR_SOAK", "1000"))


def _rss() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def _memory_groups() -> int:
    """Memory control groups of the machine, dying ones included; 0 where it cannot be read."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cgroups").read_text().splitlines():
            if line.startswith("memory\t"):
                return int(line.split("\t")[2])
    return 0


def _temporary() -> set[str]:
    """The folder that tempfile uses is this scene's own; the rest of /tmp belongs to others too."""
    return {name for folder in ("/dev/shm", os.environ["TMPDIR"]) for name in os.listdir(folder)}


def _held() -> dict[str, int]:
    return {
        "descriptors": len(fds()), "threads": len(os.listdir("/proc/self/task")), "processes": len(ours()),
        "children": len(children()), "groups": len(groups()), "mounts": len(mounts()), "temporary": len(_temporary()),
    }  # fmt: skip


def _settled() -> dict[str, int]:
    """What is held once every lane has its next worker parked."""
    time.sleep(0.3)
    return _held()


def _a_run(b: Sandbox, chance: random.Random) -> None:
    """One of the ways a run ends; most end well."""
    ends = [b"rc:3", b"abort", b"segv", b"exit:1", b"flood:1", b"scribble", b"badabi", b"bgthreads:2"]
    word = chance.choice([b"echo:x"] * 4 + ends)
    if chance.random() < 0.7:
        echoes(b, chance.randbytes(chance.choice((0, 1, 100, 5000, 70_000))))
    else:
        b.run(VERDICTS, word)


def one_sandbox_many_runs() -> None:
    """RUNS runs on one Sandbox, all kinds of endings: no descriptor, thread, process, group, mount, temporary file; RSS
    within a small constant; no dying memory group."""
    chance = random.Random(7)
    with box() as b:
        for _ in range(150):
            _a_run(b, chance)
        before, rss, dying = _settled(), _rss(), _memory_groups()
        for _ in range(RUNS):
            _a_run(b, chance)
        assert until(lambda: _held() == before, 2), (_held(), before)  # the last worker's successor is parked by then
        assert _rss() - rss < (4 << 20) + RUNS * 64, (_rss() - rss) >> 10
        assert _memory_groups() - dying <= 8 + RUNS // 500, (_memory_groups(), dying)
    assert {k: v for k, v in _held().items() if k in ("processes", "children", "groups")} == dict.fromkeys(
        ("processes", "children", "groups"), 0
    )


def many_sandboxes() -> None:
    """RUNS/20 Sandboxes, made, used by a thread or two and closed: the same."""

    def one() -> None:
        with box() as b:
            together([lambda: echoes(b, b"x" * 300_000)] * 2)

    for _ in range(5):
        one()
    before, rss, dying = _settled(), _rss(), _memory_groups()
    for _ in range(RUNS // 20):
        one()
    assert until(lambda: _held() == before, 2), (_held(), before)
    assert _rss() - rss < (4 << 20) + RUNS * 64, (_rss() - rss) >> 10
    assert _memory_groups() - dying <= 16 + RUNS // 100, (_memory_groups(), dying)


def timeouts_and_limits() -> None:
    """Runs that end by their deadline or their memory give their lanes up: none of it piles up."""
    with box(timeout="60ms", memory="24MiB", output="64KiB") as b:

        def four() -> None:
            for word in (b"hang", b"alloc:100", b"big:100000", b"stop"):
                assert not b.run(VERDICTS, word).ok or word == b"alloc:100"

        four()
        before = _settled()
        for _ in range(RUNS // 100):
            four()
        assert b.run(ECHO, b"x").ok
        spare = {"descriptors": 22, "processes": 4, "groups": 4}  # one lane more or less
        assert until(lambda: all(n <= before[k] + spare.get(k, 0) for k, n in _held().items()), 2), (_held(), before)
    assert not ours()
    assert threading.active_count() == 1
