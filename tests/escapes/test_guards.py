"""Each guard: an attack that it stops and that works without it, and a plan that is refused once nothing holds it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from modules.objects import parse, run_unconfined

from escapes.confined import ROOT, counted, host, lines, need
from sandboxactor import Guard, Outcome, Policy, Result, Sandbox, Unenforceable, _registry
from sandboxactor.spi import Support

STRICT: dict[str, Any] = {"memory": "32MiB", "timeout": 3, "output": "64KiB", "processes": 5}

# The module and payload of an attack upon each guard; what an unconfined run answers, and what a confined one must.
# "word:NAME" is the verdict of a probe, "outcome" the result's, otherwise the bytes that the module says.
ATTACKS: dict[Guard, tuple[str, bytes, str, str]] = {
    Guard.FILES_SCOPED: ("escape_files", b"read_passwd", "ALLOWED", "DENIED"),
    Guard.NO_SPAWN: ("escape_process", b"do_fork", "ALLOWED", "DENIED"),
    Guard.NETWORK_OFF: ("escape_sockets", b"socket_2_stream", "ALLOWED", "DENIED"),
    Guard.IDENTITY: ("surface", b"capability", "ALLOWED", "DENIED"),
    Guard.NO_NEW_PRIVS: ("surface", b"no_new_privs", "ALLOWED", "DENIED"),
    Guard.PROCESSES_MAX: ("verdicts", b"threads:50", "threads=50 ", "threads=4 "),
    Guard.MEMORY_MAX: ("verdicts", b"alloc:64", "alloc=64 ", "memory"),
    Guard.OUTPUT_MAX: ("verdicts", b"big:100000", "Z" * 100_000, "output"),
    Guard.WALL_TIME: ("verdicts", b"sleep:4000", "sleep=4000", "timeout"),
    Guard.CPU_MAX: ("verdicts", b"burn:1000", "burn=1000", "timeout"),
}
# Each set of backends without which nothing holds the guard, and the one that the error must then name.
MASKS: list[tuple[Guard, set[str], str]] = [
    (Guard.FILES_SCOPED, {"landlock", "namespaces"}, "namespaces"),
    (Guard.FILES_SCOPED, {"namespaces", "seccomp"}, "namespaces"),
    (Guard.FILES_HIDDEN, {"namespaces"}, "namespaces"),
    (Guard.NO_SPAWN, {"seccomp"}, "seccomp"),
    (Guard.NETWORK_OFF, {"seccomp"}, "seccomp"),
    (Guard.MEMORY_MAX, {"cgroups", "rlimits"}, "cgroups"),
    (Guard.MEMORY_MAX, {"cgroups", "seccomp"}, "cgroups"),
    (Guard.CPU_MAX, {"cgroups"}, "cgroups"),
    (Guard.PROCESSES_MAX, {"cgroups", "rlimits"}, "cgroups"),
    (Guard.IDENTITY, {"credentials"}, "credentials"),
    (Guard.NO_NEW_PRIVS, {"credentials"}, "credentials"),
    (Guard.WALL_TIME, {"native"}, "native"),
    (Guard.OUTPUT_MAX, {"native"}, "native"),
]


def _answer(result: Result, module: str, name: str) -> str:
    if not result.ok:
        return str(result.outcome)
    return result.output.decode() if module == "verdicts" else parse(result.output)[name].word


def _policy(guard: Guard) -> Policy:
    if guard is Guard.FILES_HIDDEN:
        return Policy.strict(spawn=True)
    return Policy.strict(**STRICT, cpu="100m" if guard is Guard.CPU_MAX else "2000m")


@pytest.mark.parametrize("guard", ATTACKS, ids=lambda g: g.name)
def test_attack_fails_confined(guard: Guard, modules: dict[str, Path]) -> None:
    """The attack upon each guard is stopped under the policy that asks for it."""
    module, payload, _, confined = ATTACKS[guard]
    need(guard is not Guard.CPU_MAX or counted(), "control groups, without which nothing holds CPU_MAX")
    if guard is Guard.MEMORY_MAX and not counted():
        confined = "alloc="  # ENOMEM to the module, which says how far it got
    with Sandbox(_policy(guard), host=host()) as box:
        result = box.run(modules[module], payload)
    said = _answer(result, module, payload.decode())
    assert said.startswith(confined), result
    assert not said.startswith("alloc=64")
    assert guard in result.enforced
    if confined in ("memory", "output", "timeout"):
        assert result.breach is not None
        assert result.breach.guard is (Guard.WALL_TIME if guard is Guard.CPU_MAX else guard)


@pytest.mark.parametrize("guard", ATTACKS, ids=lambda g: g.name)
def test_attack_works_unconfined(guard: Guard, modules: dict[str, Path]) -> None:
    """The same module and payload, loaded with nothing around it, does what the guard forbids."""
    module, payload, unconfined, _ = ATTACKS[guard]
    need(guard is not Guard.IDENTITY or ROOT, "root, whose capabilities are the attack")
    run = run_unconfined(modules["loader"], modules[module], payload)
    assert run.status == 0
    said = run.output.decode() if module == "verdicts" else parse(run.output)[payload.decode()].word
    assert said.startswith(unconfined)


def test_hidden_files_confined_and_unconfined(modules: dict[str, Path], open_folder: Path) -> None:
    """FILES_HIDDEN: a name outside the grant is not even there; unconfined it is."""
    need(counted(), "control groups, without which a policy that grants processes is refused")
    name = open_folder / "a-name"
    name.touch()
    with Sandbox(_policy(Guard.FILES_HIDDEN), host=host()) as box:
        result = box.run(modules["writer"], lines(do="see", path=name))
    assert parse(result.output)["see"].detail == "ENOENT"
    run = run_unconfined(modules["loader"], modules["writer"], lines(do="see", path=name))
    assert parse(run.output)["see"].word == "ALLOWED"


def _ids(value: object) -> str:
    return value.name if isinstance(value, Guard) else "+".join(sorted(value)) if isinstance(value, set) else str(value)


@pytest.mark.parametrize(("guard", "masked", "named"), MASKS, ids=_ids)
def test_left_out_backend_is_unenforceable(guard: Guard, masked: set[str], named: str) -> None:
    """A host that chose backends of which none holds the guard gets Unenforceable with guard, reason and remedy."""
    with pytest.raises(Unenforceable) as caught:
        Sandbox(_policy(guard), host=host(masked, waive=set()))
    missing = {m.guard: m for m in caught.value.missing}
    assert guard in missing
    assert missing[guard].backend != ""
    assert missing[guard].reason
    assert missing[guard].remedy
    assert guard.name in str(caught.value)


@pytest.mark.parametrize(("guard", "masked", "named"), MASKS, ids=_ids)
def test_missing_primitive_is_unenforceable(
    guard: Guard, masked: set[str], named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the kernel lacks the primitive, Unenforceable names guard, backend, the probe's reason and its remedy."""
    true_probe = _registry.probe

    def probe(name: str) -> Support:
        if name in masked:
            return Support(False, reason=f"{name} was masked", remedy=f"unmask {name}")
        return true_probe(name)

    monkeypatch.setattr(_registry, "probe", probe)
    with pytest.raises(Unenforceable) as caught:
        Sandbox(_policy(guard), host=host(waive=set()))
    found = next(m for m in caught.value.missing if m.guard is guard)
    assert (found.backend, found.reason, found.remedy) == (named, f"{named} was masked", f"unmask {named}")
    assert f"{guard.name}: {named}: {named} was masked" in str(caught.value)


@pytest.mark.parametrize("guard", sorted({m[0] for m in MASKS}), ids=_ids)
def test_only_the_host_drops_a_guard(guard: Guard) -> None:
    """The same plan stands once the host waives the guard, and says so; RUN alone cannot be waived."""
    masked = next(m[1] for m in MASKS if m[0] is guard)
    if masked == {"native"}:
        with pytest.raises(Unenforceable):
            Sandbox(_policy(guard), host=host(masked, waive=set(Guard)))
        return
    with Sandbox(_policy(guard), host=host(masked, waive=set(Guard))) as box:
        text = box.explain()
    assert f"{guard.name:<16} WAIVED" in text


def test_waived_guard_is_in_the_result(modules: dict[str, Path]) -> None:
    """A Result names what the host went without, and does not list it as enforced."""
    with Sandbox(Policy.strict(), host=host({"cgroups"})) as box:
        result = box.run(modules["echo"], b"x")
    assert result.outcome is Outcome.OK
    assert result.waived == {Guard.CPU_MAX}
    assert Guard.CPU_MAX not in result.enforced
