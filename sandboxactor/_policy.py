"""What is agreed: frozen data that says what must hold, in bytes, thousandths of a core and seconds.

Every value is parsed when a policy is made and whenever `attrs.evolve` remakes it, and no file is touched: a policy is
made on one machine or thread and used on another, so it must not depend on what a path names at the moment.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import attrs

from sandboxactor import _units as units
from sandboxactor._domains import NetworkEntry
from sandboxactor._units import MIB, Millicores, quoted
from sandboxactor.errors import InvalidPolicy
from sandboxactor.spi import Guard

__all__ = [
    "FrozenMap",
    "Policy",
    "Terms",
    "nearest",
    "parse_secret",
    "parse_tmp",
    "name_converters",
    "parse_flag",
    "parse_items",
    "parse_path",
    "strict_keywords",
]

T = TypeVar("T")
V_co = TypeVar("V_co", covariant=True)

_SECRET = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_ALWAYS = frozenset(
    {
        Guard.FILES_SCOPED,
        Guard.MEMORY_MAX,
        Guard.CPU_MAX,
        Guard.PROCESSES_MAX,
        Guard.WALL_TIME,
        Guard.OUTPUT_MAX,
        Guard.IDENTITY,
        Guard.NO_NEW_PRIVS,
    }
)


class FrozenMap(Mapping[str, V_co]):
    """A mapping that cannot change, hashable by value where its values are."""

    __slots__ = ("_items",)
    _items: dict[str, V_co]

    def __init__(self, items: Mapping[str, V_co] | Iterable[tuple[str, V_co]] = ()) -> None:
        object.__setattr__(self, "_items", dict(sorted(dict(items).items())))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a FrozenMap cannot change")

    def __getitem__(self, key: str) -> V_co:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(frozenset(self._items.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self._items),)

    def __repr__(self) -> str:
        return repr(self._items)


def nearest(word: str, known: Iterable[str]) -> str:
    """`did you mean 'network'?`, or the known words where none is near."""
    from difflib import get_close_matches

    words = sorted(known)
    close = get_close_matches(word[:64], words, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known are {', '.join(words)}"


def parse_items(value: object) -> tuple[object, ...]:
    """A list as a tuple; a str, bytes, path or mapping is one value, never a list of its letters or keys."""
    if isinstance(value, (str, bytes, bytearray, memoryview, Mapping, os.PathLike)) or not isinstance(value, Iterable):
        raise ValueError(f"{quoted(value)} is one value where a list is wanted: write it in [brackets]")
    return tuple(value)


def parse_flag(value: object) -> bool:
    """True or False, nothing that is merely true."""
    if not isinstance(value, bool):
        raise ValueError(f"{quoted(value)} is no bool: write True or False")
    return value


def parse_text(value: object) -> str:
    """A str that an exec or an open can take: no NUL, and encodable."""
    if not isinstance(value, str):
        raise ValueError(f"{quoted(value)} is no str")
    if "\0" in value:
        raise ValueError(f"{quoted(value)} holds NUL")
    try:
        os.fsencode(value)
    except UnicodeEncodeError:
        raise ValueError(f"{quoted(value)} cannot be encoded for the file system") from None
    return value


def parse_path(value: object) -> str:
    """An absolute path without `.`, `..` and doubled slashes, against the working directory of this moment."""
    text = parse_text(os.fspath(value) if isinstance(value, os.PathLike) else value)
    if not text:
        raise ValueError("'' is empty: write a path")
    if text.startswith("~"):
        raise ValueError(f"{quoted(text)}: '~' is not expanded, write the directory out")
    try:
        return "/" + os.path.abspath(text).lstrip("/")  # POSIX lets a leading '//' mean something else
    except OSError as error:
        raise ValueError(f"{quoted(text)} is relative and the working directory is gone: {error.strerror}") from None


def parse_secret(value: object) -> str:
    """A secret's name: at most 128 of letters, digits, `_`, `.` and `-`."""
    if not isinstance(value, str) or not _SECRET.fullmatch(value):
        raise ValueError(f"{quoted(value)} is no secret's name: write letters, digits, '_', '.', '-', such as API_KEY")
    return value


def parse_tmp(value: object) -> int | None:
    """Bytes of a private /tmp, or None for no /tmp."""
    return None if value is None else units.parse_disk(value)


def _workspace(value: object) -> str | None:
    return None if value is None else parse_path(value)


# Order has no meaning in these, so that they are sorted and policies are equal by value.
def _read(value: object) -> tuple[str, ...]:
    return tuple(sorted({parse_path(item) for item in parse_items(value)}))


def _network(value: object) -> tuple[NetworkEntry, ...]:
    return tuple(sorted({NetworkEntry.parse(item) for item in parse_items(value)}))


def _secrets(value: object) -> tuple[str, ...]:
    return tuple(sorted({parse_secret(item) for item in parse_items(value)}))


def _env(value: object) -> FrozenMap[str]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{quoted(value)} is no mapping: write {{'NAME': 'value'}}")
    for name in value:
        if not parse_text(name) or "=" in name:
            raise ValueError(f"{quoted(name)} is no variable's name: not empty, without '='")
    return FrozenMap({name: parse_text(text) for name, text in value.items()})


def name_converters(cls: type, fields: list[attrs.Attribute[Any]]) -> list[attrs.Attribute[Any]]:
    """An attrs `field_transformer`: what a converter refuses is an InvalidPolicy that begins with the field's name."""
    return [f.evolve(converter=_named(f.name, f.converter)) if f.converter else f for f in fields]


def _named(field: str, parse: Any) -> Callable[[object], Any]:
    """The converter with its field's name before what it says; already named ones pass (they are inherited)."""

    @functools.wraps(parse)
    def convert(value: object) -> Any:
        try:
            return parse(value)
        except InvalidPolicy:
            raise
        except ValueError as error:
            raise InvalidPolicy(f"{field}: {error}") from None

    return convert


def strict_keywords(cls: type[T]) -> type[T]:
    """Class decorator: an unknown keyword is an InvalidPolicy that names the nearest right one."""
    made = cls.__init__
    known = [f.name for f in attrs.fields(cls)]  # type: ignore[arg-type]

    @functools.wraps(made)
    def init(self: T, *args: object, **keywords: object) -> None:
        for name in keywords:
            if name not in known:
                raise InvalidPolicy(f"{cls.__name__}: unknown keyword {quoted(name)}: {nearest(name, known)}")
        made(self, *args, **keywords)

    cls.__init__ = init  # type: ignore[assignment]
    return cls


@attrs.frozen(kw_only=True, field_transformer=name_converters)
class Terms:
    """The fields that a `Policy` agrees and a `HostPolicy` bounds: sizes in bytes, times in seconds."""

    memory: int = attrs.field(default=512 * MIB, converter=units.parse_memory)
    cpu: Millicores = attrs.field(default=Millicores(500), converter=units.parse_cpu)
    processes: int = attrs.field(default=30, converter=units.parse_count)
    timeout: float = attrs.field(default=60.0, converter=units.parse_time)
    output: int = attrs.field(default=8 * MIB, converter=units.parse_size)
    input: int = attrs.field(default=64 * MIB, converter=units.parse_size)
    tmp: int | None = attrs.field(default=None, converter=parse_tmp)
    spawn: bool = attrs.field(default=False, converter=parse_flag)
    read: tuple[str, ...] = attrs.field(default=(), converter=_read)
    workspace: str | None = attrs.field(default=None, converter=_workspace)
    state: bool = attrs.field(default=False, converter=parse_flag)
    state_max: int = attrs.field(default=64 * MIB, converter=units.parse_disk)
    network: tuple[NetworkEntry, ...] = attrs.field(default=(), converter=_network)
    secrets: tuple[str, ...] = attrs.field(default=(), converter=_secrets)
    env: FrozenMap[str] = attrs.field(factory=FrozenMap, converter=_env)


@strict_keywords
@attrs.frozen(kw_only=True, field_transformer=name_converters)
class Policy(Terms):
    """What a sandbox holds a module to. Frozen, hashable, picklable, equal by value; `attrs.evolve` validates again.

    `memory`, `output`, `input`, `tmp`, `state_max`: bytes, from `64MiB` or an int. `cpu`: thousandths of a core, from
    `500m` or cores such as `0.5`. `timeout`: seconds, from `60s` or a number. `processes`: an int. `read`, `workspace`:
    paths, made absolute now. `network`: entries such as `*.bank.com` or `api.bank.com:8443`. Errors are InvalidPolicy.
    """

    @classmethod
    def strict(cls, **wider: Any) -> Policy:
        """The smallest policy: the module's own folder and the system's libraries, and what the keywords widen."""
        return cls(**wider)

    @classmethod
    def for_commands(cls, workspace: str | os.PathLike[str], **wider: Any) -> Policy:
        """A policy for commands: one writable workspace, a private /tmp of 256 MiB, and processes of its own."""
        return cls(**{"tmp": 256 * MIB, "spawn": True, "workspace": workspace, **wider})

    @property
    def guards(self) -> frozenset[Guard]:
        """The properties that must hold while a module runs under this policy."""
        chosen = {
            Guard.FILES_HIDDEN if self.spawn else Guard.NO_SPAWN,
            Guard.NETWORK_DOMAINS if self.network else Guard.NETWORK_OFF,
        }
        return _ALWAYS | chosen
