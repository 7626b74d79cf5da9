"""Network entries: what is a name, what only looks like one, and what a wildcard may stand over."""

# Tables stand in rows of one kind (RUF005); a fuzzed call may pass or raise, and both are checked (PT017).
# ruff: noqa: RUF005, PT017

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sandboxactor
from sandboxactor import _domains
from sandboxactor._domains import NetworkEntry, is_public_suffix

parse = NetworkEntry.parse
LONGEST = ".".join(["a" * 62] * 3 + ["b" * 60, "ccc"])  # 253 characters


@pytest.mark.parametrize(
    ("text", "entry", "shown"),
    [
        ("api.bank.com", NetworkEntry("api.bank.com"), "api.bank.com"),
        ("API.Bank.COM", NetworkEntry("api.bank.com"), "api.bank.com"),
        ("api.bank.com:443", NetworkEntry("api.bank.com", 443), "api.bank.com"),
        ("api.bank.com:80", NetworkEntry("api.bank.com", 80), "api.bank.com:80"),
        ("api.bank.com:65535", NetworkEntry("api.bank.com", 65535), "api.bank.com:65535"),
        ("*.bank.com", NetworkEntry("bank.com", 443, True), "*.bank.com"),
        ("*.Bank.com:8443", NetworkEntry("bank.com", 8443, True), "*.bank.com:8443"),
        ("xn--bcher-kva.example", NetworkEntry("xn--bcher-kva.example"), "xn--bcher-kva.example"),
        ("r3---sn-a.video.example", NetworkEntry("r3---sn-a.video.example"), "r3---sn-a.video.example"),
        ("1.2.3.com", NetworkEntry("1.2.3.com"), "1.2.3.com"),
        ("3com.com", NetworkEntry("3com.com"), "3com.com"),
        ("a" * 63 + ".com", NetworkEntry("a" * 63 + ".com"), "a" * 63 + ".com"),
        (LONGEST, NetworkEntry(LONGEST), LONGEST),
    ],
)
def test_entries_are_normalised(text: str, entry: NetworkEntry, shown: str) -> None:
    """The four forms, in lower case; 443 is the port that is not written."""
    assert parse(text) == entry
    assert str(parse(text)) == shown
    assert parse(shown) == entry


REFUSED: dict[str, list[Any]] = {
    "IP literal": [
        "127.0.0.1",
        "127.1",
        "0x7f.1",
        "0177.0.0.1",
        "1.2.3.4.5",
        "0x7f000001",
        "2130706433",
        "a.0x",
        "a.b.1",
    ]
    + ["::1", "::ffff:127.0.0.1", "[::1]", "[::1]:443", "fe80::1", "127.0.0.1:80", "0x7F.0.0.0X1", "169.254.169.254"]
    + ["*.0.0.1", "*.127"],
    "single label": ["com", "bank", "intranet", "bank:443", "a"],
    "localhost": ["localhost", "LOCALHOST:80", "db.localhost", "*.localhost", "*.db.localhost"],
    "scheme": ["https://api.bank.com", "http://a.b", "://a.b"],
    "userinfo": ["user@api.bank.com", "api.bank.com@evil.example", "a:b@c.de"],
    "path": ["api.bank.com/", "api.bank.com/pix", "a.b/24x"],
    "CIDR": ["10.0.0.0/8", "::/0", "fc00::/7"],
    "list or has a space": ["a.com,b.com", "a.com b.com", "a.com;b.com", " a.com", "a.com ", "a.com|b.com"],
    "empty label": ["a..com", ".bank.com", "*..com", ".", "*."],
    "trailing dot": ["bank.com.", "a.bank.com.:443", "*.bank.com."],
    "not ASCII": [
        "\u0430pi.bank.com",
        "b\u00fccher.example",
        "api.bank.com\u200b",
        "\uff11\uff12\uff17.0.0.1",
        "api\u3002bank.com",
    ]
    + ["ap\u0131.bank.com", "\u00adapi.bank.com", "\u212aelvin.com", "api.ban\u017f.com"],
    "control character": [
        "api.bank.com\0",
        "api.bank.com\0.evil.example",
        "api.bank.com\n",
        "api\t.bank.com",
        "a\x7f.com",
    ],
    "port": ["a.com:0", "a.com:65536", "a.com:99999", "a.com:", "a.com:080", "a.com:http", "a.com:8*"],
    "wildcard elsewhere": ["api.*.com", "*bank.com", "a*.bank.com", "*.*.bank.com", "*", "**.bank.com", "bank.*"],
    "bad label": ["-a.com", "a-.com", "a.-.com", "a" * 64 + ".com", "*.-a.com"],
    "characters of a name": [LONGEST + "c", ".".join(["a" * 60] * 5), "*." + ".".join(["a" * 62] * 3 + ["a" * 63])],
    "no host name has": [
        "a_b.com",
        "api.bank.com#x",
        "api.bank.com?x",
        "api\\.bank.com",
        "%61pi.bank.com",
        "a.com!",
        "a.com:+80",
        "~.com",
    ],
    "empty": [""],
    "write a quoted host name": [None, 5, 90, True, b"a.com", ["a.com"]],
}


@pytest.mark.parametrize(("why", "text"), [(why, text) for why, texts in REFUSED.items() for text in texts])
def test_everything_else_is_refused_for_its_reason(why: str, text: object) -> None:
    """An address in any spelling, a URL, a list, a bare label: each error says which it is."""
    with pytest.raises(ValueError, match=re.escape(why)):
        parse(text)


SUFFIXES = [
    *[
        "com",
        "uk",
        "co.uk",
        "COM",
        "zz-unlisted",
        "ck",
        "foo.ck",
        "kobe.jp",
        "c.kobe.jp",
        "tokyo.jp",
        "chiyoda.tokyo.jp",
    ],
    *["github.io", "s3.amazonaws.com", "blogspot.com", "nom.br", "x.nom.br", "eu-west-1.compute.amazonaws.com"],
    *["xn--p1ai", "xn--55qx5d.cn", "compute.amazonaws.com", "dyndns.org"],
]
LISTED = Path(_domains.__file__).parent / "data" / "public_suffix_list.dat"
IN_LIST = {line.split()[0] for line in LISTED.read_text(encoding="utf-8").splitlines() if line and line[:2] != "//"}


@pytest.mark.parametrize("host", [s for s in SUFFIXES if s != "blogspot.com" or s in IN_LIST])
def test_no_wildcard_over_a_public_suffix(host: str) -> None:
    """ICANN and private section, `*.ck` rules and their parents, the default rule, A-labels; with a port too."""
    for text in (f"*.{host}", f"*.{host}:8443"):
        with pytest.raises(ValueError, match="public suffix"):
            parse(text)


@pytest.mark.parametrize(
    "host",
    ["bank.com", "bank.co.uk", "www.ck", "city.kobe.jp", "me.github.io", "a.foo.ck", "a.c.kobe.jp", "corp.internal"],
)
def test_wildcards_below_a_public_suffix(host: str) -> None:
    """A registrable name may be starred, exceptions (`!www.ck`) included; and a suffix may be named without a star."""
    assert parse(f"*.{host}").wildcard
    assert not is_public_suffix(host)
    assert parse("github.io").host == "github.io"


def test_the_list_is_whole_and_both_sections_are_read() -> None:
    """A truncated list, or one section alone, would let a wildcard stand over strangers."""
    text = LISTED.read_text(encoding="utf-8")
    assert text.count("===BEGIN ICANN DOMAINS===") == text.count("===END PRIVATE DOMAINS===") == 1
    exact, parents, exceptions = _domains._suffixes()
    assert len(exact) > 8000
    assert {"ck", "kobe.jp"} <= parents
    assert {"www.ck", "city.kobe.jp"} <= exceptions
    assert all(name.isascii() and "*" not in name and "!" not in name for name in exact | parents | exceptions)
    assert "MPL" in text[:400] or "Mozilla Public" in text[:400]
    assert "Mozilla Public License" in LISTED.with_suffix(".LICENSE").read_text()


def test_the_list_is_read_at_the_first_wildcard_only() -> None:
    """Import and plain names must not pay for 330 KB of rules."""
    _domains._suffixes.cache_clear()
    parse("api.bank.com:80")
    assert _domains._suffixes.cache_info().currsize == 0
    parse("*.bank.com")
    assert _domains._suffixes.cache_info().currsize == 1


@pytest.mark.parametrize(
    ("ceiling", "asked", "verdict"),
    [
        ("*.bank.com", "api.bank.com", True),
        ("*.bank.com", "a.b.c.bank.com", True),
        ("*.bank.com", "*.eu.bank.com", True),
        ("*.bank.com", "*.bank.com", True),
        ("*.bank.com", "bank.com", False),
        ("*.eu.bank.com", "*.bank.com", False),
        ("bank.com", "*.bank.com", False),
        ("bank.com", "api.bank.com", False),
        ("*.bank.com", "evilbank.com", False),
        ("*.bank.com", "api.bank.com.evil.example", False),
        ("api.bank.com", "API.bank.com:443", True),
        ("api.bank.com", "api.bank.com:80", False),
        ("*.bank.com", "api.bank.com:8443", False),
        ("*.bank.com:8443", "api.bank.com:8443", True),
        ("*.bank.com:8443", "api.bank.com", False),
    ],
)
def test_what_an_entry_covers(ceiling: str, asked: str, verdict: bool) -> None:
    """Names below, wildcards below, never the apex, never another port."""
    assert parse(ceiling).covers(parse(asked)) is verdict


names = st.lists(st.sampled_from(["a", "b", "eu", "x-1"]), min_size=1, max_size=3).map(
    lambda x: ".".join([*x, "bank.com"])
)
entries = st.builds(NetworkEntry, names, st.sampled_from([80, 443]), st.booleans())


@given(entries, entries, entries)
def test_covering_is_a_partial_order(a: NetworkEntry, b: NetworkEntry, c: NetworkEntry) -> None:
    """Reflexive, transitive, antisymmetric: otherwise grants of grants could grow."""
    assert a.covers(a)
    assert not (a.covers(b) and b.covers(c)) or a.covers(c)
    assert not (a.covers(b) and b.covers(a)) or a == b


@given(entries)
def test_entries_are_values(entry: NetworkEntry) -> None:
    """Frozen, hashable, picklable, and equal to what their own text parses to."""
    assert parse(str(entry)) == entry == pickle.loads(pickle.dumps(entry))
    assert hash(parse(str(entry))) == hash(entry)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        entry.host = "evil.example"  # type: ignore[misc]


@given(st.one_of(st.text(), st.text(alphabet="ab.*:-/@0x1[]\0\u0430 ,", max_size=20)))
def test_any_text_parses_to_a_plain_name_or_is_a_value_error(text: str) -> None:
    """No text raises anything else, and what passes is lower-case ASCII that reads back as itself."""
    try:
        entry = parse(text)
    except ValueError as error:
        assert str(error).isprintable()
        return
    assert re.fullmatch(r"[a-z0-9-]+(\.[a-z0-9-]+)*", entry.host)
    assert parse(str(entry)) == entry


def test_the_list_ships_in_the_package() -> None:
    """It lies where importlib.resources finds it."""
    assert LISTED.is_relative_to(Path(next(iter(sandboxactor.__path__))))
