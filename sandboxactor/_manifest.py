"""What an Action asks for: `action.yaml`, read strictly, with every fault at once.

The manifest comes with the module, so it is as hostile as the module is. It can only ask: `HostPolicy.grant` decides.
`_yaml` gives plain values and the line of each, `_schema` structures them, and what concerns several keys or the file
system is checked here, on the plain values, so that one fault never hides another.
"""

from __future__ import annotations

import os
import pathlib
import stat
from collections.abc import Iterator
from typing import Any

import attrs

from sandboxactor import _yaml
from sandboxactor._policy import FrozenMap, Policy
from sandboxactor._schema import Document, module_text
from sandboxactor._structure import structure
from sandboxactor._units import MIB, quoted
from sandboxactor._yaml import Path, Tree, Unclear, render
from sandboxactor.errors import Fault, ManifestError

__all__ = ["Manifest"]

_TMP_DEFAULT = 64 * MIB
_TREES = ("sandbox", "filesystem")

# Where a manifest says what a policy's field holds.
_KEYS: dict[str, Path] = {
    "memory": ("sandbox", "memory", "max"),
    "cpu": ("sandbox", "cpu", "max"),
    "processes": ("sandbox", "process", "max"),
    "timeout": ("sandbox", "timeout"),
    "output": ("sandbox", "output", "max"),
    "input": ("input",),
    "tmp": (*_TREES, "tmp", "write"),
    "spawn": ("sandbox", "process", "spawn"),
    "workspace": (*_TREES, "workspace", "path"),
    "state": (*_TREES, "state", "write"),
    "state_max": (*_TREES, "state", "max"),
}


@attrs.frozen(kw_only=True)
class Manifest:
    """A manifest without a fault; make one with `load`.

    `name`: the action's. `module`: its absolute path, folder resolved. `asked`: the policy that it asks for. `omitted`:
    the budgets that it leaves to the host. `input`, `output`: semantic types as they stand, frozen, or None.
    """

    file: str
    name: str
    module: pathlib.Path
    asked: Policy
    omitted: frozenset[str]
    input: FrozenMap[Any] | None = None
    output: FrozenMap[Any] | None = None
    _places: FrozenMap[str] = attrs.field(factory=FrozenMap, repr=False)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Manifest:
        """Read a manifest: UTF-8, at most 64 KiB. ManifestError has every fault with its `$.path` and line."""
        given = os.fsdecode(path)
        file = given if given.isprintable() else ascii(given)  # a fault is one line whatever the file's name is
        tree = _read(given, file)
        folder = os.path.realpath(os.path.dirname(os.path.abspath(given)))
        document, messages = structure(tree.value)
        known = {fault.path for fault in tree.faults}
        if tree.value is not None:
            for where, message in (*messages, *_cross(tree.value, folder)):
                # What the reader refused stands as None and has its fault already.
                if render(where) not in known or _at(tree.value, where) is not None:
                    tree.fault(where, message)
        if tree.faults or document is None:
            raise ManifestError(file, sorted(tree.faults, key=lambda fault: fault.line))
        asked = _policy(document, folder)
        return cls(
            file=given,
            name=document.action.name,
            module=pathlib.Path(_located(document.runtime.module, folder)),
            asked=asked,
            omitted=frozenset(_omitted(document)),
            input=document.input,
            output=document.output,
            places=FrozenMap(_places(document, asked, folder)),
        )

    def place(self, field: str, item: str = "") -> str:
        """The `$.path` of what a policy's field holds, or of one item of it."""
        return self._places.get(f"{field} {item}") or self._places.get(field, "$")


def _read(given: str, file: str) -> Tree:
    """The file's tree. Only a regular file is read: a FIFO would block, a device may never end."""
    try:
        with open(given, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK | os.O_NOCTTY)) as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise ManifestError(file, [Fault("$", 0, "not a regular file")])
            return _yaml.compose(stream.read(_yaml.BYTES_MAX + 1))
    except OSError as error:
        raise ManifestError(file, [Fault("$", 0, f"cannot be read: {error.strerror}")]) from None
    except ValueError as error:
        if isinstance(error, ManifestError):
            raise
        raise ManifestError(file, [Fault("$", 0, "cannot be read: NUL in the file's name")]) from None


def _cross(value: object, folder: str) -> Iterator[tuple[Path, str]]:
    """What no single key shows."""
    module = _at(value, ("runtime", "module"))
    try:
        text = module_text(module)
    except ValueError:
        text = ""  # its own fault
    if text and (fault := _unfit(text, folder)):
        yield ("runtime", "module"), fault
    own = (*_TREES, "self")
    if _at(value, (*own, "read")) is False:
        yield (*own, "read"), "false: a module that its worker may not read cannot run, write true"
    if _at(value, (*own, "execute")) is False and text.endswith(".so"):
        yield (*own, "execute"), "false: a native module that its worker may not execute cannot run, write true"
    workspace = _at(value, (*_TREES, "workspace"))
    if isinstance(workspace, dict) and workspace.get("write") is True and "path" not in workspace:
        yield (*_TREES, "workspace", "path"), "this key is required beside write: true"
    for key in ("input", "output"):
        yield from _unclear(_at(value, (key,)), (key,))


def _at(value: object, path: Path) -> object:
    for part in path:
        if isinstance(value, list) and isinstance(part, int):
            value = value[part]
        else:
            value = value.get(part) if isinstance(value, dict) else None
    return value


def _unclear(value: object, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(value, Unclear):
        yield (
            path,
            f"{quoted(value.text)} may be read as more than one type: quote it, or write true, false or a number",
        )
    elif isinstance(value, (dict, list)):
        for part, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _unclear(item, (*path, part))


def _located(module: str, folder: str) -> str:
    """The folder is resolved, the name kept: `libx.so` may be a link to `libx.so.1`, and the suffix tells the kind."""
    head, name = os.path.split(os.path.join(folder, module))
    return os.path.join(os.path.realpath(head), name)


def _unfit(module: str, folder: str) -> str:
    """Why this module cannot be run, or nothing."""
    try:
        real = os.path.realpath(os.path.join(folder, module), strict=True)
        mode = os.stat(real).st_mode
    except OSError as error:
        return f"{quoted(module)} names no file that can be found: {error.strerror}"
    if not real.startswith(folder.rstrip("/") + "/"):
        return f"{quoted(module)} leaves the manifest's folder: the module must lie in it, symlinks resolved"
    return "" if stat.S_ISREG(mode) else f"{quoted(module)} is not a regular file"


def _policy(document: Document, folder: str) -> Policy:
    box, files = document.sandbox, document.sandbox.filesystem
    budgets = {
        "memory": box.memory.max,
        "cpu": box.cpu.max,
        "processes": box.process.max,
        "timeout": box.timeout,
        "output": box.output.max,
        "state_max": files.state.max,
    }
    return Policy(
        **{name: value for name, value in budgets.items() if value is not None},
        tmp=(files.tmp.max or _TMP_DEFAULT) if files.tmp.write else None,
        spawn=box.process.spawn,
        read=[os.path.join(folder, path) for path in files.read],
        workspace=os.path.join(folder, files.workspace.path or "") if files.workspace.write else None,
        state=files.state.write,
        network=(*box.network.allow, *document.permissions.net_outbound),
        secrets=document.permissions.secrets,
    )


def _omitted(document: Document) -> Iterator[str]:
    box, files = document.sandbox, document.sandbox.filesystem
    yield "input"  # no key asks for it
    for name, value in (
        ("memory", box.memory.max),
        ("cpu", box.cpu.max),
        ("processes", box.process.max),
        ("timeout", box.timeout),
        ("output", box.output.max),
        ("state_max", files.state.max),
    ):
        if value is None:
            yield name
    if files.tmp.write and files.tmp.max is None:
        yield "tmp"


def _places(document: Document, asked: Policy, folder: str) -> Iterator[tuple[str, str]]:
    """Fields, and `field item` for what a list holds; the first of equal items is named."""
    files, permissions = document.sandbox.filesystem, document.permissions
    for field, path in _KEYS.items():
        yield field, render(path)
    if files.tmp.max is not None:
        yield "tmp", render((*_TREES, "tmp", "max"))
    paths = [Policy(read=[os.path.join(folder, path)]).read[0] for path in files.read]
    for field, path, items in (
        ("network", ("permissions", "net_outbound"), permissions.net_outbound),
        ("network", ("sandbox", "network", "allow"), document.sandbox.network.allow),
        ("secrets", ("permissions", "secrets"), permissions.secrets),
        ("read", (*_TREES, "read"), paths),
    ):
        yield field, render(path)
        for index in reversed(range(len(items))):
            yield f"{field} {items[index]}", render((*path, index))
