"""The one call of Landlock that the host makes itself: which version this kernel has (landlock_create_ruleset(2))."""

from __future__ import annotations

import ctypes
import errno

SYS_LANDLOCK_CREATE_RULESET = 444
CREATE_RULESET_VERSION = 1


def version() -> int:
    """The ABI version, or 0 where the kernel has none, switched it off at boot, or a filter hides it."""
    libc = ctypes.CDLL(None, use_errno=True)
    found = libc.syscall(SYS_LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(CREATE_RULESET_VERSION))
    if found < 0 and ctypes.get_errno() in (errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM):
        return 0
    return max(0, int(found))
