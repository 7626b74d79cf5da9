"""The conformance kit for backends: what the built-in ones pass, and what a third party's must.

    from sandboxactor.testing import check_backend

    def test_conforms():
        check_backend(BACKEND)

It needs a C compiler, for the attacks of data/attacks.c.
"""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs

from sandboxactor import _registry
from sandboxactor._host import HostPolicy
from sandboxactor._plan import covered, plan
from sandboxactor._policy import Policy
from sandboxactor._sandbox import Sandbox
from sandboxactor.errors import Unenforceable
from sandboxactor.spi import Backend, Guard, Kind, Op, Step, Support

__all__ = ["Attacked", "build_attacks", "check_backend"]

SOURCE = Path(__file__).parent / "data" / "attacks.c"
HIDDEN = "/etc/passwd"  # readable by everybody, granted to nobody
MASKED = Support(False, reason="masked by the conformance kit", remedy="unmask it")

# Small limits, so that each attack is quick; what the attack asks for is above them.
POLICY = Policy.strict(memory="64MiB", cpu="100m", processes=4, timeout=1.5, output="64KiB")
ARGUMENTS = {
    Guard.FILES_SCOPED: HIDDEN,
    Guard.FILES_HIDDEN: HIDDEN,
    Guard.MEMORY_MAX: "96",
    Guard.PROCESSES_MAX: "8",
}


@attrs.frozen
class Attacked:
    """One guard: whether the attack worked unconfined, and what came of it confined."""

    guard: Guard
    unconfined: str
    confined: str


def build_attacks(folder: Path) -> Path:
    """Compiles the attacks into `folder` and returns the module."""
    module = folder / "attacks.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-pthread", "-o", module, SOURCE], check=True)
    return module


def _unconfined(module: Path, payload: str) -> str:
    """The control: the same module in a process without any confinement."""
    code = (
        "import ctypes,sys; m=ctypes.CDLL(sys.argv[1]); o=ctypes.c_void_p(); n=ctypes.c_size_t();"
        "p=sys.argv[2].encode();"
        "m.allascode_action_execute(p,ctypes.c_size_t(len(p)),ctypes.byref(o),ctypes.byref(n));"
        "print(ctypes.string_at(o.value,4).decode())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, module, payload], capture_output=True, text=True, timeout=30, check=False
    )
    return done.stdout.strip()


@contextmanager
def _nothing_left(what: str) -> Iterator[None]:
    def look() -> tuple[object, ...]:
        mounts = Path("/proc/self/mountinfo").read_text()
        return sorted(os.listdir("/proc/self/fd")), os.getcwd(), mounts, dict(os.environ), os.listdir("/proc/self/task")

    before = look()
    yield
    assert look() == before, f"{what} left something behind: descriptors, mounts, environment or threads differ"


def _check_shape(backend: Backend, steps: Sequence[Step]) -> None:
    assert re.fullmatch(r"[a-z][a-z0-9_]{0,31}", backend.name), f"{backend.name!r} is no backend name"
    assert isinstance(backend.guards, frozenset), "guards must be a frozenset of Guard"
    for step in steps:
        assert step.backend == backend.name, f"a step calls itself {step.backend!r}"
        assert step.label, "a step needs a label"
        assert step.summary, "a step needs a summary"
        assert set(step.covers) <= backend.guards, f"{step.label} covers more than the backend's guards"
        assert all(isinstance(op, Op) for op in step.ops), f"{step.label} has operations that the worker does not know"


def _check_masked(backend: Backend, steps: Sequence[Step]) -> None:
    """With the primitive masked, every guard that the backend covers is missing, with backend, reason and remedy."""
    for guard in {g for step in steps for g in step.covers}:
        try:
            plan(Kind.NATIVE, frozenset({guard}), [(backend, MASKED, ())])
        except Unenforceable as e:
            named = [m for m in e.missing if m.guard is guard]
            assert named, f"{guard} is not named as missing"
            assert (named[0].backend, named[0].reason, named[0].remedy) == (backend.name, MASKED.reason, MASKED.remedy)
        else:
            raise AssertionError(f"{guard} is planned without its primitive")


def _attack(guards: frozenset[Guard], names: Sequence[str], policy: Policy) -> list[Attacked]:
    found = []
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        module = build_attacks(Path(folder))
        host = HostPolicy(backends=names, waive=frozenset(Guard) - guards)
        with Sandbox(policy, host=host) as box:
            for guard in sorted(guards):
                payload = f"{guard.value} {ARGUMENTS.get(guard, '')}".strip()
                result = box.run(module, payload.encode())
                confined = result.output[:4].decode() if result.ok else f"held: {result.outcome}"
                found.append(Attacked(guard, _unconfined(module, payload), confined))
    return found


def _attackable(guards: frozenset[Guard]) -> frozenset[Guard]:
    # An ordinary user has no privilege to lose: there the attack has no control.
    return guards - ({Guard.IDENTITY} if os.geteuid() else frozenset())


def check_backend(backend: Backend, policy: Policy = POLICY) -> list[Attacked]:
    """Raises AssertionError at the first promise that the backend breaks; returns what was attacked.

    Its probe has no side effects and repeats; its steps are pure; masked, its guards are Unenforceable; on this host
    each guard that a plan with it really covers is attacked, confined and unconfined. Where the primitive is missing
    only the first three can be checked, and the list is empty.
    """
    with _nothing_left("probe()"):
        support = backend.probe()
        assert isinstance(support, Support), "probe() must return a Support"
        assert backend.probe() == support, "probe() must repeat its answer"
    if not support.available:
        assert support.reason, "a missing primitive needs a reason"
        assert support.remedy, "a missing primitive needs a remedy"
        return []
    with _nothing_left("steps()"):
        steps = tuple(backend.steps(policy, support))
        again = tuple(backend.steps(pickle.loads(pickle.dumps(policy)), support))
        assert steps == again, "steps() must be pure: equal policies give equal steps"
    _check_shape(backend, steps)
    _check_masked(backend, steps)
    names = [*_registry.BUILTIN, *([] if backend.name in _registry.BUILTIN else [backend.name])]
    with _registry.lent(backend):
        offers = [(b, _registry.probe(b.name)) for b in _registry.selected(names)]
        every = [s for b, found in offers if found.available for s in b.steps(policy, found) if Kind.NATIVE in s.kinds]
        claimed = frozenset(g for s in steps for g in s.covers) & policy.guards & frozenset(covered(every))
        attacked = _attack(_attackable(claimed), names, policy)
    for a in attacked:
        assert a.unconfined == "open", f"the attack on {a.guard} has no control: unconfined it says {a.unconfined!r}"
        assert a.confined.startswith("held"), f"{a.guard} does not hold: the attack says {a.confined!r}"
    return attacked
