"""The host forks after it made its Sandbox: both sides run, neither harms the other, both end clean."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time

from sandboxactor import Sandbox

from .kit import ECHO, VERDICTS, Tree, box, ended, fds, forked, gone, good, ours, spawn, together, until

_box: Sandbox | None = None


def _echoes(b: Sandbox, payload: bytes = b"hello") -> None:
    good(b.run(ECHO, payload), payload)


def fork_both_run() -> None:
    """Child and parent run afterwards, at once and in turn; the child's exit leaves the parent's worker where it
    was."""
    with box() as b:
        _echoes(b)
        tree = Tree()
        child = forked(lambda: [_echoes(b, b"child%d" % i) for i in range(30)])
        for i in range(30):
            _echoes(b, b"parent%d" % i)
        assert ended(child) == 0
        gone(child)
        _echoes(b)
        assert (Tree().zygotes, Tree().stems) == (tree.zygotes, tree.stems)
    gone()


def fork_child_closes() -> None:
    """The child closes the Sandbox it inherited, twice; the parent's goes on, in a run that spans it too."""
    with box() as b:
        _echoes(b)
        errors: list[BaseException] = []
        long = spawn(lambda: good(b.run(VERDICTS, b"sleep:700"), b"sleep=700\n"), errors)
        time.sleep(0.1)

        def work() -> None:
            _echoes(b)
            b.close()
            b.close()

        assert ended(forked(work)) == 0
        long.join()
        assert not errors, errors
        _echoes(b)


def fork_child_exits_as_python_does() -> None:
    """The child leaves by sys.exit without close, finalizers and all: nothing of it is left, the parent's stands."""
    with box() as b:
        _echoes(b)
        pid = os.fork()
        if not pid:
            _echoes(b)
            sys.exit(0)
        assert ended(pid) == 0
        gone(pid)
        _echoes(b)


def fork_that_never_runs() -> None:
    """A child that never runs, leaving in each of three ways, disturbs nothing."""
    with box() as b:
        _echoes(b)
        ways = (lambda: None, lambda: os.kill(os.getpid(), signal.SIGKILL), lambda: os.execv("/bin/true", ["true"]))
        for leave in ways:
            assert ended(forked(leave)) in (0, -9)
            _echoes(b)


def fork_before_the_first_run() -> None:
    """A Sandbox that had no zygote yet when the host was forked."""
    with box() as b:
        child = forked(lambda: _echoes(b))
        _echoes(b)
        assert ended(child) == 0


def fork_of_a_fork() -> None:
    """Grandchildren run too."""
    with box() as b:
        _echoes(b)

        def work() -> None:
            _echoes(b)
            assert ended(forked(lambda: _echoes(b))) == 0
            _echoes(b)

        assert ended(forked(work)) == 0
        _echoes(b)


def fork_while_threads_run() -> None:
    """The host is forked 15 times while four threads are inside of runs and locks: no child hangs, no answer is
    lost."""
    stop = threading.Event()
    with box() as b:

        def work(me: int) -> None:
            turn = 0
            while not stop.is_set():
                turn += 1
                _echoes(b, b"%d/%d" % (me, turn) * 50)

        errors: list[BaseException] = []
        threads = [spawn(lambda me=me: work(me), errors) for me in range(4)]  # type: ignore[misc]
        pids = []
        for i in range(15):
            pids.append(forked(lambda i=i: [_echoes(b, b"child%d" % i) for _ in range(5)]))  # type: ignore[misc]
            time.sleep(0.02)
        codes = [ended(pid) for pid in pids]
        stop.set()
        for t in threads:
            t.join()
        assert not errors, errors
        assert codes == [0] * 15
    for pid in pids:
        gone(pid)


def fork_while_sandboxes_are_made() -> None:
    """The host is forked while another thread makes and closes Sandboxes: no child inherits a lock that nobody
    opens."""
    stop = threading.Event()

    def churn() -> None:
        while not stop.is_set():
            with box() as b:
                _echoes(b)

    def child() -> None:
        with box() as b:
            _echoes(b)

    child()  # what is imported at the first is imported: an import lock of a forked thread is Python's own
    errors: list[BaseException] = []
    thread = spawn(churn, errors)
    pids = []
    for _ in range(15):
        pids.append(forked(child))
        time.sleep(0.013)
    codes = [ended(pid) for pid in pids]
    stop.set()
    thread.join()
    assert not errors, errors
    assert codes == [0] * 15


def fork_does_not_pile_up_descriptors() -> None:
    """Six generations, each with a Sandbox of 4 lanes in use: the last has no more descriptors of ours than the
    first."""
    with box() as b:
        counts: list[int] = []

        def generation(left: int) -> None:
            together([lambda: good(b.run(VERDICTS, b"sleep:150"), b"sleep=150\n")] * 4)
            counts.append(len(fds()))
            if left:
                assert ended(forked(lambda: generation(left - 1))) == 0
            else:
                assert counts[-1] - counts[0] <= 8, counts

        generation(5)


def fork_keeps_no_payload_alive() -> None:
    """A child that never uses the Sandbox holds no sealed memory of its parent: a secret payload ends with its run."""
    with box() as b:
        _echoes(b, b"secret" * 100_000)

        def work() -> None:
            held = [what for what in fds().values() if "memfd:sandboxactor" in what]
            assert not held, held

        assert ended(forked(work)) == 0


def _task(payload: bytes) -> bytes:
    assert _box is not None
    return _box.run(ECHO, payload).output


def multiprocessing_pool() -> None:
    """A pool of the fork context uses the Sandbox that its parent made."""
    global _box
    with box() as _box:
        _echoes(_box)
        payloads = [b"%d" % i * 100 for i in range(60)]
        with multiprocessing.get_context("fork").Pool(4) as pool:
            pids = [p.pid for p in pool._pool]  # type: ignore[attr-defined]
            assert pool.map(_task, payloads) == payloads
            pool.close()
            pool.join()
        for pid in pids:
            gone(pid)
        _echoes(_box)


def multiprocessing_process_terminated() -> None:
    """A forked Process is terminated in the middle of a run: nothing of it lives on, the parent's does."""
    with box() as b:
        _echoes(b)
        process = multiprocessing.get_context("fork").Process(target=lambda: b.run(VERDICTS, b"hang"))
        process.start()
        assert process.pid is not None
        assert until(lambda: len(ours(process.pid)) >= 3, 5)
        process.terminate()
        process.join(5)
        gone(process.pid)
        _echoes(b)


def forked_child_is_killed() -> None:
    """The forked child is SIGKILLed in its run: of its sandbox nothing lives one second later, the parent's is
    intact."""
    with box() as b:
        _echoes(b)
        tree = Tree()
        child = forked(lambda: b.run(VERDICTS, b"hang"))
        assert until(lambda: len(ours(child)) >= 3, 5)
        os.kill(child, signal.SIGKILL)
        assert ended(child) == -9
        gone(child)
        assert Tree().stems == tree.stems
        _echoes(b)


def host_becomes_another_program() -> None:
    """The host calls execv: its pid lives on, its sandbox does not one second later."""
    b = box()
    _echoes(b)
    code = "from hosts.kit import gone; gone()"
    with contextlib.suppress(AttributeError):
        sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-c", code])
