"""What scenes use, inside the host that they are: a Sandbox, the process tree below it, what it holds.

A scene is a function of a `scenes_*` module that runs in a Python of its own, so that it may close descriptors, fork
and die. Its docstring states the promise, its assertions attack it. All our processes carry the host's pid in argv.
"""

from __future__ import annotations

import contextlib
import gc
import glob
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sandboxactor import Guard, HostPolicy, Policy, Result, Sandbox

MODULES = Path(os.environ.get("SA_MODULES", "/nonexistent"))
ECHO = str(MODULES / "echo.so")
VERDICTS = str(MODULES / "verdicts.so")
ROOT = os.geteuid() == 0
HOST = HostPolicy() if ROOT else HostPolicy(waive={Guard.CPU_MAX})


def box(warm: int = 0, **wider: Any) -> Sandbox:
    """A strict Sandbox with limits that no scene means to meet."""
    return Sandbox(Policy.strict(**{"cpu": "2", "timeout": "20s", **wider}), host=HOST, warm=warm)


def good(result: Result, wanted: bytes) -> None:
    """The run went well and its answer is the wanted one."""
    assert result.ok, (result.outcome, result.reason)
    got = result.output
    assert got == wanted, (len(got), got[:40], len(wanted), wanted[:40])


def echoes(b: Sandbox, payload: bytes = b"hello") -> None:
    """One run of echo.so."""
    good(b.run(ECHO, payload), payload)


def ours(host: int | None = None) -> list[int]:
    """The live processes that this host's library started, whoever their parent is by now."""
    mark = f"sandboxactor-worker\0serve\0003\0{host or os.getpid()}\0".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if (entry / "cmdline").read_bytes().startswith(mark):
                    found.append(int(entry.name))
    return found


def stat_of(pid: int) -> tuple[str, int]:
    """State letter and parent; ("", 0) if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "", 0
    return fields[0], int(fields[1])


def ticks(pid: int) -> int:
    """Ticks of processor time: only a worker that ran a module has any to speak of."""
    try:
        fields = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()  # noqa: SIM115
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12])


class Tree:
    """The zygotes, stems and workers of this host, by who forked whom."""

    def __init__(self) -> None:
        everyone = {pid: stat_of(pid)[1] for pid in ours()}
        me = os.getpid()
        self.zygotes = [p for p, parent in everyone.items() if parent == me]
        self.stems = [p for p, parent in everyone.items() if parent in self.zygotes]
        self.workers = [p for p, parent in everyone.items() if parent in self.stems]


def children() -> list[int]:
    """All children of this process, dead ones that nobody reaped included."""
    found: list[int] = []
    for entry in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            found += map(int, (entry / "children").read_text().split())
    return found


def fds() -> dict[int, str]:
    """The open descriptors of this process and what each is."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
    return {n: what for n, what in found.items() if not what.startswith("/proc/")}


def groups(host: int | None = None) -> list[str]:
    """The control groups of that host's runs."""
    return glob.glob(f"/sys/fs/cgroup/**/sandboxactor-*-{host or os.getpid()}-*", recursive=True)


def mounts() -> list[str]:
    """Mounts of this namespace that only a sandbox could have made."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [line for line in lines if "sandboxactor" in line or str(MODULES) in line]


def remains(host: int) -> list[object]:
    """Everything that is left of a host's runs, anywhere."""
    return [*ours(host), *groups(host), *mounts()]


def until(what: Callable[[], object], seconds: float) -> bool:
    """Whether it comes true within so many seconds."""
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def gone(host: int | None = None, seconds: float = 1.0) -> None:
    """Nothing of that host's runs is left, at the latest after so many seconds."""
    pid = host or os.getpid()
    assert until(lambda: not remains(pid), seconds), remains(pid)


def clean_after(baseline: dict[int, str]) -> None:
    """This process is as it was: no process, no descriptor, no group, no mount."""
    gc.collect()
    gone()
    assert not children(), children()
    assert len(fds()) == len(baseline), (fds(), baseline)


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """The body takes no longer than so."""
    start = time.monotonic()
    yield
    took = time.monotonic() - start
    assert took <= seconds, f"took {took:.2f} s, allowed are {seconds}"


def spawn(work: Callable[[], object], errors: list[BaseException], daemon: bool = False) -> threading.Thread:
    """A started thread whose exception lands in `errors`."""

    def body() -> None:
        try:
            work()
        except BaseException as e:
            errors.append(e)

    thread = threading.Thread(target=body, daemon=daemon)
    thread.start()
    return thread


def together(works: list[Callable[[], object]], seconds: float = 60) -> None:
    """All at once, each in a thread; the first exception is raised."""
    errors: list[BaseException] = []
    threads = [spawn(w, errors, daemon=True) for w in works]
    end = time.monotonic() + seconds
    for t in threads:
        t.join(max(0.0, end - time.monotonic()))
    assert not any(t.is_alive() for t in threads), f"a thread still runs after {seconds} s"
    if errors:
        raise errors[0]


def forked(work: Callable[[], object]) -> int:
    """A child made by os.fork that does `work` and leaves by os._exit: 0, or 1 with the traceback on stderr."""
    pid = os.fork()
    if pid:
        return pid
    try:
        work()
        os._exit(0)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(1)


def ended(pid: int, seconds: float = 15) -> int:
    """The exit code of a child, waited for with a deadline."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(pid, 6)  # faulthandler says where it stands
    os.waitpid(pid, 0)
    raise AssertionError(f"the child {pid} hangs")


def names_the_limit(fault: Exception) -> None:
    """The error says which limit it was and how to raise it."""
    assert "RLIMIT_NOFILE" in str(fault), fault


def cold() -> None:
    """Nothing has been probed yet: the next Sandbox is the first of its process."""
    from sandboxactor import _registry

    _registry._probed.clear()
