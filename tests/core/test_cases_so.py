"""tests/cases/so, built by its own build.sh: each module does confined what its header comment says it must.

The controls run the same file through the cases' own loader, unconfined.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from escapes.confined import counted, host, need

from sandboxactor import Guard, Outcome, Policy, Result, Sandbox

CASES = Path(__file__).resolve().parents[1] / "cases" / "so"
MIB = 1 << 20
_VERDICT = re.compile(r"^(\w+)=(ALLOWED|DENIED)\b", re.M)


@pytest.fixture(scope="module")
def built(open_folder: Path) -> Path:
    """Where build.sh put the modules and the loader."""
    out = open_folder / "cases"
    done = subprocess.run(["sh", str(CASES / "build.sh"), str(out)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    names = {p.stem for p in CASES.glob("s*.c")}
    assert {p.stem for p in out.glob("*.so")} == names
    assert len(names) == 17
    return out


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    with Sandbox(Policy.strict(timeout="10s", cpu="2000m", output="64MiB", memory="512MiB"), host=host()) as made:
        yield made


def control(built: Path, name: str, payload: str = "", limit: float = 20, **environment: str) -> str:
    """What the case answers unconfined; a case that hangs is ended and answers nothing."""
    try:
        done = subprocess.run(
            [str(built / "loader"), str(built / f"{name}.so"), payload],
            env={"PATH": "/usr/bin:/bin", **environment},
            capture_output=True,
            timeout=limit,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return ""
    return done.stdout.decode("utf-8", "replace")


def words(text: str | bytes) -> dict[str, str]:
    return dict(_VERDICT.findall(text if isinstance(text, str) else text.decode()))


def run(box: Sandbox, built: Path, name: str, payload: bytes = b"") -> Result:
    return box.run(built / f"{name}.so", payload)


def test_s01_terminal(box: Sandbox, built: Path) -> None:
    """No descriptor is a terminal, /dev/tty cannot be opened, and the session is not the caller's."""
    text = run(box, built, "s01_tiocsti").output.decode()
    assert "ALLOWED" not in text.replace("setsid_state_sid_is_own=ALLOWED", "")
    assert text.count("not-a-tty") == 4


def test_s03_other_abis(box: Sandbox, built: Path) -> None:
    """Calls of x32 or of the i386 table end the module: a filter that saw one number only would let them pass."""
    result = run(box, built, "s03_abi")
    assert (result.outcome, result.signal) == (Outcome.DENIED, 31)
    assert words(control(built, "s03_abi")).get("i386_getpid") == "ALLOWED"


def test_s04b_exec_in_place(box: Sandbox, built: Path) -> None:
    """The worker does not become another program; unconfined it does, and leaves no answer."""
    assert words(run(box, built, "s04b_exec_self").output) == {"execve": "DENIED"}
    assert control(built, "s04b_exec_self") == ""


def test_s06_no_descriptor_is_left_open(box: Sandbox, built: Path) -> None:
    """No descriptor beyond the three streams reaches the module, though the host holds many inheritable ones."""
    kept = [os.open("/", os.O_RDONLY) for _ in range(8)]
    try:
        for fd in kept:
            os.set_inheritable(fd, True)
        with Sandbox(Policy.strict(), host=host()) as fresh:
            text = run(fresh, built, "s06_fd_leak").output.decode()
    finally:
        for fd in kept:
            os.close(fd)
    assert "ESCAPE" not in text
    assert int(re.findall(r"extra_fds=(\d+)", text)[0]) <= 3


def test_s08_environment(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The module sees the policy's environment and nothing of the host's."""
    for name in ("SECRET_CANARY", "LD_PRELOAD_NOT", "PYTHONSTARTUP"):
        monkeypatch.setenv(name, "xyz")
    with Sandbox(Policy.strict(env={"GIVEN": "a value", "EMPTY": ""}), host=host()) as fresh:
        assert run(fresh, built, "s08_env_dump").output == b"EMPTY=\nGIVEN=a value\nenv_end\n"
    assert "SECRET_CANARY=xyz\n" in control(built, "s08_env_dump", SECRET_CANARY="xyz")


def test_s10_one_writable_tree(built: Path, open_folder: Path) -> None:
    """Inside a workspace renames and links across folders work; only a device node is refused."""
    tree = open_folder / "refer"
    tree.mkdir(exist_ok=True)
    with Sandbox(Policy.strict(workspace=str(tree)), host=host()) as fresh:
        said = words(run(fresh, built, "s10_refer_rename", str(tree).encode()).output)
    legal = ("rename_across", "link_across", "rename_same_dir", "open_trunc", "truncate", "symlink_out", "mkfifo")
    assert said == dict.fromkeys(legal, "ALLOWED") | {"mknod_dev": "DENIED"}
    assert list(tree.iterdir()) == []


def test_s12_processes_of_the_host(box: Sandbox, built: Path) -> None:
    """By pid nothing is reached, neither the parent nor a process of the same user."""
    with subprocess.Popen(["/bin/sleep", "60"]) as sleeper:
        confined = words(run(box, built, "s12_signal_ptrace", str(sleeper.pid).encode()).output)
        open_ = words(control(built, "s12_signal_ptrace", str(sleeper.pid)))
        assert sleeper.poll() is None
        sleeper.kill()
    assert {n for n, w in confined.items() if w == "ALLOWED"} <= {"kill0_all"}
    assert [open_[n] for n in ("kill0_victim", "ptrace_seize_victim", "pidfd_open_victim")] == ["ALLOWED"] * 3


def test_s14_constructors_are_confined(box: Sandbox, built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs inside dlopen runs under no_new_privs, the filter and Landlock already."""
    monkeypatch.setenv("SECRET_CANARY", "xyz")
    text = run(box, built, "s14_ctor").output.decode()
    assert "ctor_no_new_privs=1 ctor_seccomp_mode=2" in text
    assert words(text) == {"ctor_open_etc_passwd": "DENIED", "ctor_socket": "DENIED"}
    assert "ctor_saw_secret=0" in text
    free = control(built, "s14_ctor", SECRET_CANARY="xyz")
    assert words(free) == {"ctor_open_etc_passwd": "ALLOWED", "ctor_socket": "ALLOWED"}
    assert "ctor_saw_secret=1" in free


@pytest.mark.parametrize("payload", [b"", b"q"], ids=["exit", "_exit"])
def test_s16_exit_is_no_answer(box: Sandbox, built: Path, payload: bytes) -> None:
    """exit(0) and _exit(0) inside the call are errors with that code, never an empty success."""
    result = run(box, built, "s16_exit_inside", payload)
    assert (result.outcome, result.code) == (Outcome.ERROR, 0)


LIES = {
    b"n": (Outcome.ERROR, None),
    b"h": (Outcome.OUTPUT, None),
    b"s": (None, None),
    b"z": (Outcome.OK, b""),
    b"u": (Outcome.OK, b""),
    b"r": (Outcome.ERROR, None),
    b"m": (Outcome.ERROR, None),
    b"e": (Outcome.CRASHED, None),
}


@pytest.mark.parametrize("payload", LIES, ids=lambda p: p.decode())
def test_s18_lies_about_the_answer(box: Sandbox, built: Path, payload: bytes) -> None:
    """No lie about pointer or length reaches the host: each is the module's own failure, with its own code."""
    outcome, output = LIES[payload]
    result = run(box, built, "s18_liar", payload)
    if outcome is None:  # static memory: free() aborts, or the answer was taken before it
        assert result.outcome in (Outcome.CRASHED, Outcome.OK)
        return
    assert result.outcome is outcome
    assert result.code == {b"r": 7, b"m": -(2**31), b"z": 0, b"u": 0}.get(payload, result.code)
    assert output is None or result.output == output


@pytest.mark.parametrize("payload", [b"", b"s"], ids=["spins", "sleeps"])
def test_s20_only_sigkill_ends_it(built: Path, payload: bytes) -> None:
    """A module that blocks and ignores every signal is a timeout, in time."""
    with Sandbox(Policy.strict(timeout="400ms"), host=host()) as hurried:
        result = run(hurried, built, "s20_busy", payload)
    assert result.outcome is Outcome.TIMEOUT
    assert 0.4 <= result.usage.wall_s <= 0.65 + 0.5
    assert control(built, "s20_busy", payload.decode(), limit=1) == ""


def test_s22_flood(box: Sandbox, built: Path) -> None:
    """A flood neither blocks nor grows the host: the answer still comes, the streams are cut and flagged."""
    with Sandbox(Policy.strict(output="1MiB", cpu="2000m"), host=host()) as fresh:
        result = run(fresh, built, "s22_stdout_flood", b"16")
    assert result.output == b"flood_written=%d errno=0\n" % (32 * MIB)
    assert (len(result.stdout), len(result.stderr), result.truncated) == (MIB, MIB, True)


def test_s24_thread_left_behind(box: Sandbox, built: Path) -> None:
    """A spinning thread delays no answer, and is gone with its worker."""
    result = run(box, built, "s24_bg_thread")
    assert result.output == b"bg_thread errno=0\n"
    assert result.usage.wall_s < 1
    before = run(box, built, "s24_bg_thread").usage
    time.sleep(0.3)
    assert before.cpu_user_s is not None
    assert before.cpu_user_s < 0.25


def test_s26_fork_bomb(box: Sandbox, built: Path) -> None:
    """No process is granted: not one child comes up. With processes granted no more than the limit, and all end."""
    assert run(box, built, "s26_forkbomb").output.startswith(b"children=0 errno=1 ")
    need(counted(), "control groups")
    with Sandbox(Policy.strict(spawn=True, processes=12, timeout="20s"), host=host()) as granted:
        result = run(granted, built, "s26_forkbomb", b"200")
        assert result.output == b"children=11 errno=11 EAGAIN\n"
        assert result.breach is not None
        assert result.breach.guard is Guard.PROCESSES_MAX
        assert run(granted, built, "s30_big_io", b"fine").output == b"fine"


def test_s28_namespaces_and_mounts(box: Sandbox, built: Path) -> None:
    """Nothing of the kernel's administration is reached."""
    said = words(run(box, built, "s28_userns_mount").output)
    assert said == dict.fromkeys(said, "DENIED")
    assert len(said) == 14
    assert "ALLOWED" in words(control(built, "s28_userns_mount")).values()


@pytest.mark.parametrize("size", [0, 1, 65535, 65536, 65537, MIB, 32 * MIB])
def test_s30_payloads_both_ways(box: Sandbox, built: Path, size: int) -> None:
    """Any size goes in and comes out whole, NULs included, with no deadlock."""
    payload = (bytes(range(256)) * (size // 256 + 1))[:size]
    assert run(box, built, "s30_big_io", payload).output == payload
    assert run(box, built, "s30_big_io", b"N%d" % size).output == b"Z" * size


def test_s32_streams_and_signals(box: Sandbox, built: Path) -> None:
    """Standard input is at its end, signals are at their defaults and none is blocked, whatever the host does."""
    text = run(box, built, "s32_sigpipe_stdio").output.decode()
    assert "stdin poll=1 read=0 " in text
    assert "sigpipe_ignored=0 sigchld_ignored=0" in text
    assert "blocked_signals=0 umask=022" in text
