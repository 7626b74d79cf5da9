/* The kernel and host surface still reachable from inside, one line a probe, named as in spec/peers.md's measure.
 *
 * System-call probes ask whether the kernel carries the call out for this process at all, mostly upon itself; every one is harmless
 * when ALLOWED: it passes an argument that the kernel refuses only after its permission check, or sets a value to what it was.
 *
 * Payload keys (each optional; its probes say missing-key without it):
 *   probe=NAME     just this one. int80 and x32 run only so: a filter kills the process for them.
 *   pid=PID        a host process, to signal (signal 0)
 *   tcp=PORT       a listener on the host's 127.0.0.1
 *   udp=PORT       an echo server on the host's 127.0.0.1: only a reply counts as reached
 *   abstract=NAME  an abstract unix stream listener of the host (name without its leading NUL)
 *   unix=PATH      a path unix stream listener of the host
 *   hidden=PATH    a host file whose very name should be unknown inside. Without a mount namespace `stat` cannot be closed
 *   victim=PATH    a host file to read, chmod, utime and setxattr; write_beside, mknod and set_user_id make a new name beside it
 * read_root_bashrc says DENIED also where there is no such file. capability and no_new_privs say UNSUPPORTED when the process may
 * not ask: then only the host can tell, from /proc/PID/status.
 */
#include "probe.h"
#include <arpa/inet.h>
#include <linux/bpf.h>
#include <linux/capability.h>
#include <linux/io_uring.h>
#include <linux/keyctl.h>
#include <linux/perf_event.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <net/ethernet.h>
#include <netinet/in.h>
#include <sched.h>
#include <stddef.h>
#include <sys/io.h>
#include <sys/klog.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/ptrace.h>
#include <sys/quota.h>
#include <sys/resource.h>
#include <sys/swap.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sys/xattr.h>

static long unshare_userns(void) { return unshare(CLONE_NEWUSER); }
static long unshare_mnt(void) { return unshare(CLONE_NEWNS); }
static long clone3_userns(void) {
    struct clone_args a = {.flags = CLONE_NEWUSER, .exit_signal = SIGCHLD};
    long child = syscall(SYS_clone3, &a, sizeof a);
    if (child == 0) _exit(0);
    if (child > 0) waitpid((pid_t)child, NULL, 0);
    return child;
}
static long setns_own(void) {
    int fd = open("/proc/self/ns/uts", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return REACH(setns(-1, CLONE_NEWUTS), EBADF);
    return setns(fd, CLONE_NEWUTS);
}
static long mount_right(void) { return REACH(mount("none", "/", "sa-no-such-type", 0, NULL), ENODEV); }
static long fsopen_tmpfs(void) { return got(syscall(SYS_fsopen, "tmpfs", 1)); }
static long chroot_root(void) { return chroot("/"); }
static long pivot_right(void) { return REACH(syscall(SYS_pivot_root, "/", "/"), EBUSY, EINVAL); }
static long ptrace_reach(void) { return REACH(ptrace(PTRACE_SEIZE, 0x3ffffff0, 0, 0), ESRCH); } /* no pid is as large */
static long vm_readv_self(void) {
    static char from[4] = "abc";
    char to[4];
    struct iovec l = {to, sizeof to}, r = {from, sizeof from};
    return process_vm_readv(getpid(), &l, 1, &r, 1, 0);
}
static long pidfd_getfd_self(void) {
    long fd = syscall(SYS_pidfd_open, getpid(), 0);
    if (fd < 0) return REACH(syscall(SYS_pidfd_getfd, -1, 0, 0), EBADF);
    long r = REACH(syscall(SYS_pidfd_getfd, fd, 0, 0), EBADF);
    int e = errno;
    close((int)fd);
    errno = e;
    return r > 0 ? got(r) : r;
}
static long kcmp_self(void) { return syscall(SYS_kcmp, getpid(), getpid(), 1, 0, 0); }
static long bpf_map(void) {
    union bpf_attr a = {.map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 4, .max_entries = 1};
    return got(syscall(SYS_bpf, BPF_MAP_CREATE, &a, sizeof a));
}
static long perf_self(void) {
    struct perf_event_attr a = {.type = PERF_TYPE_SOFTWARE, .size = sizeof a, .config = PERF_COUNT_SW_TASK_CLOCK, .disabled = 1,
                                .exclude_kernel = 1, .exclude_hv = 1};
    return got(syscall(SYS_perf_event_open, &a, 0, -1, -1, 8UL));
}
static long userfault(void) { return got(syscall(SYS_userfaultfd, O_CLOEXEC | 1)); } /* 1: user mode only */
static long uring(void) {
    struct io_uring_params p;
    memset(&p, 0, sizeof p);
    return got(syscall(SYS_io_uring_setup, 1, &p));
}
static long keyctl_session(void) { return REACH(syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_PROCESS_KEYRING, 0), ENOKEY); }
static long key_add(void) { return syscall(SYS_add_key, "user", "sa-probe", "x", 1UL, KEY_SPEC_PROCESS_KEYRING); }

static struct { struct file_handle head; unsigned char bytes[128]; } handle; /* of "/", or zeros */
static long to_handle(void) {
    int mount_id;
    handle.head.handle_bytes = sizeof handle.bytes;
    return name_to_handle_at(AT_FDCWD, "/", &handle.head, &mount_id, 0);
}
static long from_handle(void) {
    if (to_handle() < 0) handle.head.handle_bytes = 8, handle.head.handle_type = 1;
    long fd = open_by_handle_at(AT_FDCWD, &handle.head, O_RDONLY | O_CLOEXEC);
    return fd >= 0 ? got(fd) : REACH(fd, ESTALE, EINVAL);
}
static long kexec_right(void) { return REACH(syscall(SYS_kexec_load, 0UL, 9999UL, NULL, 0xdeadUL), EINVAL); }
static long module_right(void) { return REACH(syscall(SYS_init_module, NULL, 0UL, ""), ENOEXEC, EFAULT, EINVAL); }
static long reboot_right(void) { return REACH(syscall(SYS_reboot, 0, 0, 0, NULL), EINVAL); } /* not its magic numbers */
static long hostname_same(void) {
    struct utsname u;
    return uname(&u) ? -1 : sethostname(u.nodename, strlen(u.nodename));
}
static long swap_right(void) { return REACH(swapon("/sa-no-such/file", 0), ENOENT); }
static long syslog_size(void) { return klogctl(10, NULL, 0); }
static long iopl_up(void) { long r = iopl(3); if (!r) iopl(0); return r; }
static long quota_sync(void) { return quotactl(QCMD(Q_SYNC, USRQUOTA), NULL, 0, NULL); }
static long acct_right(void) { return REACH(acct("/sa-no-such/file"), ENOENT); }
static long nice_same(void) { return setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0)); }
static long aslr_off(void) {
    long was = personality(0xffffffffUL);
    if (was < 0) was = 0;
    long r = syscall(SYS_personality, (unsigned long)was | ADDR_NO_RANDOMIZE);
    if (r >= 0) syscall(SYS_personality, (unsigned long)was);
    return r;
}
static long secret_memory(void) { return got(syscall(SYS_memfd_secret, 0)); }
static long ldt_read(void) { char table[16]; return syscall(SYS_modify_ldt, 0, table, sizeof table); }
static long landlock_new(void) { return syscall(SYS_landlock_create_ruleset, NULL, 0UL, 1U); }
static long notify_sizes(void) {
    struct seccomp_notif_sizes s;
    return syscall(SYS_seccomp, SECCOMP_GET_NOTIF_SIZES, 0, &s);
}

static long vsock(void) { return got(socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0)); }
static long packet(void) { return got(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_ALL))); }
static long netlink(void) { return got(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, 0)); }
static long alg(void) { return got(socket(AF_ALG, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)); }
static long raw_icmp(void) { return got(socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_ICMP)); }
static long inet_dgram(void) { return got(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)); }

/* Connects, and for datagrams waits for the echo; two seconds at most. */
static long reach_socket(int type, const struct sockaddr *to, socklen_t len) {
    struct timeval limit = {.tv_sec = 2};
    char c = '?';
    int fd = socket(to->sa_family, type | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    long r = connect(fd, to, len);
    if (!r && type == SOCK_DGRAM) r = send(fd, &c, 1, MSG_NOSIGNAL) == 1 ? recv(fd, &c, 1, 0) : -1;
    int e = errno;
    close(fd);
    errno = e;
    return r;
}
static long loopback(int type, const char *port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (!key(port)) return P_NO_KEY;
    to.sin_port = htons((uint16_t)number(port));
    return reach_socket(type, (struct sockaddr *)&to, sizeof to);
}
static long udp_loopback(void) { return loopback(SOCK_DGRAM, "udp"); }
static long tcp_loopback(void) { return loopback(SOCK_STREAM, "tcp"); }
static long unix_listener(const char *name, size_t skip) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    const char *v = key(name);
    if (!v || strlen(v) + skip >= sizeof to.sun_path) return P_NO_KEY;
    memcpy(to.sun_path + skip, v, strlen(v));
    socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + skip + strlen(v) + (skip ? 0 : 1));
    return reach_socket(SOCK_STREAM, (struct sockaddr *)&to, len);
}
static long abstract_unix(void) { return unix_listener("abstract", 1); }
static long path_unix(void) { return unix_listener("unix", 0); }
static long signal_host(void) { return key("pid") ? kill((pid_t)number("pid"), 0) : P_NO_KEY; }

static long read_shadow(void) { return read_some("/etc/shadow"); }
static long read_bashrc(void) { return read_some("/root/.bashrc"); }
static long read_environ_1(void) { return read_some("/proc/1/environ"); }
static long stat_hidden(void) { struct stat st; return key("hidden") ? stat(key("hidden"), &st) : P_NO_KEY; }
static long read_victim(void) { return key("victim") ? read_some(key("victim")) : P_NO_KEY; }
#define VICTIM(v) const char *v = key("victim"); if (!v) return P_NO_KEY
static const char *beside(const char *suffix) {
    static char path[4096];
    const char *v = key("victim");
    if (v) snprintf(path, sizeof path, "%s%s-%s", v, tag(), suffix);
    return v ? path : NULL;
}
static long made(long r, const char *path) { int e = errno; if (r >= 0) unlink(path); errno = e; return r; }
static long write_beside(void) {
    const char *p = beside("new");
    return p ? made(got(open(p, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600)), p) : P_NO_KEY;
}
static long chmod_same(void) {
    struct stat st;
    VICTIM(v);
    return stat(v, &st) ? -1 : chmod(v, st.st_mode & 07777);
}
static long utime_same(void) {
    struct stat st;
    VICTIM(v);
    if (stat(v, &st)) return -1;
    struct timespec both[2] = {st.st_atim, st.st_mtim};
    return utimensat(AT_FDCWD, v, both, 0);
}
static long xattr_once(void) {
    VICTIM(v);
    long r = setxattr(v, "user.sa_probe", "1", 1, 0);
    if (!r) removexattr(v, "user.sa_probe");
    return r;
}
static long mknod_any(void) {
    const char *p = beside("node");
    if (!p) return P_NO_KEY;
    if (!made(mknod(p, S_IFIFO | 0600, 0), p)) return 0;
    return made(mknod(p, S_IFCHR | 0600, (1 << 8) | 3), p);
}
static long set_user_id(void) { /* by the mode of open, then by fchmod; beside the victim, then in /tmp */
    char tmp[96];
    const char *place[2] = {beside("suid"), tmp};
    if (!place[0]) return P_NO_KEY;
    snprintf(tmp, sizeof tmp, "/tmp/%s", tag());
    for (int i = 0; i < 4; i++) {
        struct stat st = {.st_mode = 0};
        int fd = open(place[i / 2], O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, i % 2 ? 0700 : 04700);
        if (fd < 0) continue;
        errno = EPERM;
        long r = (i % 2 && fchmod(fd, 04700)) || fstat(fd, &st) || !(st.st_mode & S_ISUID) ? -1 : 0;
        int e = errno;
        close(fd);
        unlink(place[i / 2]);
        errno = e;
        if (!r) return 0;
    }
    return -1;
}
/* A file of no known format: ENOEXEC is the loader's word, past every permission, and nothing is replaced. */
static long memfd_exec(void) {
    char *none[] = {NULL};
    int fd = memfd_create("sa-probe", MFD_CLOEXEC);
    if (fd < 0 || write(fd, "\001sa\n", 4) != 4) return -1;
    long r = REACH(syscall(SYS_execveat, fd, "", none, none, AT_EMPTY_PATH), ENOEXEC);
    int e = errno;
    close(fd);
    errno = e;
    return r;
}
static long int80(void) {
#ifdef __x86_64__
    long r;
    __asm__ volatile("int $0x80" : "=a"(r) : "a"(20L) : "memory", "r8", "r9", "r10", "r11"); /* getpid of the i386 table */
    if (r < 0) errno = (int)-r;
    return r < 0 ? -1 : 0;
#else
    return P_LACKS;
#endif
}
static long x32(void) {
#ifdef __x86_64__
    return syscall(0x40000000L + SYS_getpid);
#else
    return P_LACKS;
#endif
}
static long any_capability(void) {
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct two[2];
    if (syscall(SYS_capget, &head, two)) return P_LACKS;
    errno = EPERM;
    return (two[0].effective | two[1].effective | two[0].permitted | two[1].permitted | two[0].inheritable | two[1].inheritable) ? 0 : -1;
}
static long privs_can_grow(void) {
    int r = prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0);
    errno = r < 0 ? errno : EPERM;
    return r < 0 ? P_LACKS : r == 0 ? 0 : -1;
}

static const probe table[] = {
    {"unshare_userns", unshare_userns, P_FORK}, {"unshare_mnt", unshare_mnt, P_FORK}, {"clone3_userns", clone3_userns, 0},
    {"setns", setns_own, P_FORK}, {"mount", mount_right, 0}, {"fsopen", fsopen_tmpfs, 0}, {"chroot", chroot_root, P_FORK},
    {"pivot_root", pivot_right, P_FORK}, {"ptrace", ptrace_reach, 0}, {"process_vm_readv", vm_readv_self, 0},
    {"pidfd_getfd", pidfd_getfd_self, 0}, {"kcmp", kcmp_self, 0}, {"bpf", bpf_map, 0}, {"perf_event_open", perf_self, 0},
    {"userfaultfd", userfault, 0}, {"io_uring_setup", uring, 0}, {"keyctl", keyctl_session, 0}, {"add_key", key_add, P_FORK},
    {"open_by_handle_at", from_handle, 0}, {"name_to_handle_at", to_handle, 0}, {"kexec_load", kexec_right, 0},
    {"init_module", module_right, 0}, {"reboot", reboot_right, 0}, {"sethostname", hostname_same, 0}, {"swapon", swap_right, 0},
    {"syslog", syslog_size, 0}, {"iopl", iopl_up, P_FORK}, {"quotactl", quota_sync, 0}, {"acct", acct_right, 0},
    {"setpriority", nice_same, 0}, {"personality", aslr_off, P_FORK}, {"memfd_secret", secret_memory, 0}, {"modify_ldt", ldt_read, 0},
    {"landlock_create", landlock_new, 0}, {"seccomp_notif_sizes", notify_sizes, 0},
    {"vsock", vsock, 0}, {"packet", packet, 0}, {"netlink", netlink, 0}, {"alg", alg, 0}, {"raw_icmp", raw_icmp, 0},
    {"inet_dgram", inet_dgram, 0}, {"udp_loopback", udp_loopback, 0}, {"tcp_loopback", tcp_loopback, 0},
    {"abstract_unix", abstract_unix, 0}, {"path_unix", path_unix, 0}, {"signal_host", signal_host, 0},
    {"read_etc_shadow", read_shadow, 0}, {"read_root_bashrc", read_bashrc, 0}, {"read_proc_1_environ", read_environ_1, 0},
    {"stat_hidden", stat_hidden, 0}, {"read_host_file", read_victim, 0}, {"write_beside", write_beside, 0}, {"chmod", chmod_same, 0},
    {"utime", utime_same, 0}, {"setxattr", xattr_once, 0}, {"mknod", mknod_any, 0}, {"set_user_id", set_user_id, 0},
    {"memfd_exec", memfd_exec, 0}, {"int80", int80, P_ALONE}, {"x32", x32, P_ALONE}, {"capability", any_capability, 0},
    {"no_new_privs", privs_can_grow, 0},
};
PROBES(table)
