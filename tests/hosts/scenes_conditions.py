"""What a real application is like: busy, large, with descriptors, dispositions and masks of its own."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from .kit import VERDICTS, box, children, echoes, fds, gone, good, within

_keep: list[Any] = []


def _busy_threads() -> None:
    def spin() -> None:
        while True:
            sum(range(1000))

    def crunch() -> None:
        while True:
            hashlib.sha256(block)

    block = bytes(1 << 20)
    for i in range(50):
        threading.Thread(target=crunch if i % 10 else spin, daemon=True).start()


def _heap() -> None:
    _keep.append(bytearray(b"\xa5") * (1 << 30))


def _descriptors() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 4096 <= hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (4096, hard))
    _keep.extend(os.open("/dev/null", os.O_RDWR) for _ in range(1500))
    for fd in _keep[-1500::3]:
        os.set_inheritable(fd, True)


def _no_sigchld() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)


def _no_sigterm() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def _close_streams(which: tuple[int, ...] = (0, 1, 2)) -> None:
    sys.stderr = os.fdopen(fcntl.fcntl(2, fcntl.F_DUPFD_CLOEXEC, 100), "w")
    for fd in which:
        os.close(fd)


def _works(*conditions: Callable[[], None], seconds: float = 20) -> None:
    """Under these conditions: right answers, true verdicts, a quick end."""
    for condition in conditions:
        condition()
    with within(seconds):
        before = fds()
        with box() as b:
            for size in (0, 1, 5000, 700_000):
                echoes(b, b"q" * size)
            dead = b.run(VERDICTS, b"raise:15")
            assert (dead.outcome, dead.signal) == ("crashed", 15), dead
            assert b.run(VERDICTS, b"exit:3").code == 3
            good(b.run(VERDICTS, b"write:1:text"), b"write=4 errno=0\n")
            assert b.run(VERDICTS, b"write:1:text").stdout == b"text"
        gone(seconds=5)
        assert not children()
        assert len(fds()) == len(before)


def all_at_once() -> None:
    """50 busy threads, 1 GiB of heap, 1,500 descriptors, SIGCHLD ignored, SIGTERM blocked, 0 to 2 closed: all of it."""
    sys.setswitchinterval(0.001)
    _works(_heap, _descriptors, _no_sigchld, _no_sigterm, _busy_threads, _close_streams, seconds=45)


def busy_threads() -> None:
    """50 threads that never rest."""
    sys.setswitchinterval(0.001)
    _works(_busy_threads, seconds=45)


def heap() -> None:
    """1 GiB of heap: a run costs no more for it."""
    _works(_heap)
    with box() as b:
        echoes(b)
        with within(2):
            for _ in range(100):
                echoes(b)


def descriptors() -> None:
    """1,500 open descriptors, a third of them inheritable: none reaches a worker."""
    _works(_descriptors)
    with box() as b:
        answer = b.run(VERDICTS, b"scribble").output
        assert int(answer.split(b"=")[1]) <= 3 * 6, answer
    assert all(os.fstat(fd) for fd in _keep)


def sigchld_ignored() -> None:
    """SIGCHLD is ignored: the kernel reaps for us."""
    _works(_no_sigchld)


def sigterm_blocked() -> None:
    """SIGTERM is blocked in the host; a module that raises it dies of it all the same."""
    _works(_no_sigterm)


def every_signal_blocked() -> None:
    """Every signal is blocked in the thread that makes the Sandbox."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    _works()


def streams_closed() -> None:
    """Descriptors 0 to 2 are closed: no descriptor of ours ever takes their place."""
    _works(_close_streams)
    with box() as b:
        echoes(b)
        taken = {fd: what for fd, what in fds().items() if fd < 3}
        assert not taken, taken


def stream_0_closed() -> None:
    """Descriptor 0 alone is closed, and stays so."""
    _one_stream(0)


def stream_1_closed() -> None:
    """Descriptor 1 alone is closed, and stays so."""
    _one_stream(1)


def stream_2_closed() -> None:
    """Descriptor 2 alone is closed, and stays so."""
    _one_stream(2)


def _one_stream(fd: int) -> None:
    _works(lambda: _close_streams((fd,)))
    with box() as b:
        echoes(b)
        assert fd not in fds(), fds()[fd]


def somebody_else_reaps() -> None:
    """A thread of the host reaps every child there is: closing takes no longer and no run is lost."""

    def reaper() -> None:
        while True:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(-1, 0)
            time.sleep(0.001)

    threading.Thread(target=reaper, daemon=True).start()
    for _ in range(5):
        _works()


def sockets_with_a_default_timeout() -> None:
    """socket.setdefaulttimeout() of the host does not reach our sockets."""
    socket.setdefaulttimeout(0.05)
    with box() as b:
        good(b.run(VERDICTS, b"sleep:300"), b"sleep=300\n")
        time.sleep(0.2)
        echoes(b)
    gone()


def umask_and_environment() -> None:
    """A umask of 0777 and an empty environment."""
    os.umask(0o777)
    os.environ.clear()
    _works()


def descriptors_do_not_leak_into_children() -> None:
    """A program that the host starts with close_fds=False during a run inherits none of our descriptors."""
    with box() as b:
        echoes(b)
        argv = ["/bin/ls", "-l", "/proc/self/fd"]
        child = subprocess.run(argv, close_fds=False, capture_output=True, text=True, check=True)
    assert not [line for line in child.stdout.splitlines() if "cgroup" in line or "memfd" in line or "socket" in line]


def asyncio_to_thread() -> None:
    """An asyncio host: runs in to_thread beside subprocesses of its own, and the loop never waits for them."""
    _async(asyncio.run)


def uvloop() -> None:
    """A uvloop host: the same."""
    try:
        import uvloop as loop
    except ImportError:
        print("skip: uvloop is not installed (pip install uvloop)")
        return
    _async(loop.run)


def _async(run: Callable[[Any], object]) -> None:
    async def tick(lags: list[float]) -> None:
        while True:
            start = time.monotonic()
            await asyncio.sleep(0.01)
            lags.append(time.monotonic() - start - 0.01)

    async def main() -> None:
        lags: list[float] = []
        ticker = asyncio.create_task(tick(lags))
        with box() as b:
            runs = [asyncio.to_thread(b.run, VERDICTS, b"echo:%d" % i) for i in range(40)]
            slow = asyncio.to_thread(b.run, VERDICTS, b"sleep:500")
            shell = [await asyncio.create_subprocess_exec("/bin/sh", "-c", "exit 7") for _ in range(5)]
            results = await asyncio.gather(slow, *runs)
            assert [await p.wait() for p in shell] == [7] * 5
            for i, result in enumerate(results[1:]):
                good(result, b"%d" % i)
            good(results[0], b"sleep=500\n")
        ticker.cancel()
        assert sorted(lags)[len(lags) // 2] < 0.1, "the loop waits for runs"

    run(main())
    gone()
