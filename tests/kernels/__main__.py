"""`python -m tests.kernels [--kernel 6.12|6.1|all] [--timeout S] [--python PATH] -- COMMAND...`"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from types import FrameType

from . import UnavailableError, guest, packages, vm

EXIT_CANNOT_RUN = 77


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options; COMMAND is whatever follows `--`."""
    parser = argparse.ArgumentParser(prog="python -m tests.kernels", description="Run COMMAND on another kernel.")
    parser.add_argument("--kernel", choices=[*packages.SERIES, "all"], default="all", help="default: all")
    parser.add_argument("--timeout", type=float, default=600, metavar="S", help="seconds for one boot; default: 600")
    parser.add_argument("--python", default=sys.executable, metavar="PATH", help="first in PATH; default: this one")
    parser.add_argument("command", nargs="+", metavar="COMMAND")
    return parser.parse_args(argv)


def verdict(codes: Sequence[int]) -> int:
    """Return one exit status for several kernels: a failure first, else `cannot run here`, else 0."""
    return next((code for code in codes if code not in {0, EXIT_CANNOT_RUN}), max(codes))


def prefixes(python: str) -> list[str]:
    """Return the folders a python needs: its environment and the installation that was made from."""
    script = "import sys; print(sys.prefix, sys.base_prefix, sep='\\n')"
    try:
        return subprocess.run([python, "-c", script], capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError) as error:
        raise UnavailableError(f"{python} does not run ({error}): name a python with --python") from None


def run(series: str, options: argparse.Namespace) -> int:
    """Run the command on one kernel."""
    try:
        packages.require_host()
        tools = packages.tools()
        python = os.path.abspath(shutil.which(options.python) or options.python)
        init = guest.init_script(guest.shown([os.getcwd(), *prefixes(python)]))
        kernel = packages.fetch(series, packages.cache_dir())
    except UnavailableError as error:
        print(f"kernels: cannot run {series} here: {error}", file=sys.stderr)
        return EXIT_CANNOT_RUN
    print(f"kernels: booting {kernel.name}", file=sys.stderr)
    main_script = guest.main_script(options.command, os.getcwd(), guest.environment(python, os.environ))
    initramfs = guest.initramfs(tools["busybox"], kernel, init, main_script)
    return vm.run(tools, kernel / "vmlinuz", initramfs, options.timeout, sys.stdout.buffer)


def _stop(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command on each kernel asked for, one after the other."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _stop)
    options = parse(argv)
    wanted = packages.SERIES if options.kernel == "all" else [options.kernel]
    try:
        return verdict([run(series, options) for series in wanted])
    except BrokenPipeError:
        # Python flushes standard output once more as it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE


if __name__ == "__main__":
    sys.exit(main())
