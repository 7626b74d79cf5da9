"""The public names are exactly the contract's, load on first use, and cost next to nothing before."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import sandboxactor
from sandboxactor import SandboxError

TOP = Path(__file__).resolve().parent.parent
CONTRACT = {
    *("HostPolicy", "Manifest", "Policy", "Sandbox", "NativeModule", "WasmModule", "Command", "Outcome", "Guard"),
    *("Result", "Usage", "Breach", "Denial"),
    *("SandboxError", "ManifestError", "PolicyDenied", "InvalidPolicy", "PayloadTooLarge", "InvalidPayload"),
    *("Unenforceable", "WorkerFault", "InternalError", "ModuleFailed"),
}
HEAVY = {
    "attr",
    "attrs",
    "cattr",
    "cattrs",
    "yaml",
    "pyseccomp",
    "cffi",
    "_cffi_backend",
    "cgroupspy",
    "wasmtime",
    "prctl",
}
# Lines of a child process that write down every process it starts.
WATCH = """
import sys
started = []
starts = ("os.posix_spawn", "subprocess.Popen", "os.fork", "os.exec")
sys.addaudithook(lambda event, args: started.append(event) if event in starts else None)
"""


def child(code: str) -> str:
    paths = f"import sys; sys.path[:0] = [{str(TOP)!r}, {str(TOP / 'backends')!r}]\n"
    return subprocess.run([sys.executable, "-c", paths + code], check=True, capture_output=True, text=True).stdout


def test_star_import_gives_exactly_the_contract() -> None:
    """`import *` exports the contract's names and no other."""
    space: dict[str, object] = {}
    exec("from sandboxactor import *", space)
    assert space.keys() - {"__builtins__"} == CONTRACT
    assert len(sandboxactor.__all__) == len(CONTRACT)


@pytest.mark.parametrize("name", sorted(CONTRACT))
def test_name_has_a_docstring_and_is_listed(name: str) -> None:
    """Every public name is found by dir() and says what it is."""
    assert name in dir(sandboxactor)
    assert getattr(sandboxactor, name).__doc__


def test_unknown_name_is_an_attribute_error() -> None:
    """A misspelled name is an AttributeError, as of any module."""
    with pytest.raises(AttributeError, match="sandbox"):
        sandboxactor.sandbox  # noqa: B018


def test_every_exception_is_a_sandbox_error() -> None:
    """One `except SandboxError` is enough; requests are ValueErrors besides."""
    errors = [v for n in CONTRACT if isinstance(v := getattr(sandboxactor, n), type) and issubclass(v, Exception)]
    assert len(errors) == 10
    assert all(issubclass(error, SandboxError) for error in errors)
    for name in ("ManifestError", "InvalidPolicy", "PayloadTooLarge", "InvalidPayload"):
        assert issubclass(getattr(sandboxactor, name), ValueError)


def test_policy_travels_between_processes() -> None:
    """What is documented as picklable pickles through its public name."""
    policy = sandboxactor.Policy.strict(memory="64MiB")
    assert pickle.loads(pickle.dumps(policy)) == policy


def test_import_is_light() -> None:
    """Importing the package loads none of its dependencies and starts no process."""
    code = f"""
import sandboxactor
print(sorted({HEAVY!r} & sys.modules.keys()), started)
"""
    assert child(WATCH + code) == "[] []\n"


def test_sandbox_starts_no_subprocess_but_its_zygote() -> None:
    """Loading every public name starts nothing; even libseccomp's loader runs only where a plan is made."""
    assert child(WATCH + "from sandboxactor import *\nprint(started)\n") == "[]\n"


def test_help_loads_nothing_heavy() -> None:
    """`--help` answers without the library's dependencies."""
    code = f"""
from sandboxactor.__main__ import main
try:
    main(["run", "--help"])
except SystemExit:
    pass
print(sorted({HEAVY!r} & sys.modules.keys()))
"""
    assert child(code).endswith("[]\n")
