"""Sandbox: the verb. It owns the plan, the stems and the lanes; many threads may run at once on one."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from typing import Any

from sandboxactor import _registry
from sandboxactor._host import HostPolicy
from sandboxactor._module import BadModule, Native, NativeModule, kind_of, resolve
from sandboxactor._plan import Plan, plan
from sandboxactor._policy import Policy
from sandboxactor._pool import Pool
from sandboxactor._result import Result
from sandboxactor._verdict import bad_module, check_seal, facts, judge
from sandboxactor._wire import Tree, ffi, lib, text
from sandboxactor.errors import InvalidPolicy, Missing, PayloadTooLarge, Unenforceable, WorkerFault
from sandboxactor.spi import Guard, Kind, Meter

__all__ = ["Sandbox"]


SIGNAL_SLICE_NS = 100_000_000  # a signal that arrives just before the wait begins is looked at this much later
MAX_OUTPUT = 1 << 40  # of sparse memory that a worker maps
MAX_ENV = 1000


def _granted(policy: Policy) -> dict[str, Tree]:
    """The granted trees as they are now; whoever swaps one afterwards changes what is refused, not what is granted."""
    trees = {}
    for name, path in [
        *(("read", p) for p in policy.read),
        *([("workspace", policy.workspace)] if policy.workspace else []),
    ]:
        try:
            trees[path] = Tree.look(path)
        except OSError as e:
            raise InvalidPolicy(f"{name}: {path!r} is not there ({e.strerror}); make it first, or leave it out") from e
        if trees[path].real != path:
            # Looking through it now could find what a module put there since the policy was granted.
            raise InvalidPolicy(f"{name}: {path!r} leads through a symlink to {trees[path].real!r}: name that")
        if name == "workspace" and not os.path.isdir(trees[path].real):
            raise InvalidPolicy(f"workspace: {path!r} is not a folder; name one")
    return trees


class Sandbox:
    """Runs untrusted modules under a policy, or raises Unenforceable before anything starts.

    `policy` is what was agreed; `host` gives the backends, the vault and the waivers; `warm` is the number of runs for
    which lanes are made ahead with the first run of a module. One Sandbox serves many threads at once.
    """

    def __init__(self, policy: Policy, *, host: HostPolicy | None = None, warm: int = 0, state: Any = None) -> None:
        if not isinstance(policy, Policy):
            raise InvalidPolicy(
                f"policy: a Policy is wanted, not {type(policy).__name__}; HostPolicy().grant() makes one"
            )
        if isinstance(warm, bool) or not isinstance(warm, int) or not 0 <= warm <= 64:
            raise InvalidPolicy(f"warm: {warm!r} must be a whole number from 0 to 64")
        for name, wanted in (("state", state is not None or policy.state), ("secrets", policy.secrets)):
            if wanted:
                raise Unenforceable(
                    [Missing(None, "no backend", f"none of this release serves {name}", f"grant no {name}")]
                )
        if policy.output > MAX_OUTPUT:
            raise InvalidPolicy(f"output: {policy.output} bytes cannot be mapped; at most {MAX_OUTPUT}")
        if len(policy.env) > MAX_ENV:
            raise InvalidPolicy(f"env: {len(policy.env)} variables; at most {MAX_ENV}")
        self.policy = policy
        self._trees = _granted(policy)
        self._host = host if host is not None else HostPolicy()
        backends = _registry.selected(self._host.backends)
        self._offers = [
            (b, s, tuple(b.steps(policy, s)) if s.available else ())
            for b in backends
            for s in (_registry.probe(b.name),)
        ]
        self._plans: dict[Kind, Plan] = {}
        self._known: dict[str, Native] = {}
        self._plan(Kind.NATIVE)
        self._warm = warm
        self._start(Pool(policy, self._trees, warm))
        _all.add(self)

    def _start(self, pool: Pool) -> None:
        self._pool = pool
        self._finalizer = weakref.finalize(self, Pool.close, pool)

    def __reduce__(self) -> Any:
        raise TypeError("a Sandbox cannot be pickled: make one from the same Policy in the other process")

    def __enter__(self) -> Sandbox:
        if self._pool.closed:
            raise RuntimeError("this Sandbox is closed")
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends running runs as `cancelled` and gives everything back. Idempotent."""
        self._finalizer()

    def _plan(self, kind: Kind) -> Plan:
        found = self._plans.get(kind)
        if found is None:
            found = self._plans[kind] = plan(kind, self.policy.guards, self._offers, self._host.waive)
        return found

    def explain(self, module: object = None) -> str:
        """The plan, as it will be executed; without a module, the plan of each kind that this host can run."""
        if module is not None:
            return self._plan(kind_of(module)[0]).describe()
        texts = []
        for kind in Kind:
            with contextlib.suppress(Unenforceable):
                texts.append(self._plan(kind).describe())
        return "\n".join(texts)

    def run(self, module: object, payload: Any = b"") -> Result:
        """Runs a module on a payload and returns what came of it; nothing that the module does raises here.

        `module` is a path, an argv list or a NativeModule, WasmModule, Command; `payload` any bytes-like object, copied
        first. Raises TypeError, InvalidPolicy or PayloadTooLarge for a bad request, Unenforceable or WorkerFault for
        this machine.
        """
        data = self._copied(payload)
        if self._pool.closed:
            raise RuntimeError("this Sandbox is closed")
        for _ in range(16):  # a file that changes under us is looked up again, but not for ever
            native = self._known.get(module) if type(module) is str else None
            try:
                native = native or self._locate(module)
            except BadModule as e:
                return bad_module(str(e), self._plan(Kind.NATIVE))
            result = self._run_native(native, data, self._plan(Kind.NATIVE))
            if result is not None:
                return result
            self._known.clear()
        raise WorkerFault(f"module {module!r} changes too fast to be loaded")

    def _copied(self, payload: Any) -> bytes:
        if isinstance(payload, str) or payload is None:
            raise TypeError(f"payload: bytes are wanted, not {type(payload).__name__}")
        if not isinstance(payload, bytes):
            payload = memoryview(payload).tobytes()
        if len(payload) > self.policy.input:
            raise PayloadTooLarge(f"payload: {len(payload)} bytes, the policy's input is {self.policy.input}")
        return bytes(payload)

    def _locate(self, module: object) -> Native:
        """The file behind a native module; an absolute path is remembered, and checked again inside every run."""
        kind, named = kind_of(module)
        self._plan(kind)
        if not isinstance(named, NativeModule):
            raise InvalidPolicy(f"module: no backend runs {kind} modules yet")
        native = resolve(named)
        if type(module) is str and os.path.isabs(module) and len(self._known) < 1024:
            self._known[module] = native
        return native

    def _run_native(self, native: Native, payload: bytes, agreed: Plan) -> Result | None:
        """One run on a leased lane; None if the file changed, or if the parked worker was killed from outside before it
        heard of the run."""
        lease = self._pool.lease(native, len(payload), agreed)
        lane = lease.lane
        assert lane is not None
        run = lane.run
        try:
            run.slice_ns = SIGNAL_SLICE_NS if threading.current_thread() is threading.main_thread() else 0
            data = ffi.from_buffer(payload)
            run.payload, run.payload_size = data, len(payload)
            state = lib.sa_run(run)
            while state == lib.SA_INTERRUPTED:
                state = lib.sa_wait(run)  # Python runs its signal handlers before this line is reached again
            if state == lib.SA_STALE:
                lease.clean = True
                return None
            if not run.started and not run.faulted and not run.error and (run.sealed or not lane.fresh):
                return None
            lane.fresh = False
            meter = lane.group.collect(lane.readings()) if lane.group else Meter()
            if run.error:
                raise WorkerFault(f"the host could not {text(run.failed)}: {os.strerror(run.error)}")
            check_seal(run, lease.stand.seal, any(g is Guard.MEMORY_MAX for g, *_ in meter.breaches))
            found = facts(run, meter)
            if run.mapped or found.stdout or found.stderr:
                lib.sa_release(run)
            # The stem forks no successor for a worker that exited with 121, whoever made it do so.
            lease.clean = bool(run.sealed) and not (
                meter.breaches or found.timed_out or found.cancelled or found.wait == 121 << 8
            )
            return judge(found, agreed, self.policy)
        except BaseException:
            self._end(run)
            raise
        finally:
            self._pool.give_back(lease)

    def _end(self, run: Any) -> None:
        """The worker is dead and reaped before an exception leaves: KeyboardInterrupt above all."""
        if run.started and not run.reported and not run.lost:
            lib.sa_cancel(run)
            while lib.sa_wait(run) == lib.SA_INTERRUPTED:
                pass


_all: weakref.WeakSet[Sandbox] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    """The child's Sandboxes start anew: their stems belong to the parent, and a lock may have been held elsewhere."""
    for box in list(_all):
        box._finalizer.detach()
        old = box._pool
        box._start(Pool(box.policy, box._trees, box._warm))
        box._pool.closed = old.closed
        old.abandon()


os.register_at_fork(after_in_child=_after_fork_in_child)
