"""Network entries: which names a sandbox may reach.

An entry is compared with what a name resolver, a proxy and a TLS library make of a name, and these disagree about
everything but lower-case ASCII letters, digits, hyphens and dots. So nothing else passes, and no spelling of an address
does: the WHATWG URL rule that a name whose last label is a number is an IPv4 address catches the short, octal and
hexadecimal forms (https://url.spec.whatwg.org/#ends-in-a-number-checker).
"""

from __future__ import annotations

import functools
import re

import attrs

from sandboxactor._units import quoted

__all__ = ["HTTPS_PORT", "NetworkEntry", "is_public_suffix"]

HTTPS_PORT = 443
_NAME_MAX = 253  # RFC 1035 2.3.4: 255 octets on the wire
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_PORT = re.compile(r"[1-9][0-9]{0,4}")
_ALLOWED = re.compile(r"[A-Za-z0-9.*:-]*")

# What a forbidden part is, and so what to write instead; the first that fits is named.
_FORBIDDEN: tuple[tuple[str, str], ...] = (
    (r"[\x00-\x1f\x7f]", "holds a NUL or another control character"),
    (r"[^\x00-\x7f]", "is not ASCII: write an international name in its A-label form, such as xn--bcher-kva.example"),
    (r"://", "has a scheme: write the host alone, such as api.bank.com"),
    (r"@", "has userinfo: write the host alone, such as api.bank.com"),
    (r"[,; |]", "is a list or has a space: write one entry for each host"),
    (r"^[0-9A-Fa-f.:\[\]]*/[0-9]+$", "is a CIDR network: only HostPolicy(networks=...) takes those; write a host name"),
    (r"/", "has a path: write the host alone, such as api.bank.com"),
    (r"[\[\]]|:.*:", "is an IP literal or has two ports: write a host name, such as api.bank.com:8443"),
)


@attrs.frozen(order=True)
class NetworkEntry:
    """One entry: a lower-case host, a port, and whether it stands for the names below the host instead of the host.

    Make one with `parse`. Port 443 is TLS and is not written; port 80 is clear-text HTTP.
    """

    host: str
    port: int = HTTPS_PORT
    wildcard: bool = False

    @classmethod
    def parse(cls, text: object) -> NetworkEntry:
        """`host`, `host:port`, `*.host` or `*.host:port`; ValueError says what else it is and what to write."""
        if isinstance(text, NetworkEntry):
            text = str(text)
        if not isinstance(text, str):
            raise ValueError(f"{quoted(text)} is no network entry: write a quoted host name, such as api.bank.com")
        _refuse_forbidden(text)
        name, colon, digits = text.partition(":")
        port = _port(text, digits) if colon else HTTPS_PORT
        name = name.lower()
        wildcard = name.startswith("*.")
        host = name[2:] if wildcard else name
        if "*" in host:
            raise ValueError(f"{quoted(text)} has a wildcard elsewhere than alone in front: write *.bank.com")
        _check_host(text, host, len(name))
        if wildcard:
            _check_wildcard(text, host)
        return cls(host, port, wildcard)

    def __str__(self) -> str:
        port = "" if self.port == HTTPS_PORT else f":{self.port}"
        return f"{'*.' if self.wildcard else ''}{self.host}{port}"

    def covers(self, other: NetworkEntry) -> bool:
        """Whether everything that `other` lets out this entry lets out too: `*.bank.com` covers `*.eu.bank.com`."""
        if self.port != other.port or (other.wildcard and not self.wildcard):
            return False
        if self.host == other.host:
            return self.wildcard == other.wildcard  # never the apex
        return self.wildcard and other.host.endswith("." + self.host)


def _refuse_forbidden(text: str) -> None:
    if not text:
        raise ValueError("'' is empty: write a host name, such as api.bank.com")
    for pattern, what in _FORBIDDEN:
        if re.search(pattern, text):
            raise ValueError(f"{quoted(text)} {what}")
    if not _ALLOWED.fullmatch(text):
        raise ValueError(f"{quoted(text)} holds a character that no host name has: write letters, digits and hyphens")


def _port(text: str, digits: str) -> int:
    if not _PORT.fullmatch(digits) or int(digits) > 65535:
        raise ValueError(f"{quoted(text)} has a port out of range: write 1 to 65535, such as api.bank.com:8443")
    return int(digits)


def _check_host(text: str, host: str, length: int) -> None:
    labels = host.split(".")
    if labels[-1] == "" and len(labels) > 1 and host != ".":
        raise ValueError(f"{quoted(text)} has a trailing dot: write the name without it")
    if "" in labels:
        raise ValueError(f"{quoted(text)} has an empty label: write *.bank.com for the names below bank.com")
    if _NUMBER.fullmatch(labels[-1]):
        raise ValueError(f"{quoted(text)} is an IP literal: write a host name, or list it in HostPolicy(networks=...)")
    if length > _NAME_MAX:
        raise ValueError(f"{quoted(text)} is longer than the {_NAME_MAX} characters of a name")
    for label in labels:
        if not _LABEL.fullmatch(label):
            raise ValueError(f"{quoted(text)} has a bad label: 1 to 63 of a-z, 0-9 and '-', no hyphen at either end")
    if labels[-1] == "localhost":  # RFC 6761 6.3: all of it is loopback
        raise ValueError(f"{quoted(text)} is localhost: list 127.0.0.0/8 in HostPolicy(networks=...) and name a host")
    if len(labels) == 1 and not text.startswith("*."):
        raise ValueError(f"{quoted(text)} is a single label: write a full name, such as api.bank.com")


def _check_wildcard(text: str, host: str) -> None:
    """A wildcard over a public suffix, or over a name whose every child is one (`*.kawasaki.jp`), means strangers."""
    if is_public_suffix(host) or host in _suffixes()[1]:
        raise ValueError(f"{quoted(text)} stands over a public suffix, whose names belong to many: name one below it")


def is_public_suffix(host: str) -> bool:
    """Whether Mozilla's list, both sections, calls this lower-case A-label name a public suffix.

    An unlisted top-level label is one by the list's default rule (https://github.com/publicsuffix/list/wiki/Format).
    """
    exact, parents, exceptions = _suffixes()
    labels = host.split(".")
    if any(".".join(labels[i:]) in exceptions for i in range(len(labels))):
        return False
    return len(labels) == 1 or host in exact or ".".join(labels[1:]) in parents


@functools.cache
def _suffixes() -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """The list's plain rules, the parents of its `*.` rules, and its `!` exceptions; read at the first wildcard."""
    from importlib import resources

    text = (resources.files("sandboxactor") / "data" / "public_suffix_list.dat").read_text(encoding="utf-8")
    rules = [_a_label(line.split()[0]) for line in text.splitlines() if line.strip() and not line.startswith("//")]
    return (
        frozenset(rule for rule in rules if rule[0] not in "*!"),
        frozenset(rule[2:] for rule in rules if rule.startswith("*.")),
        frozenset(rule[1:] for rule in rules if rule.startswith("!")),
    )


def _a_label(rule: str) -> str:
    """The list is in normalised U-labels, so that Punycode alone gives the A-label."""
    if rule.isascii():
        return rule
    return ".".join(x if x.isascii() else "xn--" + x.encode("punycode").decode("ascii") for x in rule.split("."))
