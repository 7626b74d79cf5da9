"""The stems and lanes of one Sandbox: leased to runs, given back, ended.

A stem stands for one module file as it was when the stem was made; a file that changed gets another stem. Locks are
held for bookkeeping and for making lanes, never during a run.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections import OrderedDict, deque
from collections.abc import Mapping

from sandboxactor._lane import Lane
from sandboxactor._launch import SANDBOX_ID, Stem, StemFault, Zygote, acquire, release
from sandboxactor._module import Native, closed_to_others
from sandboxactor._plan import Plan
from sandboxactor._policy import Policy
from sandboxactor._verdict import expected_seal
from sandboxactor._wire import Binding, Tree, lib
from sandboxactor.errors import Missing, Unenforceable, WorkerFault
from sandboxactor.spi import Bind, Guard

__all__ = ["Lease", "Pool"]

MAX_STEMS = 16
MAX_LANES = int(lib.SA_MAX_LANES) - 8  # a slot is free again only when its last worker is reaped
SMALL_INPUT = 64 * 1024
CLOSE_TIMEOUT_S = 10


_pools = itertools.count()


class _Stand:
    """A stem, what its workers' seals must say, and its idle lanes."""

    def __init__(self, stem: Stem, agreed: Plan) -> None:
        self.stem = stem
        self.seal = expected_seal(agreed, stem.records)
        self.idle: deque[Lane] = deque()  # first in, first out: the longest parked worker is ready
        self.busy = 0

    @property
    def full(self) -> bool:
        """Whether the stem has no slot for another lane."""
        return not self.idle and self.busy >= MAX_LANES

    def close(self) -> None:
        while self.idle:
            self.idle.pop().close()
        self.stem.close()


class Lease:
    """One run's hold on a lane. `clean` says that the next run may have the lane too."""

    def __init__(self, native: Native, stand: _Stand, lane: Lane) -> None:
        self.native, self.stand, self.lane = native, stand, lane
        self.run = lane.run
        self.seal = stand.seal
        self.clean = False


class Pool:
    """What outlives a Sandbox that nobody closed: its finalizer closes this."""

    def __init__(self, policy: Policy, trees: Mapping[str, Tree], warm: int) -> None:
        self._policy = policy
        self._trees = trees
        self._warm = warm
        self._env = tuple(f"{name}={value}" for name, value in policy.env.items())
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._id = SANDBOX_ID + (os.getpid() % 4096) * 1024 + next(_pools) % 1024
        self._owner = os.getpid()
        self._zygote: Zygote | None = None
        self._stands: OrderedDict[Native, _Stand] = OrderedDict()
        self._running: set[Lane] = set()
        self.closed = False

    def lease(self, native: Native, size: int, agreed: Plan) -> Lease:
        """A lane of the module's stem for a payload of `size` bytes; both are made where there is none."""
        with self._lock:
            if self.closed:
                raise RuntimeError("this Sandbox is closed")
            stand = self._stand(native, agreed)
            while stand.full:
                self._changed.wait()
                if self.closed:
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
            self._running.add(lane)
            return Lease(native, stand, lane)

    def give_back(self, lease: Lease) -> None:
        """Ends a lease: a clean lane waits for the next run, another is closed, a stem that failed too."""
        stand, lane = lease.stand, lease.lane
        with self._lock:
            self._running.discard(lane)
            stand.busy -= 1
            current = self._stands.get(lease.native) is stand
            broken = current and bool(lane.run.lost) and not stand.stem.alive()
            kept = lease.clean and not self.closed and current
            if kept:
                stand.idle.append(lane)
            if broken:
                del self._stands[lease.native]
            self._changed.notify_all()
        if not kept:
            lane.close()
        if broken:
            stand.close()

    def close(self) -> None:
        """Cancels what runs, waits for it, ends the stems; the zygote too, if no other Sandbox uses it. Idempotent."""
        with self._lock:
            self.closed = True
            for lane in self._running:
                lib.sa_cancel(lane.run)
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._running, timeout=CLOSE_TIMEOUT_S)
            stands, self._stands = list(self._stands.values()), OrderedDict()
            parent, self._zygote = self._zygote, None
        for stand in stands:
            stand.close()
        if parent is not None and self._owner == os.getpid():
            release(parent)

    def abandon(self) -> None:
        """In a forked child: closes its copies of the descriptors, and touches nothing of the parent's."""
        for stand in self._stands.values():
            stand.close()
        for lane in self._running:
            lane.close()

    def _stand(self, native: Native, agreed: Plan) -> _Stand:
        stand = self._stands.get(native)
        if stand is None:
            stand = self._stands[native] = _Stand(self._new_stem(native, agreed), agreed)
            for _ in range(self._warm):
                stand.idle.append(self._new_lane(stand, 0, native, agreed))
        self._stands.move_to_end(native)
        spare = len(self._stands) - MAX_STEMS
        for old in [n for n, s in self._stands.items() if s.busy == 0 and n != native][: max(0, spare)]:
            self._stands.pop(old).close()
        return stand

    def _parent(self) -> Zygote:
        if self._zygote is not None and self._zygote.closed:
            release(self._zygote)
            self._zygote = None
        if self._zygote is None:
            self._zygote = acquire()
        return self._zygote

    def _new_stem(self, native: Native, agreed: Plan) -> Stem:
        """A stem; if the zygote turns out to have died, a new one forks it."""
        parent = self._parent()
        try:
            return self._fork_stem(parent, native, agreed)
        except WorkerFault:
            if not parent.closed:
                raise
            return self._fork_stem(self._parent(), native, agreed)

    def _fork_stem(self, parent: Zygote, native: Native, agreed: Plan) -> Stem:
        root = os.geteuid() == 0
        if root and not any(isinstance(op, Bind) for op in agreed.ops):
            self._check_reach(native)
        uid, gid = (self._id, self._id) if root else (os.geteuid(), os.getegid())
        binding = Binding(
            native.module, native.folder, native.module_id, native.folder_id, uid, gid, self._env, self._trees
        )
        factory, group = agreed.groups, -1
        try:
            if factory is not None:
                parent.add_bases(factory.bases)
                group = factory.stem_group(uid)
            return Stem(parent, agreed.ops, binding, group)
        except (StemFault, OSError) as e:
            raise WorkerFault(f"the plan could not be prepared: {e}") from e
        finally:
            if group >= 0:
                os.close(group)

    @staticmethod
    def _check_reach(native: Native) -> None:
        """Without an idmapped bind, a worker that gave up root sees the module only if everybody may."""
        closed = closed_to_others(native)
        if closed:
            reason = f"{closed} is closed to the sandbox's user, and no mount namespace can show it"
            remedy = "allow mount namespaces, or put the module where everybody may read it"
            raise Unenforceable([Missing(Guard.IDENTITY, "namespaces", reason, remedy)])

    def _new_lane(self, stand: _Stand, size: int, native: Native, agreed: Plan) -> Lane:
        room = SMALL_INPUT
        while room < size:
            room *= 2
        lane = Lane(stand.stem, agreed.groups, min(room, self._policy.input), self._policy.output)
        lane.expect(
            [(native.asked, native.module_id), (native.folder, native.folder_id), (native.module, native.module_id)]
        )
        lane.run.timeout_ns = int(self._policy.timeout * 1e9)
        return lane
