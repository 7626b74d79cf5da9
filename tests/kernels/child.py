"""Execute a program that dies with its parent, and with --read-only in a mount namespace that cannot be written.

Run as a script. The second is for virtiofsd: root in the guest may remount what it was given, not what the host gives.
"""

import ctypes
import os
import signal
import struct
import sys

PR_SET_PDEATHSIG = 1
CLONE_NEWNS = 0x20000
SYS_MOUNT_SETATTR = 442
AT_FDCWD, AT_RECURSIVE = -100, 0x8000
MOUNT_ATTR_RDONLY = 1
MS_PRIVATE = 1 << 18


def _check(result: int, call: str) -> None:
    if result:
        raise OSError(ctypes.get_errno(), f"{call}: {os.strerror(ctypes.get_errno())}")


def main(argv: list[str]) -> None:
    """Execute the program; only an error returns, as an exception."""
    libc = ctypes.CDLL(None, use_errno=True)
    _check(libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL), "prctl")
    if argv[0] == "--read-only":
        argv = argv[1:]
        _check(libc.unshare(CLONE_NEWNS), "unshare")
        # struct mount_attr of mount_setattr(2): attr_set, attr_clr, propagation, userns_fd.
        attributes = struct.pack("=4Q", MOUNT_ATTR_RDONLY, 0, MS_PRIVATE, 0)
        result = libc.syscall(SYS_MOUNT_SETATTR, AT_FDCWD, b"/", AT_RECURSIVE, attributes, len(attributes))
        _check(result, "mount_setattr")
    os.execv(argv[0], argv)


if __name__ == "__main__":
    main(sys.argv[1:])
