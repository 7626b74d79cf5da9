"""Structures a manifest's plain values by cattrs without coercing anything.

cattrs alone reads `"no"` as True, None as False and `"abc"` as a tuple of letters, and drops unknown keys. So every
leaf has a hook of ours, every class forbids extra keys, and the error tree becomes a message for each path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, get_args, get_origin

import attrs
import cattrs
from cattrs.errors import (
    AttributeValidationNote,
    BaseValidationError,
    ForbiddenExtraKeysError,
    IterableValidationError,
    IterableValidationNote,
)
from cattrs.gen import make_dict_structure_fn, override

from sandboxactor._policy import nearest
from sandboxactor._schema import LEAVES, Document, Filesystem, shown
from sandboxactor._units import quoted
from sandboxactor._yaml import Path

__all__ = ["structure"]


def structure(value: object) -> tuple[Document | None, list[tuple[Path, str]]]:
    """The document, or None and a message for every path that is at fault."""
    try:
        return _CONVERTER.structure(value, Document), []
    except Exception as error:
        return None, list(_faults(error, (), Document))


def _converter() -> cattrs.Converter:
    converter = cattrs.Converter(detailed_validation=True, forbid_extra_keys=True)
    for kind, parse in LEAVES.items():
        converter.register_structure_hook(kind, _leaf(parse))

    def section(cls: type) -> Callable[[object, Any], object]:
        renamed: dict[str, Any] = {"own": override(rename="self")} if cls is Filesystem else {}
        inner: Any = make_dict_structure_fn(cls, converter, _cattrs_forbid_extra_keys=True, **renamed)

        def mapping(value: object, _: Any) -> object:
            if not isinstance(value, dict):
                raise ValueError(f"{shown(value)} where a mapping is wanted: known keys are {', '.join(_keys(cls))}")
            return inner(value, cls)

        return mapping

    converter.register_structure_hook_factory(_is_tuple, _sequence)
    converter.register_structure_hook_factory(
        lambda kind: attrs.has(kind) and kind.__module__ == Document.__module__, section
    )
    return converter


def _is_tuple(kind: Any) -> bool:
    origin: Any = get_origin(kind)
    return origin is tuple


def _leaf(parse: Callable[[object], object]) -> Callable[[object, Any], object]:
    return lambda value, _: parse(value)


def _sequence(kind: Any) -> Callable[[object, Any], object]:
    parse = LEAVES[get_args(kind)[0]]

    def items(value: object, _: Any) -> object:
        if not isinstance(value, list):
            raise ValueError(f"{shown(value)} where a list is wanted: write it as - item, or in [brackets]")
        made, errors = [], []
        for index, item in enumerate(value):
            try:
                made.append(parse(item))
            except ValueError as error:
                error.add_note(IterableValidationNote(f"item {index}", index, kind))
                errors.append(error)
        if errors:
            raise IterableValidationError("a list", errors, kind)
        return tuple(made)

    return items


def _keys(cls: Any) -> list[str]:
    return ["self" if field.name == "own" else field.name for field in attrs.fields(cls)]


def _faults(error: BaseException, at: Path, cls: Any) -> Iterator[tuple[Path, str]]:
    if isinstance(error, BaseValidationError):
        noted, others = error.group_exceptions()  # type: ignore[attr-defined]
        for inner, note in noted:
            yield from _faults(inner, (*at, _step(note)), error.cl)
        for inner in others:
            yield from _faults(inner, at, error.cl)
    elif isinstance(error, ForbiddenExtraKeysError):
        for key in sorted(error.extra_fields):
            yield (*at, key), f"unknown key {quoted(key)}: {nearest(key, _keys(error.cl))}"
    elif isinstance(error, KeyError):
        yield at, "this key is required"
    elif isinstance(error, ValueError):
        yield at, str(error)
    else:
        raise error


def _step(note: AttributeValidationNote | IterableValidationNote) -> str | int:
    if isinstance(note, AttributeValidationNote):
        return "self" if note.name == "own" else note.name
    return int(note.index)


_CONVERTER = _converter()
