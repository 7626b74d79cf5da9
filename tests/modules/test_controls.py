"""Each attack works unconfined, so that its refusal inside means something; and all leave the machine as it was.

Needs root with its usual capabilities: an ordinary user is refused many of these by the kernel itself.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from . import build as building
from . import catalog
from .behaviours import BEHAVIOURS, HANGS, Behaviour
from .objects import HostObjects, Run, Verdict, parse, reports, run_unconfined

_CAP_SYS_ADMIN = 21


def _privileged() -> bool:
    status = Path("/proc/self/status").read_text()
    found = re.search(r"^CapEff:\s*([0-9a-f]+)", status, re.M)
    return os.geteuid() == 0 and found is not None and bool(int(found[1], 16) >> _CAP_SYS_ADMIN & 1)


needs_root = pytest.mark.skipif(not _privileged(), reason="the positive controls need root with CAP_SYS_ADMIN")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return building.build(tmp_path_factory.mktemp("modules"))


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostObjects]:
    with HostObjects(tmp_path_factory.mktemp("objects")) as made:
        yield made


def _machine() -> dict[str, object]:
    """What no attack may have changed."""
    return {
        "names": os.uname(),
        "mounts": Path("/proc/self/mountinfo").read_text(),
        "swaps": Path("/proc/swaps").read_text(),
        "shm": Path("/proc/sysvipc/shm").read_text().split("\n", 1)[0],
        "leftovers": [p for p in ("/tmp", "/var/tmp", "/dev/shm", "/", ".") if list(Path(p).glob(".sa-*"))],
    }


@pytest.fixture(scope="module")
def answers(built: dict[str, Path], objects: HostObjects) -> dict[str, dict[str, Verdict]]:
    """Each module run once for all its probes, and the lonely ones by name."""
    machine, folder = _machine(), objects.snapshot()
    found: dict[str, dict[str, Verdict]] = {}
    for module in catalog.MODULES:
        found[module] = parse(_answered(run_probe(built, objects, module)).output)
    for probe in catalog.PROBES:
        if probe.alone and probe.unconfined:
            found[probe.module] |= parse(_answered(run_probe(built, objects, probe.module, probe.name)).output)
    assert _machine() == machine
    assert objects.snapshot() == folder
    assert objects.sleeper.poll() is None
    return found


def run_probe(built: dict[str, Path], objects: HostObjects, module: str, probe: str = "") -> Run:
    return run_unconfined(built["loader"], built[module], objects.payload(probe), shell_parent=True)


def _answered(run: Run) -> Run:
    assert run.status == 0, run
    assert run.head.startswith(b"rc=0 "), run
    return run


@needs_root
@pytest.mark.parametrize("probe", [p for p in catalog.PROBES if p.unconfined], ids=lambda p: p.id)
def test_attack_works_unconfined(probe: catalog.Probe, answers: dict[str, dict[str, Verdict]]) -> None:
    """Root without confinement gets what the catalogue says: the attack is a real one."""
    verdict = answers[probe.module][probe.name]
    assert verdict.detail != "missing-key"
    assert verdict.word in probe.unconfined, verdict


@needs_root
def test_catalogue_is_complete(answers: dict[str, dict[str, Verdict]]) -> None:
    """No module says a line that the catalogue does not know, and no name is there twice."""
    ids = [p.id for p in catalog.PROBES]
    assert len(ids) == len(set(ids))
    said = {f"{module}:{name}" for module, lines in answers.items() for name in lines}
    assert said - set(ids) - {"escape_limits:fd_escape"} == set()


@needs_root
def test_ordinary_probes_mostly_work(answers: dict[str, dict[str, Verdict]]) -> None:
    """A table of ENV and KERNEL alone would prove nothing: most attacks are seen to succeed on this very machine."""
    judged = [(p, answers[p.module][p.name]) for p in catalog.PROBES if p.unconfined and p.module != "escape_sockets"]
    allowed = [p.id for p, verdict in judged if verdict.word == "ALLOWED"]
    assert len(allowed) >= len(judged) * 4 // 5


def test_missing_keys_are_said(built: dict[str, Path]) -> None:
    """A probe that lacks its object says so, and is never taken for refused."""
    for name in ("signal_host", "tcp_loopback", "stat_hidden", "chmod"):
        lines = parse(run_unconfined(built["loader"], built["surface"], name.encode()).output)
        assert lines == {name: Verdict("UNSUPPORTED", 0, "missing-key")}


def test_reports_show_what_the_host_gave(built: dict[str, Path]) -> None:
    """The reports see environment, arguments, descriptors and identity where nothing hides them."""
    run = _answered(run_unconfined(built["loader"], built["escape_limits"], b""))
    seen = reports(run.output)
    assert "SECRET_CANARY=sa-canary" in seen["environ"]
    assert str(built["escape_limits"]) in seen["cmdline"][0]
    assert int(seen["fd_count"][0]) == len(seen["fd"]) >= 3
    assert seen["uid"] == [" ".join([str(os.getuid())] * 3)]
    assert len(seen["limit"]) == 16
    assert {"gid", "groups", "caps", "no_new_privs", "seccomp_mode", "cwd", "cgroup"} <= set(seen)


def test_constructor_reaches_out_unconfined(built: dict[str, Path]) -> None:
    """What a constructor tries while the module loads succeeds without confinement."""
    lines = parse(_answered(run_unconfined(built["loader"], built["ctor_probe"])).output)
    assert {name: v.word for name, v in lines.items()} == dict.fromkeys(
        ("ctor_read_passwd", "ctor_socket", "ctor_fork", "ctor_exec", "ctor_signal_parent"), "ALLOWED"
    )


@pytest.mark.parametrize("case", BEHAVIOURS, ids=lambda c: c.id)
def test_behaviour_unconfined(case: Behaviour, built: dict[str, Path]) -> None:
    """Each behaviour does unconfined what it says, so that its Result is about that and nothing else."""
    limit = 0.7 if case.status is HANGS else 20
    run = run_unconfined(built["loader"], built[case.module], case.payload, timeout=limit)
    assert run.status == case.status, run.stderr[-300:]
    if case.output is not None and case.status == 0 and case.payload != b"flood:1":
        assert re.search(rb"rc=0 outn=\d+\n" + case.output + rb"\Z", run.stdout), run.stdout[-300:]
    if case.code is not None and case.status == 0 and b"exit" not in case.id.encode():
        assert run.head.split()[0] == f"rc={case.code}".encode()


def test_free_is_called_once(built: dict[str, Path]) -> None:
    """`freecount` makes the calls of free visible on descriptor 2."""
    run = run_unconfined(built["loader"], built["verdicts"], b"freecount")
    assert run.stderr == b"free called 1 times, 10 bytes\n"


def test_flood_is_a_flood(built: dict[str, Path]) -> None:
    """`flood:N` writes N MiB to each of descriptors 1 and 2."""
    run = run_unconfined(built["loader"], built["verdicts"], b"flood:3")
    assert run.stdout.count(b"A") == run.stderr.count(b"A") == 3 << 20


def test_alloc_tells_how_far_it_got(built: dict[str, Path]) -> None:
    """`alloc:N` stops at ENOMEM (here by the address-space limit of the harness) and still answers."""
    run = _answered(run_unconfined(built["loader"], built["verdicts"], b"alloc:4096"))
    assert (m := re.search(rb"alloc=(\d+) errno=12\n", run.output))
    assert 1000 < int(m[1]) < 2048


def test_burn_uses_processor_time(built: dict[str, Path]) -> None:
    """`burn:MS` cannot end before it has used so much processor time."""
    start = time.monotonic()
    _answered(run_unconfined(built["loader"], built["verdicts"], b"burn:300"))
    assert time.monotonic() - start >= 0.25


def test_build_is_cached(built: dict[str, Path]) -> None:
    """A second build of unchanged sources touches nothing."""
    out = built["echo"].parent
    before = {p: p.stat().st_mtime_ns for p in out.iterdir()}
    assert building.build(out) == built
    assert {p: p.stat().st_mtime_ns for p in out.iterdir()} == before


def test_needed_library_is_really_gone(built: dict[str, Path]) -> None:
    """wants_missing.so fails for its library, not for a symbol."""
    run = run_unconfined(built["loader"], built["wants_missing"])
    assert (run.status, run.stderr[:16]) == (3, b"libsa_missing.so")
