"""The catalogue run confined, in this process or as another user: for tests and for their child processes."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from modules.catalog import MODULES, PROBES, SIGSYS, Probe, holds
from modules.objects import HostObjects, parse, reports

from sandboxactor import Guard, HostPolicy, Outcome, Policy, Result, Sandbox, _registry

ROOT = os.geteuid() == 0


def counted() -> bool:
    """Whether control groups hold memory, CPU and tasks here."""
    return _registry.probe("cgroups").available


def host(without: Iterable[str] = (), **keywords: object) -> HostPolicy:
    """This user's host policy: all backends but those; where no control group can be had, the host waives CPU_MAX."""
    backends = [name for name in _registry.BUILTIN if name not in set(without)]
    lacks = not counted() or "cgroups" in set(without)
    waive = {Guard.CPU_MAX} if lacks else set()
    return HostPolicy(**{"backends": backends, "waive": waive, **keywords})  # type: ignore[arg-type]


def lines(**keys: object) -> bytes:
    """A payload of key=value lines."""
    return "".join(f"{name}={value}\n" for name, value in keys.items()).encode()


def need(condition: object, missing: str) -> None:
    """Skips a test and names what this machine lacks for it; with SANDBOXACTOR_STRICT=1 that is a failure."""
    if not condition:
        import pytest

        (pytest.fail if os.environ.get("SANDBOXACTOR_STRICT") == "1" else pytest.skip)(f"missing: {missing}")


def said(result: Result, name: str) -> int:
    """The number that a module reports under a name."""
    assert result.ok, result
    return int(reports(result.output)[name][0].split()[0])


def word(result: Result, name: str) -> str:
    """What a probe came to: its own word, SIGSYS for a filter's kill, and how the run ended where it left no line."""
    if result.outcome is Outcome.DENIED:
        return SIGSYS
    if not result.ok:
        return f"{result.outcome}: {result.reason}"
    line = parse(result.output).get(name)
    return "no line" if line is None else line.detail if line.detail == "missing-key" else line.word


def survey(built: dict[str, str], without: list[str]) -> dict[str, str]:
    """Every probe of the catalogue under `Policy.strict()`, by id. What attacks aim at is made here, by this user."""
    found: dict[str, str] = {}
    made = tempfile.TemporaryDirectory(prefix="sandboxactor-objects-")
    with made as folder, Sandbox(Policy.strict(), host=host(without)) as box:
        os.chmod(folder, 0o755)
        with HostObjects(Path(folder)) as objects:
            before = objects.snapshot()
            for module in MODULES:
                result = box.run(built[module], objects.payload())
                found |= {p.id: word(result, p.name) for p in PROBES if p.module == module and not p.alone}
            for probe in (p for p in PROBES if p.alone):
                found[probe.id] = word(box.run(built[probe.module], objects.payload(probe.name)), probe.name)
            assert objects.snapshot() == before, "an attack changed the host's files"
            assert objects.sleeper.poll() is None, "an attack ended a process of the host"
    return found


def broken(found: dict[str, str], *, mount_ns: bool, combined: bool) -> dict[str, str]:
    """The probes of a survey that did not keep their promise."""

    def kept(probe: Probe) -> bool:
        said = found[probe.id]
        if probe.confined == SIGSYS:
            return said == SIGSYS
        return said in ("ALLOWED", "DENIED", "UNSUPPORTED") and holds(probe, said, mount_ns=mount_ns, combined=combined)

    return {p.id: found[p.id] for p in PROBES if not kept(p)}


def main() -> None:
    """`python -m escapes.confined FUNCTION`: arguments as JSON on standard input, the answer on standard output."""
    import json

    known: dict[str, Callable[..., object]] = {"survey": survey}
    json.dump(known[sys.argv[1]](**json.load(sys.stdin)), sys.stdout)


if __name__ == "__main__":
    main()
