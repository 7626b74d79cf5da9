"""A process of its own for the true first-run price: no other Sandbox is alive in it, so none keeps the zygote up.

`python -m benchmarks.cold MODULE [WAIVED...]`: for each byte read, one Sandbox made, run once and closed; answers 8
bytes, ns, as spawn.c does.
"""

from __future__ import annotations

import os
import sys
from time import perf_counter_ns

from sandboxactor import HostPolicy, Policy, Sandbox


def once(module: str, host: HostPolicy) -> int:
    """Nanoseconds from nothing to an answer and back to nothing."""
    begun = perf_counter_ns()
    with Sandbox(Policy.strict(), host=host) as box:
        result = box.run(module, b"x")
    took = perf_counter_ns() - begun
    if result.output != b"x":
        raise RuntimeError("the module did not echo")
    return took


def main() -> None:
    """Serves until its input ends."""
    module, *waived = sys.argv[1:]
    host = HostPolicy(waive=waived)
    while os.read(0, 1):
        os.write(1, once(module, host).to_bytes(8, sys.byteorder))


if __name__ == "__main__":
    main()
