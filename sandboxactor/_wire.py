"""A plan's operations as the bytes of a program, through the very declarations the worker was compiled from.

This is the one place that binds a step's places (`Place.SELF`, `Place.MODULE`) to a run's paths, and that decides which
records a stem does once for all its workers and which each worker does for itself.
"""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from sandboxactor import spi
from sandboxactor._bin._ffi import ffi
from sandboxactor.errors import InternalError

__all__ = ["Binding", "Tree", "ffi", "lib", "program", "text"]

BIN = Path(__file__).parent / "_bin"
WORKER = str(BIN / "sandboxactor-worker")
lib: Any = ffi.dlopen(str(BIN / "libsandboxactor.so"))

CLONE_NEWUSER = 0x10000000


def text(field: Any) -> str:
    """A char array of a message as printable ASCII: some of them the module can write."""
    raw = bytes(ffi.string(field))  # type: ignore[arg-type]
    return "".join(chr(c) if 32 <= c < 127 else "?" for c in raw)


@attrs.frozen
class Tree:
    """A granted path as it was when the Sandbox was made: where it really is, and its (st_dev, st_ino)."""

    real: str
    id: tuple[int, int]

    @classmethod
    def look(cls, path: str) -> Tree:
        """Raises OSError where there is nothing."""
        real = os.path.realpath(path, strict=True)
        found = os.stat(real)
        return cls(real, (found.st_dev, found.st_ino))


@attrs.frozen
class Binding:
    """What only a run can name: the module, its folder, and the ids that its worker gets."""

    module: str  # resolved
    folder: str
    module_id: tuple[int, int]  # (st_dev, st_ino) of the file the host looked at
    folder_id: tuple[int, int]
    uid: int
    gid: int
    env: tuple[str, ...]  # NAME=VALUE
    trees: Mapping[str, Tree] = attrs.field(factory=dict)  # what the policy grants, by the path it is granted under

    def path(self, path: str) -> str:
        """The real path behind a place, or the path itself."""
        return {spi.Place.SELF.value: self.folder, spi.Place.MODULE.value: self.module}.get(path, path)

    def source(self, path: str) -> str:
        """Where the path really leads on this host, its symlinks resolved: what is bound is not looked up again."""
        return self.trees[path].real if path in self.trees else self.path(path)

    def expected(self, path: str) -> tuple[int, int]:
        """The inode that `path` must still be, or (0, 0) where any will do."""
        if path in self.trees:
            return self.trees[path].id
        return {spi.Place.SELF.value: self.folder_id, spi.Place.MODULE.value: self.module_id}.get(path, (0, 0))


def _bytes(kind: str, **fields: int) -> bytes:
    struct = ffi.new(f"struct sa_{kind} *", fields)
    return bytes(ffi.buffer(struct))


def _strings(*texts: str) -> bytes:
    return b"".join(os.fsencode(t) + b"\0" for t in texts)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 8)


def _bind(op: spi.Bind, binding: Binding) -> bytes:
    source, (dev, ino) = binding.source(op.source), binding.expected(op.source)
    flags = lib.SA_BIND_WRITABLE * op.writable | lib.SA_BIND_EXEC * op.executable | lib.SA_BIND_OPTIONAL * op.optional
    ids = {"uid_from": 0, "uid_to": 0, "gid_from": 0, "gid_to": 0}
    if op.idmap:
        try:
            st = os.stat(source)
        except OSError:  # the worker reports it, as a missing source or as an optional one
            st = os.stat_result((0,) * 10)
        # World-readable trees work without the map (their parents are ours): only there may it be missing.
        open_to_all = stat.S_IROTH | (stat.S_IXOTH if stat.S_ISDIR(st.st_mode) else 0)
        optional = not op.writable and st.st_mode & open_to_all == open_to_all
        flags |= lib.SA_BIND_IDMAP_TRY if optional else lib.SA_BIND_IDMAP
        ids = {"uid_from": st.st_uid, "uid_to": binding.uid, "gid_from": st.st_gid, "gid_to": binding.gid}
    return _bytes("bind", flags=flags, dev=dev, ino=ino, **ids) + _strings(source, binding.path(op.target))


def _tmpfs(op: spi.Tmpfs, binding: Binding) -> bytes:
    kept = sorted({p for p in map(binding.path, op.keep) if p.startswith(op.target + "/")})
    kept = [p for p in kept if not any(p.startswith(above + "/") for above in kept)]
    return _bytes("tmpfs", size=op.size, inodes=op.inodes, executable=op.executable) + _strings(op.target, *kept)


def _landlock(op: spi.Landlock, binding: Binding) -> bytes:
    data = _bytes("landlock", handled_fs=op.handled_fs, handled_net=op.handled_net, scoped=op.scoped)
    for rule in op.rules:
        path, (dev, ino) = _strings(binding.path(rule.path)), binding.expected(rule.path)
        data += _bytes("rule", access=rule.access, dev=dev, ino=ino, size=len(path)) + _padded(path)
    return data


def _filter(op: spi.Filter, last: bool) -> bytes:
    bpf = op.bpf if last else op.open
    return _bytes("filter", key_slot=op.key_slot, pid_slot=op.pid_slot, count=len(bpf) // 8) + bpf


_ENCODERS: dict[type, tuple[str, Callable[[Any, Binding], bytes]]] = {
    spi.Rlimit: ("RLIMIT", lambda o, b: _bytes("rlimit", resource=o.resource, above_now=o.above_now, value=o.value)),
    spi.Prctl: ("PRCTL", lambda o, b: _bytes("prctl", option=o.option, argument=o.argument)),
    spi.Identity: ("IDENTITY", lambda o, b: _bytes("identity", uid=b.uid, gid=b.gid, change=o.change)),
    spi.Namespaces: ("NAMESPACES", lambda o, b: _bytes("flags", flags=o.flags)),
    spi.Birth: ("BIRTH", lambda o, b: _bytes("flags", flags=o.flags)),
    spi.Root: ("ROOT", lambda o, b: b""),
    spi.Bind: ("BIND", _bind),
    spi.Tmpfs: ("TMPFS", _tmpfs),
    spi.Symlink: ("SYMLINK", lambda o, b: _strings(o.target, o.path)),
    spi.Pivot: ("PIVOT", lambda o, b: b""),
    spi.Landlock: ("LANDLOCK", _landlock),
    spi.Filter: ("FILTER", lambda o, b: _filter(o, last=True)),
    spi.ThreadStack: ("THREAD_STACK", lambda o, b: _bytes("flags", flags=o.size)),
}

_WORKER_ONLY = (spi.Tmpfs, spi.Landlock, spi.ThreadStack)


def _doers(op: spi.Op, ops: Sequence[spi.Op]) -> Iterable[int]:
    """Who does a record. What a fork inherits, the stem does once; a mount or pid namespace of the worker's own needs
    privileges, so then the worker gives them up itself; in a user namespace of its own it is born with new ones."""
    own_mounts = any(isinstance(o, spi.Birth) and o.flags & ~CLONE_NEWUSER for o in ops)
    own_user = any(isinstance(o, spi.Birth) and o.flags & CLONE_NEWUSER for o in ops)
    if isinstance(op, _WORKER_ONLY):
        return (lib.SA_BY_WORKER,)
    if isinstance(op, spi.Prctl | spi.Rlimit):
        return (lib.SA_BY_STEM if op.shared else lib.SA_BY_WORKER,)
    if isinstance(op, spi.Filter):
        return (lib.SA_BY_STEM if op.inherited and not own_mounts else lib.SA_BY_WORKER,)
    if isinstance(op, spi.Identity):
        if own_mounts:
            return (lib.SA_BY_WORKER,)
        return (lib.SA_BY_STEM, lib.SA_BY_WORKER) if own_user else (lib.SA_BY_STEM,)
    return (lib.SA_BY_STEM,)


def _record(op: int, by: int, data: bytes) -> bytes:
    return _bytes("record", op=op, by=by, size=len(data)) + _padded(data)


def _outer_first(ops: Sequence[spi.Op], binding: Binding) -> list[spi.Op]:
    """Neighbouring binds by their real target: a folder before what lies in it, or the outer would hide the inner."""
    ordered: list[spi.Op] = []
    for is_bind, run in itertools.groupby(ops, lambda op: isinstance(op, spi.Bind)):
        neighbours = list(run)
        if is_bind:
            neighbours.sort(key=lambda op: binding.path(op.target) if isinstance(op, spi.Bind) else "")
        ordered += neighbours
    return ordered


def program(ops: Sequence[spi.Op], binding: Binding) -> tuple[bytes, int]:
    """The program of `ops` and the number of records that its seal must report as applied."""
    records: list[bytes] = []
    last = next((op for op in reversed(ops) if isinstance(op, spi.Filter)), None)
    for op in _outer_first(ops, binding):
        name, encode = _ENCODERS[type(op)]
        data = encode(op, binding) if op is last or not isinstance(op, spi.Filter) else _filter(op, last=False)
        for at, by in enumerate(_doers(op, ops)):
            if at and isinstance(op, spi.Identity):  # the user is changed already; left are the new namespace's powers
                data = encode(attrs.evolve(op, change=False), binding)
            records.append(_record(getattr(lib, f"SA_OP_{name}"), by, data))
    dev, ino = binding.module_id
    run = _bytes("native", dev=dev, ino=ino) + _strings(binding.module, *binding.env)
    blob = b"".join(records) + _record(lib.SA_OP_NATIVE, lib.SA_BY_WORKER, run)
    if len(blob) > lib.SA_MAX_PROGRAM or len(records) >= lib.SA_MAX_RECORDS:
        raise InternalError(f"a program of {len(blob)} bytes and {len(records)} records is above the worker's bounds")
    return blob, len(records)
