"""What `run` is given, and which file on this host it really is."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import attrs

from sandboxactor.errors import InvalidPolicy
from sandboxactor.spi import Kind

__all__ = [
    "BadModule",
    "Command",
    "Module",
    "Native",
    "NativeModule",
    "WasmModule",
    "closed_to_others",
    "kind_of",
    "resolve",
]


def _path(value: object) -> str:
    if not isinstance(value, str | os.PathLike):
        raise TypeError(f"module: a path is wanted, not {type(value).__name__}")
    path = os.fspath(value)
    if not isinstance(path, str):
        path = os.fsdecode(path)
    if not path or "\0" in path:
        raise InvalidPolicy(f"module: {path!r} is not a path; give the path of a file, without NUL")
    return path


def _argv(value: object) -> tuple[str, ...]:
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise InvalidPolicy(f"argv: {value!r} is not a list; write Command(['program', 'argument'])")
    argv = tuple(os.fspath(v) if isinstance(v, os.PathLike) else v for v in value)
    if not argv or not argv[0] or not all(isinstance(a, str) and "\0" not in a for a in argv):
        raise InvalidPolicy(f"argv: {value!r} must be a list of strings without NUL, the program first")
    return argv


@attrs.frozen
class NativeModule:
    """A shared library with the two-symbol ABI: `allascode_action_execute` and `allascode_action_free`."""

    path: str = attrs.field(converter=_path)


@attrs.frozen
class WasmModule:
    """A WebAssembly plugin: `.wasm`, `.wat`, or an `.actonpkg`."""

    path: str = attrs.field(converter=_path)


@attrs.frozen
class Command:
    """A program and its arguments, never a shell line. `env` is added to the policy's, `cwd` is in the workspace."""

    argv: tuple[str, ...] = attrs.field(converter=_argv)
    env: dict[str, str] = attrs.field(factory=dict, hash=False)
    cwd: str | None = None


Module: TypeAlias = NativeModule | WasmModule | Command

_SUFFIXES: dict[str, type[NativeModule | WasmModule]] = {
    ".so": NativeModule,
    ".wasm": WasmModule,
    ".wat": WasmModule,
    ".actonpkg": WasmModule,
}
_KINDS: dict[type[Module], Kind] = {NativeModule: Kind.NATIVE, WasmModule: Kind.WASM, Command: Kind.COMMAND}


def kind_of(module: object) -> tuple[Kind, Module]:
    """What kind of module this is; a path never becomes a shell line, so another suffix is an error."""
    if isinstance(module, NativeModule | WasmModule | Command):
        return _KINDS[type(module)], module
    if isinstance(module, list | tuple):
        return Kind.COMMAND, Command(module)
    path = _path(module)
    make = _SUFFIXES.get(os.path.splitext(path)[1])
    if make is None:
        raise InvalidPolicy(
            f"module: {path!r} ends in none of {', '.join(_SUFFIXES)}; to run a program write Command([{path!r}])"
        )
    return _KINDS[make], make(path)


class BadModule(Exception):
    """The file is missing, or no regular file. Becomes a Result: it is the module's own failure."""


class Native(NamedTuple):
    """A native module found on this host: the path asked for, what it resolved to, and the inodes of both.

    A tuple: as a key it is hashed and compared in C, where no signal handler can break a dictionary half-way.
    """

    asked: str
    module: str
    folder: str
    module_id: tuple[int, int]
    folder_id: tuple[int, int]
    asked_folder_id: tuple[int, int]  # of the folder that was named: a swap may lead to a hard link elsewhere


def closed_to_others(native: Native) -> str:
    """The first path on the way to the module that another user may not pass or read; "" if all are open."""
    parts = native.folder.split("/")
    for i in range(1, len(parts) + 1):
        folder = "/".join(parts[:i]) or "/"
        if not os.stat(folder).st_mode & stat.S_IXOTH:
            return folder
    return "" if os.stat(native.module).st_mode & stat.S_IROTH else native.module


def resolve(module: NativeModule) -> Native:
    """The file behind the path, with every symlink resolved. Raises BadModule."""
    try:
        asked = module.path if os.path.isabs(module.path) else os.path.join(os.getcwd(), module.path)
        real = os.path.realpath(asked, strict=True)
        found = os.stat(real)
        folder = os.path.dirname(real)
        around = os.stat(folder)
        beside = os.stat(os.path.dirname(asked))
    except (OSError, ValueError) as e:
        raise BadModule(f"module {module.path!r} cannot be found: {e}") from e
    if not stat.S_ISREG(found.st_mode):
        raise BadModule(f"module {module.path!r} is not a regular file")
    if folder == "/":
        raise InvalidPolicy(
            f"module: {module.path!r} lies in the root folder, which its worker would get to read; move it"
        )
    ids = [(st.st_dev, st.st_ino) for st in (found, around, beside)]
    return Native(asked, real, folder, *ids)
