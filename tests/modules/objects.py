"""What the attacks aim at on the host, and the unconfined run of a module that shows an attack to be real.

`HostObjects(folder)` is a context manager: a sleeping process, TCP and UDP servers on the loopback, unix listeners with
a path and an abstract name, a hidden file, and a directory to change. Nothing needs root. `payload()` gives its keys as
a module reads them.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path

_LINE = re.compile(
    r"^(?P<name>\w+)=(?P<word>ALLOWED|DENIED|UNSUPPORTED|INFO)(?: errno=(?P<errno>\d+))?(?: (?P<rest>.*))?$", re.ASCII
)

# Soft limits only: the hard ones stay as they are, so that raise_* see what the host gave.
_LIMITS = "ulimit -S -c 0; ulimit -S -t 30; ulimit -S -v 2097152; ulimit -S -f 2097152; "
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "SECRET_CANARY": "sa-canary"}


@dataclass(frozen=True)
class Verdict:
    """One line of a module: `word` is ALLOWED, DENIED or UNSUPPORTED, `detail` the errno's name or "missing-key"."""

    word: str
    errno: int
    detail: str


def parse(text: str | bytes) -> dict[str, Verdict]:
    """The verdict lines of an output; INFO lines are `reports`."""
    found = (_LINE.match(line) for line in _text(text).splitlines())
    return {
        m["name"]: Verdict(m["word"], int(m["errno"] or 0), m["rest"] or "") for m in found if m and m["word"] != "INFO"
    }


def reports(text: str | bytes) -> dict[str, list[str]]:
    """The INFO lines of an output, by name: `environ`, `fd` and `limit` come many times."""
    answer: dict[str, list[str]] = {}
    for line in _text(text).splitlines():
        if (m := re.match(r"^([A-Za-z0-9_]+)=INFO ?(.*)$", line)) is not None:
            answer.setdefault(m[1], []).append(m[2])
    return answer


def _text(text: str | bytes) -> str:
    return text if isinstance(text, str) else bytes(text).decode("utf-8", "replace")


@dataclass(frozen=True)
class Run:
    """How an unconfined run ended: `status` as subprocess has it (negative for a signal), None after the time limit."""

    status: int | None
    stdout: bytes
    stderr: bytes

    @property
    def output(self) -> bytes:
        """The module's answer: what follows the loader's line."""
        return self.stdout.split(b"\n", 1)[-1]

    @property
    def head(self) -> bytes:
        """The loader's line, `rc=N outn=N`; it may follow what the module itself wrote to descriptor 1."""
        return b"".join(re.findall(rb"rc=-?\d+ outn=\d+", self.stdout)[:1])


def run_unconfined(
    loader: Path, module: Path, payload: bytes = b"", *, timeout: float = 30, shell_parent: bool = False
) -> Run:
    """Runs a module through the loader: bounded, in a session of its own that is killed afterwards.

    With `shell_parent` a shell stays as the parent (and group and session leader), for the attacks upon a parent.
    """
    script = _LIMITS + ('"$0" "$@"; exit $?' if shell_parent else 'exec "$0" "$@"')
    process = subprocess.Popen(
        ["/bin/sh", "-c", script, str(loader), str(module), "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(payload, timeout=timeout)
        return Run(process.returncode, out, err)
    except subprocess.TimeoutExpired:
        _kill_session(process.pid)
        out, err = process.communicate()
        return Run(None, out, err)
    finally:
        _kill_session(process.pid)


def _kill_session(leader: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


class HostObjects:
    """The things of the host that attacks try to reach: made on entry below `folder`, all but files gone on exit.

    Take a fresh one for each confined run: a half-open sandbox may let an attack change `dir` and not undo it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.dir = folder / "dir"
        self.victim = self.dir / "victim"
        self.hidden = folder / "hidden" / "secret-name"
        self.unix = folder / "listener"
        self.abstract = f"sandboxactor-test-{os.getpid()}-{id(self):x}"
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> HostObjects:
        for made in (self.dir / "sub", self.dir / "emptydir", self.hidden.parent):
            made.mkdir(parents=True)
        (self.dir / "emptydir").chmod(0o700)
        self.victim.write_text("victim\n")
        (self.dir / "expendable").touch(mode=0o600)
        self.hidden.write_text("hidden\n")
        self.sleeper = self._stack.enter_context(subprocess.Popen(["/bin/sleep", "3600"]))
        self._stack.callback(self.sleeper.kill)
        self._tcp = self._listen(socket.AF_INET, ("127.0.0.1", 0))
        self._listen(socket.AF_UNIX, "\0" + self.abstract)
        self._listen(socket.AF_UNIX, str(self.unix))
        self._udp = self._stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        self._udp.bind(("127.0.0.1", 0))
        self._stop = threading.Event()
        self._udp.settimeout(0.1)
        echo = threading.Thread(target=self._echo, daemon=True)
        echo.start()
        self._stack.callback(echo.join)
        self._stack.callback(self._stop.set)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _listen(self, family: int, address: tuple[str, int] | str) -> socket.socket:
        server = self._stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
        server.bind(address)
        server.listen(64)
        return server

    def _echo(self) -> None:
        while not self._stop.is_set():
            with contextlib.suppress(TimeoutError):
                data, peer = self._udp.recvfrom(64)
                self._udp.sendto(data, peer)

    @property
    def keys(self) -> dict[str, str]:
        """Every payload key that some module reads, but `probe`."""
        return {
            "pid": str(self.sleeper.pid),
            "tcp": str(self._tcp.getsockname()[1]),
            "udp": str(self._udp.getsockname()[1]),
            "abstract": self.abstract,
            "unix": str(self.unix),
            "hidden": str(self.hidden),
            "victim": str(self.victim),
            "dir": str(self.dir),
            "read": str(self.hidden),
            "list": str(self.hidden.parent),
        }

    def payload(self, probe: str = "") -> bytes:
        """The payload for one probe, or for all that may run together."""
        lines = [f"probe={probe}", *(f"{name}={value}" for name, value in self.keys.items())]
        return "\n".join(lines).encode() + b"\n"

    def snapshot(self) -> dict[str, tuple[int, ...]]:
        """Mode and owner of everything attacked, the victim's size, time and inode: equal before and after a run."""
        seen = sorted(self.dir.rglob("*"))
        return {str(p): (p.lstat().st_mode, p.lstat().st_uid, p.lstat().st_gid, *self._content(p)) for p in seen}

    def _content(self, path: Path) -> tuple[int, ...]:
        """Some attacks make `expendable` and directories again; only `victim` must keep its size and time."""
        st = path.lstat()
        return (st.st_size, int(st.st_mtime), st.st_ino) if path == self.victim else ()
