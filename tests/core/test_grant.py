"""grant: what is agreed lies within the request and within the host, and every excess is told at once."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from sandboxactor._host import HostPolicy
from sandboxactor._manifest import Manifest
from sandboxactor._policy import Policy
from sandboxactor.errors import Excess, InvalidPolicy, PolicyDenied, SandboxError
from sandboxactor.spi import Guard

MIB = 1024 * 1024


def excesses(host: HostPolicy, request: Policy | Manifest) -> list[tuple[str, str, str]]:
    with pytest.raises(PolicyDenied) as caught:
        host.grant(request)
    return [(e.path, e.asked, e.ceiling) for e in caught.value.excesses]


@pytest.fixture
def manifest(tmp_path: Path) -> Callable[[str], Manifest]:
    (tmp_path / "m.so").write_bytes(b"")

    def make(rest: str) -> Manifest:
        head = "action: {name: A}\nruntime: {module: m.so}\nsandbox:\n  enabled: true\n"
        (tmp_path / "action.yaml").write_text(head + rest)
        return Manifest.load(tmp_path / "action.yaml")

    return make


def test_a_policy_within_the_ceilings_is_granted_as_it_is() -> None:
    """The same value comes back: grant adds and takes nothing."""
    assert HostPolicy().grant(Policy.strict()) == Policy.strict()
    smaller = Policy.strict(memory="4MiB", cpu="10m", processes=1, timeout="1ms", output=1, input=1, tmp="4KiB")
    assert HostPolicy().grant(smaller) == smaller


@pytest.mark.parametrize(
    ("field", "edge", "above", "asked", "ceiling"),
    [
        ("memory", "64MiB", 64 * MIB + 1, "67108865B", "64MiB"),
        ("cpu", "100m", "101m", "101m", "100m"),
        ("processes", 3, 4, "4", "3"),
        ("timeout", "10s", 10.001, "10001ms", "10s"),
        ("output", "1KiB", 1025, "1025B", "1KiB"),
        ("input", "1KiB", "2KiB", "2KiB", "1KiB"),
        ("tmp", "4KiB", "8KiB", "8KiB", "4KiB"),
    ],
)
def test_budgets_to_the_unit(field: str, edge: Any, above: Any, asked: str, ceiling: str) -> None:
    """At the ceiling is granted, one unit above is refused and never clipped."""
    host = HostPolicy(**{field: edge})
    base = Policy.strict(memory="4MiB", cpu="10m", processes=1, timeout="1s", output=1, input=1)
    assert host.grant(attrs.evolve(base, **{field: edge})) == attrs.evolve(base, **{field: edge})
    assert excesses(host, attrs.evolve(base, **{field: above})) == [(field, asked, ceiling)]


def test_every_excess_at_once() -> None:
    """A caller mends the request in one go; each line has its field."""
    rich = {
        "memory": "1GiB", "cpu": "1", "processes": 31, "timeout": "2m", "output": "9MiB", "input": "65MiB",
        "tmp": "65MiB", "spawn": True, "read": ["/opt/x"], "workspace": "/srv/w", "state": True, "state_max": "65MiB",
        "network": ["api.bank.com", "*.bank.com:80"], "secrets": ["K"], "env": {"A": "secret"},
    }  # fmt: skip
    found = excesses(HostPolicy(), Policy.strict(**rich))
    assert [path for path, _, _ in found].count("network") == 2
    assert {path for path, _, _ in found} == set(rich)
    with pytest.raises(PolicyDenied) as caught:
        HostPolicy().grant(Policy.strict(**rich))
    assert isinstance(caught.value, SandboxError)
    assert len(str(caught.value).splitlines()) == len(found)
    assert "memory: asks for 1GiB, the host grants 512MiB" in str(caught.value)
    assert "secret" not in [asked for _, asked, _ in found]  # a variable's value is not for reports


def test_capabilities_default_to_nothing() -> None:
    """What the host does not name, it does not grant."""
    for wider in ({"spawn": True}, {"state": True}, {"secrets": ["K"]}, {"read": ["/"]}, {"workspace": "/srv/w"}):
        assert len(excesses(HostPolicy(), Policy.strict(**wider))) == 1
    assert excesses(HostPolicy(tmp=None), Policy.strict(tmp="4KiB")) == [("tmp", "4KiB", "none")]
    assert excesses(HostPolicy(), Policy.strict(network=["a.bank.com"])) == [("network", "a.bank.com", "none")]


def test_env_needs_the_same_name_and_value() -> None:
    """LD_PRELOAD=/ours is not a licence for LD_PRELOAD=/theirs."""
    host = HostPolicy(env={"A": "1", "B": "2"})
    assert host.grant(Policy.strict(env={"A": "1"})).env == {"A": "1"}
    assert excesses(host, Policy.strict(env={"A": "2"})) == [("env", "'A'", "another value")]
    assert excesses(host, Policy.strict(env={"C": "1"})) == [("env", "'C'", "A, B")]


def test_network_by_its_grammar() -> None:
    """A wildcard covers names and wildcards below it, on its own port."""
    host = HostPolicy(network=["*.bank.com", "bank.com:80"])
    granted = host.grant(Policy.strict(network=["api.bank.com", "*.eu.bank.com", "bank.com:80"]))
    assert [str(e) for e in granted.network] == ["api.bank.com", "bank.com:80", "*.eu.bank.com"]
    for refused in ("bank.com", "api.bank.com:80", "*.bank.com:80", "api.bank.org", "evilbank.com"):
        assert [e[:2] for e in excesses(host, Policy.strict(network=[refused]))] == [("network", refused)]


def test_paths_cover_what_lies_below_them_symlinks_resolved(tmp_path: Path) -> None:
    """`..`, siblings with the same beginning and links that lead out are refused; links that stay in are granted."""
    inside, outside = tmp_path / "data", tmp_path / "data2"
    for folder in (inside / "sub", outside):
        folder.mkdir(parents=True)
    (inside / "in").symlink_to("sub")
    (inside / "out").symlink_to(outside)
    (inside / "etc").symlink_to("/etc")
    (tmp_path / "alias").symlink_to(inside)
    host = HostPolicy(read=[tmp_path / "alias"], workspace=inside)
    for field, wrap in (("read", lambda p: [p]), ("workspace", lambda p: p)):
        for good in (inside, inside / "sub", inside / "in", inside / "missing" / "x", tmp_path / "alias" / "sub"):
            granted = host.grant(Policy.strict(**{field: wrap(good)}))
            assert getattr(granted, field) == (
                wrap(os.path.realpath(good)) if field == "workspace" else (str(good.resolve()),)
            )
        for bad in (
            outside,
            inside / "out",
            inside / "out" / "x",
            inside / "etc",
            tmp_path,
            inside / ".." / "data2",
            Path("/"),
        ):
            assert len(excesses(host, Policy.strict(**{field: wrap(bad)}))) == 1
    assert "that is /etc" in excesses(host, Policy.strict(read=[inside / "etc"]))[0][1]
    assert HostPolicy(read=["/"]).grant(Policy.strict(read=["/opt/x"])).read == ("/opt/x",)


def test_what_was_compared_is_what_is_granted(tmp_path: Path) -> None:
    """A link that is swung after the grant must not carry the grant along."""
    (tmp_path / "data" / "sub").mkdir(parents=True)
    link = tmp_path / "data" / "link"
    link.symlink_to("sub")
    granted = HostPolicy(read=[tmp_path / "data"]).grant(Policy.strict(read=[link]))
    link.unlink()
    link.symlink_to("/etc")
    assert [os.path.realpath(path) for path in granted.read] == [str(tmp_path / "data" / "sub")]


def test_a_workspace_ceiling_is_no_read_ceiling() -> None:
    """Each capability has its own ceiling."""
    host = HostPolicy(workspace="/srv/w")
    assert host.grant(Policy.strict(workspace="/srv/w/a")).workspace == "/srv/w/a"
    assert [e[0] for e in excesses(host, Policy.strict(read=["/srv/w/a"]))] == ["read"]


@pytest.mark.parametrize("request_", [None, "action.yaml", {"memory": "64MiB"}, HostPolicy(), Policy])
def test_only_manifests_and_policies_are_requests(request_: Any) -> None:
    """A host's ceilings are not a request, nor is a path."""
    with pytest.raises(InvalidPolicy, match="give a Manifest or a Policy"):
        HostPolicy().grant(request_)


def test_an_omitted_budget_is_strict_s_default_lowered_to_the_ceiling(manifest: Callable[[str], Manifest]) -> None:
    """Never unlimited, never the ceiling of a generous host, never a refusal by a narrow one."""
    asks_nothing = manifest("")
    assert HostPolicy().grant(asks_nothing) == Policy.strict()
    generous = HostPolicy(
        memory="8GiB", cpu=8, processes=999, timeout="60m", output="1GiB", input="1GiB", tmp="1GiB", state_max="1GiB"
    )
    assert generous.grant(asks_nothing) == Policy.strict()
    narrow: dict[str, Any] = {
        "memory": "8MiB", "cpu": "20m", "processes": 2, "timeout": "1s", "output": 9, "input": 7, "state_max": "4KiB",
    }  # fmt: skip
    assert HostPolicy(**narrow, tmp=None).grant(asks_nothing) == Policy.strict(**narrow)


def test_an_omitted_tmp_size(manifest: Callable[[str], Manifest]) -> None:
    """A /tmp asked without a size is 64 MiB or the ceiling; where the host grants none it is refused, not dropped."""
    asks = manifest("  filesystem: {tmp: {write: true}}\n")
    assert HostPolicy().grant(asks).tmp == 64 * MIB
    assert HostPolicy(tmp="1GiB").grant(asks).tmp == 64 * MIB
    assert HostPolicy(tmp="8MiB").grant(asks).tmp == 8 * MIB
    assert excesses(HostPolicy(tmp=None), asks) == [("$.sandbox.filesystem.tmp.write", "64MiB", "none")]
    assert HostPolicy().grant(manifest("  filesystem: {tmp: {max: 8MiB}}\n")).tmp is None  # no write, no /tmp


def test_the_excesses_of_a_manifest_have_its_paths(manifest: Callable[[str], Manifest], tmp_path: Path) -> None:
    """Each excess points at the key, and at the item, that asks."""
    asks = manifest(
        """\
  memory: {max: 1GiB}
  cpu: {max: 2}
  timeout: 5m
  output: {max: 1GiB}
  process: {spawn: true, max: 31}
  filesystem:
    tmp: {write: true, max: 65MiB}
    state: {write: true, max: 65MiB}
    workspace: {path: w, write: true}
    read: [/opt/x, lib]
  network: {allow: [ok.example.com, API.bank.com]}
permissions:
  net_outbound: [api.bank.com, "b.example.com:80"]
  secrets: [OK, KEY]
"""
    )
    host = HostPolicy(network=["ok.example.com"], secrets=["OK"])
    assert set(excesses(host, asks)) == {
        ("$.sandbox.memory.max", "1GiB", "512MiB"),
        ("$.sandbox.cpu.max", "2000m", "500m"),
        ("$.sandbox.timeout", "300s", "60s"),
        ("$.sandbox.output.max", "1GiB", "8MiB"),
        ("$.sandbox.process.spawn", "true", "false"),
        ("$.sandbox.process.max", "31", "30"),
        ("$.sandbox.filesystem.tmp.max", "65MiB", "64MiB"),
        ("$.sandbox.filesystem.state.write", "true", "false"),
        ("$.sandbox.filesystem.state.max", "65MiB", "64MiB"),
        ("$.sandbox.filesystem.workspace.path", str(tmp_path / "w"), "none"),
        ("$.sandbox.filesystem.read[0]", "/opt/x", "none"),
        ("$.sandbox.filesystem.read[1]", str(tmp_path / "lib"), "none"),
        ("$.sandbox.network.allow[1]", "api.bank.com", "ok.example.com"),
        ("$.permissions.net_outbound[1]", "b.example.com:80", "ok.example.com"),
        ("$.permissions.secrets[1]", "KEY", "OK"),
    }


def test_waivers_and_backends_do_not_widen_a_grant() -> None:
    """A waived guard is not a granted capability: grant compares ceilings alone."""
    host = HostPolicy(waive=set(Guard), networks=["0.0.0.0/0"], features=["threads"], wasm_in_process=True)
    assert host.grant(Policy.strict()) == Policy.strict()
    assert excesses(host, Policy.strict(spawn=True)) == [("spawn", "true", "false")]


def test_an_excess_says_what_is_asked_and_what_is_granted() -> None:
    """One line, path first."""
    assert str(Excess("$.sandbox.memory.max", "1GiB", "512MiB")) == (
        "$.sandbox.memory.max: asks for 1GiB, the host grants 512MiB"
    )
