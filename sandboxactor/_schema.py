"""The manifest's keys as classes, and what each leaf may be.

YAML's types are not enough (`64MiB` is text, a name has a grammar), so every leaf type has one function that takes the
plain value as `_yaml` gives it and returns what the policy needs, or says in a ValueError what to write instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, NewType

import attrs

from sandboxactor import _units as units
from sandboxactor._domains import NetworkEntry
from sandboxactor._policy import FrozenMap, parse_secret
from sandboxactor._units import quoted
from sandboxactor._yaml import Unclear

__all__ = ["LEAVES", "MODULE_SUFFIXES", "Document", "Filesystem", "module_text", "shown"]

MODULE_SUFFIXES = (".so", ".wasm", ".wat", ".actonpkg")

_NAME_MAX = 128  # it becomes part of a cgroup's name, and a file name has at most 255 bytes
_ACTION_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*(?:\.[A-Za-z][A-Za-z0-9_-]*)*")

ActionName = NewType("ActionName", str)
ModuleText = NewType("ModuleText", str)
PathText = NewType("PathText", str)
Secret = NewType("Secret", str)
Scope = NewType("Scope", str)
Enabled = NewType("Enabled", bool)
Memory = NewType("Memory", int)
Size = NewType("Size", int)
Disk = NewType("Disk", int)
Count = NewType("Count", int)
Cpu = NewType("Cpu", int)
Time = NewType("Time", float)
Semantic = NewType("Semantic", FrozenMap)  # type: ignore[type-arg]


@attrs.frozen
class Action:
    name: ActionName


@attrs.frozen
class Runtime:
    module: ModuleText


@attrs.frozen
class Self:
    read: bool = True
    execute: bool = True


@attrs.frozen
class Tree:
    write: bool = False
    max: Disk | None = None


@attrs.frozen
class Workspace:
    write: bool = False
    path: PathText | None = None


@attrs.frozen
class Filesystem:
    own: Self = Self()
    tmp: Tree = Tree()
    state: Tree = Tree()
    workspace: Workspace = Workspace()
    read: tuple[PathText, ...] = ()


@attrs.frozen
class Process:
    spawn: bool = False
    max: Count | None = None


@attrs.frozen
class Network:
    allow: tuple[NetworkEntry, ...] = ()


@attrs.frozen
class MemorySection:
    max: Memory | None = None


@attrs.frozen
class CpuSection:
    max: Cpu | None = None


@attrs.frozen
class OutputSection:
    max: Size | None = None


@attrs.frozen
class Sandbox:
    enabled: Enabled
    scope: Scope = Scope("action")
    filesystem: Filesystem = Filesystem()
    process: Process = Process()
    network: Network = Network()
    memory: MemorySection = MemorySection()
    cpu: CpuSection = CpuSection()
    timeout: Time | None = None
    output: OutputSection = OutputSection()


@attrs.frozen
class Permissions:
    net_outbound: tuple[NetworkEntry, ...] = ()
    secrets: tuple[Secret, ...] = ()


@attrs.frozen
class Document:
    """A whole manifest; what is None was left out."""

    action: Action
    runtime: Runtime
    sandbox: Sandbox
    permissions: Permissions = Permissions()
    input: Semantic | None = None
    output: Semantic | None = None


def module_text(value: object) -> str:
    """A relative path with a known suffix; ValueError otherwise. No file is touched."""
    text = _path(value)
    if text.startswith("/"):
        raise ValueError(f"{quoted(text)} is absolute: write a path relative to the manifest, such as ./module.so")
    if not text.endswith(MODULE_SUFFIXES):
        raise ValueError(f"{quoted(text)} has an unknown suffix: write one of {', '.join(MODULE_SUFFIXES)}, lower case")
    return text


def shown(value: object) -> str:
    """The value as a message may show it, in YAML's words."""
    if isinstance(value, Unclear):
        return quoted(value.text)
    names = {dict: "a mapping", list: "a list", bool: str(value).lower()}
    return names.get(type(value)) or quoted(value)


def _text(value: object) -> str:
    if isinstance(value, (Unclear, bool, int, Decimal)):
        raise ValueError(f"{shown(value)} is not plainly text, YAML may read it as another type: quote it if it is")
    if not isinstance(value, str):
        raise ValueError(f"{shown(value)} where text is wanted")
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{shown(value)} is no bool: write true or false")
    return value


def _enabled(value: object) -> bool:
    if not _flag(value):
        raise ValueError("false: a manifest cannot switch its own sandbox off, write true")
    return True


def _scope(value: object) -> str:
    if _text(value) != "action":
        raise ValueError(f"{shown(value)} is no scope: the one scope is action")
    return "action"


def _action_name(value: object) -> str:
    text = _text(value)
    if len(text) > _NAME_MAX:
        raise ValueError(f"{quoted(text)} has {len(text)} characters: at most {_NAME_MAX}")
    if not _ACTION_NAME.fullmatch(text):
        raise ValueError(
            f"{quoted(text)} is no name: write dotted parts of [A-Za-z][A-Za-z0-9_-]*, as Payment.CreatePix"
        )
    return text


def _path(value: object) -> str:
    text = _text(value)
    if not text:
        raise ValueError("'' is empty: write a path")
    if text.startswith("~"):
        raise ValueError(f"{quoted(text)}: '~' is not expanded, write the directory out")
    return text


def _time(value: object) -> float:
    if not isinstance(value, (str, Unclear)):  # seconds as a bare number are for Python only
        raise ValueError(f"{shown(value)} is no time: write it with its unit, as 250ms, 60s or 5m")
    return units.parse_time(_plain(value))


def _semantic(value: object) -> object:
    """A semantic type, as it stands and frozen; `_semantics` gives it its meaning."""
    if not isinstance(value, dict):
        raise ValueError(f"{shown(value)} where a mapping (a semantic type) is wanted")
    return _frozen(value)


def _frozen(value: object) -> object:
    if isinstance(value, dict):
        return FrozenMap({key: _frozen(item) for key, item in value.items()})
    if isinstance(value, list):
        return tuple(_frozen(item) for item in value)
    return value


def _plain(value: object) -> object:
    """For units, whose grammar refuses by itself every text that is `Unclear`."""
    if isinstance(value, (dict, list, bool)):
        raise ValueError(f"{shown(value)} where one value with its unit is wanted")
    return value.text if isinstance(value, Unclear) else value


# The leaf types and the one way to read each.
LEAVES: dict[Any, Callable[[object], object]] = {
    bool: _flag,
    Enabled: _enabled,
    Scope: _scope,
    ActionName: _action_name,
    ModuleText: module_text,
    PathText: _path,
    Secret: lambda value: parse_secret(_text(value)),
    NetworkEntry: lambda value: NetworkEntry.parse(_text(value)),
    Memory: lambda value: units.parse_memory(_plain(value)),
    Size: lambda value: units.parse_size(_plain(value)),
    Disk: lambda value: units.parse_disk(_plain(value)),
    Cpu: lambda value: units.parse_cpu(_plain(value)),
    Count: lambda value: units.parse_count(_plain(value)),
    Time: _time,
    Semantic: _semantic,
}
