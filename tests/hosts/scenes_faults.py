"""Somebody kills or stops what stands between two runs: a clean fault at most, and then everything works again."""

from __future__ import annotations

import contextlib
import os
import signal
import time

import pytest

from sandboxactor import Outcome, Result, Sandbox, WorkerFault

from .kit import ECHO, VERDICTS, Tree, box, clean_after, echoes, fds, good, groups, spawn, stat_of, ticks, until, within


def _dead(pid: int) -> bool:
    return stat_of(pid)[0] in ("", "Z")


def _kill(pids: list[int]) -> None:
    assert pids
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    assert until(lambda: all(map(_dead, pids)), 2)


def _next_works(b: Sandbox) -> None:
    """The next run works or is a WorkerFault; the one behind it works."""
    with within(3):
        with contextlib.suppress(WorkerFault):
            echoes(b, b"first")
        echoes(b, b"second")
    for turn in range(20):
        echoes(b, b"%d" % turn)


def zygote_killed() -> None:
    """The zygote is SIGKILLed between two runs, three times over; in the end nothing is left, groups included."""
    before = fds()
    with box() as b:
        for _ in range(3):
            echoes(b)
            _kill(Tree().zygotes)
            _next_works(b)
    clean_after(before)


def zygote_killed_under_two() -> None:
    """Two Sandboxes share the zygote that is killed, and a third is made afterwards: all three work."""
    before = fds()
    with box() as a, box(memory="128MiB") as b:
        echoes(a)
        echoes(b)
        _kill(Tree().zygotes)
        with box() as c:
            _next_works(c)
        _next_works(a)
        _next_works(b)
    clean_after(before)


def zygote_killed_before_the_next_module() -> None:
    """The zygote is killed; the next run wants another module, hence a new stem."""
    with box() as b:
        echoes(b)
        _kill(Tree().zygotes)
        with contextlib.suppress(WorkerFault):
            good(b.run(VERDICTS, b"echo:x"), b"x")
        good(b.run(VERDICTS, b"echo:x"), b"x")


def zygote_killed_in_a_run() -> None:
    """The zygote is killed during a run: that run ends at once with a WorkerFault or its own end, never hangs."""
    with box() as b:
        echoes(b)
        _in_a_run(b, lambda: _kill(Tree().zygotes))
        _next_works(b)


def stem_killed() -> None:
    """Every stem is SIGKILLed between two runs."""
    before = fds()
    with box() as b:
        for _ in range(5):
            echoes(b)
            _kill(Tree().stems)
            _next_works(b)
    clean_after(before)


def stem_killed_before_a_larger_payload() -> None:
    """The stem is killed, and the next runs need a lane that is still to be made: no module stays broken for it."""
    before = fds()
    with box() as b:
        echoes(b)
        _kill(Tree().stems)
        for _ in range(2):
            with contextlib.suppress(WorkerFault):
                echoes(b, b"x" * 200_000)
        echoes(b, b"x" * 200_000)
        echoes(b)
    clean_after(before)


def stem_killed_in_a_run() -> None:
    """The stem is killed during a run: a WorkerFault at once, not a verdict on the module."""
    before = fds()
    with box() as b:
        echoes(b)
        for _ in range(3):
            _in_a_run(b, lambda: _kill([p for p in Tree().stems if _parent_of_busy(p)]))
            _next_works(b)
    clean_after(before)


def _parent_of_busy(stem: int) -> bool:
    return len([w for w in Tree().workers if stat_of(w)[1] == stem]) > 0


def _spins(pid: int) -> bool:
    return ticks(pid) > 8  # a worker that is only parked has less


def _in_a_run(b: Sandbox, attack: object) -> None:
    errors: list[BaseException] = []
    ended: list[Result] = []
    thread = spawn(lambda: ended.append(b.run(VERDICTS, b"hang")), errors, daemon=True)
    assert until(lambda: any(map(_spins, Tree().workers)), 5)
    attack()  # type: ignore[operator]
    thread.join(3)
    assert not thread.is_alive(), "the run hangs"
    assert [type(e) for e in errors] == [WorkerFault] or ended, errors


def worker_killed_in_a_run() -> None:
    """Somebody SIGKILLs the worker in a run: it is crashed by signal 9, and never a timeout or a memory verdict."""
    with box() as b:
        echoes(b)
        ended: list[Result] = []
        errors: list[BaseException] = []
        good(b.run(VERDICTS, b"echo:x"), b"x")
        thread = spawn(lambda: ended.append(b.run(VERDICTS, b"sleep:15000")), errors)
        time.sleep(0.2)
        _kill(Tree().workers)
        thread.join(3)
        assert [(r.outcome, r.signal) for r in ended] == [(Outcome.CRASHED, 9)], (ended, errors)
        _next_works(b)


def parked_worker_killed() -> None:
    """The parked worker is SIGKILLed between two runs, 40 times: the next run works."""
    with box() as b:
        for turn in range(40):
            echoes(b, b"%d" % turn)
            assert until(lambda: Tree().workers, 2)
            _kill(Tree().workers)
            echoes(b, b"after%d" % turn)


def parked_worker_killed_as_its_run_begins() -> None:
    """The parked worker dies before it hears of its run, and the stem learns of it late: its successor must not
    take the run of the dead, or the next payload gets the last one's answer."""
    with box() as b:
        good(b.run(VERDICTS, b"echo:x"), b"x")
        assert until(lambda: Tree().workers, 2)
        tree = Tree()
        for stem in tree.stems:
            os.kill(stem, signal.SIGSTOP)
        _kill(tree.workers)
        errors: list[BaseException] = []
        ended: list[Result] = []
        thread = spawn(lambda: ended.append(b.run(VERDICTS, b"sleep:1000")), errors)
        time.sleep(0.2)
        for stem in tree.stems:
            os.kill(stem, signal.SIGCONT)
        thread.join(5)
        assert not thread.is_alive()
        assert all(type(e) is WorkerFault for e in errors), errors
        for result in ended:
            assert result.outcome is Outcome.CRASHED or result.output == b"sleep=1000\n"
        for turn in range(10):
            word = b"echo:after%d" % turn
            good(b.run(VERDICTS, word), word[5:])


def parked_workers_killed_all_the_time() -> None:
    """Somebody kills workers without pause: answers come or do not come, but none is another run's."""
    with box() as b:
        stop = []

        def killer() -> None:
            while not stop:
                for pid in Tree().workers:
                    os.kill(pid, signal.SIGKILL)
                    time.sleep(0.0007)

        errors: list[BaseException] = []
        good(b.run(VERDICTS, b"echo:x"), b"x")
        thread = spawn(killer, [])
        end = time.monotonic() + 3
        turn = right = 0
        while time.monotonic() < end:
            turn += 1
            try:
                result = b.run(VERDICTS, b"echo:turn%d" % turn)
            except WorkerFault as e:
                errors.append(e)
                continue
            assert result.outcome in (Outcome.OK, Outcome.CRASHED), result
            if result.ok:
                right += 1
                assert result.output == b"turn%d" % turn
        stop.append(1)
        thread.join()
        assert right > turn // 10, (right, turn, errors[:3])
        _next_works(b)


def sigpipe_is_not_ignored() -> None:
    """A host that takes SIGPIPE as its default, as filters do, is not killed by writing to a zygote or stem that is
    gone."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    with box() as b:
        echoes(b)
        _kill(Tree().stems)
        _next_works(b)
        _kill(Tree().zygotes)
        _next_works(b)


def stopped_stem() -> None:
    """A stem that is stopped: the run ends by its deadline and the grace, with a WorkerFault; close() is bounded
    too."""
    b = box(timeout="300ms")
    echoes(b)
    for stem in Tree().stems:
        os.kill(stem, signal.SIGSTOP)
    with within(8), pytest.raises(WorkerFault):
        b.run(ECHO, b"x")
    with within(5):
        b.close()
    assert until(lambda: not groups(), 2), groups()
