"""SandboxActor: run untrusted code on Linux under composed kernel layers, or refuse.

    from sandboxactor import Policy, Sandbox

    with Sandbox(Policy.strict(memory="64MiB")) as box:
        print(box.explain())
        result = box.run("implementation.so", b"payload")

Names are loaded on first use, so that importing the package costs next to nothing.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # importing `typing` for it would cost more than all the rest
if TYPE_CHECKING:
    from typing import Any

    from sandboxactor._host import HostPolicy
    from sandboxactor._manifest import Manifest
    from sandboxactor._module import Command, NativeModule, WasmModule
    from sandboxactor._policy import Policy
    from sandboxactor._result import Breach, Denial, Outcome, Result, Usage
    from sandboxactor._sandbox import Sandbox
    from sandboxactor.errors import (
        InternalError,
        InvalidPayload,
        InvalidPolicy,
        ManifestError,
        ModuleFailed,
        PayloadTooLarge,
        PolicyDenied,
        SandboxError,
        Unenforceable,
        WorkerFault,
    )
    from sandboxactor.spi import Guard

__all__ = [
    "Breach",
    "Command",
    "Denial",
    "Guard",
    "HostPolicy",
    "InternalError",
    "InvalidPayload",
    "InvalidPolicy",
    "Manifest",
    "ManifestError",
    "ModuleFailed",
    "NativeModule",
    "Outcome",
    "PayloadTooLarge",
    "Policy",
    "PolicyDenied",
    "Result",
    "Sandbox",
    "SandboxError",
    "Unenforceable",
    "Usage",
    "WasmModule",
    "WorkerFault",
]

_HOME = {
    "_host": ("HostPolicy",),
    "_manifest": ("Manifest",),
    "_module": ("Command", "NativeModule", "WasmModule"),
    "_policy": ("Policy",),
    "_result": ("Breach", "Denial", "Outcome", "Result", "Usage"),
    "_sandbox": ("Sandbox",),
    "spi": ("Guard",),
}
_WHERE = {name: home for home, names in _HOME.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_WHERE.get(name, 'errors')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
