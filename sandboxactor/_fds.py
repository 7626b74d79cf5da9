"""Descriptors above 2 (a host that closed its own 0 to 2 must not print into ours), and none lost to a signal."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import threading
from collections.abc import Iterator

__all__ = ["high", "open_high", "signals_held"]


@contextlib.contextmanager
def signals_held() -> Iterator[None]:
    """Signal handlers wait until what is made in here has an owner: one that raised between a call and the storing of
    its result would lose a process or a descriptor."""
    if threading.current_thread() is not threading.main_thread():  # Python runs handlers in the main thread alone
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:  # already around the blocking: a pending handler may run, and raise, on the way out of that very call
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def high(fd: int) -> int:
    """The descriptor, moved above 2 where it is not."""
    if fd > 2:
        return fd
    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
    finally:
        os.close(fd)


def open_high(path: str, flags: int) -> int:
    """open(2), close-on-exec, the descriptor above 2."""
    return high(os.open(path, flags | os.O_CLOEXEC))
