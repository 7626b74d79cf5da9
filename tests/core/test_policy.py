"""Policy and HostPolicy: frozen values that parse everything at once and touch no file."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import attrs
import pytest

from sandboxactor._domains import NetworkEntry
from sandboxactor._host import HostPolicy
from sandboxactor._policy import FrozenMap, Policy
from sandboxactor.errors import InvalidPolicy
from sandboxactor.spi import Guard

MIB = 1024 * 1024
BOTH = pytest.mark.parametrize("made", [Policy.strict, HostPolicy], ids=["policy", "host"])
RICH: dict[str, Any] = {
    "memory": "64MiB",
    "cpu": "100m",
    "processes": 3,
    "timeout": "250ms",
    "output": "1KiB",
    "input": "2KiB",
    "tmp": "16MiB",
    "spawn": True,
    "read": ["/opt/b", "/opt/a"],
    "workspace": "/srv/w",
    "state": True,
    "state_max": "8MiB",
    "network": ["b.example.com:80", "*.bank.com"],
    "secrets": ["B", "A"],
    "env": {"B": "2", "A": "1"},
}


def test_strict_has_the_defaults_of_the_contract() -> None:
    """The table of the mission, and no capability at all."""
    policy = Policy.strict()
    assert policy == Policy()
    assert (policy.memory, policy.cpu, policy.processes, policy.timeout) == (512 * MIB, 500, 30, 60)
    assert (policy.output, policy.input, policy.tmp, policy.workspace) == (8 * MIB, 64 * MIB, None, None)
    assert (policy.spawn, policy.state, policy.read, policy.network, policy.secrets) == (False, False, (), (), ())
    assert dict(policy.env) == {}


def test_for_commands() -> None:
    """The same with a /tmp of 256 MiB, processes of its own and the workspace; keywords still win."""
    policy = Policy.for_commands("/srv/w", memory="64MiB")
    assert policy == Policy.strict(memory="64MiB", tmp="256MiB", spawn=True, workspace="/srv/w")
    assert Policy.for_commands("/srv/w", tmp="8MiB").tmp == 8 * MIB


def test_host_defaults() -> None:
    """Budgets as strict's, /tmp 64 MiB, capabilities nothing, no waiver, the built-in backends."""
    host = HostPolicy()
    for field in attrs.fields(Policy):
        if field.name != "tmp":
            assert getattr(host, field.name) == getattr(Policy.strict(), field.name)
    assert host.tmp == 64 * MIB
    assert (host.networks, host.vault, host.backends, host.waive) == ((), None, None, frozenset())
    assert (host.features, host.python, host.wasm_in_process) == ((), None, False)


@BOTH
def test_values_are_parsed_at_once(made: Callable[..., Any]) -> None:
    """Inside are types, not strings."""
    got = made(**RICH)
    assert (got.memory, got.cpu, got.timeout, got.output, got.tmp, got.state_max) == (
        64 * MIB, 100, 0.25, 1024, 16 * MIB, 8 * MIB,
    )  # fmt: skip
    assert got.read == ("/opt/a", "/opt/b")
    assert got.network == (NetworkEntry.parse("b.example.com:80"), NetworkEntry.parse("*.bank.com"))
    assert got.secrets == ("A", "B")
    assert isinstance(got.env, Mapping)
    assert dict(got.env) == {"A": "1", "B": "2"}


@BOTH
def test_equal_by_value_hashable_picklable_frozen(made: Callable[..., Any]) -> None:
    """Other spellings, other orders, doubles and copies are the same value; nothing can be set."""
    one = made(**RICH)
    two = made(
        **{
            **RICH,
            "memory": 67108864,
            "cpu": 0.1,
            "timeout": 0.25,
            "read": (Path("/opt/a/"), "/opt//b", "/opt/x/../b"),
            "network": {"*.BANK.com:443", "B.example.com:80"},
            "secrets": ("A", "B", "A"),
            "env": {"A": "1", "B": "2"},
        }
    )
    for other in (two, pickle.loads(pickle.dumps(one)), attrs.evolve(one), made(**attrs.asdict(one, recurse=False))):
        assert other == one
        assert hash(other) == hash(one)
    assert made(**{**RICH, "memory": "65MiB"}) != one
    for field in attrs.fields(type(one)):
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            setattr(one, field.name, None)
    with pytest.raises(TypeError):
        one.env["A"] = "3"
    with pytest.raises(AttributeError, match="cannot change"):
        one.env._items = {}


def test_a_host_is_never_equal_to_a_policy() -> None:
    """They share fields, not a meaning."""
    host: object = HostPolicy(tmp=None)
    assert host != Policy.strict()
    assert not isinstance(HostPolicy(), Policy)


def test_lists_are_copied() -> None:
    """What the caller changes later changes no policy."""
    read, network, env = ["/a"], ["a.bank.com"], {"A": "1"}
    policy = Policy.strict(read=read, network=network, env=env)
    before = hash(policy)
    read.append("/etc")
    network.append("evil.example.com")
    env["LD_PRELOAD"] = "x"
    assert policy == Policy.strict(read=["/a"], network=["a.bank.com"], env={"A": "1"})
    assert hash(policy) == before


def test_evolve_validates_again_and_keeps_parsed_values() -> None:
    """`attrs.evolve` is a maker like any other: 500 thousandths stay 500 thousandths."""
    policy = Policy.strict(cpu="500m", network=["*.bank.com"])
    assert attrs.evolve(policy, memory="64MiB") == Policy.strict(cpu=0.5, network=["*.bank.com"], memory=64 * MIB)
    for wrong in ({"memory": "64mib"}, {"network": "a.b.com"}, {"spawn": 1}, {"nope": 1}):
        with pytest.raises(InvalidPolicy):
            attrs.evolve(policy, **wrong)


def test_host_arguments() -> None:
    """Guards by name or value, networks as networks in one order, backends in the caller's order."""
    host = HostPolicy(
        waive={Guard.CPU_MAX, "memory_max", "IDENTITY"},
        networks=["fc00::/7", "10.0.0.0/8", ip_network("10.0.0.0/8")],
        backends=["seccomp", "landlock"],
        features=["threads", "gc"],
        python="/usr/bin/python3",
        wasm_in_process=True,
    )
    assert host.waive == {Guard.CPU_MAX, Guard.MEMORY_MAX, Guard.IDENTITY}
    assert host.networks == (ip_network("10.0.0.0/8"), ip_network("fc00::/7"))
    assert host.backends == ("seccomp", "landlock")
    assert host.features == ("gc", "threads")
    assert pickle.loads(pickle.dumps(host)) == host == attrs.evolve(host)
    assert hash(attrs.evolve(host)) == hash(host)
    assert hash(HostPolicy(vault={"unhashable": []})) == hash(HostPolicy(vault={"unhashable": []}))
    assert HostPolicy(vault={"a": 1}) != HostPolicy(vault={"a": 2})


def test_relative_paths_are_of_the_moment_they_were_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the working directory when the policy is made, and not moved by a later chdir; nothing need exist."""
    monkeypatch.chdir(tmp_path)
    policy = Policy.for_commands("w", read=["../x", "."])
    monkeypatch.chdir("/")
    assert policy.workspace == str(tmp_path / "w")
    assert set(policy.read) == {str(tmp_path.parent / "x"), str(tmp_path)}
    assert attrs.evolve(policy) == policy
    assert Policy.strict(read=["//etc"]).read == ("/etc",)
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert Policy.strict(read=["/a"]).read == ("/a",)
    with pytest.raises(InvalidPolicy, match=r"^read: .*working directory is gone"):
        Policy.strict(read=["a"])
    monkeypatch.chdir("/")


def test_a_policy_touches_no_file(tmp_path: Path) -> None:
    """Not even lstat: a symlink stays as it is written, and an audit hook sees no file opened."""
    (tmp_path / "link").symlink_to("/etc")
    policy = Policy.for_commands(tmp_path / "link", read=[tmp_path / "link" / "ssl"])
    assert policy.workspace == str(tmp_path / "link")
    code = """if True:
        import os, sys
        from sandboxactor._policy import Policy
        real = os.lstat
        def trap(*a, **k): raise SystemExit("touched")
        os.stat = os.lstat = os.readlink = os.open = trap
        sys.addaudithook(lambda event, args: trap() if event in ("open", "os.listdir", "os.scandir") else None)
        Policy.for_commands("/srv/w", read=["/opt/x", "rel"], network=["api.bank.com"], env={"A": "1"}).guards
        os._exit(0)
    """
    done = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


ALWAYS = {
    Guard.FILES_SCOPED, Guard.MEMORY_MAX, Guard.CPU_MAX, Guard.PROCESSES_MAX, Guard.WALL_TIME, Guard.OUTPUT_MAX,
    Guard.IDENTITY, Guard.NO_NEW_PRIVS,
}  # fmt: skip


@pytest.mark.parametrize(
    ("wider", "chosen"),
    [
        ({}, {Guard.NO_SPAWN, Guard.NETWORK_OFF}),
        ({"spawn": True}, {Guard.FILES_HIDDEN, Guard.NETWORK_OFF}),
        ({"network": ["a.bank.com"]}, {Guard.NO_SPAWN, Guard.NETWORK_DOMAINS}),
        ({"spawn": True, "network": ["a.bank.com"]}, {Guard.FILES_HIDDEN, Guard.NETWORK_DOMAINS}),
    ],
)
def test_guards(wider: dict[str, Any], chosen: set[Guard]) -> None:
    """Eight guards always; spawn and network choose the others; an empty network is off, never open."""
    assert Policy.strict(**wider).guards == ALWAYS | chosen


def test_frozen_map() -> None:
    """A mapping by value: order and source do not matter."""
    one, two = FrozenMap({"a": 1, "b": 2}), FrozenMap([("b", 2), ("a", 1)])
    assert one == two == {"b": 2, "a": 1}
    assert hash(one) == hash(two)
    assert pickle.loads(pickle.dumps(one)) == one
    assert repr(two) == "{'a': 1, 'b': 2}"


def test_a_policy_costs_no_yaml() -> None:
    """Programs without manifests, and workers, do not pay for cattrs and PyYAML."""
    code = "import sys, sandboxactor._host; print(sorted({'yaml', 'cattrs', 'ipaddress'} & set(sys.modules)))"
    root = Path(__file__).parents[2]
    out = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert out.stdout.strip() == "[]"
