"""The host is SIGKILLed: one second later nothing of it lives, whatever it was doing and whoever was forked from it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from . import kit
from .stage import start

Scene = Callable[[str], "subprocess.Popen[str]"]


@pytest.fixture
def host(modules: Path, tmp_path: Path) -> Iterator[Scene]:
    started: list[subprocess.Popen[str]] = []

    def begin(name: str) -> subprocess.Popen[str]:
        started.append(start(modules, tmp_path, f"doomed:{name}"))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def _said(process: subprocess.Popen[str]) -> list[int]:
    """The pids that a doomed host names once it is where the test wants it."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("ready"), (line, process.stderr.read() if process.stderr else "")
    return [int(word) for word in line.split()[1:]]


@pytest.mark.parametrize("doing", ["idle", "hang", "hang_masked", "sleep_masked", "threads", "starting", "two_boxes"])
def test_killed_host(host: Scene, doing: str) -> None:
    """SIGKILL in the middle of it: no process, control group or mount one second later."""
    process = host(doing)
    _said(process)
    assert kit.until(lambda: kit.ours(process.pid), 2)
    process.kill()
    process.wait()
    kit.gone(process.pid, 1.0)


@pytest.mark.parametrize("doing", ["child_idle", "child_runs"])
def test_killed_host_with_a_living_fork(host: Scene, doing: str) -> None:
    """A forked child holds every descriptor of the host and lives on: the host's sandbox is gone all the same, and the
    child's own works."""
    process = host(doing)
    (child,) = _said(process)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    try:
        kit.gone(process.pid, 1.0)
        assert kit.stat_of(child)[0] in ("S", "R")
        os.kill(child, signal.SIGUSR1)
        assert process.stdout is not None
        assert process.stdout.readline() == "child ran\n"
    finally:
        os.kill(child, signal.SIGKILL)
    kit.gone(child, 1.0)


def test_killed_child_with_a_living_host(host: Scene) -> None:
    """The other way round: the child dies in its run, the host's sandbox works on."""
    process = host("child_runs")
    (child,) = _said(process)
    assert kit.ours(child)
    os.kill(child, signal.SIGKILL)
    kit.gone(child, 1.0)
    assert kit.ours(process.pid)


def test_killed_by_turns(host: Scene) -> None:
    """Ten hosts killed at ten moments of their start: none leaves anything."""
    for turn in range(10):
        process = host("restless")
        time.sleep(0.15 + 0.03 * turn)
        process.kill()
        process.wait()
        kit.gone(process.pid, 1.0)


def test_host_and_zygote_killed_together(host: Scene) -> None:
    """Host and zygote die in the same moment: processes are gone; the groups are swept by the next host of this
    machine."""
    process = host("hang")
    _said(process)
    for pid in [process.pid, *(p for p in kit.ours(process.pid) if kit.stat_of(p)[1] == process.pid)]:
        os.kill(pid, signal.SIGKILL)
    process.wait()
    assert kit.until(lambda: not kit.ours(process.pid), 1.0)
    following = host("idle")
    _said(following)
    assert kit.until(lambda: not kit.groups(process.pid), 1.0), kit.groups(process.pid)


def test_terminated_host(host: Scene) -> None:
    """SIGTERM with Python's default disposition ends the host without any finalizer: the same."""
    process = host("hang")
    _said(process)
    process.terminate()
    process.wait()
    kit.gone(process.pid, 1.0)


def test_terminal_hangs_up(host: Scene) -> None:
    """SIGINT to the whole process group, as a terminal sends it: the zygote is in a session of its own and the host
    alone decides, by KeyboardInterrupt."""
    process = host("hang")
    _said(process)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(5) == -signal.SIGINT
    kit.gone(process.pid, 1.0)
