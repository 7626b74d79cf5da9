"""Run the Pix Action from its manifest: `python examples/pix_from_manifest.py [--waive GUARD]...`

An ordinary user without a delegated cgroup cannot hold CPU_MAX: the host, never the manifest, may go without it."""

import argparse
import runpy
import sys
from pathlib import Path

from sandboxactor import HostPolicy, Manifest, Sandbox, Unenforceable

HERE = Path(__file__).resolve().parent / "pix"


def main(waive: list[str]) -> None:
    runpy.run_path(str(HERE / "build.py"))["build"]()
    manifest = Manifest.load(HERE / "action.yaml")
    host = HostPolicy(memory="64MiB", cpu="100m", timeout="5s", waive=waive)
    with Sandbox(host.grant(manifest), host=host) as box:
        result = box.run(manifest.module, (HERE / "payload.json").read_bytes())
    print("answer:", result.output.decode())
    for guard in sorted({*result.enforced, *result.waived}):
        print(f"  {guard.name:<16} {result.enforced.get(guard, 'WAIVED by the host')}")
    print("usage:", result.usage)
    assert result.output.startswith(b"000201"), "the payload format indicator of a BR Code"
    assert result.output[-8:-4] == b"6304", "field 63, four characters: the CRC16"
    assert {*result.enforced, *result.waived} == {*box.policy.guards}, "every guard held, or visibly waived"


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--waive", action="append", default=[], metavar="GUARD")
    try:
        main(parser.parse_args().waive)
    except Unenforceable as error:
        waivers = " ".join(f"--waive {missing.guard.name}" for missing in error.missing if missing.guard)
        sys.exit(f"{error}\nOr go without, visibly in every result: the same command with {waivers}")
