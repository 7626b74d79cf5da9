"""Many threads: one Sandbox serves them all, or each has its own."""

from __future__ import annotations

import os
import resource
import sys
import threading

from sandboxactor import Sandbox, WorkerFault

from .kit import ECHO, VERDICTS, box, clean_after, cold, echoes, fds, gone, good, names_the_limit, together


def _unique(thread: int, turn: int) -> bytes:
    return f"{thread}/{turn}/".encode() * (1 + (thread * 37 + turn * 101) % 3000)


def threads_32_on_one() -> None:
    """32 threads on one Sandbox: every answer right, none mixed up, in payloads of many sizes."""
    before = fds()
    with box() as b:
        gate = threading.Barrier(32)

        def work(me: int) -> None:
            gate.wait()
            for turn in range(12):
                echoes(b, _unique(me, turn))
                if turn % 4 == 0:
                    text = b"echo:%d-%d" % (me, turn)
                    good(b.run(VERDICTS, text), text[5:])

        together([lambda me=me: work(me) for me in range(32)])  # type: ignore[misc]
    clean_after(before)


def threads_32_on_32() -> None:
    """32 threads that each make their own Sandbox, the first of the process, at the same moment."""
    before = fds()
    gate = threading.Barrier(32)

    def work(me: int) -> None:
        gate.wait()
        with box() as b:
            for turn in range(6):
                echoes(b, _unique(me, turn))

    together([lambda me=me: work(me) for me in range(32)])  # type: ignore[misc]
    clean_after(before)


def first_sandbox_made_by_many_at_once() -> None:
    """Eight threads probe this host at the same moment, 25 times over: none is told that it is Unenforceable."""
    sys.setswitchinterval(1e-5)
    for _ in range(25):
        cold()
        gate = threading.Barrier(8)

        def work(gate: threading.Barrier = gate) -> None:
            gate.wait()
            box().close()

        together([work] * 8)


def sandboxes_come_and_go() -> None:
    """The last Sandbox is closed in one thread while another makes the next: the zygote between them is never
    missing."""

    def work() -> None:
        for _ in range(15):
            with box() as b:
                echoes(b)

    together([work] * 4)
    gone()


def more_threads_than_a_stem_has_lanes() -> None:
    """280 runs at once on one Sandbox: each is right; one too many never ends the others."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 8000:
        print(f"skip: RLIMIT_NOFILE cannot be raised above {hard}")
        return
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    threading.stack_size(256 * 1024)
    with box(memory="16MiB", output="64KiB") as b:
        gate = threading.Barrier(280)

        def work(me: int) -> None:
            gate.wait()
            good(b.run(VERDICTS, b"sleep:1500"), b"sleep=1500\n")

        together([lambda me=me: work(me) for me in range(280)])  # type: ignore[misc]


def low_hard_limit_of_descriptors() -> None:
    """A hard RLIMIT_NOFILE of 256 and 40 threads: a run is right or a WorkerFault that names the limit, and ends no
    other."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
    good_runs, faults = [], []
    with box() as b:
        gate = threading.Barrier(40)

        def work(me: int) -> None:
            gate.wait()
            try:
                good(b.run(VERDICTS, b"sleep:300"), b"sleep=300\n")
                good_runs.append(me)
            except WorkerFault as e:
                names_the_limit(e)
                faults.append(me)

        together([lambda me=me: work(me) for me in range(40)])  # type: ignore[misc]
        assert len(good_runs) >= 5, (len(good_runs), len(faults))
        echoes(b)


def the_thread_that_made_it_is_gone() -> None:
    """The Sandbox, its zygote and its stem outlive the thread that made them and ran on them first."""
    made: list[Sandbox] = []

    def work() -> None:
        made.append(box())
        echoes(made[0])

    together([work])
    for turn in range(50):
        echoes(made[0], b"%d" % turn)
    together([lambda: echoes(made[0])] * 4)
    made[0].close()
    gone()


def daemon_thread_at_exit() -> None:
    """A daemon thread is in a run when the interpreter ends: it ends at once, and nothing is left."""
    b = box(timeout="60s")
    echoes(b)
    thread = threading.Thread(target=lambda: b.run(VERDICTS, b"hang"), daemon=True)
    thread.start()
    threading.Event().wait(0.2)


def daemon_thread_owns_it_at_exit() -> None:
    """The Sandbox exists in a daemon thread alone when the interpreter ends."""
    up = threading.Event()

    def work() -> None:
        b = box()
        while True:
            echoes(b)
            up.set()

    threading.Thread(target=work, daemon=True).start()
    assert up.wait(10)


def small_thread_stacks() -> None:
    """Threads with the smallest stack that Python allows can run modules."""
    with box() as b:
        threading.stack_size(32 * 1024)
        together([lambda: echoes(b, os.urandom(1000)) for _ in range(8)])
        assert b.run(ECHO, b"x").ok
