"""Compile a small Action in C and run it strictly: `python examples/hello_native.py [--waive CPU_MAX]`."""

import subprocess
import sys
import tempfile
from pathlib import Path

from sandboxactor import HostPolicy, Outcome, Policy, Sandbox

SOURCE = r"""
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int allascode_action_execute(const unsigned char *in, size_t n, unsigned char **out, size_t *size)
{
    if (fork() != -1) return 1; /* refused: a module starts no process */
    if (!(*out = malloc(n + 7))) return 2;
    memcpy(*out, "hello, ", 7);
    memcpy(*out + 7, in, n);
    *size = n + 7;
    return 0;
}
void allascode_action_free(unsigned char *out, size_t size) { (void)size; free(out); }
"""


def main(waive: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        module = Path(folder, "hello.so")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", module, "-x", "c", "-"], input=SOURCE.encode(), check=True)
        with Sandbox(Policy.strict(memory="32MiB", timeout="5s"), host=HostPolicy(waive=waive)) as box:
            result = box.run(module, b"world")
    assert result.outcome is Outcome.OK, result
    assert result.output == b"hello, world"
    assert {guard.name for guard in result.waived} <= {*waive}, "nothing is waived but what the host says"
    print(result.output.decode(), "| waived:", sorted(guard.name for guard in result.waived))


if __name__ == "__main__":
    main(sys.argv[2:] if sys.argv[1:2] == ["--waive"] else [])
