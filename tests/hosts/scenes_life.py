"""From the making of a Sandbox to its end, and every way to forget the end."""

from __future__ import annotations

import contextlib
import copy
import functools
import gc
import os
import pickle
import threading
import time
import weakref

import pytest

from sandboxactor import InvalidPolicy, Outcome, Policy, Result, Sandbox

from .kit import (
    ECHO,
    VERDICTS,
    Tree,
    box,
    children,
    clean_after,
    echoes,
    fds,
    good,
    groups,
    ours,
    spawn,
    together,
    until,
    within,
)


def _append(results: list[Result], b: Sandbox, word: bytes) -> None:
    results.append(b.run(VERDICTS, word))


def close_from_another_thread() -> None:
    """close() ends eight running runs, each as cancelled, without output and at once; it returns when they are dead."""
    before = fds()
    b = box()
    results: list[Result] = []
    errors: list[BaseException] = []
    words = [b"hang", b"sleep:15000", b"hang_masked", b"sleep_masked"] * 2
    threads = [spawn(functools.partial(_append, results, b, w), errors) for w in words]
    time.sleep(0.5)
    with within(2):
        b.close()
    assert not ours()
    for t in threads:
        t.join(2)
    assert not errors, errors
    assert [r.outcome for r in results] == [Outcome.CANCELLED] * 8
    assert all(r.reason and not r.ok and r.code is None and r.signal is None for r in results), results[0]
    del b, threads
    clean_after(before)


def close_while_runs_begin() -> None:
    """close() at any moment of many short runs: each is right, cancelled, or the RuntimeError of a closed Sandbox."""
    for round_ in range(20):
        b = box()
        echoes(b)
        seen: list[str] = []

        def work(b: Sandbox = b, seen: list[str] = seen) -> None:
            while True:
                try:
                    result = b.run(ECHO, b"x")
                except RuntimeError:
                    seen.append("closed")
                    return
                seen.append(result.outcome)

        errors: list[BaseException] = []
        threads = [spawn(work, errors) for _ in range(4)]
        time.sleep(0.005 + round_ * 0.002)
        with within(3):
            b.close()
        for t in threads:
            t.join(3)
        assert not errors, errors
        assert seen.count("closed") == 4
        assert set(seen) <= {"ok", "cancelled", "closed"}, set(seen)
    assert not children()


def close_is_idempotent() -> None:
    """close() twice, by `with` and by hand, by eight threads at once; then run() and `with` are RuntimeErrors."""
    with box() as b:
        echoes(b)
        b.close()
        b.close()
    together([b.close] * 8)
    for use in (lambda: b.run(ECHO), lambda: b.run("/nonexistent/x.so"), b.__enter__):
        with pytest.raises(RuntimeError):
            use()
    assert b.explain()
    never = box()
    never.close()
    never.close()


def collected_without_close() -> None:
    """A Sandbox that is dropped leaves nothing, lanes of several sizes included."""
    before = fds()
    b = box()
    together([functools.partial(echoes, b, b"x" * 200_000)] * 4)
    echoes(b)
    ref = weakref.ref(b)
    del b
    gc.collect()
    assert ref() is None
    clean_after(before)


def collected_in_a_cycle() -> None:
    """Sandboxes in reference cycles are collected while other threads make, use and close their own."""
    before = fds()
    gc.set_threshold(50, 2, 2)

    def work() -> None:
        for _ in range(10):
            b = box()
            b.myself = b  # type: ignore[attr-defined]
            echoes(b)
            del b

    together([work] * 4)
    gc.collect()
    clean_after(before)


def dropped_during_its_run() -> None:
    """The last name of a Sandbox goes while its run is on: the run ends well."""
    before = fds()
    good(box().run(VERDICTS, b"sleep:200"), b"sleep=200\n")
    clean_after(before)


def exit_without_close() -> None:
    """The interpreter ends with Sandboxes open, idle lanes and all (the stage looks at what is left)."""
    b = box(warm=4)
    together([lambda: echoes(b)] * 4)
    globals()["_held"] = [b, box()]


def exit_by_os_exit() -> None:
    """os._exit runs no finalizer of ours (the stage looks at what is left)."""
    b = box()
    echoes(b)
    os._exit(0)


def exit_by_an_exception_in_with() -> None:
    """An exception leaves `with`: closed all the same."""
    with contextlib.suppress(ZeroDivisionError), box() as b:
        echoes(b)
        raise ZeroDivisionError
    assert not children()
    assert not groups()


def pickling() -> None:
    """A Policy travels by pickle and copy and stays equal; a Sandbox by none of them, and says what to do; nor a
    Result's bytes are lost on the way."""
    policy = Policy.strict(memory="64MiB", env={"A": "b"})
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        twin = pickle.loads(pickle.dumps(policy, protocol))
        assert twin == policy
        assert hash(twin) == hash(policy)
    with box() as b:
        for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="pickled"):
                attempt(b)
        echoes(b)
        result = b.run(ECHO, b"kept")
    with Sandbox(pickle.loads(pickle.dumps(b.policy)), host=b._host) as again:
        echoes(again)
    twin = pickle.loads(pickle.dumps(result))
    assert twin.output == b"kept"
    assert (twin.outcome, dict(twin.enforced)) == (result.outcome, dict(result.enforced))


def warm() -> None:
    """warm=5: from the first run on five workers are parked, so that five runs at once make none; bad values are
    refused."""
    with box(warm=5) as b:
        echoes(b)
        assert until(lambda: len(Tree().workers) >= 5, 2), len(Tree().workers)
        parked = set(Tree().workers)
        gate = threading.Barrier(5)

        def work() -> None:
            gate.wait()
            echoes(b)

        together([work] * 5)
        assert until(lambda: len(Tree().workers) == len(parked), 2)
    for bad in (-1, 65, 1.5, True, "3", None):
        with pytest.raises(InvalidPolicy):
            box(warm=bad)  # type: ignore[arg-type]


def nothing_starts_before_the_first_run() -> None:
    """A Sandbox that never runs holds no process, descriptor or group."""
    box().close()
    before = fds()
    held = [box() for _ in range(20)]
    assert not children()
    assert len(fds()) == len(before)
    assert not groups()
    del held


def twenty_five_modules_on_one(limit: int = 25) -> None:
    """More modules than one Sandbox keeps stems for, used by four threads at once: all right, the stems bounded."""
    import shutil

    tmp = os.environ["TMPDIR"]
    paths = [shutil.copy(ECHO, os.path.join(tmp, f"m{i}.so")) for i in range(limit)]
    os.chmod(tmp, 0o755)
    with box() as b:

        def work() -> None:
            for path in paths + paths[::-1]:
                good(b.run(path, path.encode()), path.encode())

        together([work] * 4)
        good(b.run(ECHO, b"x"), b"x")
        assert until(lambda: len(Tree().stems) <= 17, 2), len(Tree().stems)
