"""One boot: qemu and virtiofsd joined by inherited sockets, so that nothing is on disk and nothing outlives us."""

import contextlib
import os
import re
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

CPUS, MEMORY = 2, "2048M"
EXIT_BROKEN, EXIT_TIMEOUT = 70, 124
LOG_BYTES = 16384
CHANNELS = ("out", "status", "console")


def qemu_args(qemu: str, vmlinuz: str, initrd: int, filesystem: int, channels: Mapping[str, int]) -> list[str]:
    """Return qemu's command line; every number is a descriptor it inherits."""
    argv = [qemu, "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]
    argv += ["-accel", "tcg,thread=multi", "-cpu", "max", "-smp", str(CPUS), "-m", MEMORY]
    argv += ["-object", f"memory-backend-memfd,id=mem,size={MEMORY},share=on", "-numa", "node,memdev=mem"]
    argv += ["-kernel", vmlinuz, "-initrd", f"/proc/self/fd/{initrd}"]
    # A panic reboots at once, which -no-reboot makes the end of qemu.
    argv += ["-append", "console=ttyS0 quiet panic=-1"]
    argv += ["-chardev", f"socket,id=root,fd={filesystem}", "-device", "vhost-user-fs-pci,chardev=root,tag=root"]
    for name, descriptor in channels.items():
        argv += ["-chardev", f"socket,id={name},fd={descriptor}"]
    argv += ["-serial", "chardev:console", "-device", "virtio-serial-pci"]
    return [*argv, "-device", "virtserialport,chardev=out,nr=1", "-device", "virtserialport,chardev=status,nr=2"]


def virtiofsd_args(virtiofsd: str, listener: int) -> list[str]:
    """Return virtiofsd's command line for the whole root."""
    return [virtiofsd, f"--fd={listener}", "-o", "source=/", "-o", "cache=always", "-o", "sandbox=chroot"]


@contextlib.contextmanager
def _child(argv: Sequence[str], pass_fds: Sequence[int], stderr: socket.socket) -> Iterator[None]:
    """Run a program through child.py; it is killed and reaped on the way out, however that is."""
    helper = [sys.executable, "-I", str(Path(__file__).with_name("child.py"))]
    quiet = subprocess.DEVNULL
    # A session of its own, so that the terminal's Ctrl-C reaches us alone.
    process = subprocess.Popen(
        [*helper, *argv], stdin=quiet, stdout=quiet, stderr=stderr, pass_fds=pass_fds, start_new_session=True
    )
    try:
        yield
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def _machine(tools: Mapping[str, str], vmlinuz: str, initramfs: bytes) -> Iterator[dict[str, socket.socket]]:
    """Boot; yield our end of each channel. The guest's ends are qemu's alone, so they close when it ends."""
    with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
        pairs = {name: socket.socketpair() for name in CHANNELS}
        for near, far in pairs.values():
            ours.enter_context(near)
            theirs.enter_context(far)
        # An unnamed bind takes an abstract address; our own connection is in the queue before virtiofsd accepts one.
        listener = theirs.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind("")
        listener.listen(1)
        filesystem = theirs.enter_context(socket.socket(socket.AF_UNIX))
        filesystem.connect(listener.getsockname())
        image = theirs.enter_context(open(os.memfd_create("initramfs"), "w+b"))
        image.write(initramfs)
        image.flush()
        far_ends = {name: far.fileno() for name, (_, far) in pairs.items()}
        share = ["--read-only", *virtiofsd_args(tools["virtiofsd"], listener.fileno())]
        ours.enter_context(_child(share, [listener.fileno()], pairs["console"][1]))
        argv = qemu_args(tools["qemu"], vmlinuz, image.fileno(), filesystem.fileno(), far_ends)
        passed = [image.fileno(), filesystem.fileno(), *far_ends.values()]
        ours.enter_context(_child(argv, passed, pairs["console"][1]))
        theirs.close()
        yield {name: near for name, (near, _) in pairs.items()}


def _relay(channels: Mapping[str, socket.socket], began: float, timeout: float, out: BinaryIO) -> dict[str, bytes]:
    """Copy the command's output until qemu ends; return the last of the other channels."""
    kept = dict.fromkeys(CHANNELS, b"")
    with selectors.DefaultSelector() as selector:
        for name, channel in channels.items():
            selector.register(channel, selectors.EVENT_READ, name)
        while {key.data for key in selector.get_map().values()} - {"console"}:
            ready = selector.select(max(0, began + timeout - time.monotonic()))
            if not ready and time.monotonic() >= began + timeout:
                raise TimeoutError
            for key, _ in ready:
                data = key.fileobj.recv(65536)
                if not data:
                    selector.unregister(key.fileobj)
                elif key.data == "out":
                    out.write(data)
                    out.flush()
                else:
                    kept[key.data] = (kept[key.data] + data)[-LOG_BYTES:]
                    if data.startswith(b"start"):
                        print(f"kernels: command started after {time.monotonic() - began:.1f} s", file=sys.stderr)
    return kept


def run(tools: Mapping[str, str], vmlinuz: Path, initramfs: bytes, timeout: float, out: BinaryIO) -> int:
    """Boot and return the command's exit status, EXIT_TIMEOUT, or EXIT_BROKEN where the VM ended without one."""
    began = time.monotonic()
    try:
        with _machine(tools, str(vmlinuz), initramfs) as channels:
            kept = _relay(channels, began, timeout, out)
    except TimeoutError:
        print(f"kernels: killed after the timeout of {timeout:g} s", file=sys.stderr)
        return EXIT_TIMEOUT
    code = re.search(rb"^exit (\d+)", kept["status"], re.MULTILINE)
    if code is None:
        log = kept["console"].decode(errors="replace").strip()
        print(f"{log}\nkernels: the VM ended before the command did; its console is above", file=sys.stderr)
        return EXIT_BROKEN
    print(f"kernels: exit status {int(code[1])} after {time.monotonic() - began:.1f} s", file=sys.stderr)
    return int(code[1])
