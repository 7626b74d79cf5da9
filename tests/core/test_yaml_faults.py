"""The strict YAML reader: what two readers could read differently is a fault, with its path and line."""

from __future__ import annotations

import time

import pytest

from core.yaml_kit import PARSERS, check, faults, use_parser
from sandboxactor._yaml import BYTES_MAX, Unclear, compose


@pytest.fixture(params=PARSERS)
def _loader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    use_parser(request.param, monkeypatch)


both = pytest.mark.usefixtures("_loader")


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
