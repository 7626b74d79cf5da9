"""The module's file is rebuilt, swapped, deleted, reached by other names: the next run has the file that is there."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from sandboxactor import Outcome, Sandbox

from .kit import ECHO, MODULES, VERDICTS, box, echoes, good

SOURCE = """
#include <stdlib.h>
#include <string.h>
%s
int allascode_action_execute(const unsigned char *in, size_t n, unsigned char **out, size_t *outn)
{ (void)in; (void)n; *out = (unsigned char *)strdup(%s); *outn = strlen((char *)*out); return 0; }
void allascode_action_free(unsigned char *p, size_t n) { (void)n; free(p); }
"""


def _cc(target: Path, text: str, *flags: str) -> Path:
    target.parent.mkdir(exist_ok=True, parents=True)
    fresh = target.with_suffix(".fresh")
    argv = ["cc", "-shared", "-fPIC", "-o", str(fresh), "-x", "c", "-", "-x", "none", *flags]
    subprocess.run(argv, input=text, text=True, check=True)
    fresh.replace(target)
    return target


def _says(target: Path, word: str) -> Path:
    return _cc(target, SOURCE % ("", f'"{word}"'))


def _room() -> Path:
    """A folder that an ordinary user could enter."""
    room = Path(os.environ["TMPDIR"]) / "room"
    room.mkdir(mode=0o755)
    return room


def rebuilt() -> None:
    """A module rebuilt at the same path by rename, by write in place, and by delete and create."""
    target = _says(_room() / "m.so", "one")
    with box() as b:
        good(b.run(str(target)), b"one")
        _says(target, "two")
        good(b.run(str(target)), b"two")
        three = _says(target.with_name("three.so"), "three").read_bytes()
        target.write_bytes(three)
        good(b.run(target), b"three")
        for turn in range(5):
            target.unlink()
            shutil.copy(ECHO if turn % 2 else target.with_name("three.so"), target)
            good(b.run(target, b"echo"), b"echo" if turn % 2 else b"three")


def swapped_by_symlink() -> None:
    """`current.so` and a folder `current` change their targets, atomically, between two runs and many times."""
    room = _room()
    _says(room / "v1" / "m.so", "one")
    _says(room / "v2" / "m.so", "two")
    with box() as b:
        for name, one, two in (("current.so", "v1/m.so", "v2/m.so"), ("current", "v1", "v2")):
            asked = room / name if name.endswith(".so") else room / name / "m.so"
            for turn in range(6):
                (room / "fresh").symlink_to((one, two)[turn % 2])
                (room / "fresh").rename(room / name)
                good(b.run(str(asked)), (b"one", b"two")[turn % 2])


def swapped_to_a_hard_link() -> None:
    """Two releases share the module by a hard link (rsync --link-dest) and differ in its companion: the symlink
    decides."""
    room = _room()
    for release in ("v1", "v2"):
        word = f'const char *word(void) {{ return "{release}"; }}'
        _cc(room / release / "libword.so", word, "-Wl,-soname,libword.so")
    flags = [str(room / "v1" / "libword.so"), "-Wl,-rpath,$ORIGIN", "-Wl,--enable-new-dtags"]
    _cc(room / "v1" / "m.so", SOURCE % ("const char *word(void);", "word()"), *flags)
    os.link(room / "v1" / "m.so", room / "v2" / "m.so")
    with box() as b:
        for release in ("v1", "v2", "v1"):
            (room / "fresh").symlink_to(release)
            (room / "fresh").rename(room / "current")
            good(b.run(str(room / "current" / "m.so")), release.encode())


def companion_rebuilt() -> None:
    """The companion library is replaced by rename while the module stays: the next run loads the new one."""
    room = _room()
    flags = [str(room / "libword.so"), "-Wl,-rpath,$ORIGIN", "-Wl,--enable-new-dtags"]
    _cc(room / "libword.so", 'const char *word(void) { return "one"; }', "-Wl,-soname,libword.so")
    _cc(room / "m.so", SOURCE % ("const char *word(void);", "word()"), *flags)
    with box() as b:
        good(b.run(str(room / "m.so")), b"one")
        _cc(room / "libword.so", 'const char *word(void) { return "two"; }', "-Wl,-soname,libword.so")
        good(b.run(str(room / "m.so")), b"two")


def deleted() -> None:
    """A deleted module, its deleted folder, a directory, a FIFO and a broken link in its place are bad_module; then
    it is back."""
    room = _room()
    target = room / "sub" / "m.so"
    _says(target, "one")
    with box() as b:
        good(b.run(target), b"one")
        kept = target.read_bytes()
        changes = [target.unlink, target.mkdir, target.rmdir, lambda: os.mkfifo(target), target.unlink]
        changes += [lambda: target.symlink_to("nowhere"), lambda: shutil.rmtree(target.parent)]
        for change in changes:
            change()
            result = b.run(str(target))
            assert result.outcome is Outcome.BAD_MODULE, (change, result)
            assert result.reason
        target.parent.mkdir()
        target.write_bytes(kept)
        good(b.run(target), b"one")


def damaged() -> None:
    """An empty, a truncated and a text file at the same path are bad_module, and the host is unharmed."""
    target = _says(_room() / "m.so", "one")
    whole = target.read_bytes()
    with box() as b:
        good(b.run(target), b"one")
        for content in (b"", whole[:100], whole[:4096], b"#!/bin/sh\n", whole):
            target.write_bytes(content)
            result = b.run(target)
            assert result.outcome in (Outcome.BAD_MODULE, Outcome.OK, Outcome.CRASHED), result
            assert result.ok == (content == whole)


def two_in_one_folder() -> None:
    """Two modules of one folder on one Sandbox, in turn and by different names of the same file."""
    room = _room()
    one, two = _says(room / "one.so", "one"), _says(room / "two.so", "two")
    (room / "also.so").symlink_to("one.so")
    os.link(two, room / "hard.so")
    with box() as b:
        for _ in range(5):
            good(b.run(one), b"one")
            good(b.run(str(two)), b"two")
            good(b.run(room / "also.so"), b"one")
            good(b.run(os.fsencode(room / "hard.so").decode()), b"two")


def relative_paths() -> None:
    """A relative path is against the cwd at the call, also when that changes between two runs or its folder is
    renamed."""
    room = _room()
    for name in ("a", "b"):
        _says(room / name / "m.so", name)
    with box() as b:
        for name in ("a", "b", "a"):
            os.chdir(room / name)
            good(b.run("m.so"), name.encode())
            good(b.run("./m.so"), name.encode())
            good(b.run("../b/m.so"), b"b")
        (room / "a").rename(room / "c")
        good(b.run("m.so"), b"a")


def deleted_cwd() -> None:
    """The host's cwd is deleted: an absolute path works, a relative one is bad_module."""
    gone = _room() / "gone"
    gone.mkdir()
    os.chdir(gone)
    with box() as b:
        echoes(b)
        gone.rmdir()
        echoes(b)
        good(b.run(VERDICTS, b"echo:x"), b"x")
        assert b.run("m.so").outcome is Outcome.BAD_MODULE


def odd_names() -> None:
    """Names with spaces, newlines, colons, dollars, quotes and bytes that are no UTF-8."""
    room = _room()
    names = ["a b.so", "a\nb.so", "a:b.so", "$x.so", "'\".so", "-n.so", "é\udcff.so", "x" * 252 + ".so"]
    with box() as b:
        for name in names:
            folder = room / name.replace(".so", "d")
            folder.mkdir()
            shutil.copy(ECHO, folder / name)
            good(b.run(folder / name, b"x"), b"x")


def below_a_closed_folder() -> None:
    """As root: module and companion ($ORIGIN) lie below 0700 folders of root, in 0600 files; nothing is chmod'ed."""
    if os.geteuid() != 0:
        print("skip: it is about a host that is root")
        return
    inner = _room() / "closed" / "inner"
    inner.mkdir(parents=True)
    for name in ("needs_companion.so", "libcompanion.so"):
        shutil.copy(MODULES / name, inner / name)
        (inner / name).chmod(0o600)
    for folder in (inner, inner.parent):
        folder.chmod(0o700)
    modes = [(p, p.stat()[:6]) for p in sorted(inner.parent.rglob("*"))]
    with box() as b:
        for _ in range(3):
            good(b.run(inner / "needs_companion.so"), b"companion=4711\n")
    assert [(p, p.stat()[:6]) for p in sorted(inner.parent.rglob("*"))] == modes


def the_next_folder_is_not_there() -> None:
    """The Sandbox of two modules gives neither of them the folder of the other: each run has its own."""
    room = _room()
    reader = 'static const char *look(void) { return access("%s", R_OK) ? "hidden" : "seen"; }'
    for me, other in (("a", "b"), ("b", "a")):
        text = "#include <unistd.h>\n" + reader % (room / other / "m.so") + (SOURCE % ("", "look()"))
        _cc(room / me / "m.so", text)
    with box() as b:
        for me in ("a", "b", "a"):
            _hidden(b, room / me / "m.so")


def _hidden(b: Sandbox, path: Path) -> None:
    good(b.run(path), b"hidden")
