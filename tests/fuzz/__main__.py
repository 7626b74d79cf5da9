"""`python -m tests.fuzz [--seconds N] [TARGET...]` builds the targets with clang's sanitizers and runs each of them.

What libFuzzer finds stays in tests/fuzz/.corpus, so that a later run goes on from there; a crashing input lies there
too. Exit status: 0, 1 when a target failed, 77 when clang or its fuzzer runtime is missing.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.fuzz.seeds import seeds

HERE = Path(__file__).resolve().parent
WORKER = HERE.parent.parent / "sandboxactor" / "_worker"
# Each target includes the file under test, for its static functions; these are linked besides.
TARGETS: dict[str, tuple[str, ...]] = {
    "program": ("program.c",),
    "stem": ("program.c", "io.c"),
    "zygote": ("program.c", "io.c"),
    "host": (),
}
FLAGS = (
    "-std=gnu11",
    "-g",
    "-O1",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-fno-omit-frame-pointer",
    "-fno-sanitize-recover=all",
)
SANITIZE = "-fsanitize=fuzzer,address,undefined"
REMEDY = "apt-get install clang (with its recommended libclang-rt-*-dev)"
EXIT_CANNOT_RUN = 77


def missing() -> str:
    """What keeps the targets from being built here, or ""."""
    if shutil.which("clang") is None:
        return f"clang is missing. Remedy: {REMEDY}"
    source = "int LLVMFuzzerTestOneInput(const unsigned char *p, unsigned long n) { return !p && n; }"
    with tempfile.TemporaryDirectory() as folder:
        command = ["clang", SANITIZE, "-x", "c", "-o", f"{folder}/t", "-"]
        done = subprocess.run(command, input=source, text=True, capture_output=True, check=False)
    return f"clang has no fuzzer runtime. Remedy: {REMEDY}" if done.returncode else ""


def build(name: str, out: Path) -> Path:
    """Compiles one target."""
    sources = [HERE / f"{name}.c", *(WORKER / file for file in TARGETS[name])]
    subprocess.run(["clang", *FLAGS, SANITIZE, "-o", str(out / name), *map(str, sources)], check=True)
    return out / name


def run(target: Path, seconds: int, corpus: Path) -> subprocess.CompletedProcess[str]:
    """Runs one target for a while; its standard error is captured, and ends with the input if it failed."""
    name = target.name
    found = corpus / name
    found.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for i, seed in enumerate(seeds(name)):
            Path(folder, str(i)).write_bytes(seed)
        limits = [
            f"-max_total_time={seconds}",
            "-timeout=20",
            "-rss_limit_mb=2048",
            "-max_len=8192",
            "-print_final_stats=1",
        ]
        command = [str(target), *limits, f"-artifact_prefix={corpus}/{name}-", str(found), folder]
        # allocator_may_return_null is left off: a huge allocation asked for by an input is a finding.
        options = {"UBSAN_OPTIONS": "print_stacktrace=1", "ASAN_OPTIONS": "detect_leaks=1"}
        return subprocess.run(
            command, env=os.environ | options, text=True, errors="replace", capture_output=True, check=False
        )


def executed(done: subprocess.CompletedProcess[str]) -> int:
    """How many inputs a finished target went through."""
    lines = [line for line in done.stderr.splitlines() if line.startswith("stat::number_of_executed_units:")]
    return int(lines[-1].split()[-1]) if lines else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Builds and runs the targets, one after the other."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description="Fuzz what the worker and the host decode."
    )
    parser.add_argument("--seconds", type=int, default=60, metavar="N", help="for each target; default: 60")
    parser.add_argument(
        "--corpus", type=Path, default=HERE / ".corpus", metavar="FOLDER", help="default: tests/fuzz/.corpus"
    )
    parser.add_argument("target", nargs="*", choices=[*TARGETS, []], metavar="TARGET", help=", ".join(TARGETS))
    options = parser.parse_args(arguments)
    if why := missing():
        print(f"fuzz: {why}", file=sys.stderr)
        return EXIT_CANNOT_RUN
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in options.target or TARGETS:
            done = run(build(name, Path(folder)), options.seconds, options.corpus)
            print(f"{name}: {executed(done)} inputs, {'ok' if done.returncode == 0 else 'FAILED'}", flush=True)
            if done.returncode:
                failures += 1
                print(done.stderr[-8000:], file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
