"""grant against an oracle of its own: any request, any host, and budgets that a manifest omits."""

# A fuzzed call may pass or raise, and both are checked (PT017).
# ruff: noqa: PT017

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandboxactor._host import HostPolicy
from sandboxactor._manifest import Manifest
from sandboxactor._policy import Policy
from sandboxactor.errors import PolicyDenied

MIB = 1024 * 1024
BUDGETS = ("memory", "cpu", "processes", "timeout", "output", "input", "tmp", "state_max")
PATHS = ["/", "/nowhere-sa", "/nowhere-sa/a", "/nowhere-sa/a/b", "/nowhere-sa/ab", "/nowhere-sa-2"]
NAMES = ["bank.com", "*.bank.com", "a.bank.com", "*.a.bank.com", "x.a.bank.com", "bank.com:80", "*.bank.com:80"]
TERMS: dict[str, list[Any]] = {
    "memory": [4 * MIB, 5 * MIB, 512 * MIB, 2**63 - 1],
    "cpu": ["10m", "11m", "500m", "1024"],
    "processes": [1, 2, 30, 31],
    "timeout": [0.001, 1, 60, 2147483],
    "output": [1, 2, 8 * MIB, 2**40],
    "input": [1, 2, 64 * MIB, 2**40],
    "tmp": [None, 4096, 4097, 2**40],
    "spawn": [False, True],
    "state": [False, True],
    "state_max": [4096, 4097, 2**40],
    "read": [list(some) for size in range(3) for some in itertools.permutations(PATHS, size)],
    "workspace": [None, *PATHS],
    "network": [list(some) for size in range(3) for some in itertools.permutations(NAMES, size)],
    "secrets": [[], ["A"], ["B"], ["A", "B"], ["B", "A"]],
    "env": [{}, {"A": "1"}, {"A": "2"}, {"B": "1", "A": "1"}],
}
# A few terms an example and one draw a term: drawing all of them costs ten times what granting does.
SOME = st.lists(
    st.one_of([st.sampled_from([(name, value) for value in values]) for name, values in TERMS.items()]), max_size=5
).map(dict)


def granted(host: HostPolicy, request: Policy | Manifest) -> Policy | None:
    try:
        return host.grant(request)
    except PolicyDenied as denied:
        assert denied.excesses
        return None


def lies_in(path: str, tree: str) -> bool:
    return Path(path).is_relative_to(tree)


def within(policy: Policy, bound: Policy | HostPolicy) -> bool:
    """An oracle of its own for "asks for no more than"."""
    budgets = [(getattr(policy, name), getattr(bound, name)) for name in BUDGETS if name != "state_max" or policy.state]
    return (
        all(have is None or (limit is not None and have <= limit) for have, limit in budgets)
        and policy.spawn <= bound.spawn
        and policy.state <= bound.state
        and all(any(lies_in(p, t) for t in bound.read) for p in policy.read)
        and (policy.workspace is None or (bound.workspace is not None and lies_in(policy.workspace, bound.workspace)))
        and all(any(c.covers(e) for c in bound.network) for e in policy.network)
        and set(policy.secrets) <= set(bound.secrets)
        and set(policy.env.items()) <= set(bound.env.items())
    )


def widen(host: HostPolicy, extra: dict[str, Any]) -> HostPolicy:
    """A host that grants all that `host` grants, and more."""
    more = HostPolicy(**extra)
    changes: dict[str, Any] = {
        name: max(getattr(host, name) or 0, getattr(more, name) or 0) or None for name in BUDGETS
    }
    changes["cpu"] = max(host.cpu, more.cpu)
    changes |= {name: getattr(host, name) or getattr(more, name) for name in ("spawn", "state")}
    changes |= {name: (*getattr(host, name), *getattr(more, name)) for name in ("read", "network", "secrets")}
    changes |= {
        "workspace": None if host.workspace is None and more.workspace is None else host.workspace or more.workspace
    }
    return attrs.evolve(host, **changes, env={**more.env, **host.env})


def shuffled(terms: dict[str, Any], seed: int) -> dict[str, Any]:
    rng = random.Random(seed)
    lists = {name: rng.sample(value, len(value)) for name, value in terms.items() if isinstance(value, list)}
    return {**terms, **lists, "env": dict(reversed(terms.get("env", {}).items()))}


@settings(max_examples=10_000, deadline=None)
@given(SOME, SOME, SOME, st.integers(0, 99))
def test_what_grant_promises(asked: dict[str, Any], ceilings: dict[str, Any], extra: dict[str, Any], seed: int) -> None:
    """Granted exactly if within; then within request and host, idempotent, monotone, free of order."""
    request, host = Policy(**asked), HostPolicy(**ceilings)
    policy = granted(host, request)
    assert (policy is not None) == within(request, host)
    assert Policy(**shuffled(asked, seed)) == request
    assert HostPolicy(**shuffled(ceilings, seed)) == host
    if policy is not None:
        assert policy == request
        assert host.grant(policy) == policy
        assert widen(host, extra).grant(request) == policy


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    folder = tmp_path_factory.mktemp("manifest")
    (folder / "m.so").write_bytes(b"")
    (folder / "action.yaml").write_text("action: {name: A}\nruntime: {module: m.so}\nsandbox: {enabled: true}\n")
    return Manifest.load(folder / "action.yaml")


@settings(max_examples=2_000, deadline=None)
@given(SOME, SOME, SOME, st.sets(st.sampled_from(sorted(set(BUDGETS) - {"tmp"}))))
def test_what_grant_promises_for_omitted_budgets(
    empty: Manifest, asked: dict[str, Any], ceilings: dict[str, Any], extra: dict[str, Any], omitted: set[str]
) -> None:
    """What is omitted is never a cause of refusal, and what it becomes is within the host and within strict."""
    kept = {name: value for name, value in asked.items() if name not in omitted}
    request = attrs.evolve(empty, asked=Policy(**kept), omitted=frozenset(omitted))
    host = HostPolicy(**ceilings)
    policy = granted(host, request)
    lowered = {name: min(getattr(Policy.strict(), name), getattr(host, name)) for name in omitted - {"cpu"}}
    cpu = {"cpu": min(Policy.strict().cpu, host.cpu)} if "cpu" in omitted else {}
    assert (policy is not None) == within(Policy(**{**kept, **lowered, **cpu}), host)
    if policy is not None:
        assert within(policy, host)
        assert within(policy, Policy(**kept))
        assert host.grant(policy) == policy
        assert granted(widen(host, extra), request) is not None
