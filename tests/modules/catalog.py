"""Every attack as data: where it is, what it needs, what it gives unconfined and what it must give inside.

A confinement test runs each module of MODULES once with `HostObjects.payload()`, then each `alone` probe by name, and
asks `holds(probe, word)`. A probe that leaves no line has replaced or ended the process: an escape, unless a SIGSYS was
expected. The unconfined half is test_controls.py. What is left open are the probes of SURFACE that say ALLOWED.
"""

from __future__ import annotations

from dataclasses import dataclass

YES = frozenset({"ALLOWED"})  # Root without confinement can do it.
KERNEL = frozenset({"ALLOWED", "UNSUPPORTED"})  # Where the kernel has it.
ENV = frozenset({"ALLOWED", "DENIED", "UNSUPPORTED"})  # Depends on the machine: devices, capabilities, file system.
NOT_RUN = frozenset[str]()  # Would disturb others unconfined; its *_pid form is the control.

DENIED, ALLOWED, SIGSYS, ANY = "DENIED", "ALLOWED", "SIGSYS", "ANY"


@dataclass(frozen=True)
class Probe:
    """One attack.

    confined: DENIED, ALLOWED (legitimate, must go on working), SIGSYS (the filter kills the process), or ANY
    (nothing is promised).
    unconfined: the words that root may get without confinement, one of the four sets above.
    layer: "" always promised; "mount_ns" closed only by a mount namespace; "combined" refused where memory is held
    without a cgroup; "extra" beyond what the issue lists, wanted all the same.
    alone: runs only when named.
    """

    name: str
    module: str
    needs: tuple[str, ...] = ()
    confined: str = DENIED
    unconfined: frozenset[str] = YES
    layer: str = ""
    alone: bool = False

    @property
    def id(self) -> str:
        return f"{self.module}:{self.name}"


def _probes(module: str, names: str, **rest: object) -> list[Probe]:
    return [Probe(name, module, **rest) for name in names.split()]  # type: ignore[arg-type]


def _surface() -> tuple[Probe, ...]:
    m = "surface"
    return (
        *_probes(
            m,
            "unshare_userns unshare_mnt clone3_userns setns mount fsopen chroot pivot_root ptrace "
            "process_vm_readv pidfd_getfd",
        ),
        *_probes(m, "kcmp bpf perf_event_open userfaultfd io_uring_setup keyctl add_key", unconfined=KERNEL),
        *_probes(m, "open_by_handle_at name_to_handle_at"),
        *_probes(m, "kexec_load init_module", unconfined=KERNEL),
        *_probes(m, "reboot sethostname swapon syslog"),
        *_probes(m, "iopl quotactl acct", unconfined=KERNEL),
        *_probes(m, "setpriority personality"),
        *_probes(
            m,
            "memfd_secret modify_ldt landlock_create seccomp_notif_sizes vsock packet netlink alg",
            unconfined=KERNEL,
        ),
        *_probes(m, "raw_icmp inet_dgram"),
        *_probes(m, "udp_loopback", needs=("udp",)),
        *_probes(m, "tcp_loopback", needs=("tcp",)),
        *_probes(m, "abstract_unix", needs=("abstract",)),
        *_probes(m, "path_unix", needs=("unix",)),
        *_probes(m, "signal_host", needs=("pid",)),
        *_probes(m, "read_etc_shadow"),
        *_probes(m, "read_root_bashrc read_proc_1_environ", unconfined=ENV),
        *_probes(m, "stat_hidden", needs=("hidden",), layer="mount_ns"),
        *_probes(m, "read_host_file write_beside chmod utime setxattr mknod set_user_id", needs=("victim",)),
        *_probes(m, "memfd_exec"),
        *_probes(m, "int80 x32", confined=SIGSYS, unconfined=KERNEL, alone=True),
        *_probes(m, "capability no_new_privs"),
    )


def _files_seen() -> tuple[Probe, ...]:
    m, d = "escape_files", ("dir",)
    return (
        *_probes(
            m,
            "read_passwd read_shadow read_environ_self read_mounts read_by_dotdot list_root list_etc "
            "list_home list_proc",
        ),
        *_probes(
            m,
            "read_hostname read_environ_1 read_cmdline_1 read_dmesg read_kallsyms read_sys readlink_exe",
            unconfined=ENV,
        ),
        *_probes(m, "open_disk open_mem", unconfined=ENV),
        *_probes(m, "read_given", needs=("read",)),
        *_probes(m, "list_given", needs=("list",)),
        *_probes(m, "read_by_root_link", needs=("pid",)),
        *_probes(m, "stat_shadow", layer="mount_ns"),
        *_probes(m, "stat_victim access_victim open_path_only chdir_dir", needs=d, layer="mount_ns"),
    )


def _files_changed() -> tuple[Probe, ...]:
    m, d = "escape_files", ("dir",)
    return (
        *_probes(
            m,
            "open_core_pattern open_own_mem create_in_tmp create_in_var_tmp create_in_shm create_in_root create_in_cwd",
        ),
        *_probes(
            m,
            "read_dir_victim write_victim create_file create_openat2 create_creat make_dir remove_dir remove_file",
            needs=d,
        ),
        *_probes(m, "make_link link_by_proc make_symlink move_file move_across", needs=d),
        *_probes(m, "create_tmpfile move_exchange fchmodat2_victim", needs=d, unconfined=KERNEL),
        *_probes(m, "mknod_char mknod_block mknod_fifo mknod_socket mknod_file make_fifo bind_path", needs=d),
        *_probes(
            m,
            "chmod_victim fchmod_victim fchmodat_victim chown_victim lchown_victim fchown_victim fchownat_victim",
            needs=d,
        ),
        *_probes(
            m,
            "utime_victim utimes_victim utimensat_victim futimens_victim truncate_victim ftruncate_victim open_trunc",
            needs=d,
        ),
        *_probes(
            m,
            "fallocate_victim setxattr_user setxattr_trusted fsetxattr_user removexattr_none",
            needs=d,
            unconfined=KERNEL,
        ),
        *_probes(m, "inode_flags", needs=d, unconfined=ENV),
        *_probes(m, "suid_open suid_fchmod sgid_chmod map_executable flock_victim lease_victim", needs=d),
        *_probes(m, "umask_open", confined=ANY),
    )


BY_PID = (
    "kill tgkill tkill sigqueue tgsigqueue pidfd_open pidfd_signal pidfd_getfd vm_readv vm_writev prlimit_get "
    "prlimit_set setpriority affinity scheduler ioprio kcmp setown setown_ex proc_mem proc_environ proc_fd"
)
BY_PID_NUMA = "madvise migrate move_pages"
BY_PID_EXTRA = "getpriority getpgid robust_list proc_cmdline proc_root proc_oom"


def _by_pid(attack: str, unconfined: frozenset[str], layer: str = "", disturbs: bool = False) -> list[Probe]:
    m = "escape_process"
    return [
        Probe(f"{attack}_pid", m, ("pid",), DENIED, unconfined, layer),
        Probe(f"{attack}_parent", m, (), DENIED, unconfined, layer),
        Probe(f"{attack}_any", m, (), DENIED, NOT_RUN if disturbs else ENV, layer, alone=disturbs),
    ]


def _process() -> tuple[Probe, ...]:
    m = "escape_process"
    return (
        *_probes(
            m,
            "do_fork libc_fork do_vfork clone_plain clone_no_signal clone_files clone_high_bits clone_vm "
            "clone3_fork spawn",
        ),
        *_probes(m, "execve_true execve_shell execve_self execveat_path execveat_memfd"),
        *_probes(m, "execve_loader", unconfined=ENV),
        *_probes(m, "clone_parent execve_real", alone=True),
        *_probes(m, "clone_sighand"),
        *_probes(m, "thread_newns thread_newuts thread_newipc thread_newnet thread_newcgroup", unconfined=KERNEL),
        *_probes(m, "thread thread_raw", confined=ALLOWED),
        *_probes(m, "kill_group"),
        # Answer 0 wherever there is somebody to refuse: test_attacker.py sends true signals and looks who lives.
        *_probes(m, "kill_all kill_session", layer="mount_ns"),
        *(p for a in BY_PID.split() for p in _by_pid(a, YES)),
        *(p for a in BY_PID_NUMA.split() for p in _by_pid(a, KERNEL)),
        *(p for a in BY_PID_EXTRA.split() for p in _by_pid(a, YES, "extra")),
        *(p for a in ("ptrace", "async") for p in _by_pid(a, YES, disturbs=True)),
    )


NAMESPACES = ("NEWNS", "NEWUTS", "NEWIPC", "NEWUSER", "NEWPID", "NEWNET", "NEWCGROUP", "NEWTIME")


def _kernel() -> tuple[Probe, ...]:
    m = "escape_kernel"
    ways = ("unshare", "clone", "clone3", "setns", "setns_parent")
    return (
        *(Probe(f"{way}_{ns}", m, unconfined=KERNEL) for ns in NAMESPACES for way in ways),
        *_probes(
            m,
            "mount_type mount_tmpfs mount_remount umount_file fs_open fs_config fs_mount fs_pick move_mount_none",
        ),
        *_probes(m, "open_tree_clone open_tree_plain mount_setattr_none pivot chroot_same"),
        *_probes(m, "statmount_root", unconfined=KERNEL),
        *_probes(m, "bpf_map perf_user perf_kernel keyctl_id key_add key_request userfault", unconfined=KERNEL),
        *_probes(m, "userfault_device", unconfined=ENV),
        *_probes(m, "personality_aslr personality_exec swap_on swap_off reboot_magic syslog_size syslog_read"),
        *_probes(
            m,
            "io_level io_port ldt_read ldt_write acct_file quota_sync kexec module_load module_fd module_delete",
            unconfined=KERNEL,
        ),
        *_probes(m, "fanotify fanotify_content sysv_shm sysv_sem sysv_msg posix_mq", unconfined=KERNEL),
        *_probes(m, "shm_info inotify_root", unconfined=KERNEL, layer="extra"),
        *_probes(m, "tiocsti tiocsti_high tioclinux tioclinux_high"),
        *_probes(m, "tiocsctty", layer="extra"),
        *_probes(m, "seccomp_filter seccomp_listener seccomp_prctl"),
        *_probes(m, "landlock_version landlock_ruleset landlock_rule", unconfined=KERNEL),
        # Reached, since workers enforce their domain behind the filter; without a ruleset there is nothing to pass.
        *_probes(m, "landlock_restrict", unconfined=KERNEL, confined=ANY),
        *_probes(m, "time_zone time_adjust hostname_same domainname_same"),
    )


TYPES = ("stream", "dgram", "raw", "seqpacket")
_SURE = ("1_stream", "1_dgram", "1_seqpacket", "2_stream", "2_dgram", "2_raw", "16_raw", "17_raw")


def _sockets() -> tuple[Probe, ...]:
    m = "escape_sockets"
    every = (f"{family}_{kind}" for family in range(46) for kind in TYPES)
    return (
        *(Probe(f"socket_{name}", m, unconfined=YES if name in _SURE else ENV) for name in every),
        *_probes(m, "high_family high_type high_unix typed_flags pair_stream pair_dgram"),
        *_probes(m, "mptcp sctp uring uring_enter uring_register", unconfined=ENV),
        *_probes(
            m,
            "reach_connect reach_bind reach_listen reach_accept reach_sendto reach_sendmsg reach_recvmsg",
            layer="extra",
        ),
    )


def _limits() -> tuple[Probe, ...]:
    m = "escape_limits"
    return (
        *_probes(
            m,
            "map_shared map_shared_high map_growsdown memfd_plain pipe_size pipe_size_high lock_posix lock_ofd",
            layer="combined",
        ),
        *_probes(m, "lock_flock dnotify lock_all", layer="extra"),
        *_probes(m, "lock_memory", confined=ANY),  # At most 64 KiB, by RLIMIT_MEMLOCK, charged like any other page.
        *_probes(m, "map_locked", unconfined=ENV, confined=ANY),
        *_probes(m, "map_hugetlb", unconfined=ENV, layer="extra"),  # Huge pages are charged to no memory group.
        *_probes(m, "memfd_hidden", unconfined=KERNEL),
        *_probes(m, "map_private thread_name", confined=ALLOWED),
        *_probes(
            m,
            "death_signal dumpable become_root become_other group_root group_other groups_set caps_raise "
            "ambient_raise raise_core",
        ),
        *_probes(m, "set_mm ptracer raise_nofile", unconfined=ENV),
        *_probes(m, "raise_data raise_as", layer="combined", unconfined=ENV),
        *_probes(m, "raise_nproc raise_memlock", layer="extra", unconfined=ENV),
        *_probes(m, "set_mm_map subreaper keep_caps groups_clear fs_uid", layer="extra"),
        *_probes(m, "caps_same new_session new_group", confined=ANY),
        *_probes(m, "speculation", unconfined=ENV, confined=ANY),
    )


SURFACE = _surface()  # The list in spec/peers.md names 62 things though its text says 53: all of them are here.
ESCAPES = (*_files_seen(), *_files_changed(), *_process(), *_kernel(), *_sockets(), *_limits())
PROBES = (*SURFACE, *ESCAPES)
MODULES = tuple(dict.fromkeys(p.module for p in PROBES))


def holds(probe: Probe, word: str, *, mount_ns: bool = True, combined: bool = True) -> bool:
    """Whether a confined verdict keeps the promise.

    UNSUPPORTED counts as refused: a filter may answer ENOSYS, and the attack was shown to be real unconfined. SIGSYS
    probes are judged by the Result; a line from one holds only if it was refused or is not to be had.
    """
    open_by_design = (probe.layer == "mount_ns" and not mount_ns) or (probe.layer == "combined" and not combined)
    if probe.confined == ANY or open_by_design:
        return True
    if probe.confined == ALLOWED:
        return word == ALLOWED
    if probe.name in ("capability", "no_new_privs"):
        return word == DENIED  # UNSUPPORTED says here that it could not ask.
    return word in (DENIED, "UNSUPPORTED")
