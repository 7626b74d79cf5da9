"""What is granted (`tmp`, `workspace`, `read`) is granted, bounded, and the only place that changes.

Positive controls: the same module run by the unconfined loader, for what test_controls.py does not have.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from modules.objects import parse, reports, run_unconfined

from escapes.confined import ROOT, counted, host, lines, need
from sandboxactor import Guard, Outcome, Policy, Sandbox

MIB = 1 << 20
SET_ID = stat.S_ISUID | stat.S_ISGID
# Unconfined these come to nothing by the kernel's own rules, so that they need no control (openat2 checks its mode).
NOT_ATTACKS = {"fchmodat2"}

Run = Callable[..., Any]


@pytest.fixture
def writer(modules: dict[str, Path]) -> Iterator[Run]:
    """`writer(policy keywords)(payload keys)`: what the module answers; every Sandbox is closed at the end."""
    boxes: list[Sandbox] = []

    def make(**wider: Any) -> Run:
        box = Sandbox(Policy.strict(timeout=20, **wider), host=host())
        boxes.append(box)

        def run(module: str | Path = "writer", **keys: object) -> bytes:
            path = modules[module] if isinstance(module, str) else module
            result = box.run(path, lines(**keys))
            assert result.ok, result
            return result.output

        return run

    yield make
    for box in boxes:
        box.close()


def words(output: bytes) -> dict[str, str]:
    return {name: verdict.word for name, verdict in parse(output).items()}


@pytest.fixture
def workspace(open_folder: Path) -> Iterator[Path]:
    import shutil
    import tempfile

    made = Path(tempfile.mkdtemp(prefix="workspace-", dir=open_folder))
    made.chmod(0o700)
    yield made
    shutil.rmtree(made)


def test_tmp_is_bounded_in_bytes(writer: Run) -> None:
    """A /tmp of 4 MiB holds 4 MiB, then ENOSPC."""
    said = reports(writer(tmp="4MiB")(do="fill", dir="/tmp"))["bytes"]
    amount, error = said[0].split()
    assert error == "ENOSPC"
    assert 3 * MIB <= int(amount) <= 4 * MIB


def test_tmp_is_bounded_in_inodes(writer: Run) -> None:
    """Empty files cost no bytes and are counted all the same: ENOSPC, and kernel memory stays small."""
    said = reports(writer(tmp="4MiB")(do="inodes", dir="/tmp"))["inodes"]
    made, error = said[0].split()
    assert error == "ENOSPC"
    assert 16 <= int(made) <= 1024


def test_tmp_control(modules: dict[str, Path], workspace: Path) -> None:
    """Unconfined, the same folder takes as many files as one asks for."""
    run = run_unconfined(modules["loader"], modules["writer"], lines(do="inodes", dir=workspace), timeout=60)
    assert int(reports(run.output)["inodes"][0].split()[0]) == 20_000


def test_tmp_is_gone_in_the_next_run(writer: Run) -> None:
    """A file in /tmp is there for its own run and for no other, and never on the host."""
    run = writer(tmp="4MiB")
    name = f"/tmp/sa-left-{os.getpid()}"
    assert words(run(do="touch", path=name)) == {"touch": "ALLOWED"}
    assert words(run(do="see", path=name)) == {"see": "DENIED"}
    assert not os.path.exists(name)


def test_filling_tmp_again_and_again_is_no_breach(writer: Run) -> None:
    """What one run filled is free before the next: its memory is not charged to a run that did nothing."""
    run = writer(tmp="32MiB", memory="64MiB")
    for _ in range(8):
        assert b"ENOSPC" in run(do="fill", dir="/tmp")


def test_tmp_is_the_only_writable_place(writer: Run, modules: dict[str, Path]) -> None:
    """With /tmp granted nothing else takes a file: not the root, not the module's folder, not a library's."""
    run = writer(tmp="4MiB")
    for folder in ("/", "/usr/lib", "/var/tmp", "/dev/shm", "/etc", modules["writer"].parent):
        name = f"{folder}/sa-left-{os.getpid()}"
        assert words(run(do="touch", path=name)) == {"touch": "DENIED"}, folder
        assert not os.path.exists(name)


def test_module_below_tmp_still_loads(writer: Run, modules: dict[str, Path]) -> None:
    """A private /tmp does not hide a module that lies below the host's /tmp, and does not make it writable."""
    import shutil
    import tempfile

    with tempfile.TemporaryDirectory(dir="/tmp", prefix="sa-below-") as folder:
        os.chmod(folder, 0o755)
        module = Path(shutil.copy(modules["writer"], folder))
        run = writer(tmp="4MiB")
        before = module.read_bytes()
        assert words(run(module, do="touch", path="/tmp/mine")) == {"touch": "ALLOWED"}
        assert set(words(run(module, do="change", path=module)).values()) == {"DENIED"}
        assert module.read_bytes() == before
        assert os.listdir(folder) == ["writer.so"]


def test_workspace_takes_ordinary_work(writer: Run, workspace: Path) -> None:
    """A private folder of its owner is writable inside, and what is made there is the owner's on disk."""
    said = words(writer(workspace=str(workspace))(do="shape", dir=workspace))
    assert said == dict.fromkeys(said, "ALLOWED")
    assert len(said) == 10
    assert (workspace / "moved").stat().st_mtime == 1_000_000_000
    assert stat.S_IMODE((workspace / "moved").stat().st_mode) == 0o640
    assert workspace.stat().st_mode & 0o777 == 0o700
    owners = {(p.lstat().st_uid, p.lstat().st_gid) for p in [workspace, *workspace.rglob("*")]}
    assert owners == {(workspace.stat().st_uid, workspace.stat().st_gid)}


@pytest.mark.skipif(not ROOT, reason="missing: root, to give the folder to another user")
def test_workspace_of_another_owner(writer: Run, workspace: Path) -> None:
    """As root, the workspace of any user is writable inside and stays that user's."""
    os.chown(workspace, 4711, 4712)
    said = words(writer(workspace=str(workspace))(do="shape", dir=workspace))
    assert set(said.values()) == {"ALLOWED"}
    assert {(p.lstat().st_uid, p.lstat().st_gid) for p in workspace.rglob("*")} == {(4711, 4712)}


def set_id_files(folder: Path) -> list[str]:
    """What must never be left: set-id files, and devices."""
    modes = {p.name: p.lstat().st_mode for p in folder.rglob("*")}
    return [n for n, m in modes.items() if m & SET_ID or stat.S_ISCHR(m) or stat.S_ISBLK(m)]


def test_workspace_keeps_no_set_id_file(writer: Run, workspace: Path) -> None:
    """No call that takes a mode leaves a set-id file or a device: an idmapped one would be root's."""
    said = words(writer(workspace=str(workspace))(do="suid", dir=workspace))
    assert set_id_files(workspace) == []
    assert {name for name, verdict in said.items() if verdict == "ALLOWED"} == set()
    assert len(said) == 20


@pytest.mark.skipif(not ROOT, reason="missing: root, whom mknod of a device needs")
def test_set_id_control(modules: dict[str, Path], workspace: Path) -> None:
    """Unconfined each of these leaves such a file."""
    run = run_unconfined(modules["loader"], modules["writer"], lines(do="suid", dir=workspace))
    said = words(run.output)
    failed = {name for name, verdict in said.items() if verdict != "ALLOWED"}
    assert failed <= NOT_ATTACKS, said
    assert len(set_id_files(workspace)) >= len(said) - len(NOT_ATTACKS) - 2  # a mkdir that passes leaves no bit


def test_writing_takes_a_set_id_bit_away(writer: Run, workspace: Path) -> None:
    """A set-user-id program of the owner that the module rewrites is none any more."""
    program = workspace / "program"
    program.write_text("#!/bin/true\n")
    program.chmod(0o4755)
    assert words(writer(workspace=str(workspace))(do="touch", path=program)) == {"touch": "ALLOWED"}
    assert program.read_text() == "left\n"
    assert not program.stat().st_mode & SET_ID


def test_workspace_links_lead_nowhere(writer: Run, workspace: Path, open_folder: Path) -> None:
    """A symbolic link out of the workspace is followed inside: to nothing, or to what may not be changed."""
    outside = open_folder / f"outside-{os.getpid()}"
    outside.write_text("untouched\n")
    outside.chmod(0o666)
    (workspace / "out").symlink_to(outside)
    run = writer(workspace=str(workspace))
    assert words(run(do="touch", path=workspace / "out")) == {"touch": "DENIED"}
    assert words(run(do="get", path=workspace / "out")) == {"get": "DENIED"}
    assert outside.read_text() == "untouched\n"


def test_everything_beside_the_workspace_is_read_only(writer: Run, workspace: Path, modules: dict[str, Path]) -> None:
    """With a workspace granted the module's folder and the libraries stay as they are."""
    run = writer(workspace=str(workspace))
    for folder in ("/", "/usr/lib", "/tmp", modules["writer"].parent, workspace.parent):
        name = f"{folder}/sa-left-{os.getpid()}"
        assert words(run(do="touch", path=name)) == {"touch": "DENIED"}, folder
        assert not os.path.exists(name)
    assert set(words(run(do="change", path=modules["echo"])).values()) == {"DENIED"}


def test_read_is_readable_and_not_writable(writer: Run, workspace: Path) -> None:
    """A granted path, private to its owner, is read inside; no call changes it or what is beside it."""
    (workspace / "data").write_text("for the module\n")
    (workspace / "data").chmod(0o600)
    before = (workspace / "data").stat()
    run = writer(read=[str(workspace)])
    assert reports(run(do="get", path=workspace / "data"))["line"] == ["for the module"]
    said = words(run(do="change", path=workspace / "data"))
    assert said == dict.fromkeys(said, "DENIED")
    assert len(said) == 9
    assert (workspace / "data").stat() == before
    assert os.listdir(workspace) == ["data"]


@pytest.mark.parametrize("wider", [{}, {"tmp": "4MiB"}])
def test_read_stays_read_only_beside_what_is_writable(
    writer: Run, workspace: Path, open_folder: Path, wider: dict[str, str]
) -> None:
    """The filter lets pass what a writable tree needs: a granted read must hold against these calls all the same."""
    (workspace / "data").write_text("for the module\n")
    (workspace / "data").chmod(0o666)
    other = open_folder / f"writable-{os.getpid()}"
    other.mkdir(exist_ok=True)
    run = writer(read=[str(workspace)], workspace=str(other), **wider)
    said = words(run(do="change", path=workspace / "data"))
    assert said == dict.fromkeys(said, "DENIED")
    assert (workspace / "data").read_text() == "for the module\n"
    assert stat.S_IMODE((workspace / "data").stat().st_mode) == 0o666


def test_read_control(modules: dict[str, Path], workspace: Path) -> None:
    """Unconfined every change works."""
    (workspace / "data").write_text("x\n")
    run = run_unconfined(modules["loader"], modules["writer"], lines(do="change", path=workspace / "data"))
    assert words(run.output) == dict.fromkeys(words(run.output), "ALLOWED")


def test_tmp_beyond_the_memory_limit(modules: dict[str, Path]) -> None:
    """Files in /tmp are memory: where /tmp is larger, the limit of memory ends the run, by the kernel's counter."""
    need(counted(), "control groups, without which such a policy is refused")
    with Sandbox(Policy.strict(memory="16MiB", tmp="64MiB", timeout=20), host=host()) as box:
        result = box.run(modules["writer"], lines(do="fill", dir="/tmp"))
        assert result.outcome is Outcome.MEMORY
        assert result.breach is not None
        assert result.breach.guard is Guard.MEMORY_MAX
        assert box.run(modules["echo"], b"next").output == b"next"
