"""The host's own limits are reached: a clear error, nothing half-open, and it works again once they are raised."""

from __future__ import annotations

import fcntl
import gc
import os
import resource
import sys

import pytest

from sandboxactor import Sandbox, Unenforceable, WorkerFault

from .kit import (
    ECHO,
    VERDICTS,
    Tree,
    box,
    children,
    clean_after,
    cold,
    echoes,
    fds,
    good,
    groups,
    names_the_limit,
    together,
    until,
)


class _Full:
    """All descriptors but a few are taken while it lasts."""

    def __init__(self, left: int) -> None:
        self.left = left

    def __enter__(self) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.old = (soft, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, max(fds()) + 60), hard))
        self.taken = []
        try:
            while True:
                self.taken.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            pass
        for _ in range(self.left):
            os.close(self.taken.pop())

    def __exit__(self, *_: object) -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, self.old)
        for fd in self.taken:
            os.close(fd)


def descriptors_reached_at_a_new_lane() -> None:
    """With 0 to 24 descriptors left, a lane that has to be made fails with a WorkerFault that names RLIMIT_NOFILE,
    leaves nothing half-open, and the same Sandbox works as soon as the limit is raised."""
    with box() as b:
        echoes(b)
        refused = 0
        for left in range(25):
            gc.collect()
            before, workers = len(fds()), len(Tree().workers)
            with _Full(left):
                try:
                    echoes(b, b"x" * 100_000 * (left + 2))  # larger than any lane so far
                except WorkerFault as e:
                    refused += 1
                    names_the_limit(e)
            gc.collect()
            assert until(lambda w=workers: len(Tree().workers) <= w, 1)  # type: ignore[misc]
            assert len(fds()) <= before, (left, fds())
            echoes(b)
        assert refused >= 3, refused


def descriptors_reached_at_a_new_stem() -> None:
    """The same for the first run of a Sandbox: zygote, stem and lane are all to be made."""
    box().close()
    before = fds()
    refused = 0
    for left in range(25):
        b = box()
        with _Full(left):
            try:
                echoes(b)
            except WorkerFault as e:
                refused += 1
                names_the_limit(e)
        echoes(b)
        b.close()
        del b
        gc.collect()
        assert not children(), left
        assert len(fds()) == len(before), (left, fds())
        assert not groups(), (left, groups())
    assert refused > 8, refused


def descriptors_reached_at_the_very_first() -> None:
    """The first Sandbox of the process is made when no descriptor is left: an error of ours, and never remembered."""
    box().close()
    cold()
    made: list[Sandbox] = []
    with _Full(0):
        try:
            made.append(box())
        except (Unenforceable, WorkerFault) as e:
            names_the_limit(e)
    echoes(made[0] if made else box())


def descriptors_reached_with_streams_closed() -> None:
    """Descriptors 0 to 2 are free and little else: still nothing of ours ends there, nothing is lost."""
    with box() as b:
        echoes(b)
        sys.stderr = os.fdopen(fcntl.fcntl(2, fcntl.F_DUPFD_CLOEXEC, 100), "w")
        for fd in range(3):
            os.close(fd)
        for left in range(3, 25):
            before, refused = len(fds()), False
            with _Full(left):
                try:
                    echoes(b, b"x" * 100_000 * left)
                except WorkerFault:
                    refused = True
            gc.collect()
            assert not {0, 1, 2} & set(fds()), fds()
            if refused:
                assert len(fds()) <= before, (left, fds())
        echoes(b)
    assert len(fds()) <= 8, fds()


def many_runs_at_the_limit() -> None:
    """16 threads against room for about four lanes: each run is right or a WorkerFault, and no lane is lost for it."""
    with box() as b:
        echoes(b)
        before = len(fds())
        verdicts: list[str] = []

        def work() -> None:
            for _ in range(8):
                try:
                    good(b.run(VERDICTS, b"sleep:20"), b"sleep=20\n")
                    verdicts.append("ok")
                except WorkerFault as e:
                    names_the_limit(e)
                    verdicts.append("fault")

        with _Full(0):
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft + 85, hard))
            together([work] * 16)
        assert verdicts.count("ok") >= 16, verdicts
        assert len(fds()) - before <= 85
        together([lambda: echoes(b)] * 16)


def no_process_can_be_started() -> None:
    """RLIMIT_NPROC of an ordinary user is reached: a WorkerFault or Unenforceable, then it works."""
    if os.geteuid() == 0:
        os.setgroups([])
        print("skip: RLIMIT_NPROC does not bind root")
        return
    box().close()
    b = box()
    soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    resource.setrlimit(resource.RLIMIT_NPROC, (1, hard))
    with pytest.raises(WorkerFault):
        echoes(b)
    resource.setrlimit(resource.RLIMIT_NPROC, (soft, hard))
    echoes(b)
    b.close()


def memory_for_the_answer_is_not_there() -> None:
    """The host has no memory left for a large answer: MemoryError, and giving the lane up later never touches a
    descriptor that has become somebody else's file."""
    path = os.path.join(os.environ["TMPDIR"], "precious")
    content = os.urandom(1 << 20)
    with open(path, "wb") as f:
        f.write(content)
    with box(output="64MiB", memory="1GiB") as b:
        good(b.run(VERDICTS, b"echo:x"), b"x")
        size = int(open("/proc/self/statm").read().split()[0]) * 4096  # noqa: SIM115
        old = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (size + (100 << 20), old[1]))
        held = None
        try:
            b.run(VERDICTS, b"big:%d" % (60 << 20))
        except (MemoryError, WorkerFault) as e:
            held = e
        assert held is not None
        resource.setrlimit(resource.RLIMIT_AS, old)
        files = [os.open(path, os.O_RDWR) for _ in range(40)]
        held = None
        gc.collect()
        assert open(path, "rb").read() == content, "the host's own file was punched"  # noqa: SIM115
        for fd in files:
            os.close(fd)
        good(b.run(VERDICTS, b"echo:x"), b"x")


def limits_of_the_host_are_raised_again() -> None:
    """A soft limit of 40 descriptors when the Sandbox is made binds neither stem nor later runs."""
    old = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (40, old[1]))
    before = fds()
    with box() as b:
        echoes(b)
        resource.setrlimit(resource.RLIMIT_NOFILE, old)
        together([lambda: good(b.run(ECHO, b"x"), b"x")] * 16)
    clean_after(before)
