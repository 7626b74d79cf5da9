"""What a run could leave or take away: daemons, kernel quotas, descriptors, processes, groups, mounts."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from modules.objects import parse, reports

from escapes.confined import ROOT, counted, host, lines, need, said
from sandboxactor import Policy, Sandbox, _registry


@pytest.fixture
def box() -> Iterator[Sandbox]:
    with Sandbox(Policy.strict(timeout=20, cpu="2000m"), host=host()) as made:
        yield made


def test_one_run_takes_no_timers_from_another(modules: dict[str, Path]) -> None:
    """Kernel quotas counted by user (pending signals) are not shared: what one run takes, its sibling does not lack."""
    policy = Policy.strict(timeout=10)
    with Sandbox(policy, host=host()) as mine, Sandbox(policy, host=host()) as other:
        alone = said(mine.run(modules["attacker"], lines(do="timers")), "timers")
        greedy = threading.Thread(target=lambda: other.run(modules["attacker"], lines(do="timers", ms=1500)))
        greedy.start()
        time.sleep(0.4)
        beside = said(mine.run(modules["attacker"], lines(do="timers")), "timers")
        greedy.join()
    assert alone > 0
    assert beside == alone


def test_limits_of_the_worker(box: Sandbox, modules: dict[str, Path]) -> None:
    """At most six descriptors, a hard core limit of 0, not dumpable, no capability, no environment, no groups."""
    result = box.run(modules["escape_limits"], b"")
    seen = reports(result.output)
    assert int(seen["fd_count"][0]) <= 6
    assert "core 0 0" in seen["limit"]
    assert seen["dumpable"] == ["0"]
    assert seen["environ_count"] == ["0"]
    assert seen["no_new_privs"] == ["1"]
    assert seen["seccomp_mode"] == ["2"]
    assert [word.partition("=")[2].strip("0") for word in seen["caps"][0].split()] == ["", "", ""]
    assert seen["groups"][0].split()[0] == "0" or not ROOT
    assert seen["cwd"] == ["/"]
    uid = seen["uid"][0].split()
    assert set(uid) == {uid[0]}
    assert (uid[0] not in ("0", str(os.getuid()))) if ROOT else uid[0] in (str(os.getuid()), "65534")


def test_nothing_survives_its_run(modules: dict[str, Path], open_folder: Path) -> None:
    """With spawn granted, a double-forked daemon in a session of its own ends with the run and does not delay it."""
    need(_registry.probe("namespaces").available, "namespaces, which spawn needs")
    need(counted(), "control groups, without which a policy that grants processes is refused")
    place = open_folder / f"daemon-{os.getpid()}"
    place.mkdir()
    beat = place / "beat"
    with Sandbox(Policy.strict(spawn=True, workspace=str(place), timeout=10), host=host()) as box:
        began = time.monotonic()
        result = box.run(modules["attacker"], lines(do="daemon", path=beat))
        assert time.monotonic() - began < 1
        size = beat.stat().st_size
        time.sleep(0.3)
        assert beat.stat().st_size == size > 0
        assert parse(result.output)["daemon"].word == "ALLOWED"
        assert box.run(modules["echo"], b"next").output == b"next"


def test_daemon_control(modules: dict[str, Path], open_folder: Path) -> None:
    """Unconfined it goes on after its parent is gone."""
    beat = open_folder / f"beat-{os.getpid()}"
    argv = [modules["loader"], modules["attacker"], "-"]
    run = subprocess.run(argv, input=lines(do="daemon", path=beat), stdout=subprocess.DEVNULL, check=True)
    size = beat.stat().st_size
    time.sleep(0.3)
    assert run.returncode == 0
    assert beat.stat().st_size > size


def _left() -> dict[str, Any]:
    """What runs could leave behind: descriptors, threads, worker processes, control groups, mounts."""
    tops = [top for top in Path("/sys/fs/cgroup").iterdir() if top.is_dir()]
    groups = [p for top in tops for p in top.glob(f"**/sandboxactor-*-{os.getpid()}-*/*") if p.is_dir()]
    return {
        "files": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "processes": len(_workers(os.getpid())),
        "groups": len(groups),
        "mounts": len(Path("/proc/self/mountinfo").read_text().splitlines()),
    }


def _workers(parent: int) -> list[int]:
    """Every process below `parent`; of other processes' sandboxes none is counted."""
    try:
        text = "".join(p.read_text() for p in Path(f"/proc/{parent}/task").glob("*/children"))
    except OSError:
        return []
    children = [int(pid) for pid in text.split()]
    return [*children, *(below for child in children for below in _workers(child))]


def test_a_thousand_runs_leave_nothing(box: Sandbox, modules: dict[str, Path]) -> None:
    """A thousand runs, good ones and crashes: no descriptor, thread, process, group or mount more, and no memory."""
    payloads = (b"echo:x", b"segv", b"_exit:3", b"rc:7", b"write:1:x")
    for payload in payloads * 10:
        box.run(modules["verdicts"], payload)
    time.sleep(0.3)  # the successor of the last worker is forked behind its result
    before, resident = _left(), int(Path("/proc/self/statm").read_text().split()[1])
    for payload in payloads * 200:
        box.run(modules["verdicts"], payload)
    time.sleep(0.3)
    assert _left() == before
    assert (int(Path("/proc/self/statm").read_text().split()[1]) - resident) * 4096 < 4 << 20
