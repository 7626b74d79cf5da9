"""Signals that reach the host while it is inside of a run."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import threading
import time
from types import FrameType

import pytest

from sandboxactor import Outcome, Sandbox

from .kit import ECHO, VERDICTS, Tree, box, children, clean_after, echoes, fds, good, ours, spawn, ticks, until, within


class _Poke(Exception):
    pass


def _raise(*_: object) -> None:
    raise _Poke


def _later(seconds: float, number: int) -> None:
    threading.Timer(seconds, lambda: os.kill(os.getpid(), number)).start()


def ctrl_c() -> None:
    """Ctrl-C during a run raises KeyboardInterrupt at once, its worker is dead by then, and the Sandbox goes on."""
    before = fds()
    with box() as b:
        for word in (b"hang", b"sleep:15000", b"hang_masked", b"sleep_masked"):
            echoes(b)
            _later(0.2, signal.SIGINT)
            with within(1.2), pytest.raises(KeyboardInterrupt):
                b.run(VERDICTS, word)
            busy = [p for p in Tree().workers if ticks(p) > 5]
            assert not busy, busy
            echoes(b)
    clean_after(before)


def _ignore_interrupts() -> None:
    for _ in range(20):
        with contextlib.suppress(KeyboardInterrupt):
            signal.signal(signal.SIGINT, signal.SIG_IGN)


def ctrl_c_twice() -> None:
    """An impatient user: ten SIGINT within 50 ms. KeyboardInterrupt, and nothing is lost for it."""
    before = fds()
    with box() as b:
        echoes(b)
        for _ in range(10):

            def storm() -> None:
                time.sleep(0.1)
                for _ in range(10):
                    os.kill(os.getpid(), signal.SIGINT)
                    time.sleep(0.005)

            sender = spawn(storm, [])
            with contextlib.suppress(KeyboardInterrupt):
                b.run(VERDICTS, b"hang")
            _ignore_interrupts()
            sender.join()
            signal.signal(signal.SIGINT, signal.default_int_handler)
        echoes(b)
        with within(2):
            b.close()
    clean_after(before)


def a_handler_that_raises() -> None:
    """Whatever a handler raises leaves run() as it is, and the worker is dead."""
    signal.signal(signal.SIGUSR1, _raise)
    with box() as b:
        echoes(b)
        _later(0.2, signal.SIGUSR1)
        with within(1.2), pytest.raises(_Poke):
            b.run(VERDICTS, b"hang")
        with within(2):
            echoes(b)
            b.close()
    assert not children()


def a_handler_that_returns() -> None:
    """SIGALRM every 10 ms with a handler that returns: each is handled during the run, and the run goes on."""
    seen: list[float] = []
    signal.signal(signal.SIGALRM, lambda *_: seen.append(time.monotonic()))
    with box() as b:
        echoes(b)
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
        result = b.run(VERDICTS, b"sleep:600")
        signal.setitimer(signal.ITIMER_REAL, 0)
        good(result, b"sleep=600\n")
        assert len(seen) > 20
        assert max(after - before for before, after in itertools.pairwise(seen)) < 0.3
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
        for _ in range(100):
            echoes(b, b"x" * 100_000)
        signal.setitimer(signal.ITIMER_REAL, 0)


def the_deadline_holds_under_signals() -> None:
    """Signals every millisecond do not push the deadline."""
    signal.signal(signal.SIGALRM, lambda *_: None)
    with box(timeout="500ms") as b:
        echoes(b)
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        with within(0.75):
            assert b.run(VERDICTS, b"hang").outcome is Outcome.TIMEOUT
        signal.setitimer(signal.ITIMER_REAL, 0)


def a_handler_that_closes() -> None:
    """A SIGTERM handler that calls close(), as a service has it: the run ends as cancelled, at once."""
    b = box()
    echoes(b)
    signal.signal(signal.SIGTERM, lambda *_: b.close())
    _later(0.2, signal.SIGTERM)
    with within(2):
        assert b.run(VERDICTS, b"hang").outcome is Outcome.CANCELLED
    with pytest.raises(RuntimeError):
        b.run(ECHO)
    assert until(lambda: not children(), 1)


def a_handler_that_runs() -> None:
    """A handler that itself runs a module on the same Sandbox: both answers are right, no lock is waited for twice."""
    with box() as b:
        inner: list[bytes] = []

        def handler(_: int, __: FrameType | None) -> None:
            inner.append(b.run(ECHO, b"inner").output)

        echoes(b)
        signal.signal(signal.SIGALRM, handler)
        for turn in range(300):
            signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, 1.5e-3))
            echoes(b, b"outer%d" % turn)
        time.sleep(0.01)
        assert len(inner) > 20, len(inner)  # a loaded machine coalesces the timers
        assert set(inner) == {b"inner"}


def _storm(b: Sandbox, word: bytes, rounds: int, reach: float, parked: bool = True) -> float:
    """Runs that a handler breaks at a random moment from their very start; the worst time from signal to exception."""
    worst, fired = 0.0, [0.0]

    def handler(*_: object) -> None:
        fired[0] = time.monotonic()
        raise _Poke

    signal.signal(signal.SIGALRM, handler)
    for _ in range(rounds):
        if parked:
            good(b.run(VERDICTS, b"echo:x"), b"x")
        delay = random.uniform(1e-6, reach)
        try:
            start = time.monotonic()
            signal.setitimer(signal.ITIMER_REAL, delay)
            b.run(VERDICTS, word)
            signal.setitimer(signal.ITIMER_REAL, 0)
        except _Poke:
            pass
        worst = max(worst, time.monotonic() - start - delay)
    signal.setitimer(signal.ITIMER_REAL, 0)
    return worst


def an_interrupt_at_any_moment_is_prompt() -> None:
    """A handler raises 1 to 200 microseconds into a run of 3 s, 300 times: never does the run go on regardless."""
    with box() as b:
        echoes(b)
        assert _storm(b, b"sleep:3000", 300, 200e-6) < 1.0


def an_interrupt_at_any_moment_loses_nothing() -> None:
    """A handler raises at any moment of 500 short runs: close() is quick, no descriptor, worker or group is left."""
    before = fds()
    b = box()
    echoes(b)
    _storm(b, b"echo:x", 500, 600e-6)
    echoes(b)
    workers = len(Tree().workers)
    assert workers <= 4, workers
    with within(2):
        b.close()
    del b
    clean_after(before)


def an_interrupt_while_it_is_made() -> None:
    """A handler raises at any moment of a first run: no zygote, stem or descriptor stays behind."""
    before = fds()
    box().close()
    for _ in range(60):
        b = box()
        _storm(b, b"echo:x", 1, 12e-3, parked=False)
        with within(3):
            b.close()
        del b
    assert len(ours()) == 0
    clean_after(before)


def a_signal_to_another_thread() -> None:
    """SIGINT reaches a host whose main thread is in a run through another thread of it: prompt all the same."""
    with box() as b:
        echoes(b)

        def other() -> None:
            time.sleep(0.2)
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)

        errors: list[BaseException] = []
        spawn(other, errors)
        with within(1.2), pytest.raises(KeyboardInterrupt):
            b.run(VERDICTS, b"hang")
