"""The strict YAML reader: what two readers could read differently is a fault, with its path and line."""

# Tables stand in rows of one kind (RUF005).
# ruff: noqa: RUF005

from __future__ import annotations

import time
from decimal import Decimal

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from sandboxactor import _yaml
from sandboxactor._yaml import BYTES_MAX, Unclear, compose, render


@pytest.fixture(params=["libyaml", "pure"])
def _loader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both parsers of PyYAML, since not every wheel has the C one."""
    if request.param == "pure":
        monkeypatch.setattr(_yaml, "_LOADER", yaml.SafeLoader)
    elif not hasattr(yaml, "CSafeLoader"):
        pytest.skip("PyYAML without libyaml")


both = pytest.mark.usefixtures("_loader")


def value(text: str) -> object:
    tree = compose(f"k: {text}".encode())
    assert tree.faults == []
    assert isinstance(tree.value, dict)
    return tree.value["k"]


def faults(text: str | bytes) -> list[tuple[str, int, str]]:
    data = text.encode() if isinstance(text, str) else text
    return [(fault.path, fault.line, fault.message) for fault in compose(data).faults]


def check(text: str | bytes, path: str, line: int, word: str) -> None:
    """One of the faults stands at this path and line and says this."""
    found = faults(text)
    assert any(f[:2] == (path, line) and word in f[2] for f in found), found


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
@pytest.mark.parametrize("null", ["~", "null", "Null", "NULL", ""])
def test_null_is_no_value(null: str) -> None:
    """None would mean "default" to one and "nothing" to another."""
    check(f"a: 1\nk: {null}\n", "$.k", 2, "null is no value")
    check(f"l:\n- {null}\n", "$.l[0]", 2, "null is no value")


@both
@pytest.mark.parametrize(
    ("text", "path", "line", "word"),
    [
        ("a: 1\nb: 2\na: 3\n", "$.a", 3, "duplicate key, first on line 1"),
        ("a: 1\n'a': 3\n", "$.a", 2, "duplicate"),
        ("x: {b: {c: 1,\n c: 2}}\n", "$.x.b.c", 2, "duplicate"),
        ("a: &x 1\n", "$.a", 1, "anchor"),
        ("a: &x {b: 1}\nc: *x\n", "$.c", 2, "alias"),
        ("a:\n  <<: {b: 1}\n", "$.a.<<", 2, "merge key"),
        ("a: !!str 1\n", "$.a", 1, "tag"),
        ("a: ! 1\n", "$.a", 1, "tag"),
        ("a: !!python/object/apply:os.system [id]\n", "$.a", 1, "tag"),
        ("a: !!map {}\n", "$.a", 1, "tag"),
        ("!!str a: 1\n", "$.a", 1, "tag"),
        ("&k a: 1\n", "$.a", 1, "anchor"),
        ("%YAML 1.1\n---\na: 1\n", "$", 1, "directive"),
        ("a: 1\n---\nb: 2\n", "$", 2, "second document"),
        ("a: 1\n...\n---\n", "$", 3, "second document"),
        ("? [a]\n: 1\n", "$", 1, "as a key"),
        ("? {a: 1}\n: 1\n", "$", 1, "as a key"),
        ("1: a\n", "$['1']", 1, "quote it"),
        ("on: a\n", "$.on", 1, "quote it"),
        ("true: a\n", "$.true", 1, "quote it"),
        ("~: a\n", "$['~']", 1, "quote it"),
        ("? \n: a\n", "$['']", 1, "quote it"),
        ('a: "x\\0y"\n', "$.a", 1, "NUL"),
        ('a: "x\\ey"\n', "$.a", 1, "control character"),
        ('a: "\\x85"\n', "$.a", 1, "control character"),
        ('"a\\0": 1\n', "$['a\\x00']", 1, "control character"),
        ("a:\n\tb: 1\n", "$", 2, "tab"),
        ("a: 1\t# c\n", "$", 1, "tab"),
        ("a: \x01\n", "$", 1, "control character"),
        ("a: 1\n# \x00\n", "$", 2, "control character"),
        ("a: \u202egpj\n", "$", 1, "control character"),
        ("a: 1\n# \u2028b: 2\n", "$", 2, "control character"),
        ("a: \ufeff\n", "$", 1, "control character"),
        (b"a: 1\nb: \xff\n", "$", 2, "UTF-8"),
        ("a: 1".encode("utf-16"), "$", 1, "UTF-8"),
        (b"a: \xed\xa0\x80\n", "$", 1, "UTF-8"),
        (b"", "$", 1, "empty"),
        (b"# only a comment\n", "$", 1, "empty"),
        ("a: [1\nb: 2\n", "$", 2, "YAML syntax"),
        ('a: "open\n', "$", 2, "YAML syntax"),
        ('a: "\\ud800"\n', "$", 1, "YAML syntax"),
        ("a: b: c\n", "$", 1, "YAML syntax"),
    ],
)
def test_what_is_refused(text: str | bytes, path: str, line: int, word: str, request: pytest.FixtureRequest) -> None:
    """Duplicates, anchors, aliases, merges, tags, directives, second documents, odd keys, control characters."""
    if text == 'a: "\\ud800"\n' and "pure" in request.node.name:
        path, word = "$.a", "control character"  # libyaml refuses the escape, the pure scanner lets it make a surrogate
    check(text, path, line, word)


@both
def test_an_escape_out_of_range_is_a_fault() -> None:
    """The pure scanner's chr() raises ValueError, which must not reach the host."""
    check('a: "\\UFFFFFFFF"\n', "$", 1, "YAML syntax")


@both
def test_all_faults_at_once_each_with_its_line() -> None:
    """A reader of the report mends the file in one go."""
    text = "a: ~\nb: &x 1\nc: !t 2\nd: 1\nd: [~]\ne: *x\n"
    assert [(path, line) for path, line, _ in faults(text)] == [
        ("$.a", 1),
        ("$.b", 2),
        ("$.c", 3),
        ("$.d", 5),
        ("$.d[0]", 5),
        ("$.e", 6),
    ]


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


def nested(depth: int, brackets: tuple[str, str] = ("[", "]")) -> str:
    return "k: " + brackets[0] * (depth - 1) + brackets[1] * (depth - 1)


@both
def test_depth_is_bounded() -> None:
    """Sixteen levels are read, a seventeenth is a fault, and thousands are no RecursionError."""
    assert faults(nested(16)) == []
    check(nested(17), "$.k" + "[0]" * 15, 1, "deeper than 16")
    for text in ("k: " + "[" * 3000, "k: " + "{a: " * 3000, "- " * 3000, "? " * 3000):
        found = faults(text)
        assert any("deeper than 16" in message for _, _, message in found), found


@both
def test_size_is_bounded() -> None:
    """64 KiB are read, one byte more is a fault without being parsed."""
    body = b"k: v\n#"
    assert faults(body + b"x" * (BYTES_MAX - len(body))) == []
    check(body + b"x" * (BYTES_MAX - len(body) + 1), "$", 1, "64 KiB")


@pytest.mark.parametrize(
    "data",
    [
        b"[" * BYTES_MAX,
        b"{" * BYTES_MAX,
        b"{a: " * (BYTES_MAX // 4),
        b"- " * (BYTES_MAX // 2),
        b"? " * (BYTES_MAX // 2),
        b"a: &a [*a,*a]\n" * (BYTES_MAX // 14),
        b"a: 1\n" * (BYTES_MAX // 5),
        b"&" + b"a" * (BYTES_MAX - 1),
        b"k: " + b"9" * (BYTES_MAX - 3),
        b"k: " + b"1:" * (BYTES_MAX // 2 - 2) + b"1",
        b"k: " + b"1_" * (BYTES_MAX // 2 - 2) + b"x",
        b"\t\n" * (BYTES_MAX // 2),
        b"'" * (BYTES_MAX - 1),
        b"k: " + b"[a, " * (BYTES_MAX // 4 - 1),
        b"".join(b"k%d: ~\n" % n for n in range(6500)),
    ],
    ids=lambda data: ascii(data[:12]),
)
def test_hostile_documents_take_bounded_time(data: bytes) -> None:
    """64 KiB of the worst are read in seconds on a slow machine, and each is a fault."""
    start = time.monotonic()
    tree = compose(data[:BYTES_MAX])
    assert time.monotonic() - start < 5
    assert tree.faults or isinstance(tree.value, dict)
    assert tree.faults or isinstance(tree.value["k"], (Unclear, str))  # type: ignore[index]


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
