"""Run a command of this checkout on another kernel: Debian's, booted under qemu, over a read-only view of this root."""


class UnavailableError(Exception):
    """Cannot run here: one line that names what is missing and how to get it."""
