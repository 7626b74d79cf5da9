"""Programs: what is encoded for whom, in which order, within which bounds."""

from __future__ import annotations

import struct

import pytest

from sandboxactor import spi
from sandboxactor._wire import Binding, ffi, lib, program
from sandboxactor.errors import InternalError

NEWUSER, NEWNS = 0x10000000, 0x00020000
BINDING = Binding("/srv/m/a.so", "/srv/m", (7, 8), (7, 9), 5, 6, ("A=1",))
FILTER = spi.Filter(b"\6\0\0\0\0\0\0\0", b"\6\0\0\0\1\0\0\0", inherited=True)
LATE = spi.Filter(b"\6\0\0\0\2\0\0\0", b"\6\0\0\0\3\0\0\0", inherited=False)


def _records(ops: list[spi.Op]) -> list[tuple[int, int, bytes]]:
    blob, count = program(ops, BINDING)
    found = []
    while blob:
        op, by, size = struct.unpack_from("=HHI", blob)
        found.append((op, by, blob[8 : 8 + size]))
        blob = blob[8 + -(-size // 8) * 8 :]
    assert len(found) == count + 1
    return found


def _doers(ops: list[spi.Op], op: int) -> list[int]:
    return [by for found, by, _ in _records(ops) if found == op]


def test_the_last_record_runs_the_module() -> None:
    """Every program ends with the module's path and its environment, done by the worker."""
    op, by, data = _records([])[-1]
    assert (op, by, data[ffi.sizeof("struct sa_native") :]) == (
        lib.SA_OP_NATIVE,
        lib.SA_BY_WORKER,
        b"/srv/m/a.so\0A=1\0",
    )
    pinned = ffi.from_buffer("struct sa_native *", data)
    assert (pinned.dev, pinned.ino) == (7, 8)


def test_places_are_bound_and_pinned() -> None:
    """The module's folder and file are named by path and by the inode that the host looked at."""
    own = spi.Bind(spi.Place.SELF.value, spi.Place.SELF.value)
    (_, _, data), _ = _records([own])
    bind = ffi.from_buffer("struct sa_bind *", data)
    assert (bind.dev, bind.ino) == (7, 9)
    assert data.endswith(b"/srv/m\0/srv/m\0")


def test_a_folder_is_bound_before_what_lies_in_it() -> None:
    """Whatever order a backend gives, the outer bind comes first, or it would hide the inner one."""
    inner, outer = spi.Bind("/srv/m/w", "/srv/m/w", writable=True), spi.Bind("{self}", "{self}")
    targets = [data[ffi.sizeof("struct sa_bind") :].split(b"\0")[1] for _, _, data in _records([inner, outer])[:-1]]
    assert targets == [b"/srv/m", b"/srv/m/w"]


def test_what_a_fork_inherits_the_stem_does() -> None:
    """Filter, identity and prctl once a stem; a limit that the stem could not live under, each worker."""
    ops: list[spi.Op] = [spi.Prctl(38, 1), spi.Identity(True), spi.Rlimit(7, 64), spi.Rlimit(4, 0, shared=True), FILTER]
    assert _doers(ops, lib.SA_OP_PRCTL) == [lib.SA_BY_STEM]
    assert _doers(ops, lib.SA_OP_IDENTITY) == [lib.SA_BY_STEM]
    assert _doers(ops, lib.SA_OP_FILTER) == [lib.SA_BY_STEM]
    assert _doers(ops, lib.SA_OP_RLIMIT) == [lib.SA_BY_WORKER, lib.SA_BY_STEM]


def test_a_worker_that_mounts_gives_up_its_privileges_itself() -> None:
    """With a mount namespace of the worker's own, the stem stays able and the worker drops and filters."""
    ops: list[spi.Op] = [spi.Birth(NEWNS), spi.Tmpfs("/tmp", 4096, 16), spi.Identity(True), FILTER]
    assert _doers(ops, lib.SA_OP_IDENTITY) == [lib.SA_BY_WORKER]
    assert _doers(ops, lib.SA_OP_FILTER) == [lib.SA_BY_WORKER]


def test_a_worker_born_in_a_user_namespace_drops_again() -> None:
    """In a user namespace of its own it is born with every capability there."""
    ops: list[spi.Op] = [spi.Birth(NEWUSER), spi.Identity(False), FILTER]
    assert _doers(ops, lib.SA_OP_IDENTITY) == [lib.SA_BY_STEM, lib.SA_BY_WORKER]


def test_only_the_last_filter_is_shut() -> None:
    """A filter with another behind it is the variant that lets one be installed; the last is not."""
    size = ffi.sizeof("struct sa_filter")
    codes = [data[size:] for op, _, data in _records([FILTER, LATE]) if op == lib.SA_OP_FILTER]
    assert codes == [FILTER.open, LATE.bpf]
    assert [data[size:] for op, _, data in _records([FILTER]) if op == lib.SA_OP_FILTER] == [FILTER.bpf]


def test_kept_paths_are_those_below_the_mount() -> None:
    """A private /tmp keeps the module's folder visible where it lies in /tmp, once, and nothing else."""
    binding = Binding("/tmp/a/b.so", "/tmp/a", (1, 2), (1, 3), 5, 6, ())
    blob, _ = program([spi.Tmpfs("/tmp", 4096, 16, keep=("{self}", "/srv", "/tmp/a/w", "/tmpfoo"))], binding)
    assert blob[8 + ffi.sizeof("struct sa_tmpfs") :].startswith(b"/tmp\0/tmp/a\0\0")


def test_a_program_above_the_bounds_is_a_bug_of_ours() -> None:
    """The worker's fixed bounds are checked before anything is sent."""
    with pytest.raises(InternalError):
        program([spi.Prctl(38, 1)] * lib.SA_MAX_RECORDS, BINDING)
    with pytest.raises(InternalError):
        program([spi.Symlink("x" * lib.SA_MAX_PROGRAM, "/y")], BINDING)
