"""Hosts that come to a point, say "ready" and the pids of their children, and wait for their end there."""

from __future__ import annotations

import os
import signal
import threading
import time

from .kit import VERDICTS, Tree, box, echoes, forked, ours, spawn, until


def _ready(*pids: int) -> None:
    print("ready", *pids, flush=True)


def _in_run(*words: bytes) -> None:
    b = box(timeout="60s")
    echoes(b)
    for word in words[1:]:
        spawn(lambda w=word: b.run(VERDICTS, w), [], daemon=True)  # type: ignore[misc]
    threading.Timer(0.4, _ready).start()
    b.run(VERDICTS, words[0])


def idle() -> None:
    b = box()
    echoes(b)
    assert until(lambda: Tree().workers, 2)
    _ready()
    time.sleep(60)


def hang() -> None:
    _in_run(b"hang")


def hang_masked() -> None:
    _in_run(b"hang_masked")


def sleep_masked() -> None:
    _in_run(b"sleep_masked")


def threads() -> None:
    _in_run(*[b"hang", b"sleep:50000", b"bgthreads:3", b"stop"] * 3)


def two_boxes() -> None:
    other = box(memory="64MiB")
    echoes(other)
    _in_run(b"hang")


def starting() -> None:
    threading.Timer(0.3, _ready).start()
    while True:
        b = box()
        echoes(b)
        b.close()


def restless() -> None:
    while True:
        with box() as b:
            echoes(b)


def _child(run: bool) -> None:
    b = box()
    echoes(b)

    def work() -> None:
        def answer(*_: object) -> None:
            echoes(b)
            os.write(1, b"child ran\n")

        signal.signal(signal.SIGUSR1, answer)
        if run:
            b.run(VERDICTS, b"sleep:60000")
        time.sleep(60)

    child = forked(work)
    if run:
        assert until(lambda: len(ours(child)) >= 3, 5)
    time.sleep(0.3)
    _ready(child)
    time.sleep(60)


def child_idle() -> None:
    _child(False)


def child_runs() -> None:
    _child(True)
