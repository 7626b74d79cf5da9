"""An allow list of system calls, seccomp(2), built by libseccomp.

Mechanism    profiles.py names what a native module may call; filters.py builds it with pyseccomp and exports BPF.
             Refused calls answer EPERM; what libc can do another way, and what is newer than the profile, ENOSYS;
             a call of another ABI (int 0x80, x32) ends the process. Arguments are compared by their low 32 bits, as
             the kernel reads them. The stem installs the filter once and its workers are born with it; clone lets
             threads pass, and processes only with a 64-bit key that the stem alone has (_worker/spawn.c).
Guards       NO_SPAWN, NETWORK_OFF.
Needs        CONFIG_SECCOMP_FILTER, libseccomp 2.5, x86_64 or aarch64.
Closes       chown, xattr, mknod of devices, path unix sockets, device ioctls, memfd, SysV and POSIX queues, pipe sizes;
             chmod, utimes, truncation and record locks where no tree is writable.
Can NOT      look behind a pointer, so openat2 and clone3 are ENOSYS; tell which path a call is about.
"""
