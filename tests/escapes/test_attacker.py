"""An attacker who knows the worker: forged answers, marks for the next run, stem, siblings, the key, memory.

Each attack's control is here: the scanner finds what it is given, the striker strikes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from modules.objects import parse, reports, run_unconfined

from escapes.confined import ROOT, counted, host, lines, need, said
from sandboxactor import Outcome, Policy, Result, Sandbox

OUTPUT = 1 << 20
SPAN = 65536 + OUTPUT  # shared memory behind the first page: payload and answer
SECRET = b"sa-canary-0123456789abcdef"
Call = Callable[..., Result]


def coded(secret: bytes) -> str:
    """A canary that does not stand in the payload itself."""
    return bytes(byte ^ 0x5A for byte in secret).hex()


@pytest.fixture
def box() -> Iterator[Sandbox]:
    with Sandbox(Policy.strict(timeout=20, cpu="2000m", output=OUTPUT), host=host()) as made:
        yield made


@pytest.fixture
def attack(box: Sandbox, modules: dict[str, Path]) -> Call:
    """`attack(do=..., key=...)`: one run of the attacker."""
    return lambda **keys: box.run(modules["attacker"], lines(**keys))


# state, code, size, end: what the module writes into the page that the worker answers in, and how it then ends.
FORGED = [
    (3, 0, 5, "exit", {"ok"}),  # an answer by another way: it is the module's to give
    (3, 0, OUTPUT, "exit", {"ok"}),
    (3, 0, OUTPUT + 1, "exit", {"output"}),
    (3, 0, 1 << 40, "exit", {"output"}),
    (3, 0, (1 << 64) - 1, "exit", {"output"}),
    (3, 7, 1 << 40, "exit", {"error"}),
    (3, 0, 5, "segv", {"crashed"}),
    (3, 0, 5, "4", {"error"}),
    (1, 0, 0, "exit", {"bad_module", "error"}),
    (2, 0, 0, "exit", {"error"}),
    (4, 0, 1 << 40, "exit", {"output", "error"}),
    (4, 0, 5, "exit", {"error"}),
    (4, 0, 5, "return", {"error", "ok"}),
    (5, 0, 5, "exit", {"error"}),
    (0, 0, 0, "exit", {"error"}),
    (99, 0, 1 << 40, "exit", {"error"}),
    ((1 << 32) - 1, -1, 1 << 63, "exit", {"error"}),
]


@pytest.mark.parametrize("forged", FORGED, ids=lambda f: "-".join(map(str, f[:4])))
def test_forged_answers(attack: Call, forged: tuple[int, int, int, str, set[str]]) -> None:
    """A forged answer page yields a plain Result: no exception, no byte beyond the span, no limit that was not met."""
    state, code, size, end, outcomes = forged
    result = attack(do="forge", state=state, code=code, size=size, end=end, text=1)
    assert result.outcome in outcomes
    if result.ok:
        assert result.output == bytes(size if end == "exit" else 0)
    if result.outcome is Outcome.OUTPUT:
        assert result.breach is not None
        assert (result.breach.limit, result.breach.observed) == (OUTPUT, None)  # never a number of the module's
    else:
        assert result.breach is None
    assert result.reason.isprintable()
    assert attack(do="look", span=SPAN).ok


def test_shared_memory_is_clean_for_the_next_run(attack: Call) -> None:
    """What one run writes into all of the shared memory, the next run of the lane does not find."""
    assert attack(do="mark", span=SPAN).ok
    assert said(attack(do="look", span=SPAN), "dirty") == 0
    assert attack(do="forge", state=3, code=0, size=OUTPUT, end="exit", text=1).ok  # an answer that the host maps
    assert said(attack(do="look", span=SPAN), "dirty") == 0


def test_shared_memory_control(attack: Call) -> None:
    """The look is a true one: it counts the bytes of the module's own payload where they are."""
    assert said(attack(do="look", span=SPAN, whole=1), "dirty") == len(lines(do="look", span=SPAN, whole=1))


def test_pipe_flags_do_not_reach_the_next_run(attack: Call) -> None:
    """O_NONBLOCK, O_DIRECT, O_ASYNC and O_APPEND that a module sets on its streams are gone for the next."""
    clean = reports(attack(do="getflags").output)["flags"]
    spoilt = reports(attack(do="flags").output)["flags"]
    assert spoilt[1:] != clean[1:]
    assert reports(attack(do="getflags").output)["flags"] == clean


def test_streams_of_one_run_end_with_it(box: Sandbox, modules: dict[str, Path]) -> None:
    """Bytes that a killed run left in its pipes are its own; the next result has none of them."""
    first = box.run(modules["verdicts"], b"write:1:" + SECRET)
    assert first.stdout == SECRET
    assert box.run(modules["verdicts"], b"raise:9").stdout == b""


@pytest.mark.parametrize("code", [0, 1, 64, 121, 126, 127, 137, 255])
def test_no_exit_status_harms_the_next_run(box: Sandbox, modules: dict[str, Path], code: int) -> None:
    """No status means something to the stem: the next run starts at once, on the same Sandbox."""
    assert box.run(modules["verdicts"], b"_exit:%d" % code).outcome is Outcome.ERROR
    began = time.monotonic()
    assert box.run(modules["verdicts"], b"echo:next").output == b"next"
    assert time.monotonic() - began < 2


@pytest.mark.parametrize("without", ["", "namespaces", "landlock"])
@pytest.mark.parametrize("how", ["kill", "tgkill", "all", "group"])
@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGSTOP])
def test_signals_reach_nobody(without: str, how: str, sig: int, modules: dict[str, Path]) -> None:
    """SIGKILL and SIGSTOP to every pid, every thread, all, or the own group: stem, zygote and siblings live on."""
    policy = Policy.strict(timeout=1, cpu="2000m")
    with Sandbox(policy, host=host([without])) as same, Sandbox(policy, host=host([without])) as other:
        results: list[Result] = []

        def sibling(box: Sandbox) -> None:
            results.append(box.run(modules["attacker"], lines(do="timers", ms=400)))

        threads = [threading.Thread(target=sibling, args=(box,)) for box in (same, same, other)]
        for thread in threads:
            thread.start()
        time.sleep(0.15)
        result = same.run(modules["attacker"], lines(do="strike", how=how, sig=int(sig)))
        for thread in threads:
            thread.join()
        assert [r.outcome for r in results] == [Outcome.OK] * 3
        if how in ("kill", "tgkill"):
            assert said(result, "struck") == 0
        for box in (same, other):
            assert box.run(modules["attacker"], lines(do="getflags")).ok


def test_signals_control(modules: dict[str, Path]) -> None:
    """Unconfined, the same strike ends a process of its user."""
    with subprocess.Popen(["/bin/sleep", "60"]) as sleeper:
        payload = lines(do="strike", how="pid", sig=9, pid=sleeper.pid)
        run = run_unconfined(modules["loader"], modules["attacker"], payload)
        assert reports(run.output)["struck"] == ["1"]
        assert sleeper.wait(timeout=5) == -signal.SIGKILL


def _below(parent: int) -> Iterator[int]:
    try:
        text = "".join(p.read_text() for p in Path(f"/proc/{parent}/task").glob("*/children"))
    except OSError:
        return
    for child in map(int, text.split()):
        yield child
        yield from _below(child)


def _shared_maps(module: Path) -> list[list[str]]:
    """The shared mappings of each process below this one that has the module loaded."""
    found = []
    for pid in _below(os.getpid()):
        with contextlib.suppress(OSError):
            text = Path(f"/proc/{pid}/maps").read_text()
            if module.name in text:
                found.append([line for line in text.splitlines() if line.split()[1].endswith("s")])
    return found


@pytest.mark.skipif(not ROOT, reason="missing: root, to read the maps of a process that is not dumpable")
@pytest.mark.parametrize("spawn", [False, True])
def test_workers_share_memory_with_the_host_alone(spawn: bool, modules: dict[str, Path]) -> None:
    """Of three workers at once each has one shared mapping, its own payload and answer, and none of its siblings'."""
    with Sandbox(Policy.strict(timeout=10, spawn=spawn), host=host()) as box:
        together(box, modules, *[lines(do="timers", ms=600 + n) for n in range(2)])  # both lanes have been used before
        runs = [
            threading.Thread(target=box.run, args=(modules["attacker"], lines(do="timers", ms=800))) for _ in range(3)
        ]
        for run in runs:
            run.start()
            time.sleep(0.05)
        time.sleep(0.1)
        maps = _shared_maps(modules["attacker"])
        for run in runs:
            run.join()
    assert len(maps) == 3
    assert [len(shared) for shared in maps] == [1, 1, 1], maps
    assert len({shared[0].split()[4] for shared in maps}) == 3


def together(box: Sandbox, modules: dict[str, Path], *payloads: bytes) -> list[Result]:
    """The attacker's runs on these payloads, at once, in order."""
    with ThreadPoolExecutor(len(payloads)) as pool:
        started = []
        for payload in payloads:
            started.append(pool.submit(box.run, modules["attacker"], payload))
            time.sleep(0.03)
        return [future.result() for future in started]


@pytest.mark.parametrize("spawn", [False, True])
def test_verdict_of_a_sibling_is_not_forged(spawn: bool, modules: dict[str, Path]) -> None:
    """A run that overwrites all that it can reach beside its own memory does not change how its sibling ended."""
    need(not spawn or counted(), "control groups, without which a policy that grants processes is refused")
    with Sandbox(Policy.strict(timeout=10, cpu="2000m", spawn=spawn, output=OUTPUT), host=host()) as box:
        for _ in range(6):
            victim, smear = together(box, modules, lines(do="timers", ms=250), lines(do="smear", ms=500, span=SPAN))
            assert victim.ok, victim
            assert said(smear, "wrote") > 0


@pytest.mark.parametrize("without", ["", "cgroups"])
def test_memory_holds_no_key(without: str, modules: dict[str, Path]) -> None:
    """No word that a module can read, whole or by halves, lets it fork as the stem does; the scan is not cut short."""
    with Sandbox(Policy.strict(timeout=60, cpu="2000m"), host=host([without])) as box:
        result = box.run(modules["attacker"], lines(do="keyscan", ms=40_000))
    assert parse(result.output)["keyscan"].word == "DENIED"
    assert reports(result.output)["ended"] == ["whole"]
    assert said(result, "pages") > 300
    assert said(result, "tried") > 100_000


def test_key_is_not_guessed(attack: Call) -> None:
    """Neither the special values nor 200,000 random ones are the key, and they cost no more than the time they take."""
    result = attack(do="guess", count=200_000)
    assert parse(result.output)["guess"].word == "DENIED"
    assert said(result, "tried") > 200_000


@pytest.mark.parametrize("do", ["keyscan", "guess"])
def test_key_control(do: str, modules: dict[str, Path]) -> None:
    """Unconfined the first try forks: the scan would tell."""
    run = run_unconfined(modules["loader"], modules["attacker"], lines(do=do, ms=5000, count=1))
    assert parse(run.output)[do].word == "ALLOWED"


def test_scan_control(box: Sandbox, modules: dict[str, Path]) -> None:
    """A canary that is in memory is found: the module's own payload, and the policy's environment."""
    result = box.run(modules["attacker"], lines(do="scan", canary=coded(SECRET)) + b"x=" + SECRET + b"\n")
    assert said(result, "hits") >= 1
    with Sandbox(Policy.strict(env={"KEY": SECRET.decode() * 8}), host=host()) as given:
        assert said(given.run(modules["attacker"], lines(do="scan", canary=coded(SECRET))), "hits") >= 1


def test_memory_holds_nothing_of_earlier_runs(box: Sandbox, attack: Call, modules: dict[str, Path]) -> None:
    """Payload and answer of another module's run, on the same Sandbox, are nowhere in a worker's memory."""
    for module, size in (("echo", 100), ("echo", 400_000), ("attacker", 100)):
        box.run(modules[module], b"x=" + SECRET * size)
    assert said(attack(do="scan", canary=coded(SECRET)), "hits") == 0


def test_memory_holds_nothing_of_the_host(modules: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """The host's environment, set before or after the library started, is nowhere in a worker's memory."""
    monkeypatch.setenv("SA_SECRET", SECRET.decode())
    script = """if True:
        import sys
        from escapes.confined import host, lines
        from sandboxactor import Policy, Sandbox
        with Sandbox(Policy.strict(), host=host()) as box:
            print(box.run(sys.argv[1], lines(do='scan', canary=sys.argv[2])).output)
    """
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    argv = [sys.executable, "-c", script, str(modules["attacker"]), coded(SECRET), SECRET.decode()]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=True, timeout=60)
    assert r"hits=INFO 0\n" in done.stdout


def test_memory_holds_nothing_of_other_sandboxes(modules: dict[str, Path]) -> None:
    """The environment that another Sandbox of this host grants its modules is nowhere in a worker's memory."""
    granted = {f"K{i}": SECRET.decode() for i in range(400)}
    with Sandbox(Policy.strict(env=granted), host=host()) as other, Sandbox(Policy.strict(), host=host()) as mine:
        assert other.run(modules["echo"], b"x").ok
        assert said(mine.run(modules["attacker"], lines(do="scan", canary=coded(SECRET))), "hits") == 0


def test_module_cannot_write_itself(attack: Call, modules: dict[str, Path]) -> None:
    """The file that the next run loads stays as it is."""
    before = modules["attacker"].stat()
    assert parse(attack(do="again").output)["own_module"].word == "DENIED"
    assert modules["attacker"].stat().st_mtime_ns == before.st_mtime_ns
