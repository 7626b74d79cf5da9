"""What test_sanitized.py runs against the instrumented build, in a process of its own: every way a run can end."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import sandboxactor
from sandboxactor import Command, Guard, HostPolicy, InvalidPolicy, Outcome, Policy, Sandbox, Unenforceable

SOURCE = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int allascode_action_execute(const unsigned char *in, size_t n, unsigned char **out, size_t *size)
{
    volatile char *nowhere = NULL;
    switch (n ? in[0] : 'e') {
    case 'c': *nowhere = 1; break;
    case 'a': abort();
    case 'x': exit(3);
    case 'h': for (;;) pause();
    case 'r': return 7;
    case 'n': *size = 5; return 0;
    case 'l': *out = malloc(16), *size = (size_t)1 << 40; return 0;
    case 'p': *out = (unsigned char *)8, *size = 64; return 0;
    case 'f': for (int i = 0; i < 100000; i++) { puts("to stdout"); fputs("to stderr\n", stderr); } break;
    case 'k': for (int fd = 0; fd < 64; fd++) close(fd); break;
    case 'y': syscall(9999); break;
    }
    *out = malloc(n + 1);
    memcpy(*out, in, n);
    *size = n;
    return 0;
}
void allascode_action_free(unsigned char *out, size_t n)
{
    if (n == 16 || n == 5 || n == ((size_t)1 << 40) || out == (unsigned char *)8) return;
    free(out);
}
"""
ENDS = {
    b"echo": Outcome.OK,
    b"c": Outcome.CRASHED,
    b"a": Outcome.CRASHED,
    b"x": Outcome.ERROR,
    b"r": Outcome.ERROR,
    b"n": Outcome.ERROR,
    b"l": Outcome.OUTPUT,
    b"p": Outcome.CRASHED,
    b"f": Outcome.OK,
    b"k": Outcome.OK,
    b"y": Outcome.OK,
    b"h": Outcome.TIMEOUT,
}


def every_end(box: Sandbox, module: Path) -> None:
    for payload, outcome in ENDS.items():
        result = box.run(module, payload)
        assert result.outcome is outcome, (payload, result)
        assert b"Sanitizer" not in result.stderr, result.stderr.decode()
        assert b"runtime error" not in result.stderr, result.stderr.decode()
    for size in (0, 1, 4095, 4096, 4097, 65536, 65537, 1 << 20, 7 << 20):
        payload = b"e" * size
        assert box.run(module, payload).output == payload
    for _ in range(100):
        assert box.run(module, b"echo").ok


def many_threads(box: Sandbox, module: Path) -> None:
    with ThreadPoolExecutor(16) as pool:
        payloads = [b"e%d" % i * (i % 50 + 1) for i in range(200)]
        assert [r.output for r in pool.map(lambda p: box.run(module, p), payloads)] == payloads


def closing(box: Sandbox, module: Path) -> None:
    found = []
    thread = threading.Thread(target=lambda: found.append(box.run(module, b"h")))
    thread.start()
    thread.join(0.3)
    box.close()
    thread.join(10)
    assert [result.outcome for result in found] == [Outcome.CANCELLED]


def main(folder: Path, waive: list[Guard]) -> None:
    module = folder / "module.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", module, "-x", "c", "-"], input=SOURCE.encode(), check=True)
    (folder / "broken.so").write_bytes(b"not an ELF file")
    (folder / "empty.so").touch()
    host = HostPolicy(waive=waive)
    for wider in ({}, {"tmp": "4MiB"}, {"spawn": True}):
        try:
            box = Sandbox(Policy.strict(memory="256MiB", timeout=1, env={"A": "b"}, **wider), host=host)
        except Unenforceable as error:
            print("left out:", wider, error)
            continue
        with box:
            every_end(box, module)
            many_threads(box, module)
            for name in ("broken.so", "empty.so", "missing.so"):
                assert box.run(folder / name).outcome is Outcome.BAD_MODULE, name
            closing(box, module)
    try:
        Sandbox(Policy.strict(), host=host).run(Command(["true"]))
    except (Unenforceable, InvalidPolicy) as error:
        print("commands:", error)
    print("scenes played with", sandboxactor.__file__)


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Guard[name] for name in sys.argv[2:]])
