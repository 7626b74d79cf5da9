"""Payloads and answers of every size and shape, alone and at once."""

from __future__ import annotations

import array
import os
import random
import threading
import time

import pytest

from sandboxactor import Outcome, PayloadTooLarge

from .kit import ECHO, VERDICTS, box, clean_after, echoes, fds, together

MIB = 1 << 20


def _pattern(size: int, seed: int = 0) -> bytes:
    """Bytes in which no two pages are alike."""
    return random.Random(seed).randbytes(size) if size else b""


def sizes() -> None:
    """0 B, 1 B, around pages and around 64 KiB and its multiples, in both orders: the same bytes come back."""
    around = (k * 65536 + d for k in (1, 2, 3, 4, 5, 8) for d in (-1, 0, 1))
    edges = [0, 1, 7, 8, 4095, 4096, 4097, *around, 262144 + 4096, MIB]
    with box() as b:
        for size in [*edges, *reversed(edges), *random.Random(1).sample(edges, len(edges))]:
            echoes(b, _pattern(size, size))


def large() -> None:
    """16 MiB and 64 MiB in and out, then one byte, on the same Sandbox; a byte too many is PayloadTooLarge, at the
    call."""
    before = fds()
    with box(output="64MiB", memory="1GiB") as b:
        for size in (16 * MIB, 64 * MIB, 1, 64 * MIB - 1, 0, 16 * MIB):
            echoes(b, _pattern(size, size))
        with pytest.raises(PayloadTooLarge):
            b.run(ECHO, bytes(64 * MIB + 1))
        echoes(b)
    clean_after(before)


def answer_at_its_limit() -> None:
    """An answer of exactly `output` bytes is whole, for limits on and off page edges; one more is `output`."""
    for limit in (1, 4096, 65536, 65537, 262144, 262145, MIB, 8 * MIB + 1):
        with box(output=limit) as b:
            assert b.run(VERDICTS, b"big:%d" % limit).output == b"Z" * limit
            over = b.run(VERDICTS, b"big:%d" % (limit + 1))
            assert over.outcome is Outcome.OUTPUT, (limit, over)
            assert over.breach is not None
            assert b.run(VERDICTS, b"big:%d" % limit).output == b"Z" * limit


def input_at_its_limit() -> None:
    """A payload of exactly `input` bytes passes, for limits on and off page edges and 0; one more does not."""
    for limit in (1, 100, 4096, 65536, 65537, 100_001):
        with box(input=limit) as b:
            echoes(b, _pattern(limit))
            echoes(b, b"")
            with pytest.raises(PayloadTooLarge):
                b.run(ECHO, bytes(limit + 1))


def shapes() -> None:
    """Strided, reversed, multi-dimensional, typed and read-only views are the bytes that tobytes() says."""
    base = bytes(range(256)) * 512
    views = [
        memoryview(base)[::2], memoryview(base)[::-1], memoryview(base)[3:-7:5], memoryview(base)[100:100],
        memoryview(array.array("i", range(5000))), memoryview(array.array("d", range(999)))[::3],
        memoryview(bytearray(base)).cast("B", (256, 512)), memoryview(base)[::2].toreadonly(),
    ]  # fmt: skip
    with box() as b:
        for view in views:
            assert b.run(ECHO, view).output == view.tobytes()
        for whole in (bytearray(base), array.array("H", range(3000)), memoryview(base)):
            assert b.run(ECHO, whole).output == bytes(whole)
        for wrong in ("text", None, 5, [1], object()):
            with pytest.raises(TypeError):
                b.run(ECHO, wrong)
        echoes(b)


def changed_while_it_runs() -> None:
    """A bytearray that its owner overwrites as soon as the run has begun: what was passed is what is answered; and the
    buffer is free again, to be resized."""
    with box() as b:
        echoes(b)
        for turn in range(30):
            data = bytearray(b"a" * 300_000)
            stop = threading.Event()

            def scribble(data: bytearray = data, stop: threading.Event = stop) -> None:
                time.sleep(0.0002 * (turn % 10))  # noqa: B023
                while not stop.is_set():
                    data[:] = os.urandom(1) * len(data)

            thread = threading.Thread(target=scribble, daemon=True)
            thread.start()
            answer = b.run(ECHO, memoryview(data)[:]).output
            stop.set()
            thread.join()
            assert len(set(answer)) == 1, "a payload was not copied first"
            data.append(1)


def concurrent_large() -> None:
    """Eight threads, each with its own 4 to 20 MiB, four turns: no byte of another's."""
    before = fds()
    with box(output="64MiB", memory="1GiB") as b:

        def work(me: int) -> None:
            for turn in range(4):
                echoes(b, _pattern((4 + 2 * me + turn) * MIB + me, me * 10 + turn))

        together([lambda me=me: work(me) for me in range(8)])  # type: ignore[misc]
    clean_after(before)


def nothing_of_the_last_run() -> None:
    """After a large secret, a module that reads its whole shared memory finds none of it; nor does a small answer."""
    with box(output="1MiB") as b:
        secret = b"secret-of-the-last-run " * 20_000
        echoes(b, secret)
        for word in (b"scribble_shm", b"echo:x", b"nothing"):
            assert b"secret" not in b.run(VERDICTS, word).output
        echoes(b, b"s")
        leak = open("/proc/self/maps").read()  # noqa: SIM115
        assert "memfd:sandboxactor" not in leak, "a mapping outlives its run"


def answers_are_independent() -> None:
    """Results that are kept are never overwritten by later runs on the same lane, small or mapped."""
    with box() as b:
        kept = [b.run(ECHO, _pattern(size, size)) for size in (1, 1000, 200_000, 300_000, 2 * MIB) for _ in range(3)]
        for _ in range(10):
            echoes(b, b"\xff" * 2 * MIB)
        for result in kept:
            size = len(result.output)
            assert result.output == _pattern(size, size)
