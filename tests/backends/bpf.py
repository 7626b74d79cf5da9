"""A classic BPF interpreter, so that filters can be asked about any call without installing them."""

from __future__ import annotations

import struct

X86_64, I386 = 0xC000003E, 0x40000003
ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000


def verdict(program: bytes, number: int, *args: int, arch: int = X86_64) -> int:
    """What the filter answers for one system call."""
    code = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    padded = [a & 0xFFFFFFFFFFFFFFFF for a in (*args, *[0] * (6 - len(args)))]
    data = struct.pack("=IIQ6Q", number & 0xFFFFFFFF, arch, 0, *padded)
    accumulator = at = 0
    while True:
        operation, true, false, k = code[at]
        at += 1
        if operation == 0x06:
            return k
        if operation == 0x20:
            accumulator = struct.unpack_from("=I", data, k)[0]
        elif operation == 0x54:
            accumulator &= k
        elif operation == 0x05:
            at += k
        else:
            taken = {0x15: accumulator == k, 0x25: accumulator > k, 0x35: accumulator >= k, 0x45: bool(accumulator & k)}
            at += true if taken[operation] else false
