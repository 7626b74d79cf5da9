"""The stems and lanes of one Sandbox: leased to runs, given back, ended.

A stem stands for one module file as it was when the stem was made; a file that changed gets another stem. Locks are
held for bookkeeping and for making lanes, never during a run.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import weakref
from collections import deque
from collections.abc import Mapping

from sandboxactor._lane import Lane
from sandboxactor._launch import SANDBOX_ID, Hold, Stem, StemFault, Zygote, acquire, release
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


_pools, _uses = itertools.count(), itertools.count()


class _Stand:
    """A stem, what its workers' seals must say, its idle lanes and the leases of the others."""

    def __init__(self, stem: Stem, agreed: Plan) -> None:
        self.stem = stem
        self.seal = expected_seal(agreed, stem.records)
        self.idle: deque[Lane] = deque()  # first in, first out: the longest parked worker is ready
        self.leases: weakref.WeakSet[Lease] = weakref.WeakSet()
        self.used = next(_uses)

    @property
    def full(self) -> bool:
        """Whether the stem has no slot for another lane."""
        return not self.idle and len(self.leases) >= MAX_LANES

    def close(self) -> None:
        while self.idle:
            self.idle.pop().close()
        self.stem.close()


class Lease:
    """One run's hold on a lane. `clean` says that the next run may have the lane too. A signal handler may raise
    between any two lines of ours: whoever drops a lease gives it back all the same."""

    lane: Lane | None = None

    def __init__(self, pool: Pool, native: Native, stand: _Stand) -> None:
        self.pool, self.native, self.stand = pool, native, stand
        self.thread = threading.get_ident()
        self.clean = False

    def __del__(self) -> None:
        if self.lane is not None:
            self.pool.give_back(self)


class Pool:
    """What outlives a Sandbox that nobody closed: its finalizer closes this."""

    def __init__(self, policy: Policy, trees: Mapping[str, Tree], warm: int) -> None:
        self._policy = policy
        self._trees = trees
        self._warm = warm
        self._env = tuple(f"{name}={value}" for name, value in policy.env.items())
        self._lock = threading.RLock()  # a signal handler may run a module in the middle of a run
        self._changed = threading.Condition(self._lock)
        self._id = SANDBOX_ID + (os.getpid() % 4096) * 1024 + next(_pools) % 1024
        self._owner = os.getpid()
        self._hold: Hold | None = None
        self._stands: dict[Native, _Stand] = {}
        self._leases: weakref.WeakSet[Lease] = weakref.WeakSet()
        self.closed = False
        self._left = False  # close() was called in the middle of a run, whose end does the rest

    def lease(self, native: Native, size: int, agreed: Plan) -> Lease:
        """A lane of the module's stem for a payload of `size` bytes; both are made where there is none."""
        with self._lock:
            stand = self._stand(native, agreed)
            while stand.full:
                self._changed.wait()
                stand = self._stand(native, agreed)
            lease = Lease(self, native, stand)
            try:
                self._fill(lease, size, agreed)
            except BaseException:  # the exception may keep the lease alive for long: nobody shall wait for it
                self._forget(lease)
                raise
            return lease

    def _fill(self, lease: Lease, size: int, agreed: Plan) -> None:
        self._leases.add(lease)
        lease.stand.leases.add(lease)
        with contextlib.suppress(IndexError):
            lease.lane = lease.stand.idle.popleft()
        if lease.lane is not None and lease.lane.input_max < size:
            lease.lane.close()
            lease.lane = None
        if lease.lane is None:
            lease.lane = self._made_lane(lease, size, agreed)
        lease.lane.run.cancelled = 0

    def _forget(self, lease: Lease) -> None:
        self._leases.discard(lease)
        lease.stand.leases.discard(lease)
        self._changed.notify_all()

    def _made_lane(self, lease: Lease, size: int, agreed: Plan) -> Lane:
        """A new lane: of a new stem where it has died; after the idle lanes are gone where descriptors are short."""
        try:
            return self._new_lane(lease.stand, size, lease.native, agreed)
        except WorkerFault:
            if not lease.stand.stem.alive():
                self._stands.pop(lease.native, None)
                lease.stand.close()
                lease.stand = self._stand(lease.native, agreed)
                lease.stand.leases.add(lease)
            elif not self._drop_idle():
                raise
        return self._new_lane(lease.stand, size, lease.native, agreed)

    def _drop_idle(self) -> int:
        """Closes every idle lane, whose descriptors a new one may need; how many there were."""
        idle = [stand.idle.pop() for stand in self._stands.values() for _ in range(len(stand.idle))]
        for lane in idle:
            lane.close()
        return len(idle)

    def give_back(self, lease: Lease) -> None:
        """Ends a lease: a clean lane waits for the next run, another is closed, a stem that failed too. Idempotent."""
        stand, lane = lease.stand, lease.lane
        if lane is None:
            return
        lease.lane = None
        try:
            with self._lock:
                current = self._stands.get(lease.native) is stand
                broken = current and bool(lane.run.lost) and not stand.stem.alive()
                kept = lease.clean and not self.closed and current
                if kept:
                    stand.idle.append(lane)
                if broken:
                    del self._stands[lease.native]
            if not kept:
                lane.close()
            if broken:
                stand.close()
        finally:  # only now: who closes the Sandbox waits for the lane to be gone
            with self._lock:
                self._forget(lease)
                last = self._left and not self._leases
            if last:
                self._dispose()

    def close(self) -> None:
        """Cancels what runs, waits for it, ends the stems; the zygote too, if no other Sandbox uses it. Idempotent.

        Called by a signal handler in the middle of a run, it does not wait for that run: its end does the rest.
        """
        with self._lock:
            self.closed = True
            for lease in list(self._leases):
                if lease.lane is not None:
                    lib.sa_cancel(lease.lane.run)
            self._changed.notify_all()
            me = threading.get_ident()
            self._changed.wait_for(lambda: all(x.thread == me for x in list(self._leases)), timeout=CLOSE_TIMEOUT_S)
            self._left = any(x.thread == me for x in list(self._leases))
            if self._left:
                return
        self._dispose()

    def _dispose(self) -> None:
        with self._lock:
            stands, self._stands = list(self._stands.values()), {}
            hold, self._hold = self._hold, None
        for stand in stands:
            stand.close()
        if hold is not None and self._owner == os.getpid():
            release(hold)

    def abandon(self) -> None:
        """In a forked child: closes its copies of the descriptors, and touches nothing of the parent's."""
        for stand in self._stands.values():
            stand.close()
        for lease in list(self._leases):
            if lease.lane is not None:
                lease.lane.close()

    def _stand(self, native: Native, agreed: Plan) -> _Stand:
        if self.closed:
            raise RuntimeError("this Sandbox is closed")
        stand = self._stands.get(native)
        if stand is None:
            stand = self._stands[native] = _Stand(self._new_stem(native, agreed), agreed)
            for _ in range(self._warm):
                stand.idle.append(self._new_lane(stand, 0, native, agreed))
            self._close_spare(native)
        stand.used = next(_uses)
        return stand

    def _close_spare(self, but: Native) -> None:
        """Of more than MAX_STEMS stems, those that were idle for longest are ended."""
        idle = sorted((s.used, n) for n, s in self._stands.items() if not s.leases and n != but)
        for _, native in idle[: max(0, len(self._stands) - MAX_STEMS)]:
            self._stands.pop(native).close()

    def _parent(self) -> Zygote:
        if self._hold is None or self._hold.zygote is None or self._hold.zygote.closed:
            self._hold = acquire()  # an earlier hold is gone with this line
        assert self._hold.zygote is not None
        return self._hold.zygote

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
            {
                native.asked: native.module_id,
                os.path.dirname(native.asked): native.asked_folder_id,
                native.folder: native.folder_id,
                native.module: native.module_id,
            }
        )
        lane.run.timeout_ns = int(self._policy.timeout * 1e9)
        return lane
