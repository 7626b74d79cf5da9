"""A strict YAML reader: every value keeps its line, and what two readers could read differently is a fault.

`safe_load` keeps the last of duplicate keys, follows aliases and merge keys, and reads `no` as False, `1:30` as 90 and
`007` as 7; other readers do not. Here PyYAML gives the events alone. Plain scalars are typed as in YAML 1.2, narrower:
what any schema of YAML 1.1 or 1.2 takes for another type than text becomes `Unclear`, which no field accepts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import attrs
import yaml

from sandboxactor._units import quoted
from sandboxactor.errors import Fault

__all__ = ["BYTES_MAX", "DEPTH_MAX", "Path", "Tree", "Unclear", "compose", "render"]

BYTES_MAX = 64 * 1024
DEPTH_MAX = 16
Path = tuple[str | int, ...]

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,19}")
_DECIMAL = re.compile(r"-?(?:0|[1-9][0-9]{0,19})\.[0-9]{1,20}")
_NULL = re.compile(r"|~|null|Null|NULL")
_UNCLEAR = re.compile(  # https://yaml.org/type/ and YAML 1.2.2, 10.3.2
    r"""y|n|yes|no|on|off|true|false|=|<<|null
      | [-+]?0x[0-9a-f_]+ | [-+]?0o[0-7_]+ | [-+]?0b[01_]+
      | [-+]?[0-9][0-9_,]*(?:\.[0-9_]*)?(?:e[-+]?[0-9]+)?
      | [-+]?\.[0-9_]+(?:e[-+]?[0-9]+)? | [-+]?\.(?:inf|nan)
      | [-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?
      | [0-9]{4}-[0-9][0-9]?-[0-9][0-9]?(?:[Tt\s].*)?""",
    re.IGNORECASE | re.VERBOSE,
)
# Line separators beside \n would make two readers count lines differently; bidirectional marks hide what is written.
_BAD_IN_FILE = re.compile("[\x00-\x09\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ufeff\ufffe\uffff]")
_BAD_IN_VALUE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")  # what an escape can bring in
_PLAIN_KEY = re.compile(r"[A-Za-z_<][A-Za-z0-9_<-]{0,63}")


@attrs.frozen
class Unclear:
    """A plain scalar that some reader takes for another type than text."""

    text: str


@attrs.define
class Tree:
    """What was read: plain values (dict, list, str, int, bool, Decimal, Unclear, None), a line for every path, faults.

    A value that is a fault stands as None; `value` is None as well where nothing could be read.
    """

    value: object = None
    lines: dict[Path, int] = attrs.field(factory=dict)
    faults: list[Fault] = attrs.field(factory=list)

    def fault(self, path: Path, message: str, line: int | None = None) -> None:
        """Note a fault, at the line of the nearest path that is known unless another is given."""
        near = path
        while line is None and near and near not in self.lines:
            near = near[:-1]
        self.faults.append(Fault(render(path), self.lines.get(near, 1) if line is None else line, message))


class _Stop(Exception):
    """Reading cannot go on; the fault is noted."""


def compose(data: bytes) -> Tree:
    """Read one UTF-8 document of at most 64 KiB and depth 16; never raises. All faults at once; bad syntax stops."""
    tree = Tree()
    text = _decode(data, tree)
    if text is None:
        return tree
    events: Iterator[Any] = iter(yaml.parse(text, Loader=_LOADER))
    try:
        _document(events, tree)
    except _Stop:
        pass
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or "cannot be read"
        if "nesting" in problem:  # libyaml's look-ahead met its own bound before the event at ours
            problem = f"deeper than {DEPTH_MAX} levels"
        tree.fault((), f"YAML syntax: {ascii(problem)[1:-1]}", mark.line + 1 if mark else 1)
    except (ValueError, OverflowError) as error:  # the pure scanner's chr() of an escape out of range
        tree.fault((), f"YAML syntax: {quoted(str(error))}", 1)
    return tree


def render(path: Path) -> str:
    """`("sandbox", "network", "allow", 0)` as `$.sandbox.network.allow[0]`, one line whatever the keys are."""
    parts = []
    for part in path:
        if isinstance(part, int):
            parts.append(f"[{part}]")
        else:
            parts.append(f".{part}" if _PLAIN_KEY.fullmatch(part) else f"[{quoted(part)}]")
    return "$" + "".join(parts)


def _decode(data: bytes, tree: Tree) -> str | None:
    if len(data) > BYTES_MAX:
        tree.fault((), f"larger than {BYTES_MAX} bytes: a manifest has at most 64 KiB", 1)
        return None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        tree.fault((), "not UTF-8: save the file as UTF-8", data.count(b"\n", 0, error.start) + 1)
        return None
    for number, line in enumerate(text.split("\n"), 1):
        if match := _BAD_IN_FILE.search(line):
            tab = match[0] == "\t"
            what = "a tab: indent and separate with spaces" if tab else f"the control character {quoted(match[0])}"
            tree.fault((), f"holds {what}", number)
    return None if tree.faults else text


def _document(events: Iterator[Any], tree: Tree) -> None:
    next(events)  # StreamStart
    start = next(events)
    if isinstance(start, yaml.StreamEndEvent):
        tree.fault((), "an empty manifest: action.name, runtime.module and sandbox.enabled are required", 1)
        return
    if start.version or start.tags:
        tree.fault((), "a YAML directive: leave it out", start.start_mark.line + 1)
    tree.value = _node(next(events), events, tree, ())
    next(events)  # DocumentEnd
    after = next(events)
    if not isinstance(after, yaml.StreamEndEvent):
        tree.fault((), "a second document: a manifest is one", after.start_mark.line + 1)


def _node(event: Any, events: Iterator[Any], tree: Tree, path: Path) -> object:
    line = event.start_mark.line + 1
    if isinstance(event, yaml.ScalarEvent):
        tree.lines[path] = line  # the value's own line; a collection keeps its key's, since it starts below
    else:
        tree.lines.setdefault(path, line)
    if isinstance(event, yaml.AliasEvent):
        tree.fault(path, f"an alias ({quoted(event.anchor)}): write the value out", line)
        return None
    if event.anchor is not None:
        tree.fault(path, f"an anchor ({quoted(event.anchor)}): leave it out", line)
    if event.tag is not None:
        tree.fault(path, f"a tag ({quoted(event.tag)}): leave it out, values have their type by their spelling", line)
    if isinstance(event, yaml.ScalarEvent):
        return _scalar(event, tree, path, line)
    if len(path) >= DEPTH_MAX:
        tree.fault(path, f"deeper than {DEPTH_MAX} levels", line)
        raise _Stop
    if isinstance(event, yaml.SequenceStartEvent):
        return _sequence(events, tree, path)
    return _mapping(events, tree, path)


def _scalar(event: Any, tree: Tree, path: Path, line: int) -> object:
    text: str = event.value
    if event.tag is not None:
        return None  # already a fault
    if match := _BAD_IN_VALUE.search(text):
        name = "NUL" if match[0] == "\0" else f"the control character {quoted(match[0])}"
        tree.fault(path, f"{quoted(text)} holds {name}", line)
        return None
    if not event.implicit[0]:
        return text
    if _NULL.fullmatch(text):
        tree.fault(path, "null is no value: write one, or leave the key out", line)
        return None
    return _plain(text)


def _plain(text: str) -> object:
    if text in {"true", "false"}:
        return text == "true"
    if _INTEGER.fullmatch(text):
        return int(text)
    if _DECIMAL.fullmatch(text):
        return Decimal(text)
    return Unclear(text) if _UNCLEAR.fullmatch(text) else text


def _sequence(events: Iterator[Any], tree: Tree, path: Path) -> list[object]:
    items: list[object] = []
    while not isinstance(event := next(events), yaml.SequenceEndEvent):
        items.append(_node(event, events, tree, (*path, len(items))))
    return items


def _mapping(events: Iterator[Any], tree: Tree, path: Path) -> dict[str, object]:
    items: dict[str, object] = {}
    while not isinstance(event := next(events), yaml.MappingEndEvent):
        line = event.start_mark.line + 1
        key = _key(event, events, tree, path, line)
        if key in items:
            tree.fault((*path, key), f"a duplicate key, first on line {tree.lines[(*path, key)]}: keep one", line)
            key = None
        if key is None:
            # Its value is read for its faults alone: its lines must not replace those of the key that stays.
            _node(next(events), events, Tree(faults=tree.faults), (*path, getattr(event, "value", "?")))
            continue
        tree.lines[(*path, key)] = line
        items[key] = _node(next(events), events, tree, (*path, key))
    return items


def _key(event: Any, events: Iterator[Any], tree: Tree, path: Path, line: int) -> str | None:
    if not isinstance(event, yaml.ScalarEvent):
        what = f"the alias {quoted(event.anchor)}" if isinstance(event, yaml.AliasEvent) else "a collection"
        tree.fault(path, f"{what} as a key: write a plain name", line)
        _node(event, events, Tree(faults=tree.faults), (*path, "?"))
        return None
    before = len(tree.faults)
    shown = (*path, event.value)
    if event.anchor is not None or event.tag is not None:
        tree.fault(shown, "an anchor or a tag on a key: leave it out", line)
    if event.implicit[0] and event.value == "<<":
        tree.fault(shown, "a merge key: write the keys out where they belong", line)
    elif _BAD_IN_VALUE.search(event.value):
        tree.fault(shown, "a control character in a key", line)
    elif event.implicit[0] and (_NULL.fullmatch(event.value) or not isinstance(_plain(event.value), str)):
        tree.fault(shown, f"the key {quoted(event.value)} is not plainly text: quote it", line)
    return event.value if len(tree.faults) == before else None
