"""Sizes, CPU shares, times and counts, each spelled one way, parsed once at the edge.

A unit that is read wrongly is a limit that is not there, so nothing is guessed: `64mib`, `64M`, `1e3MiB`, `50%` and a
number without its unit are ValueErrors that quote the value and show the right spelling. The caller adds the field.
"""

from __future__ import annotations

import re
from decimal import Decimal

__all__ = [
    "GIB",
    "KIB",
    "MIB",
    "Millicores",
    "format_cpu",
    "format_size",
    "format_time",
    "parse_count",
    "parse_cpu",
    "parse_disk",
    "parse_memory",
    "parse_size",
    "parse_time",
    "quoted",
]

KIB, MIB, GIB = 1024, 1024**2, 1024**3

_SIZE_UNITS = {"B": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB}
_TIME_UNITS = {"ms": 1, "s": 1000, "m": 60_000}

_SIZE_MAX = 2**63 - 1  # cgroup files and rlimits are signed 64-bit in the kernel
_MEMORY_MIN = 4 * MIB  # below this no process starts (runc 2812: EBUSY), and the error would come late
_DISK_MIN = 4 * KIB  # a tmpfs rounds up to a page, and its size=0 means unlimited (tmpfs(5))
_CPU_MIN, _CPU_MAX = 10, 1024_000  # a quota below 1 ms in 100 ms is EINVAL (kernel: sched-bwc.rst)
_TIME_MAX = 2**31 - 1  # milliseconds that poll(2) can wait, about 24 days
_COUNT_MAX = 2**22  # PID_MAX_LIMIT (proc(5))

_DIGITS = r"(0|[1-9][0-9]*)"
_SIZE = re.compile(_DIGITS + r"(B|KiB|MiB|GiB)")
_TIME = re.compile(_DIGITS + r"(ms|s|m)")
_MILLI = re.compile(_DIGITS + "m")
_CORES = re.compile(_DIGITS + r"(?:\.([0-9]{1,3}))?")
_NEARLY_SIZE = re.compile(r"\s*([1-9][0-9]{0,9})\s*([kmg])i?b?\s*", re.IGNORECASE)
_MANY_DIGITS = 24  # above every ceiling here; int() of thousands of digits raises in Python


class Millicores(int):
    """Thousandths of a core. A type of its own, so that a parsed value is never read again as a number of cores."""

    __slots__ = ()


def quoted(value: object) -> str:
    """The value as it may stand in a one-line message: ASCII, escaped, at most about 60 characters.

    A sequence or mapping is named by its type alone, since its repr may be of any length.
    """
    if isinstance(value, (str, bytes)):
        return ascii(value) if len(value) <= 60 else ascii(value[:57])[:-1] + "...'"
    if value is None or isinstance(value, (bool, float, Decimal)):
        return str(value)
    if isinstance(value, int):
        return str(int(value)) if abs(value) < 10**40 else "a huge number"
    return f"a {type(value).__name__}"


def parse_memory(value: object) -> int:
    """Bytes of memory, 4 MiB to 2^63-1, from `64MiB` or an int of bytes."""
    return _bytes(value, _MEMORY_MIN)


def parse_size(value: object) -> int:
    """Bytes of an input or output, 1 to 2^63-1, from `8MiB` or an int of bytes."""
    return _bytes(value, 1)


def parse_disk(value: object) -> int:
    """Bytes of a file system, 4 KiB (one page) to 2^63-1, from `64MiB` or an int of bytes."""
    return _bytes(value, _DISK_MIN)


def parse_cpu(value: object) -> Millicores:
    """Thousandths of a core, 10m to 1024 cores, from `100m`, or from cores with at most three decimal places.

    Cores are a text such as `0.5` or a number (int, float, Decimal); `Millicores` pass as they are.
    """
    milli = _millicores(value)
    if milli is None:
        raise ValueError(f"{quoted(value)} is no CPU share: write thousandths such as 500m, or cores such as 0.5 or 2")
    if not _CPU_MIN <= milli <= _CPU_MAX:
        raise ValueError(f"{quoted(value)} is out of range: a CPU share goes from 10m to 1024 cores, such as 500m")
    return Millicores(milli)


def parse_time(value: object) -> float:
    """Seconds, 1 ms to 2^31-1 ms, from `250ms`, `60s`, `5m`, or an int or float of seconds (to the millisecond)."""
    milli: float
    if isinstance(value, str) and (match := _TIME.fullmatch(value)):
        milli = _scaled(match[1], _TIME_UNITS[match[2]])
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        milli = value * 1000
    else:
        raise ValueError(f"{quoted(value)} is no time: write it as 250ms, 60s or 5m")
    if not 1 <= milli <= _TIME_MAX:  # false for nan too
        raise ValueError(f"{quoted(value)} is out of range: a time goes from 1ms to {_TIME_MAX}ms, such as 60s")
    return round(milli) / 1000


def parse_count(value: object) -> int:
    """A number of processes, 1 to 4194304, from an int."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{quoted(value)} is no count: write a whole number such as 30")
    if not 1 <= value <= _COUNT_MAX:
        raise ValueError(f"{quoted(value)} is out of range: a count goes from 1 to {_COUNT_MAX}, such as 30")
    return int(value)


def format_size(size: int) -> str:
    """`67108864` as `64MiB`: the largest unit that divides it."""
    for unit in ("GiB", "MiB", "KiB"):
        if size % _SIZE_UNITS[unit] == 0:
            return f"{size // _SIZE_UNITS[unit]}{unit}"
    return f"{size}B"


def format_cpu(milli: int) -> str:
    """`100` as `100m`."""
    return f"{int(milli)}m"


def format_time(seconds: float) -> str:
    """`60.0` as `60s`, `0.25` as `250ms`."""
    milli = round(seconds * 1000)
    return f"{milli}ms" if milli % 1000 else f"{milli // 1000}s"


def _bytes(value: object, least: int) -> int:
    if isinstance(value, str) and (match := _SIZE.fullmatch(value)):
        size = _scaled(match[1], _SIZE_UNITS[match[2]])
    elif isinstance(value, int) and not isinstance(value, bool):
        size = int(value)
    else:
        near = _NEARLY_SIZE.fullmatch(value) if isinstance(value, str) else None
        example = f"{near[1]}{near[2].upper()}iB" if near else "64MiB"
        raise ValueError(
            f"{quoted(value)} is no size: write a whole number and B, KiB, MiB or GiB without a space, "
            f"such as {example}, or an integer of bytes"
        )
    if not least <= size <= _SIZE_MAX:
        raise ValueError(f"{quoted(value)} is out of range: from {format_size(least)} to 2^63-1 bytes, such as 64MiB")
    return size


def _millicores(value: object) -> int | None:
    if isinstance(value, Millicores):
        return value
    if isinstance(value, str):
        if match := _MILLI.fullmatch(value):
            return _scaled(match[1], 1)
        if match := _CORES.fullmatch(value):
            return _scaled(match[1], 1000) + int((match[2] or "").ljust(3, "0"))
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        return None
    # float.__repr__ is the shortest text that reads back equal, so 0.1 is one place and 1/3 is sixteen.
    cores = Decimal(float.__repr__(value)) if isinstance(value, float) else Decimal(value)
    if not cores.is_finite() or not 0 <= cores < _CPU_MAX:
        return 0 if cores.is_finite() else None
    milli = cores * 1000
    return int(milli) if milli == int(milli) else None


def _scaled(digits: str, unit: int) -> int:
    """The number, or one that is above every ceiling where the digits are too many to convert."""
    return int(digits) * unit if len(digits) <= _MANY_DIGITS else 10**_MANY_DIGITS
