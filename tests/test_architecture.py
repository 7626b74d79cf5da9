"""The layout of the project, as rules that a file keeps or fails here."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parent.parent
PACKAGES = ("sandboxactor", "backends", "benchmarks", "tests", "examples")
TOP_LEVEL = {
    *("pyproject.toml", "sandboxactor", "backends", "examples", "tests", "benchmarks"),
    *("CHANGELOG.md", "LICENSE", "README.md", "SECURITY.md", "CONTRIBUTING.md"),
}
LONGEST_FILE, LONGEST_FUNCTION, MOST_C = 300, 50, 1850
SKIPPED = {"_bin", "__pycache__", ".zig-cache", ".corpus", "build"}
# What a backend may import of the core besides spi: these name types, errors, and what a probe needs of a policy.
TO_BACKENDS = {"sandboxactor.spi", "sandboxactor.errors"}
TO_BACKENDS_LAZILY = {"sandboxactor._policy", "sandboxactor.spi", "sandboxactor.errors"}


def files(*suffixes: str) -> list[Path]:
    """The project's own files of these kinds, generated ones left out."""
    found = [p for package in PACKAGES for p in (TOP / package).rglob("*") if p.suffix in suffixes and p.is_file()]
    return sorted(p for p in found if not SKIPPED & {*p.relative_to(TOP).parts})


def name(path: Path) -> str:
    return str(path.relative_to(TOP))


def tracked() -> list[Path]:
    """Every text file that belongs to the project, by git where there is one."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=TOP, capture_output=True, text=True, check=False
    )
    if listed.returncode == 0 and listed.stdout:
        found = [TOP / line for line in listed.stdout.split("\0") if line]
    else:
        found = [
            *files(".py", ".c", ".h", ".md", ".toml", ".yaml", ".zig", ".sh"),
            *TOP.glob("*.*"),
            *TOP.glob(".ci/*"),
        ]
    return [path for path in found if path.is_file()]


def imports(tree: ast.AST) -> Iterator[tuple[str, bool]]:
    """Every module that is imported, and whether lazily: in a function or for types only."""

    def walk(node: ast.AST, lazy: bool) -> Iterator[tuple[str, bool]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                yield from ((alias.name, lazy) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                yield child.module or "", lazy
                yield from (
                    (f"{child.module}.{alias.name}", lazy) for alias in child.names if child.module == "sandboxactor"
                )
            typing_only = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
            yield from walk(child, lazy or typing_only or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef))

    yield from walk(tree, False)


def test_top_level_is_fixed() -> None:
    """Nothing appears beside the fixed top level but dotfiles."""
    tops = {path.relative_to(TOP).parts[0] for path in tracked()}
    assert {top for top in tops if not top.startswith(".")} <= TOP_LEVEL


@pytest.mark.parametrize("path", files(".py", ".c", ".h", ".zig"), ids=name)
def test_file_is_short(path: Path) -> None:
    """No file is over 300 lines."""
    assert len(path.read_text().splitlines()) <= LONGEST_FILE


@pytest.mark.parametrize("path", files(".py"), ids=name)
def test_functions_are_short(path: Path) -> None:
    """No function is over 50 lines."""
    nodes = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    assert [n.name for n in nodes if (n.end_lineno or 0) - n.lineno + 1 > LONGEST_FUNCTION] == []


@pytest.mark.parametrize("path", files(".c"), ids=name)
def test_c_functions_are_short(path: Path) -> None:
    """No C function is over 50 lines: from its opening brace in column 0 to the closing one."""
    begun, long = 0, []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.startswith("{"):
            begun = number
        elif line.startswith("}") and begun:
            long += [begun] if number - begun + 2 > LONGEST_FUNCTION else []
            begun = 0
    assert long == []


def test_there_is_little_c() -> None:
    """The native code of the library stays small enough to be read at a sitting."""
    shipped = [p for p in files(".c", ".h", ".S") if p.relative_to(TOP).parts[0] in ("sandboxactor", "backends")]
    # data/attacks.c is what the conformance kit attacks with: no part of what runs.
    assert sum(len(p.read_text().splitlines()) for p in shipped if p.parent.name == "_worker") <= MOST_C
    assert {name(p.parent) for p in shipped} <= {"sandboxactor/_worker", "sandboxactor/data"}


@pytest.mark.parametrize("path", sorted((TOP / "sandboxactor").rglob("*.py")), ids=name)
def test_core_names_no_backend(path: Path) -> None:
    """The core reaches a backend through the registry alone."""
    if "_bin" in path.parts:
        return
    assert [module for module, _ in imports(ast.parse(path.read_text())) if module.startswith("sandboxactor_")] == []
    if path.name != "_registry.py":
        assert re.findall(r"[\"'](sandboxactor_\w+)", path.read_text()) == []


@pytest.mark.parametrize("path", sorted((TOP / "backends").rglob("*.py")), ids=name)
def test_backend_imports_the_interface_alone(path: Path) -> None:
    """A backend imports `sandboxactor.spi`, itself, and no other backend; policies and errors for types or lazily."""
    own = path.relative_to(TOP / "backends").parts[0]
    for module, lazy in imports(ast.parse(path.read_text())):
        if module.startswith("sandboxactor_"):
            assert module.split(".")[0] == own
        elif module.startswith("sandboxactor."):
            parent = ".".join(module.split(".")[:2])
            assert parent in (TO_BACKENDS_LAZILY if lazy else TO_BACKENDS), module


@pytest.mark.parametrize("folder", sorted((TOP / "backends").glob("sandboxactor_*")), ids=name)
def test_backend_is_laid_out_alike(folder: Path) -> None:
    """Each backend has a man page for a docstring, a host.py, and stands in the wheel and for the type checker."""
    tree = ast.parse((folder / "__init__.py").read_text())
    assert len(ast.get_docstring(tree) or "") > 200, "the docstring of __init__ is the man page"
    assert len(tree.body) == 1, "the docstring only"
    assert (folder / "host.py").exists()
    assert (TOP / "pyproject.toml").read_text().count(folder.name) >= 2


def test_no_machine_is_named() -> None:
    """No file names a path of one machine or the host of a package registry."""
    # Put together here, so that this file does not name them either. Root's .bashrc is a target of the attacks.
    paths = re.compile(r"(?<!\w)/" + r"(work/|root/(?!\.bashrc))")
    hosts = ["pypi" + ".org", "python" + "hosted.org", "debian" + ".org", "npmjs" + ".org", "ubuntu" + ".com"]
    allowed = {"sandboxactor/data/public_suffix_list.dat", "sandboxactor/data/public_suffix_list.LICENSE"}
    found = []
    for path in tracked():
        if name(path) in allowed or path.suffix in (".png", ".zip", ".so"):
            continue
        text = path.read_text(errors="replace")
        found += [f"{name(path)}: {match[0]}" for match in paths.finditer(text)]
        found += [f"{name(path)}: {word}" for word in hosts if word in text]
    assert found == []


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_worker_compiles_without_a_warning(compiler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """-Wall -Wextra -Werror, with both compilers."""
    if shutil.which(compiler) is None:
        lack = pytest.fail if os.environ.get("SANDBOXACTOR_STRICT") == "1" else pytest.skip
        lack(f"{compiler} is missing: apt-get install {compiler}")
    monkeypatch.setenv("CC", compiler)
    monkeypatch.delenv("CFLAGS", raising=False)
    script = TOP / "sandboxactor" / "_worker" / "build.py"
    done = subprocess.run([sys.executable, str(script), str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "sandboxactor-worker").stat().st_mode & 0o777 == 0o755


def test_missing_compiler_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a C compiler the build says so, with the remedy, in one line."""
    monkeypatch.setenv("CC", "no-such-compiler")
    script = TOP / "sandboxactor" / "_worker" / "build.py"
    done = subprocess.run([sys.executable, str(script), str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert done.stderr.splitlines() == [
        "sandboxactor: no C compiler (no-such-compiler). Remedy: apt-get install gcc libc6-dev"
    ]
