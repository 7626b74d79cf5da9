"""Attacks that reviewers thought of, each with the control that shows it would have worked."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from modules.build import build

from escapes.confined import host, need
from sandboxactor import InvalidPolicy, Policy, Sandbox, WorkerFault
from sandboxactor._lane import Lane


@pytest.fixture(scope="module")
def echo(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("reviewed")
    return str(build(folder)["echo"])


@pytest.mark.parametrize("field", ["read", "workspace"])
def test_a_granted_path_is_not_followed_through_a_symlink(tmp_path: Path, field: str) -> None:
    """A module with a writable tree turns what another was granted into a link to /etc: that grant is refused, and a
    Sandbox made before the swap does not show the new place either."""
    room = tmp_path / "out"
    room.mkdir()
    grant = {field: [room] if field == "read" else room}
    with Sandbox(Policy.strict(**grant), host=host()):
        pass  # the control: as a folder of its own it is granted
    room.rename(tmp_path / "away")
    room.symlink_to("/etc")
    assert (room / "passwd").exists()
    with pytest.raises(InvalidPolicy, match="symlink"):
        Sandbox(Policy.strict(**grant), host=host())


def test_a_swap_behind_the_sandbox_is_refused(tmp_path: Path, echo: str) -> None:
    """The tree is pinned when the Sandbox is made: swapped before its first run, the run is this machine's fault."""
    room = tmp_path / "out"
    room.mkdir()
    with Sandbox(Policy.strict(read=[room]), host=host()) as box:
        room.rename(tmp_path / "away")
        room.symlink_to("/etc")
        with pytest.raises(WorkerFault):
            box.run(echo)


_SCHEDULED = """if True:
    import os, sys
    from pathlib import Path
    from escapes.confined import host
    from sandboxactor import Policy, Sandbox
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    assert os.sched_getscheduler(0) == os.SCHED_RR
    with Sandbox(Policy.strict(), host=host()) as box:
        assert box.run(sys.argv[1], b"x").output == b"x"
        below, found = [os.getpid()], []
        while below:
            pid = below.pop()
            kids = [int(k) for k in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
            below += kids
            found += [(os.sched_getscheduler(k), int(Path(f"/proc/{k}/oom_score_adj").read_text())) for k in kids]
    print(found)
"""


def test_workers_are_scheduled_as_anybody(echo: str) -> None:
    """A real-time host starts no real-time worker, which would escape its quota, and none that OOM spares."""
    control = "import os; os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1)); print(os.sched_getscheduler(0))"
    allowed = subprocess.run([sys.executable, "-c", control], capture_output=True, text=True, check=False)
    need(allowed.returncode == 0, "root with CAP_SYS_NICE, to be a real-time host")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run(
        [sys.executable, "-c", _SCHEDULED, echo], capture_output=True, text=True, env=env, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("(0, 500)") >= 3, done.stdout  # zygote, stem and parked worker
    assert "(2, " not in done.stdout


@pytest.mark.parametrize(
    ("wider", "word"),
    [({"output": (1 << 40) + 1}, "output"), ({"env": {f"V{i}": "x" for i in range(1001)}}, "env")],
    ids=["output", "env"],
)
def test_what_no_worker_could_hold_is_refused_at_once(wider: dict[str, object], word: str) -> None:
    """A bound that would be cut or overflow later is an error that names the field, before anything starts."""
    with pytest.raises(InvalidPolicy, match=word):
        Sandbox(Policy.strict(**wider), host=host())


def test_a_lease_that_failed_is_waited_for_by_nobody(echo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread keeps the exception of a run that got no lane: who closes the Sandbox finds nothing running."""
    box = Sandbox(Policy.strict(), host=host())
    kept: list[BaseException] = []

    def refused(*_: object) -> None:
        raise WorkerFault("no lane")

    with monkeypatch.context() as patched:
        patched.setattr(Lane, "_open", refused)
        thread = threading.Thread(target=lambda: _keep(kept, box, echo))
        thread.start()
        thread.join(10)
    assert [type(e) for e in kept] == [WorkerFault]
    assert not list(box._pool._leases)
    box.close()


def _keep(kept: list[BaseException], box: Sandbox, module: str) -> None:
    try:
        box.run(module)
    except WorkerFault as e:
        kept.append(e)
