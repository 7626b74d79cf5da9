"""Which backends exist, and what each found on this host.

Built-ins are strings in a table; a third party's come from the entry-point group `sandboxactor.backends` and load only
when a HostPolicy names them (discovery is not consent). None can shadow a built-in.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import threading
from collections.abc import Iterator, Sequence

from sandboxactor.errors import InternalError, InvalidPolicy, WorkerFault
from sandboxactor.spi import Backend, Support

__all__ = ["BUILTIN", "load", "probe", "selected"]

GROUP = "sandboxactor.backends"

# In the order in which their steps stand within a phase.
BUILTIN: dict[str, str] = {
    "cgroups": "sandboxactor_cgroups.host:BACKEND",
    "namespaces": "sandboxactor_namespaces.host:BACKEND",
    "rlimits": "sandboxactor_rlimits.host:BACKEND",
    "credentials": "sandboxactor_credentials.host:BACKEND",
    "landlock": "sandboxactor_landlock.host:BACKEND",
    "seccomp": "sandboxactor_seccomp.host:BACKEND",
    "native": "sandboxactor_native.host:BACKEND",
}


def _resolve(target: str) -> Backend:
    module, _, attribute = target.partition(":")
    backend = getattr(importlib.import_module(module), attribute)
    if not isinstance(backend, Backend):
        raise InternalError(f"{target} is no Backend (name, guards, probe, steps)")
    return backend


@functools.cache
def load(name: str) -> Backend:
    """The backend of that name; InvalidPolicy if there is none."""
    if name in _lent:
        return _lent[name]
    if name in BUILTIN:
        return _resolve(BUILTIN[name])
    from importlib.metadata import entry_points  # slow to import, and built-ins do not need it

    found = [e for e in entry_points(group=GROUP) if e.name == name]
    if len(found) != 1:
        known = ", ".join(sorted({*BUILTIN, *(e.name for e in entry_points(group=GROUP))}))
        raise InvalidPolicy(f"backends: {name!r} is installed {len(found)} times; known are: {known}")
    try:
        backend = _resolve(found[0].value)
    except (ImportError, AttributeError) as e:
        raise InvalidPolicy(f"backends: {name!r} cannot be loaded: {e}") from e
    if backend.name != name or backend.name in BUILTIN:
        raise InvalidPolicy(f"backends: the entry point {name!r} loads a backend that calls itself {backend.name!r}")
    return backend


_probed: dict[str, Support] = {}
_lock = threading.RLock()  # two probes of control groups at once would remove each other's


def probe(name: str) -> Support:
    """What the backend found on this host; tried once a process."""
    with _lock:
        if name not in _probed:
            _probed[name] = _try(load(name))
        return _probed[name]


def _try(backend: Backend) -> Support:
    try:
        return backend.probe()
    except WorkerFault:
        raise  # this process is short of something: the next try may find the primitive, so nothing is remembered
    except Exception as e:  # a probe never raises: one that does is not available
        return Support(
            False, reason=f"its probe failed: {type(e).__name__}: {e}", remedy="report this as a bug of the backend"
        )


_lent: dict[str, Backend] = {}


@contextlib.contextmanager
def lent(backend: Backend) -> Iterator[None]:
    """For the conformance kit: `backend` is found under its name although no entry point brings it."""
    _lent[backend.name] = backend
    load.cache_clear()
    _probed.pop(backend.name, None)
    try:
        yield
    finally:
        del _lent[backend.name]
        load.cache_clear()
        _probed.pop(backend.name, None)


def selected(names: Sequence[str] | None) -> tuple[Backend, ...]:
    """The backends of a plan, in order: those named, or every built-in."""
    return tuple(load(n) for n in (BUILTIN if names is None else names))


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.RLock()  # another thread of the parent may have held it


os.register_at_fork(after_in_child=_after_fork_in_child)
