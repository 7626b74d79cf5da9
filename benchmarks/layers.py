"""What each layer costs: the same run without it, interleaved with all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import perf_counter_ns
from typing import Any

from benchmarks.contestants import YARDSTICK, Workshop, checked, run_behind, run_once, subprocess_true, timed
from benchmarks.measure import Contestant, Samples, error_of_median, interleave
from sandboxactor import Guard, HostPolicy, Policy, Sandbox, Unenforceable, WorkerFault
from sandboxactor._registry import BUILTIN, probe

__all__ = ["DEFAULT", "FULL", "NOTE", "NONE", "prices"]

# A seal without no_new_privs and with capabilities is a fault, whatever the plan says: no run goes without these.
ALWAYS = ("credentials", "native")
FULL = "all layers"
DEFAULT = "fallbacks"
NONE = f"{' and '.join(ALWAYS)} alone"
WAYS = ("warm", "behind", "first")
NOTE = (
    "Each price is the difference of two medians with and without that layer, all guards waived: approximate, "
    "and they do not add up.",
    "warm: the worker is parked, so what it does before that is not seen. behind: right behind another run, so all a "
    "worker does is.",
    "first: make a Sandbox and run once, the zygote up; its price holds what a layer sets up in the stem, for all "
    "workers to inherit.",
)

Hosts = dict[str, HostPolicy]


def _hosts(shop: Workshop) -> tuple[Hosts, dict[str, str]]:
    """The host policy of each variant, and why a variant cannot be."""
    able = [name for name in BUILTIN if probe(name).available]
    every = frozenset(Guard)
    wanted: Hosts = {FULL: HostPolicy(waive=every), DEFAULT: shop.host}
    for name in able:
        if name not in ALWAYS:
            wanted[name] = HostPolicy(backends=[n for n in able if n != name], waive=every)
    wanted[NONE] = HostPolicy(backends=ALWAYS, waive=every)
    if _plan(wanted[FULL]) == _plan(wanted[DEFAULT]):
        del wanted[DEFAULT]  # no fallback takes part on this host
    hosts: Hosts = {}
    unfit = {name: f"not on this host: {probe(name).reason}" for name in BUILTIN if name not in able}
    for name, host in wanted.items():
        try:
            with Sandbox(Policy.strict(), host=host) as box:
                run_once(box, shop.module)
            hosts[name] = host
        except (Unenforceable, WorkerFault) as e:
            unfit[name] = f"the others cannot be without it: {e}"
    return hosts, unfit


def _plan(host: HostPolicy) -> list[str]:
    """The steps, without what is waived."""
    with Sandbox(Policy.strict(), host=host) as box:
        return box.explain().partition("\nguards")[0].splitlines()


def _first(shop: Workshop, host: HostPolicy) -> Callable[[], int]:
    def sample() -> int:
        begun = perf_counter_ns()
        box = Sandbox(Policy.strict(), host=host)
        try:
            result = box.run(shop.module, b"x")
            took = perf_counter_ns() - begun
        finally:
            box.close()
        checked(result, b"x")
        return took

    return sample


def _contestants(shop: Workshop, hosts: Hosts) -> Iterator[Contestant]:
    def three(name: str, host: HostPolicy) -> Iterator[Contestant]:
        box = shop.sandbox(host=host)
        yield Contestant(f"{name}/warm", lambda: run_once(box, shop.module))
        yield Contestant(f"{name}/behind", lambda: run_behind(box, shop.module))
        yield Contestant(f"{name}/first", _first(shop, host), every=4)

    yield Contestant(YARDSTICK, timed(subprocess_true))
    for name, host in hosts.items():
        yield from three(name, host)


def _price(found: dict[str, Samples], more: str, less: str, way: str) -> dict[str, float]:
    a, b = found[f"{more}/{way}"], found[f"{less}/{way}"]
    error = (error_of_median(a.taken) ** 2 + error_of_median(b.taken) ** 2) ** 0.5
    return {f"{way}_us": (a.p50 - b.p50) / 1e3, f"{way}_error_us": error / 1e3}


def prices(shop: Workshop, rounds: int) -> tuple[list[dict[str, Any]], list[str]]:
    """A row a layer, and what failed. The yardstick, FULL and NONE are medians, the others are prices."""
    hosts, unfit = _hosts(shop)
    found = interleave(_contestants(shop, hosts), rounds, seed=3)
    yard = found[YARDSTICK]
    rows: list[dict[str, Any]] = [
        {"layer": YARDSTICK, "price": False, "reason": yard.failure}
        | {"warm_us": yard.p50 / 1e3, "warm_error_us": error_of_median(yard.taken) / 1e3}
    ]
    for name in hosts:
        failure = "; ".join(s.failure for w in WAYS if not (s := found[f"{name}/{w}"]).taken)
        row: dict[str, Any] = {"layer": name, "price": name not in (FULL, NONE), "reason": failure}
        for way in WAYS:
            if not row["price"]:
                row[f"{way}_us"] = found[f"{name}/{way}"].p50 / 1e3
                row[f"{way}_error_us"] = error_of_median(found[f"{name}/{way}"].taken) / 1e3
            elif name == DEFAULT:
                row |= _price(found, DEFAULT, FULL, way)
            else:
                row |= _price(found, FULL, name, way)
        rows.append(row)
    rows += [{"layer": name, "price": True, "reason": reason} for name, reason in unfit.items()]
    return rows, [f"layers, {name}: {s.failure}" for name, s in found.items() if s.failure]
