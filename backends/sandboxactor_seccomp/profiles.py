"""The native profile as data: what a module's process may call, and with which arguments.

Everything named nowhere here is refused: EPERM up to the newest call this profile was written against, ENOSYS beyond
it and for the calls in FALL_BACK, so that a libc takes its older way. Calls of another ABI end the process.
"""

from __future__ import annotations

# Memory, time, threads, signals to itself, descriptors it has: what any C, C++, Rust, Zig or Go library needs.
PLAIN = """
read write readv writev pread64 pwrite64 preadv pwritev close lseek fstat newfstatat stat lstat statx
access faccessat faccessat2 readlink readlinkat getdents64 getcwd fsync fdatasync
dup dup2 dup3 pipe pipe2 poll ppoll select pselect6 epoll_create1 epoll_ctl epoll_wait epoll_pwait eventfd2
timerfd_create timerfd_settime timerfd_gettime
mprotect munmap mremap brk madvise mincore mlock munlock membarrier msync
futex set_robust_list get_robust_list rseq set_tid_address sched_yield sched_getaffinity getcpu
rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigsuspend rt_sigtimedwait sigaltstack pause
nanosleep clock_nanosleep clock_gettime clock_getres gettimeofday time times getitimer setitimer alarm
timer_create timer_settime timer_gettime timer_getoverrun timer_delete restart_syscall
getpid gettid getppid getuid geteuid getgid getegid getresuid getresgid getgroups getpgrp getsid
getrusage getrlimit setrlimit getrandom uname sysinfo umask exit exit_group capget capset
""".split()

# Only where a tree is writable: /tmp or a workspace.
WRITING = """
rmdir unlink unlinkat rename renameat renameat2 link linkat symlink symlinkat
truncate ftruncate fallocate utime utimes utimensat futimesat chdir fchdir flock sync_file_range copy_file_range
fstatfs statfs fadvise64 readahead
""".split()

# Answered as if the kernel did not have them: libc and runtimes then use a call that the filter can look into.
FALL_BACK = "clone3 openat2 io_uring_setup pidfd_open memfd_secret statmount listmount epoll_pwait2 futex_waitv".split()

# (call, index of the mode argument), with WRITING only: no set-user-id or set-group-id bit in any mode, no device.
MODES = (("chmod", 1), ("fchmod", 1), ("fchmodat", 2), ("fchmodat2", 2), ("mkdir", 1), ("mkdirat", 2))
NODES = (("mknod", 1), ("mknodat", 2))
SPECIAL_BITS = 0o6000
S_IFMT, S_IFIFO, S_IFREG = 0o170000, 0o010000, 0o100000

# (call, index of the flags, of the mode). Without WRITING, open(2) reads and nothing else: Landlock before ABI 3 does
# not see O_TRUNC.
OPENING = (("open", 1, 2), ("openat", 2, 3))
O_MAKES = 0o100 | 0o20000000  # O_CREAT, and what makes O_TMPFILE out of O_DIRECTORY
O_WRITES = O_MAKES | 0o3 | 0o1000  # the access mode, O_TRUNC

# fcntl: descriptor and status flags. Not F_SETOWN and F_SETSIG (signals), F_SETPIPE_SZ (memory), leases.
FCNTL = {
    "F_DUPFD": 0,
    "F_GETFD": 1,
    "F_SETFD": 2,
    "F_GETFL": 3,
    "F_SETFL": 4,
    "F_DUPFD_CLOEXEC": 1030,
    "F_GETPIPE_SZ": 1032,
}
FCNTL_LOCKS = {"F_GETLK": 5, "F_SETLK": 6, "F_SETLKW": 7, "F_OFD_GETLK": 36, "F_OFD_SETLK": 37, "F_OFD_SETLKW": 38}

# ioctl: is it a terminal, how much is there, close on exec. TIOCSTI and every other are refused.
IOCTL = {
    "TCGETS": 0x5401,
    "TIOCGWINSZ": 0x5413,
    "FIONREAD": 0x541B,
    "FIONBIO": 0x5421,
    "FIOCLEX": 0x5451,
    "FIONCLEX": 0x5450,
}

# prctl with one option each: names, read-backs, and the parent-death signal only as the worker itself sets it.
PRCTL = {
    "PR_GET_PDEATHSIG": 2,
    "PR_GET_DUMPABLE": 3,
    "PR_SET_NAME": 15,
    "PR_GET_NAME": 16,
    "PR_GET_SECCOMP": 21,
    "PR_CAPBSET_READ": 23,
    "PR_GET_TIMERSLACK": 30,
    "PR_GET_NO_NEW_PRIVS": 39,
    "PR_GET_TID_ADDRESS": 40,
}
PRCTL_EXACT = ((1, 9), (4, 0))  # PR_SET_PDEATHSIG to SIGKILL, PR_SET_DUMPABLE to 0
SECCOMP_SET_MODE_FILTER = 1
PR_SET_VMA, PR_SET_VMA_ANON_NAME = 0x53564D41, 0

# clone: threads only. Every flag of a new namespace or of a process of its own is refused.
THREAD = 0x00010F00  # CLONE_VM, CLONE_FS, CLONE_FILES, CLONE_SIGHAND, CLONE_THREAD
NEW_NAMESPACES = 0x7E020080  # CLONE_NEW*: time, mount, cgroup, uts, ipc, user, pid, net

CLONE_NEWUSER = 0x10000000

# Calls of the stem alone, let pass only with its key in the sixth argument (see spawn.c).
KEYED = ("clone3", "recvmsg", "wait4", "waitid")

MAP_SHARED_BITS, MAP_GROWSDOWN, MAP_HUGETLB = 0x01, 0x0100, 0x40000
CLOSE_RANGE_UNSHARE = 2

# Spawning, where it is granted: everything a program needs to start others and wait for them.
SPAWNING = "vfork fork execve wait4 waitid setpgid getpgid setsid clone".split()

ARCH_SET_FS = 0x1002  # a started program sets up its threads' storage with it

# The newest call each architecture had when this was written (Linux 6.18): beyond it ENOSYS, not EPERM.
NEWEST = {"x86_64": 469, "aarch64": 469}
