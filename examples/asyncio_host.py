"""An asyncio program that runs modules in threads: `python examples/asyncio_host.py [--waive CPU_MAX]`.

`run` drops the GIL while it waits, so the event loop goes on; one Sandbox serves all the threads."""

import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path

from sandboxactor import HostPolicy, Policy, Sandbox

SOURCE = rb"""#include <string.h>
#include <unistd.h>
static unsigned char answer[64];
int allascode_action_execute(const unsigned char *in, size_t n, unsigned char **out, size_t *size)
{
    usleep(100000);
    memcpy(*out = answer, in, *size = n < sizeof answer ? n : sizeof answer);
    return 0;
}
void allascode_action_free(unsigned char *out, size_t size) { (void)out, (void)size; }"""


async def main(module: Path, waive: list[str]) -> None:
    ticks = 0
    with Sandbox(Policy.strict(timeout="5s"), host=HostPolicy(waive=waive)) as box:
        runs = [asyncio.create_task(asyncio.to_thread(box.run, module, b"%d" % i)) for i in range(8)]
        while not all(run.done() for run in runs):
            await asyncio.sleep(0.01)
            ticks += 1
    assert [run.result().output for run in runs] == [b"%d" % i for i in range(8)]
    assert ticks > 3, "the loop went on while the modules ran"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, "slow.so")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", made, "-x", "c", "-"], input=SOURCE, check=True)
        asyncio.run(main(made, sys.argv[2:] if sys.argv[1:2] == ["--waive"] else []))
