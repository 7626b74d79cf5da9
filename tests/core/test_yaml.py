"""The strict YAML reader: what each spelling is, and that any bytes give a value or faults."""

# Tables stand in rows of one kind (RUF005).
# ruff: noqa: RUF005

from __future__ import annotations

from decimal import Decimal

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from core.yaml_kit import PARSERS, use_parser, value
from sandboxactor._yaml import Unclear, compose, render


@pytest.fixture(params=PARSERS)
def _loader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    use_parser(request.param, monkeypatch)


both = pytest.mark.usefixtures("_loader")


@both
@pytest.mark.parametrize(
    ("text", "typed"),
    [
        ("true", True),
        ("false", False),
        ("0", 0),
        ("67108864", 67108864),
        ("-5", -5),
        ("0.5", Decimal("0.5")),
        ("-1.25", Decimal("-1.25")),
        ("64MiB", "64MiB"),
        ("100m", "100m"),
        ("60s", "60s"),
        ("api.bank.com", "api.bank.com"),
        ("API.Bank.COM", "API.Bank.COM"),
        ("127.0.0.1", "127.0.0.1"),
        ("api.bank.com:443", "api.bank.com:443"),
        ("./x.so", "./x.so"),
        ("1e3MiB", "1e3MiB"),
        ("'true'", "true"),
        ('"0"', "0"),
        ("'~'", "~"),
        ('""', ""),
        ('"no"', "no"),
        ("[]", []),
        ("{}", {}),
        ("[a, 1]", ["a", 1]),
        ("|\n  two\n  lines", "two\nlines"),
        ("caf\u00e9", "caf\u00e9"),
        ('"\\u00e9"', "\u00e9"),
    ],
)
def test_scalars_are_typed_by_their_spelling(text: str, typed: object) -> None:
    """true and false, decimal integers, plain decimals; all else plain is text, and quoted always is."""
    got = value(text)
    assert got == typed
    assert type(got) is type(typed)


UNCLEAR = (
    ["y", "n", "Y", "N", "yes", "no", "on", "off", "Yes", "NO", "On", "OFF", "True", "TRUE", "False", "FALSE", "nULL"]
    + [
        "007",
        "00",
        "-0",
        "+1",
        "0x1F",
        "0o17",
        "0b11",
        "1_000",
        "1,000",
        "1e3",
        "1E3",
        "1.5e3",
        "1.",
        ".5",
        "+.5",
        "01.5",
    ]
    + [".nan", ".NaN", ".inf", "-.inf", "+.INF", "1:30", "190:20:30", "2001-12-14", "2001-12-14T21:59:43Z", "="]
    + ["9" * 30, "0." + "1" * 30]
)


@both
@pytest.mark.parametrize("text", UNCLEAR)
def test_what_another_reader_types_otherwise_is_unclear(text: str) -> None:
    """What any YAML 1.1 or 1.2 schema reads as bool, null, number or date is neither that nor text here."""
    assert value(text) == Unclear(text)
    assert value(f"'{text}'") == text


@pytest.mark.parametrize("text", [text for text in UNCLEAR if text != "="])
def test_what_pyyaml_itself_types_is_never_text_here(text: str) -> None:
    """The positive control: PyYAML's own loader takes most of these for something else than text."""
    taken = yaml.safe_load(text)
    assert not isinstance(taken, str) or text in {
        *"yYnN",
        "0o17",
        "1e3",
        "1E3",
        "1.5e3",
        "1,000",
        "nULL",
        "01.5",
        "+.5",
    }, taken


@given(st.text(alphabet="0123456789.:+-_exobyntrufalsiYNTF~ ", min_size=1, max_size=8))
def test_no_plain_scalar_is_text_that_pyyaml_types(text: str) -> None:
    """Whatever PyYAML resolves to another type is not handed on as text."""
    tree = compose(f"k: {text}".encode())
    if tree.faults or not isinstance(tree.value, dict) or not isinstance(tree.value.get("k"), str):
        return
    assert isinstance(yaml.safe_load(f"k: {text}")["k"], str)


@both
def test_a_duplicate_never_replaces_the_first() -> None:
    """PyYAML keeps the last one, so that a later key smuggles: here neither the value nor its line changes."""
    tree = compose(b"spawn: false\nspawn: true\n")
    assert tree.value == {"spawn": False}
    assert tree.lines[("spawn",)] == 1
    assert yaml.safe_load("spawn: false\nspawn: true\n") == {"spawn": True}  # the positive control


@both
def test_lines_of_values_and_sections() -> None:
    """A scalar has its own line, a section the line of its key; CRLF and a BOM change nothing."""
    text = "a:\n  b:\n    - x\n    - z\n  c:\n    d: 1\n"
    expected = {(): 1, ("a",): 1, ("a", "b"): 2, ("a", "b", 0): 3, ("a", "b", 1): 4, ("a", "c"): 5, ("a", "c", "d"): 6}
    for data in (text.encode(), text.replace("\n", "\r\n").encode(), b"\xef\xbb\xbf" + text.encode()):
        tree = compose(data)
        assert tree.faults == []
        assert tree.lines == expected
        assert tree.value == {"a": {"b": ["x", "z"], "c": {"d": 1}}}


def test_paths_are_one_line_whatever_the_keys_are() -> None:
    """A key cannot write lines of its own into a report."""
    assert render(("sandbox", "network", "allow", 0)) == "$.sandbox.network.allow[0]"
    assert render(("a b", "\n\u202e", "x" * 300)).isprintable()
    assert len(render(("x" * 300,))) < 80


YAMLISH = st.lists(
    st.sampled_from(
        [*"abk:-?[]{},&*!|>'\"%@`# \n\t\0~=<1.", "a: ", "- ", "\n  ", "---\n", "...\n", "<<: ", "&a ", "*a "]
    )
    | st.text(max_size=3),
    max_size=40,
).map("".join)


@both
@settings(max_examples=300, deadline=None)
@given(st.one_of(st.binary(max_size=200), YAMLISH.map(lambda text: text.encode("utf-8", "surrogatepass"))))
def test_any_bytes_give_a_value_or_faults(data: bytes) -> None:
    """Nothing raises; faults are single printable lines with a path and a line of the file."""
    tree = compose(data)
    assert tree.faults or tree.value is not None
    for fault in tree.faults:
        assert fault.path.startswith("$")
        assert fault.path.isprintable()
        assert fault.message.isascii()
        assert fault.message.isprintable()
        assert 1 <= fault.line <= data.count(b"\n") + data.count(b"\r") + 2
