"""Where the fuzzers start: the program of a real plan, and messages as the library sends them."""

from __future__ import annotations

import struct
from functools import cache

from sandboxactor import Guard, HostPolicy, Policy, Sandbox
from sandboxactor._wire import Binding, program
from sandboxactor.spi import Filter, Kind

LANE, ANY, TO_LANE, HANG_UP, ENDS = 0, 4, 5, 6, 7


@cache
def programs() -> tuple[bytes, ...]:
    """Programs of strict and of wide policies on this host; filters cut short, since their instructions are opaque."""
    made = []
    ids = (1, 2)
    binding = Binding("/a/b.so", "/a", ids, ids, 1000, 1000, ("NAME=value", "EMPTY="))
    for policy in (Policy.strict(), Policy.strict(tmp="8MiB", spawn=True, read=["/usr/share"])):
        box = Sandbox(policy, host=HostPolicy(waive=[*Guard]))
        ops = [
            op if not isinstance(op, Filter) else Filter(op.bpf[:16], op.open[:16], op.inherited)
            for op in box._plan(Kind.NATIVE).ops
        ]
        made.append(program(ops, binding)[0])
        box.close()
    return tuple(made)


def seeds(target: str) -> list[bytes]:
    """Inputs in the form that the target reads; see the head of each C file."""
    if target == "program":
        return list(programs())
    if target == "stem":
        lane = bytes([LANE, 0, 6, 0, 0, 0]) + struct.pack("<QQ", 65536, 1 << 20)
        kill = bytes([TO_LANE, 0, 0, 0])
        return [
            lane,
            lane + kill + bytes([ENDS, 0, 0, 0]),
            lane * 3 + bytes([HANG_UP, 1, ENDS, 0, 1, 0]) + lane,
            bytes([ANY, 0, 1, 0, 8]) + bytes(8),
        ]
    if target == "zygote":
        stems = [bytes([0, 0]) + struct.pack("<H", len(blob)) + blob for blob in programs()]
        base = b"/sys/fs/cgroup/sandboxactor-1-2-3\0"
        return [*stems, bytes([1, 240]) + struct.pack("<H", len(base)) + base, b"".join(stems)]
    limits = bytes([200, 255, 10, 255, 4])
    small, large = bytes([0, 100, 10, 50]), bytes([12, 80, 10, 50])
    status = bytes([6])
    sealed = bytes([3]) + struct.pack("<I", 1) + bytes(52)
    return [limits + run + sealed + b"\x00" + status for run in (small, large)] + [
        limits + small + bytes([8, 31, 255, 5])
    ]
