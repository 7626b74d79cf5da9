"""Samples, rounds and what is made of them. Nothing here knows what is measured."""

from __future__ import annotations

import gc
import math
import os
import random
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from time import perf_counter

import attrs

__all__ = ["Contestant", "Samples", "cpus", "error_of_median", "interleave", "quantile", "rates"]


@attrs.frozen
class Contestant:
    """One row. `sample` does it once and gives nanoseconds, or raises; it takes part in every `every`-th round."""

    name: str
    sample: Callable[[], int]
    every: int = 1


@attrs.define
class Samples:
    """What a contestant did, in nanoseconds; `failure` is why it left the race."""

    taken: list[int] = attrs.field(factory=list)
    failure: str = ""

    @property
    def p50(self) -> float:
        return quantile(self.taken, 0.50)

    @property
    def p95(self) -> float:
        return quantile(self.taken, 0.95)


def quantile(values: Sequence[float], q: float) -> float:
    """By nearest rank; NaN for none."""
    return float(sorted(values)[round(q * (len(values) - 1))]) if values else float("nan")


def error_of_median(values: Sequence[float]) -> float:
    """The standard error of a median, from the middle half, so that a few stalls do not count."""
    spread = (quantile(values, 0.75) - quantile(values, 0.25)) / 1.349
    return 1.253 * spread / math.sqrt(max(1, len(values)))


def interleave(contestants: Iterable[Contestant], rounds: int, seed: int = 1) -> dict[str, Samples]:
    """One of each, in an order shuffled anew each round, so that what drifts in the machine hits all alike."""
    race = list(contestants)
    found = {c.name: Samples() for c in race}
    order = random.Random(seed)
    for each in race:  # untimed: what is made by the first is there
        _take(each, Samples(), found[each.name])
    gc.collect()
    for number in range(rounds):
        now = [c for c in race if number % c.every == 0]
        order.shuffle(now)
        for each in now:
            _take(each, found[each.name], found[each.name])
    return found


def _take(each: Contestant, into: Samples, state: Samples) -> None:
    if state.failure:
        return
    try:
        into.taken.append(each.sample())
    except Exception as e:
        state.failure = f"{type(e).__name__}: {e}"


def rates(
    works: dict[str, Callable[[], object]], threads: Sequence[int], seconds: float, rounds: int
) -> dict[tuple[str, int], float]:
    """Calls a second of each work by so many threads: the median of rounds, all interleaved."""
    cells = [(name, n) for name in works for n in threads]
    found: dict[tuple[str, int], list[float]] = {cell: [] for cell in cells}
    order = random.Random(2)
    for name, n in cells:
        _rate(works[name], n, 0.02)
    for _ in range(rounds):
        order.shuffle(cells)
        for name, n in cells:
            found[name, n].append(_rate(works[name], n, seconds))
    return {cell: quantile(values, 0.5) for cell, values in found.items()}


def _rate(work: Callable[[], object], threads: int, seconds: float) -> float:
    start = Barrier(threads + 1)

    def loop() -> int:
        start.wait()
        done, until = 0, perf_counter() + seconds
        while perf_counter() < until:
            work()
            done += 1
        return done

    with ThreadPoolExecutor(threads) as pool:
        running = [pool.submit(loop) for _ in range(threads)]
        start.wait()
        begun = perf_counter()
        done = sum(r.result() for r in running)
        return done / (perf_counter() - begun)


def cpus() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0))
