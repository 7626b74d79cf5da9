"""Who takes part. Everything is built here at run time and given back with the `Workshop`.

A peer is one more `Contestant`: a function in `PEERS` that is given the Workshop and yields it, or yields nothing where
that peer is not installed. What it opens goes on `Workshop.stack`.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import perf_counter_ns

from benchmarks import ROOT
from benchmarks.measure import Contestant
from sandboxactor import Guard, HostPolicy, Policy, Result, Sandbox, Unenforceable

__all__ = ["COLD", "COLD_UP", "PEERS", "WARM", "YARDSTICK", "Workshop", "runs", "starts", "subprocess_true"]

HERE = Path(__file__).resolve().parent
TRUE = ["/bin/true"]
ASLEEP_S = 0.002
MIB = 1 << 20

YARDSTICK = 'subprocess.run(["/bin/true"])'
WARM = "Sandbox.run warm, 1 B"
BEHIND = "Sandbox.run warm, 1 B, right behind another run"
SMALL = 5  # so many of `runs` are small: the yardstick, two of plain C, warm and behind
COLD = "Sandbox cold: make, run, close; no zygote"
COLD_UP = "Sandbox cold: make, run, close; zygote up"


class Helper:
    """A child that does something once for each byte it is sent and says how many nanoseconds that took."""

    def __init__(self, argv: Sequence[str], env: dict[str, str] | None = None) -> None:
        self._child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env=env)

    def ask(self, what: bytes = b"x") -> int:
        """One sample; RuntimeError if the child is gone."""
        assert self._child.stdin
        assert self._child.stdout
        self._child.stdin.write(what)
        answer = self._child.stdout.read(8)
        if not answer or len(answer) != 8:
            raise RuntimeError(f"{self._child.args!r} ended")
        return int.from_bytes(answer, sys.byteorder)

    def close(self) -> None:
        """Ends its input, and waits for it."""
        self._child.communicate()


class Workshop:
    """The built module and helper, the host's policy, and all that is open. `note` says what this host goes without."""

    def __init__(self) -> None:
        self.stack = contextlib.ExitStack()
        with contextlib.ExitStack() as undo:
            folder = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="sandboxactor-bench-")))
            folder.chmod(0o755)  # a plan without namespaces has no other way to read it
            self.module = str(_compile("echo.c", folder / "echo.so", "-shared", "-fPIC"))
            self.spawn = str(_compile("spawn.c", folder / "spawn"))
            self.host, self.note = _host()
            self.stack = undo.pop_all()

    def __enter__(self) -> Workshop:
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    def sandbox(self, policy: Policy | None = None, host: HostPolicy | None = None) -> Sandbox:
        """A Sandbox that lives as long as the Workshop."""
        return self.stack.enter_context(Sandbox(policy or Policy.strict(), host=host or self.host))

    def helper(self, argv: Sequence[str], env: dict[str, str] | None = None) -> Helper:
        """A helper that lives as long as the Workshop."""
        made = Helper(argv, env)
        self.stack.callback(made.close)
        return made


def _compile(source: str, target: Path, *flags: str) -> Path:
    argv = [os.environ.get("CC", "cc"), "-O2", "-Wall", "-Wextra", "-Werror", *flags]
    subprocess.run([*argv, "-o", str(target), str(HERE / source)], check=True)
    return target


def _host() -> tuple[HostPolicy, str]:
    """The default; where nothing can hold CPU_MAX, the host waives that one guard and the table says so."""
    try:
        Sandbox(Policy.strict()).close()
    except Unenforceable as e:
        if {m.guard for m in e.missing} != {Guard.CPU_MAX}:
            raise
        return HostPolicy(waive={Guard.CPU_MAX}), f"CPU_MAX is WAIVED here: {e.missing[0]}"
    return HostPolicy(), ""


def environment() -> dict[str, str]:
    """This process's own, with its import path for children."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}


def subprocess_true() -> None:
    """The yardstick, once."""
    if subprocess.run(TRUE, check=False).returncode:
        raise RuntimeError("/bin/true failed")


def checked(result: Result, payload: bytes) -> None:
    """Nothing counts that did not echo."""
    if result.output != payload:
        raise RuntimeError("the module did not echo")


def run_once(box: Sandbox, module: str, payload: bytes = b"x") -> int:
    """One run, in nanoseconds."""
    begun = perf_counter_ns()
    result = box.run(module, payload)
    took = perf_counter_ns() - begun
    checked(result, payload)
    return took


def run_behind(box: Sandbox, module: str) -> int:
    """One run straight after another: the next worker is not parked yet, so it waits for all that makes one."""
    checked(box.run(module, b"x"), b"x")
    return run_once(box, module)


def after_sleep(sample: Callable[[], int]) -> Callable[[], int]:
    """The sample of a host that was idle, which pays for waking up."""

    def asleep() -> int:
        time.sleep(ASLEEP_S)
        return sample()

    return asleep


def timed(work: Callable[[], object]) -> Callable[[], int]:
    """A sample of something that does not time itself."""

    def sample() -> int:
        begun = perf_counter_ns()
        work()
        return perf_counter_ns() - begun

    return sample


def runs(shop: Workshop, quick: bool) -> Iterator[Contestant]:
    """The main table, the yardstick first."""
    spawn = shop.helper([shop.spawn])
    yard = timed(subprocess_true)
    yield Contestant(YARDSTICK, yard)
    yield Contestant("C fork, exec /bin/true, wait", lambda: spawn.ask(b"x"))
    yield Contestant("C fork, exit, wait", lambda: spawn.ask(b"f"))
    box, module = shop.sandbox(), shop.module
    yield Contestant(WARM, lambda: run_once(box, module))
    yield Contestant(BEHIND, lambda: run_behind(box, module))
    middle, page = shop.sandbox(), bytes(range(256)) * 256
    yield Contestant("Sandbox.run warm, 64 KiB", lambda: run_once(middle, module, page))
    large, bulk = shop.sandbox(Policy.strict(output=16 * MIB)), bytes(range(256)) * (16 * MIB // 256)
    yield Contestant("Sandbox.run warm, 16 MiB", lambda: run_once(large, module, bulk), every=2)
    idle = shop.sandbox()
    yield Contestant("Sandbox.run warm, 1 B, host asleep for 2 ms", after_sleep(lambda: run_once(idle, module)))
    yield Contestant("subprocess.run, host asleep for 2 ms", after_sleep(yard))
    yield from _cold(shop, every=3 if quick else 6)
    for peer in PEERS:
        yield from peer(shop)


def _cold(shop: Workshop, every: int) -> Iterator[Contestant]:
    def made() -> int:
        begun = perf_counter_ns()
        with Sandbox(Policy.strict(), host=shop.host) as box:
            result = box.run(shop.module, b"x")
        took = perf_counter_ns() - begun
        checked(result, b"x")
        return took

    yield Contestant(COLD_UP, made, every)
    argv = [sys.executable, "-m", "benchmarks.cold", shop.module, *(g.name for g in shop.host.waive)]
    alone = shop.helper(argv, environment())
    yield Contestant(COLD, alone.ask, every)


def starts(shop: Workshop) -> Iterator[Contestant]:
    """Whole Python processes; the first is the bare one that the others are compared with."""
    waive = sorted(g.name for g in shop.host.waive)
    first = (
        "from sandboxactor import HostPolicy, Policy, Sandbox\n"
        f"with Sandbox(Policy.strict(), host=HostPolicy(waive={waive!r})) as box:\n"
        f"    assert box.run({shop.module!r}, b'x').output == b'x'\n"
    )
    env = environment()
    for name, code in (
        ("python -c pass", "pass"),
        ("import sandboxactor", "import sandboxactor"),
        ("from sandboxactor import HostPolicy, Policy, Sandbox", first.splitlines()[0]),
        ("the same, all probes, first run, close", first),
    ):
        argv = [sys.executable, "-c", code]
        yield Contestant(name, timed(lambda argv=argv: subprocess.run(argv, check=True, env=env)))  # type: ignore[misc]


PEERS: tuple[Callable[[Workshop], Iterator[Contestant]], ...] = ()
