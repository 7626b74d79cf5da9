"""Sandbox: the verb. It owns the plan, the stems and the lanes; many threads may run at once on one."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections import OrderedDict, deque
from typing import Any

from sandboxactor import _registry
from sandboxactor._host import HostPolicy
from sandboxactor._lane import Lane
from sandboxactor._launch import SANDBOX_ID, Stem, StemFault, Zygote, acquire, release
from sandboxactor._module import BadModule, Native, NativeModule, kind_of, resolve
from sandboxactor._plan import Plan, plan
from sandboxactor._policy import Policy
from sandboxactor._result import Result
from sandboxactor._verdict import bad_module, check_seal, expected_seal, facts, judge
from sandboxactor._wire import Binding, ffi, lib, text
from sandboxactor.errors import InvalidPolicy, PayloadTooLarge, Unenforceable, WorkerFault
from sandboxactor.spi import Kind, Meter

__all__ = ["Sandbox"]

MAX_STEMS = 16
SMALL_INPUT = 64 * 1024


class _Stand:
    """A stem and its idle lanes."""

    def __init__(self, stem: Stem, agreed: Plan) -> None:
        self.stem = stem
        self.seal = expected_seal(agreed, stem.records)
        self.idle: deque[Lane] = deque()  # first in, first out: the longest parked worker is ready
        self.busy = 0

    def close(self) -> None:
        while self.idle:
            self.idle.pop().close()
        self.stem.close()


class _State:
    """What outlives a Sandbox that nobody closed; weakref.finalize ends it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.quiet = threading.Condition(self.lock)
        self.owner = os.getpid()
        self.zygote: Zygote | None = None
        self.stands: OrderedDict[Native, _Stand] = OrderedDict()
        self.running: set[Lane] = set()
        self.closed = False

    def close(self) -> None:
        with self.lock:
            self.closed = True
            for lane in self.running:
                lib.sa_cancel(lane.run)
            self.quiet.wait_for(lambda: not self.running, timeout=10)
            stands, self.stands = list(self.stands.values()), OrderedDict()
            parent, self.zygote = self.zygote, None
        for stand in stands:
            stand.close()
        if parent is not None and self.owner == os.getpid():
            release(parent)


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
        if state is not None or policy.state:
            raise InvalidPolicy("state: a state folder cannot be kept yet; leave state out")
        if policy.workspace is not None and not os.path.isdir(policy.workspace):
            raise InvalidPolicy(f"workspace: {policy.workspace!r} is not a folder; make it first")
        self.policy = policy
        self._host = host if host is not None else HostPolicy()
        self._warm = warm
        backends = _registry.selected(self._host.backends)
        self._offers = [
            (b, s, tuple(b.steps(policy, s)) if s.available else ())
            for b in backends
            for s in (_registry.probe(b.name),)
        ]
        self._plans: dict[Kind, Plan] = {}
        self._resolved: dict[str, Native] = {}
        self._env = tuple(f"{name}={value}" for name, value in policy.env.items())
        self._plan(Kind.NATIVE)
        self._state = _State()
        self._finalizer = weakref.finalize(self, _State.close, self._state)
        _all.add(self)

    def __reduce__(self) -> Any:
        raise TypeError("a Sandbox cannot be pickled: make one from the same Policy in the other process")

    def __enter__(self) -> Sandbox:
        if self._state.closed:
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
        if isinstance(payload, str) or payload is None:
            raise TypeError(f"payload: bytes are wanted, not {type(payload).__name__}")
        if not isinstance(payload, bytes):
            payload = memoryview(payload).tobytes()
        if len(payload) > self.policy.input:
            raise PayloadTooLarge(f"payload: {len(payload)} bytes, the policy's input is {self.policy.input}")
        kind, named = kind_of(module)
        agreed = self._plan(kind)
        if not isinstance(named, NativeModule):
            raise InvalidPolicy(f"module: no backend runs {kind} modules yet")
        if self._state.closed:
            raise RuntimeError("this Sandbox is closed")
        for _ in range(16):  # a file that changes under us is looked up again, but not for ever
            try:
                native = self._resolved.get(named.path) if os.path.isabs(named.path) else None
                if native is None:
                    native = resolve(named)
                    if len(self._resolved) < 1024:
                        self._resolved[named.path] = native
            except BadModule as e:
                return bad_module(str(e), agreed)
            result = self._run_native(native, payload, agreed)
            if result is not None:
                return result
            self._resolved.pop(named.path, None)
        raise WorkerFault(f"module {named.path!r} changes too fast to be loaded")

    def _stand(self, native: Native, agreed: Plan) -> _Stand:
        state = self._state
        stand = state.stands.get(native)
        if stand is None:
            if state.zygote is None:
                state.zygote = acquire()
            stand = state.stands[native] = _Stand(self._new_stem(state.zygote, native, agreed), agreed)
            for _ in range(self._warm):
                stand.idle.append(self._new_lane(stand, 0, native, agreed))
        state.stands.move_to_end(native)
        spare = len(state.stands) - MAX_STEMS
        for old in [n for n, s in state.stands.items() if s.busy == 0 and n != native][: max(0, spare)]:
            state.stands.pop(old).close()
        return stand

    def _new_stem(self, parent: Zygote, native: Native, agreed: Plan) -> Stem:
        root = os.geteuid() == 0
        uid, gid = (SANDBOX_ID, SANDBOX_ID) if root else (os.geteuid(), os.getegid())
        binding = Binding(native.module, native.folder, native.module_id, native.folder_id, uid, gid, self._env)
        factory, group = agreed.groups, -1
        try:
            if factory is not None:
                parent.add_bases(factory.bases)
                group = factory.stem_group(uid)
            return Stem(parent, agreed.ops, binding, group)
        except StemFault as fault:
            raise WorkerFault(f"the plan could not be prepared: {fault}") from fault
        except OSError as e:
            raise WorkerFault(f"the plan could not be prepared: {e}") from e
        finally:
            if group >= 0:
                os.close(group)

    def _lease(self, native: Native, size: int, agreed: Plan) -> tuple[_Stand, Lane]:
        with self._state.lock:
            if self._state.closed:
                raise RuntimeError("this Sandbox is closed")
            stand = self._stand(native, agreed)
            lane = stand.idle.popleft() if stand.idle else None
            if lane is not None and lane.input_max < size:
                lane.close()
                lane = None
            if lane is None:
                lane = self._new_lane(stand, size, native, agreed)
            lane.run.cancelled = 0
            stand.busy += 1
            self._state.running.add(lane)
            return stand, lane

    def _new_lane(self, stand: _Stand, size: int, native: Native, agreed: Plan) -> Lane:
        room = SMALL_INPUT
        while room < size:
            room *= 2
        lane = Lane(stand.stem, agreed.groups, min(room, max(self.policy.input, 1)), self.policy.output)
        lane.expect(
            [(native.asked, native.module_id), (native.folder, native.folder_id), (native.module, native.module_id)]
        )
        lane.run.timeout_ns = int(self.policy.timeout * 1e9)
        return lane

    def _run_native(self, native: Native, payload: bytes, agreed: Plan) -> Result | None:
        stand, lane = self._lease(native, len(payload), agreed)
        run, clean = lane.run, False
        try:
            data = ffi.from_buffer(payload)
            run.payload, run.payload_size = data, len(payload)
            state = lib.sa_run(run)
            while state == lib.SA_INTERRUPTED:
                state = lib.sa_wait(run)  # Python runs its signal handlers before this line is reached again
            if state == lib.SA_STALE:
                clean = True
                return None
            if not run.started and not run.faulted and not run.error and not lane.fresh:
                return None  # its parked worker was killed from outside: another lane
            lane.fresh = False
            meter = lane.group.collect(lane.readings()) if lane.group else Meter()
            if run.error:
                raise WorkerFault(f"the host could not {text(run.failed)}: {os.strerror(run.error)}")
            check_seal(run, stand.seal)
            found = facts(run, meter)
            if run.mapped:
                lib.sa_release(run)
            clean = not meter.breaches and not found.timed_out and not found.cancelled
            return judge(found, agreed, self.policy)
        except BaseException:
            self._end(run)
            raise
        finally:
            self._give_back(native, stand, lane, clean)

    def _end(self, run: Any) -> None:
        """The worker is dead and reaped before an exception leaves: KeyboardInterrupt above all."""
        if run.started and not run.reported and not run.lost:
            lib.sa_cancel(run)
            while lib.sa_wait(run) == lib.SA_INTERRUPTED:
                pass

    def _give_back(self, native: Native, stand: _Stand, lane: Lane, clean: bool) -> None:
        state = self._state
        with state.lock:
            state.running.discard(lane)
            stand.busy -= 1
            if clean and not state.closed and state.stands.get(native) is stand:
                stand.idle.append(lane)
                lane = None  # type: ignore[assignment]
            broken = lane is not None and bool(lane.run.lost)
            if broken and state.stands.get(native) is stand:
                del state.stands[native]
            if not state.running:
                state.quiet.notify_all()
        if lane is not None:
            lane.close()
        if broken:
            stand.close()


_all: weakref.WeakSet[Sandbox] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    """The child's Sandboxes start anew: their stems belong to the parent, and a lock may have been held elsewhere."""
    for box in list(_all):
        box._finalizer.detach()
        old, box._state = box._state, _State()
        box._state.closed = old.closed
        for stand in old.stands.values():
            stand.close()  # in a child this closes descriptors and touches nothing of the parent's
        for lane in old.running:
            lane.close()
        box._finalizer = weakref.finalize(box, _State.close, box._state)


os.register_at_fork(after_in_child=_after_fork_in_child)
