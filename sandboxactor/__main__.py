"""The command line: `python -m sandboxactor doctor | explain MANIFEST | run MANIFEST`.

Exit status: 0 ok; 1 the module's own failure (`run`), or a strict policy is not enforceable here (`doctor`); 2 the
request (arguments, manifest, payload, more asked than granted); 3 this machine (a guard that nothing here holds, a
worker that failed); 4 a bug of ours. The answer goes to standard output, everything else to standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sandboxactor import HostPolicy, Manifest, Policy, Result

__all__ = ["main"]

OK, FAILED, REQUEST, MACHINE, BUG = range(5)
INTERRUPTED = 130

CEILINGS = ("memory", "cpu", "processes", "timeout", "output", "input", "tmp")
LISTS = ("network", "networks", "read", "secrets", "backends")
NOT_INSTALLED = (
    f"sandboxactor is not installed completely. Remedy: {sys.executable} -m pip install . (it needs a C compiler)"
)


def _say(text: object) -> None:
    print(text, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sandboxactor",
        description="Run untrusted modules confined, or refuse.",
        epilog="exit status: 0 ok, 1 the module failed (doctor: strict is not enforceable), 2 the request, "
        "3 this machine, 4 a bug of ours",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="doctor | explain | run")
    waive = argparse.ArgumentParser(add_help=False)
    waive.add_argument(
        "--waive", action="append", default=[], metavar="GUARD", help="go without a guard, visibly: CPU_MAX"
    )
    host = argparse.ArgumentParser(add_help=False, parents=[waive])
    host.add_argument("manifest", metavar="MANIFEST", help="the action.yaml")
    ceilings = host.add_argument_group("what this host grants (a manifest that asks for more is refused)")
    for name in CEILINGS:
        ceilings.add_argument(f"--{name}", metavar="MAX", help="a ceiling, in the units of a manifest")
    ceilings.add_argument("--spawn", action="store_true", help="grant processes of its own")
    ceilings.add_argument("--workspace", metavar="FOLDER", help="grant one writable tree")
    ceilings.add_argument(
        "--env", action="append", default=[], metavar="NAME=VALUE", help="grant a variable; may be repeated"
    )
    for name in LISTS:
        ceilings.add_argument(
            f"--{name}", action="append", default=[], metavar="ENTRY", help=f"add to {name}; may be repeated"
        )
    doctor = commands.add_parser(
        "doctor", parents=[waive], help="what this host can enforce, and the remedy where it cannot"
    )
    doctor.add_argument("--json", action="store_true", help="print the findings as JSON")
    commands.add_parser("explain", parents=[host], help="print who would enforce what, in order; nothing runs")
    run = commands.add_parser("run", parents=[host], help="run the module of a manifest")
    run.add_argument("--payload", metavar="FILE|-", help="its input; - is standard input; none is empty")
    run.add_argument("--json", action="store_true", help="print the report as JSON")
    return parser


def _host(options: argparse.Namespace) -> HostPolicy:
    """The ceilings: HostPolicy's own, where no option says otherwise."""
    from sandboxactor import HostPolicy, InvalidPolicy

    terms: dict[str, Any] = {name: getattr(options, name) for name in CEILINGS if getattr(options, name) is not None}
    terms |= {name: getattr(options, name) for name in LISTS if getattr(options, name)}
    for name in ("memory", "output", "input", "tmp", "processes"):
        if terms.get(name, "").isdecimal():
            terms[name] = int(terms[name])
    if options.env:
        pairs = [entry.partition("=") for entry in options.env]
        if wrong := [name for name, sign, _ in pairs if not sign or not name]:
            raise InvalidPolicy(f"env: {wrong[0]!r} is no variable: write NAME=VALUE")
        terms["env"] = {name: value for name, _, value in pairs}
    return HostPolicy(**terms, spawn=options.spawn, workspace=options.workspace, waive=options.waive)


def _agree(options: argparse.Namespace) -> tuple[Manifest, HostPolicy, Policy]:
    from sandboxactor import Manifest

    host = _host(options)
    manifest = Manifest.load(options.manifest)
    return manifest, host, host.grant(manifest)


def _doctor(options: argparse.Namespace) -> int:
    from sandboxactor._doctor import examine

    report = examine(tuple(options.waive))
    print(json.dumps(report.data, indent=2) if options.json else report.text)
    return OK if report.enforceable else FAILED


def _explain(options: argparse.Namespace) -> int:
    from sandboxactor import Sandbox

    manifest, host, policy = _agree(options)
    with Sandbox(policy, host=host) as box:
        print(box.explain(manifest.module))
    return OK


def _payload(options: argparse.Namespace, policy: Policy) -> bytes:
    """At most one byte above the policy's input: what is too large is refused, not read."""
    from sandboxactor import InvalidPayload

    if options.payload is None:
        return b""
    try:
        if options.payload == "-":
            return sys.stdin.buffer.read(policy.input + 1)
        with open(options.payload, "rb") as stream:
            return stream.read(policy.input + 1)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise InvalidPayload(f"payload: {options.payload!r} cannot be read: {why}") from None


def describe(result: Result) -> dict[str, Any]:
    """A Result as plain data: everything but the answer itself."""
    import attrs

    return {
        "outcome": str(result.outcome),
        "reason": result.reason,
        "code": result.code,
        "signal": result.signal,
        "breach": attrs.asdict(result.breach) if result.breach else None,
        "denials": [attrs.asdict(denial) for denial in result.denials],
        "enforced": {
            guard.name: label for guard, label in sorted(result.enforced.items(), key=lambda item: item[0].name)
        },
        "waived": sorted(guard.name for guard in result.waived),
        "usage": attrs.asdict(result.usage),
        "truncated": result.truncated,
        "stdout": result.stdout.decode(errors="backslashreplace"),
        "stderr": result.stderr.decode(errors="backslashreplace"),
    }


def render(data: dict[str, Any]) -> str:
    """The report as people read it."""
    lines = [f"outcome: {data['outcome']}" + (f" ({data['reason']})" if data["reason"] else ""), "guards:"]
    lines += [f"  {name:<16} {label}" for name, label in data["enforced"].items()]
    lines += [f"  {name:<16} WAIVED by the host" for name in data["waived"]]
    lines.append("usage:")
    for name, value in data["usage"].items():
        shown = "not measured here" if value is None else f"{value:.6f}" if isinstance(value, float) else str(value)
        lines.append(f"  {name:<18} {shown}")
    if data["breach"]:
        lines.append(f"breach: {data['breach']}")
    lines += [f"denial: {denial}" for denial in data["denials"]]
    lines += [f"{name}: {data[name]!r}" for name in ("stdout", "stderr") if data[name]]
    return "\n".join(lines)


def _run(options: argparse.Namespace) -> int:
    from sandboxactor import Sandbox

    manifest, host, policy = _agree(options)
    payload = _payload(options, policy)
    with Sandbox(policy, host=host) as box:
        result = box.run(manifest.module, payload)
    data = describe(result)
    if result.ok:
        sys.stdout.buffer.write(result.output)
        sys.stdout.buffer.flush()
        if result.output and sys.stdout.isatty():
            print()
    _say(json.dumps(data, indent=2) if options.json else render(data))
    return OK if result.ok else FAILED


def _status(error: Exception) -> int:
    """Says what went wrong, and which of the kinds of failure it is."""
    from sandboxactor import InternalError, SandboxError, Unenforceable, WorkerFault

    if not isinstance(error, SandboxError) or isinstance(error, InternalError):
        import traceback

        traceback.print_exception(error)
        _say("This is a bug of sandboxactor: please report it with the lines above.")
        return BUG
    _say(error)
    if isinstance(error, Unenforceable) and (guards := [m.guard.name for m in error.missing if m.guard]):
        _say("Or go without, visibly in every result: " + " ".join(f"--waive {name}" for name in guards))
    return MACHINE if isinstance(error, (Unenforceable, WorkerFault)) else REQUEST


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit status."""
    options = _parser().parse_args(arguments)
    try:
        status = {"doctor": _doctor, "explain": _explain, "run": _run}[options.command](options)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # whoever read the answer has gone: Python must not flush into it once more as it ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return OK
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("sandboxactor"):
            _say(f"{error}. Remedy: {sys.executable} -m pip install {error.name}")
        else:
            _say(NOT_INSTALLED)
        return MACHINE
    except Exception as error:
        return _status(error)


if __name__ == "__main__":
    sys.exit(main())
