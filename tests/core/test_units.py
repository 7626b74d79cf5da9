"""Units: one spelling each, and every other spelling refused with the right one named."""

# Tables stand in rows of one kind (RUF005); a fuzzed call may pass or raise, and both are checked (PT017).
# ruff: noqa: RUF005, PT017

from __future__ import annotations

import math
import pickle
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxactor import _units as units
from sandboxactor._units import Millicores

MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("spelling", "size"),
    [
        ("4194304B", 4 * MIB),
        ("4096KiB", 4 * MIB),
        ("64MiB", 67108864),
        ("1GiB", 1024 * MIB),
        (67108864, 67108864),
        (4 * MIB, 4 * MIB),
        (2**63 - 1, 2**63 - 1),
        ("9223372036854775807B", 2**63 - 1),
        ("8589934591GiB", 8589934591 * 1024**3),
    ],
)
def test_memory_is_bytes(spelling: object, size: int) -> None:
    """`64MiB` and an integer of bytes give bytes, from 4 MiB to 2^63-1, both ends included."""
    assert units.parse_memory(spelling) == size


NO_SIZES: list[object] = (
    ["64", "64MB", "64Mi", "64M", "64mib", "64MIB", "64mb", "64 MiB", " 64MiB", "64MiB ", "64MiB\n", "+64MiB", "-64MiB"]
    + ["064MiB", "64.5MiB", "64.0MiB", "1e3MiB", "6_4MiB", "0x40MiB", "0o400MiB", "64MiB; rm", "64TiB", "64b", "MiB"]
    + [
        "",
        "unlimited",
        "max",
        "inf",
        ".nan",
        "nan",
        "50%",
        "\uff16\uff14MiB",
        "\u0666\u0664MiB",
        "64MiB\0",
        "64\u00a0MiB",
    ]
    + [None, True, False, 64.0, math.nan, math.inf, Decimal(67108864), Fraction(67108864), b"64MiB", ["64MiB"], {}]
)


@pytest.mark.parametrize("value", NO_SIZES)
def test_other_spellings_of_a_size_are_refused(value: object) -> None:
    """What is not spelled as a size is an error that shows a size, for memory, output and /tmp alike."""
    for parse in (units.parse_memory, units.parse_size, units.parse_disk):
        with pytest.raises(ValueError, match=r"write a whole number and B, KiB, MiB or GiB.*such as [0-9]+[KMG]iB"):
            parse(value)


@pytest.mark.parametrize(
    ("written", "right"), [("128mb", "128MiB"), ("2G", "2GiB"), ("512Ki", "512KiB"), ("64 MiB", "64MiB")]
)
def test_a_near_miss_is_answered_with_its_own_right_spelling(written: str, right: str) -> None:
    """The error for `128mb` shows `128MiB`, not some other example."""
    with pytest.raises(ValueError, match=rf"such as {right},"):
        units.parse_memory(written)


@pytest.mark.parametrize(
    "value",
    [0, -1, 1, 4 * MIB - 1, 2**63, 10**30, "0B", "0MiB", "1KiB", "3MiB", "4194303B", "9223372036854775808B"]
    + ["8589934592GiB", "999999999999GiB", "9" * 10_000 + "MiB", pytest.param(10**5000, id="huge")],
)
def test_memory_out_of_range_is_refused(value: object) -> None:
    """Below 4 MiB nothing starts, and above 2^63-1 the kernel's integers wrap: both errors name the range."""
    with pytest.raises(ValueError, match=r"out of range: from 4MiB to 2\^63-1 bytes"):
        units.parse_memory(value)


def test_the_floors_of_other_sizes() -> None:
    """An output may be one byte, /tmp one page: a tmpfs of size=0 would be unlimited."""
    assert units.parse_size(1) == units.parse_size("1B") == 1
    assert units.parse_disk(4096) == units.parse_disk("4KiB") == 4096
    with pytest.raises(ValueError, match="from 1B"):
        units.parse_size(0)
    for few in (0, 1, 4095):
        with pytest.raises(ValueError, match="from 4KiB"):
            units.parse_disk(few)


@pytest.mark.parametrize(
    ("spelling", "milli"),
    [
        ("100m", 100),
        ("10m", 10),
        ("1024000m", 1024_000),
        ("0.5", 500),
        ("0.01", 10),
        ("0.010", 10),
        ("1", 1000),
        ("1.0", 1000),
        ("1.125", 1125),
        ("1024", 1024_000),
        ("1024.000", 1024_000),
        (1, 1000),
        (0.5, 500),
        (0.1, 100),
        (0.29, 290),
        (1.1, 1100),
        (1024, 1024_000),
        (Decimal("0.125"), 125),
        (Decimal("0.5000"), 500),
        (Millicores(500), 500),
    ],
)
def test_cpu_is_thousandths_of_a_core(spelling: object, milli: int) -> None:
    """`100m`, or cores as a decimal with at most three places (in Python also as a number)."""
    parsed = units.parse_cpu(spelling)
    assert parsed == milli
    assert isinstance(parsed, Millicores)


@pytest.mark.parametrize(
    "value",
    ["50%", "100%", "100MiB", "1e9", "1e-1", "100 m", "100M", "+1", "-1", "0.0001", "0.1234", "1.", ".5", "01", "1,5"]
    + ["0x1", "1_0", "", "m", "0.5m", "\u0661", "unlimited", None, True, math.nan, math.inf, -math.inf, 1 / 3, 0.0105]
    + [Decimal("NaN"), Decimal("0.0001"), Fraction(1, 2), [1], b"1"],
)
def test_other_spellings_of_a_cpu_share_are_refused(value: object) -> None:
    """What is not a CPU share is an error that shows one: a share is never rounded and never guessed."""
    with pytest.raises(ValueError, match="no CPU share: write thousandths such as 500m, or cores such as"):
        units.parse_cpu(value)


@pytest.mark.parametrize(
    "value",
    ["0", "0m", "1m", "9m", "0.009", "1024001m", "1024.001", "1025", "9" * 9999 + "m"]
    + [0, -1, 0.0, -0.5, 0.009, 1025, 1e9, 10**400, Millicores(9), Millicores(0)],
)
def test_cpu_out_of_range_is_refused(value: object) -> None:
    """Below 10m the kernel refuses the quota, and no host has more than 1024 cores: the error names the range."""
    with pytest.raises(ValueError, match="from 10m to 1024 cores"):
        units.parse_cpu(value)


def test_a_parsed_share_is_not_parsed_again_as_cores() -> None:
    """`attrs.evolve` passes parsed values through the converter: 500 thousandths must not become 500 cores."""
    once = units.parse_cpu("500m")
    assert units.parse_cpu(once) == once == 500
    assert isinstance(pickle.loads(pickle.dumps(once)), Millicores)


@pytest.mark.parametrize(
    ("spelling", "seconds"),
    [("250ms", 0.25), ("1ms", 0.001), ("60s", 60), ("5m", 300), (60, 60), (0.25, 0.25), (1 / 3, 0.333), (0.001, 0.001)],
)
def test_time_is_seconds(spelling: object, seconds: float) -> None:
    """`250ms`, `60s`, `5m`, and in Python a number of seconds to the millisecond."""
    assert units.parse_time(spelling) == seconds


@pytest.mark.parametrize(
    "value",
    ["60", "1h", "60S", "60 s", "1.5s", "+1s", "-1s", "01s", "1e3s", "1_0s", "60sec", "", "s", "inf", "1:30", "5min"]
    + [None, True, False, [60], b"60s", Decimal(1)],
)
def test_other_spellings_of_a_time_are_refused(value: object) -> None:
    """What is not a time is an error that shows one."""
    with pytest.raises(ValueError, match="no time: write it as 250ms, 60s or 5m"):
        units.parse_time(value)


@pytest.mark.parametrize(
    "value",
    ["0ms", "0s", "2147483648ms", "9" * 9999 + "s", 0, 0.0, -1, -0.5, math.nan, math.inf, -math.inf, 10**400, 1e-9],
)
def test_time_out_of_range_is_refused(value: object) -> None:
    """0, negative, nan and inf are errors, as is what poll(2) cannot wait for."""
    with pytest.raises(ValueError, match="from 1ms to 2147483647ms"):
        units.parse_time(value)


def test_counts() -> None:
    """A count is an int from 1 to the kernel's PID_MAX_LIMIT; nothing else is taken for one."""
    assert [units.parse_count(n) for n in (1, 30, 4194304)] == [1, 30, 4194304]
    for value in (0, -1, 4194305, 10**30):
        with pytest.raises(ValueError, match="from 1 to 4194304"):
            units.parse_count(value)
    for other in ("30", 30.0, None, True, math.nan, [30], Decimal(30)):
        with pytest.raises(ValueError, match="write a whole number such as 30"):
            units.parse_count(other)


@given(st.integers(4 * MIB, 2**63 - 1))
def test_a_formatted_size_parses_to_itself(size: int) -> None:
    """What messages print is a right spelling."""
    assert units.parse_memory(units.format_size(size)) == size


@given(st.integers(10, 1024_000), st.integers(1, 2**31 - 1))
def test_formatted_shares_and_times_parse_to_themselves(milli: int, ms: int) -> None:
    """What messages print is a right spelling, for CPU and time too."""
    assert units.parse_cpu(units.format_cpu(milli)) == milli
    assert units.parse_time(units.format_time(ms / 1000)) == ms / 1000


def test_canonical_spellings() -> None:
    """The largest unit that divides: `64MiB`, `100m`, `60s`."""
    assert [units.format_size(n) for n in (67108864, 1024**3, 1536, 1025)] == ["64MiB", "1GiB", "1536B", "1025B"]
    assert units.format_cpu(Millicores(100)) == "100m"
    assert [units.format_time(s) for s in (60.0, 0.25, 1.5)] == ["60s", "250ms", "1500ms"]


@given(st.one_of(st.text(), st.binary(), st.integers(), st.floats(), st.none(), st.lists(st.text()), st.decimals()))
def test_any_value_parses_or_is_a_value_error_of_one_short_line(value: object) -> None:
    """No value raises anything but ValueError, and no value can write lines or floods into an error."""
    for parse in (units.parse_memory, units.parse_disk, units.parse_cpu, units.parse_time, units.parse_count):
        try:
            parse(value)
        except ValueError as error:
            assert str(error).isascii()
            assert str(error).isprintable()
            assert len(str(error)) < 400
