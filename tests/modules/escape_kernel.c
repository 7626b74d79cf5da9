/* Attacks on the kernel's wider surface: namespaces, mounts, privileged calls, tracing, keys, IPC, filters of our own.
 *
 * No payload keys but probe=. Nothing is changed on the machine: arguments are refused behind the permission check, names and clocks
 * are set to what they are, namespaces and mounts are made in a child that ends, objects are removed again.
 * reboot carries wrong magic numbers, swapon and acct a missing file, kexec_load invalid flags, settimeofday and adjtimex a value
 * out of range.
 * tiocsti_* go to a pipe: ENOTTY shows that the request came through and no terminal is touched.
 */
#include "probe.h"
#include <linux/bpf.h>
#include <linux/keyctl.h>
#include <linux/perf_event.h>
#include <linux/seccomp.h>
#include <mqueue.h>
#include <sched.h>
#include <sys/fanotify.h>
#include <sys/inotify.h>
#include <sys/io.h>
#include <sys/ioctl.h>
#include <sys/klog.h>
#include <sys/mount.h>
#include <sys/msg.h>
#include <sys/personality.h>
#include <sys/quota.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/swap.h>
#include <sys/time.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <time.h>

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif
#define NAMESPACES(X) X(NEWNS, "mnt") X(NEWUTS, "uts") X(NEWIPC, "ipc") X(NEWUSER, "user") X(NEWPID, "pid") X(NEWNET, "net") \
    X(NEWCGROUP, "cgroup") X(NEWTIME, "time")

static long cloned(unsigned long flags) {
    long child = syscall(SYS_clone, flags | SIGCHLD, NULL, NULL, NULL, 0UL);
    if (child == 0) _exit(0);
    if (child > 0) waitpid((pid_t)child, NULL, 0);
    return child;
}
/* CLONE_NEWTIME shares its bit with the exit signal: only clone3 can ask for it. */
static long cloned3(unsigned long flags) {
    uint64_t args[11] = {flags, 0, 0, 0, SIGCHLD};
    long child = syscall(SYS_clone3, args, sizeof args);
    if (child == 0) _exit(0);
    if (child > 0) waitpid((pid_t)child, NULL, 0);
    return child;
}
static pid_t parent; /* as the module loads: a probe in a child of its own has another */
__attribute__((constructor)) static void know_parent(void) { parent = getppid(); }
static long joined(pid_t who, const char *kind) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/ns/%s", (int)who, kind);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return who == getpid() ? REACH(setns(-1, 0), EBADF) : -1;
    return REACH(setns(fd, 0), EINVAL); /* a process may never join its own user namespace again, nor a time namespace with threads */
}
#define NS(name, kind) \
    static long unshare_##name(void) { return unshare(CLONE_##name); } \
    static long clone_##name(void) { return CLONE_##name == CLONE_NEWTIME ? cloned3(CLONE_##name) : cloned(CLONE_##name); } \
    static long clone3_##name(void) { return cloned3(CLONE_##name); } \
    static long setns_##name(void) { return joined(getpid(), kind); } \
    static long setns_parent_##name(void) { return joined(parent, kind); }
NAMESPACES(NS)

static long mount_type(void) { return REACH(mount("none", "/", "sa-no-such-type", 0, NULL), ENODEV); }
static long mount_tmpfs(void) { /* private first: a shared root would carry it out to the machine */
    if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL)) return -1;
    return mount("none", "/proc", "tmpfs", MS_NOSUID, NULL);
}
static long mount_remount(void) { return REACH(mount(NULL, "/usr/bin", NULL, MS_REMOUNT | MS_BIND, NULL), EINVAL); }
static long umount_file(void) { return REACH(umount2("/usr/bin/env", 0), EINVAL); }
static long fs_open(void) { return got(syscall(SYS_fsopen, "tmpfs", 1)); }
static long fs_config(void) { return REACH(syscall(SYS_fsconfig, -1, 6, NULL, NULL, 0), EBADF, EINVAL); }
static long fs_mount(void) { return REACH(syscall(SYS_fsmount, -1, 0, 0), EBADF); }
static long fs_pick(void) { return got(syscall(SYS_fspick, AT_FDCWD, "/", 1)); }
static long move_mount_none(void) { return REACH(syscall(SYS_move_mount, -1, "", -1, "", 4), EBADF, EINVAL, ENOENT); }
static long open_tree_clone(void) { return got(syscall(SYS_open_tree, AT_FDCWD, "/", 1 | O_CLOEXEC)); }
static long open_tree_plain(void) { return got(syscall(SYS_open_tree, AT_FDCWD, "/", O_CLOEXEC)); }
static long mount_setattr_none(void) {
    uint64_t attr[4] = {1, 0, 0, 0}; /* read-only, on a descriptor that is not there */
    return REACH(syscall(SYS_mount_setattr, -1, "", 0x1000, attr, sizeof attr), EBADF);
}
static long statmount_root(void) {
    struct { uint32_t size, spare; uint64_t id, param; } ask = {24, 0, ~0ULL, 1};
    char b[512];
    return REACH(syscall(457, &ask, b, sizeof b, 0), ENOENT);
}
static long pivot(void) { return REACH(syscall(SYS_pivot_root, "/", "/"), EBUSY, EINVAL); }
static long chroot_same(void) { return chroot("/"); }

static long bpf_map(void) {
    union bpf_attr a = {.map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 4, .max_entries = 1};
    return got(syscall(SYS_bpf, BPF_MAP_CREATE, &a, sizeof a));
}
static long perf(int exclude) {
    struct perf_event_attr a = {.type = PERF_TYPE_SOFTWARE, .size = sizeof a, .config = PERF_COUNT_SW_TASK_CLOCK, .disabled = 1,
                                .exclude_kernel = (unsigned)exclude & 1U, .exclude_hv = (unsigned)exclude & 1U};
    return got(syscall(SYS_perf_event_open, &a, 0, -1, -1, 8UL));
}
static long perf_user(void) { return perf(1); }
static long perf_kernel(void) { return perf(0); }
static long keyctl_id(void) { return REACH(syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_PROCESS_KEYRING, 0), ENOKEY); }
static long key_add(void) { return syscall(SYS_add_key, "user", "sa-probe", "x", 1UL, KEY_SPEC_PROCESS_KEYRING); }
static long key_request(void) { return REACH(syscall(SYS_request_key, "user", "sa-no-such-key", NULL, 0), ENOKEY); }
static long userfault(void) { return got(syscall(SYS_userfaultfd, O_CLOEXEC | 1)); }
static long userfault_device(void) { return got(open("/dev/userfaultfd", O_RDWR | O_CLOEXEC)); }
static long personality_to(unsigned long bit) {
    long was = personality(0xffffffffUL);
    long r = syscall(SYS_personality, (was < 0 ? 0UL : (unsigned long)was) | bit);
    if (r >= 0) syscall(SYS_personality, was < 0 ? 0UL : (unsigned long)was);
    return r;
}
static long personality_aslr(void) { return personality_to(ADDR_NO_RANDOMIZE); }
static long personality_exec(void) { return personality_to(READ_IMPLIES_EXEC); }
static long io_level(void) { long r = iopl(3); if (!r) iopl(0); return r; }
static long io_port(void) { long r = ioperm(0x80, 1, 1); if (!r) ioperm(0x80, 1, 0); return r; }
static long ldt_read(void) { char b[16]; return syscall(SYS_modify_ldt, 0, b, sizeof b); }
static long ldt_write(void) { /* an empty slot emptied */
    struct { unsigned entry, base, limit, bits; } d = {0, 0, 0, 0x28}; /* read_exec_only, seg_not_present */
    return syscall(SYS_modify_ldt, 0x11, &d, sizeof d);
}
static long fanotify(void) { return got(fanotify_init(FAN_CLASS_NOTIF | FAN_CLOEXEC | 0x200, O_RDONLY)); } /* 0x200: FAN_REPORT_FID */
static long fanotify_content(void) { return got(fanotify_init(FAN_CLASS_CONTENT | FAN_CLOEXEC, O_RDONLY)); }
static long inotify_root(void) {
    int fd = inotify_init1(IN_CLOEXEC);
    if (fd < 0) return -1;
    long r = inotify_add_watch(fd, "/", IN_CREATE);
    int e = errno;
    close(fd);
    errno = e;
    return r;
}
static long sysv_shm(void) { int id = shmget(IPC_PRIVATE, 4096, 0600); if (id >= 0) shmctl(id, IPC_RMID, NULL); return id; }
static long sysv_sem(void) { int id = semget(IPC_PRIVATE, 1, 0600); if (id >= 0) semctl(id, 0, IPC_RMID); return id; }
static long sysv_msg(void) { int id = msgget(IPC_PRIVATE, 0600); if (id >= 0) msgctl(id, IPC_RMID, NULL); return id; }
static long shm_info(void) { struct shmid_ds d; return shmctl(0, SHM_INFO, &d); }
static long posix_mq(void) {
    struct mq_attr a = {.mq_maxmsg = 1, .mq_msgsize = 16};
    char name[80];
    snprintf(name, sizeof name, "/%s", tag());
    mqd_t q = mq_open(name, O_CREAT | O_EXCL | O_RDWR, 0600, &a);
    if (q == (mqd_t)-1) return -1;
    mq_close(q);
    return mq_unlink(name);
}
static long on_pipe(unsigned long request) {
    int ends[2];
    char c = '#';
    if (pipe2(ends, O_CLOEXEC)) return -1;
    long r = REACH(syscall(SYS_ioctl, ends[0], request, &c), ENOTTY);
    int e = errno;
    close(ends[0]);
    close(ends[1]);
    errno = e;
    return r;
}
static long tiocsti(void) { return on_pipe(TIOCSTI); }
static long tiocsti_high(void) { return on_pipe(TIOCSTI | (1UL << 32)); }
static long tioclinux(void) { return on_pipe(TIOCLINUX); }
static long tioclinux_high(void) { return on_pipe(TIOCLINUX | (1UL << 40)); }
static long tiocsctty(void) { return on_pipe(TIOCSCTTY); }
static long seccomp_filter(void) { return REACH(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, NULL), EFAULT); }
static long seccomp_listener(void) {
    return REACH(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, NULL), EFAULT);
}
static long seccomp_prctl(void) { return REACH(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL, 0, 0), EFAULT); }
static long landlock_version(void) { return syscall(SYS_landlock_create_ruleset, NULL, 0UL, 1U); }
static long landlock_ruleset(void) { uint64_t a = 1; return got(syscall(SYS_landlock_create_ruleset, &a, sizeof a, 0U)); }
static long landlock_rule(void) { return REACH(syscall(SYS_landlock_add_rule, -1, 1, &errno, 0U), EBADF, EFAULT); }
static long landlock_restrict(void) { return REACH(syscall(SYS_landlock_restrict_self, -1, 0U), EBADF); }
static long swap_on(void) { return REACH(swapon("/sa-no-such/file", 0), ENOENT); }
static long swap_off(void) { return REACH(swapoff("/sa-no-such/file"), ENOENT); }
static long reboot_magic(void) { return REACH(syscall(SYS_reboot, 0, 0, 0, NULL), EINVAL); }
static long syslog_size(void) { return klogctl(10, NULL, 0); }
static long syslog_read(void) { char b[64]; return klogctl(3, b, sizeof b); }
static long acct_file(void) { return REACH(acct("/sa-no-such/file"), ENOENT); }
static long quota_sync(void) { return quotactl(QCMD(Q_SYNC, USRQUOTA), NULL, 0, NULL); }
static long kexec(void) { return REACH(syscall(SYS_kexec_load, 0UL, 9999UL, NULL, 0xdeadUL), EINVAL); }
static long module_load(void) { return REACH(syscall(SYS_init_module, NULL, 0UL, ""), ENOEXEC, EFAULT, EINVAL); }
static long module_fd(void) { return REACH(syscall(SYS_finit_module, -1, "", 0), EBADF); }
static long module_delete(void) { return REACH(syscall(SYS_delete_module, "sa_no_such_module", O_NONBLOCK), ENOENT); }
static long time_zone(void) { struct timezone far = {99999, 0}; return REACH(syscall(SYS_settimeofday, NULL, &far), EINVAL); }
static long time_adjust(void) { struct timex t = {.modes = ADJ_TICK, .tick = 1}; return REACH(adjtimex(&t), EINVAL); } /* out of range */
static long hostname_same(void) { struct utsname u; return uname(&u) ? -1 : sethostname(u.nodename, strlen(u.nodename)); }
static long domainname_same(void) { struct utsname u; return uname(&u) ? -1 : setdomainname(u.domainname, strlen(u.domainname)); }

#define P(name, flags) {#name, name, flags},
#define NS_ROWS(name, kind) P(unshare_##name, P_FORK) P(clone_##name, P_FORK) P(clone3_##name, P_FORK) \
    P(setns_##name, P_FORK) P(setns_parent_##name, P_FORK)
static const probe table[] = {
    NAMESPACES(NS_ROWS)
    P(mount_type, 0) P(mount_tmpfs, P_FORK) P(mount_remount, 0) P(umount_file, 0) P(fs_open, 0) P(fs_config, 0)
    P(fs_mount, 0) P(fs_pick, 0) P(move_mount_none, 0) P(open_tree_clone, 0) P(open_tree_plain, 0) P(mount_setattr_none, 0)
    P(statmount_root, 0) P(pivot, P_FORK) P(chroot_same, P_FORK) P(bpf_map, 0) P(perf_user, 0) P(perf_kernel, 0) P(keyctl_id, 0)
    P(key_add, P_FORK) P(key_request, P_FORK) P(userfault, 0) P(userfault_device, 0) P(personality_aslr, P_FORK)
    P(personality_exec, P_FORK) P(io_level, P_FORK) P(io_port, P_FORK) P(ldt_read, 0) P(ldt_write, P_FORK) P(fanotify, 0)
    P(fanotify_content, 0) P(inotify_root, 0) P(sysv_shm, 0) P(sysv_sem, 0) P(sysv_msg, 0) P(shm_info, 0) P(posix_mq, 0)
    P(tiocsti, 0) P(tiocsti_high, 0) P(tioclinux, 0) P(tioclinux_high, 0) P(tiocsctty, 0)
    P(seccomp_filter, 0) P(seccomp_listener, 0) P(seccomp_prctl, 0) P(landlock_version, 0) P(landlock_ruleset, 0) P(landlock_rule, 0)
    P(landlock_restrict, P_FORK) P(swap_on, 0) P(swap_off, 0) P(reboot_magic, 0) P(syslog_size, 0) P(syslog_read, 0) P(acct_file, 0)
    P(quota_sync, 0) P(kexec, 0) P(module_load, 0) P(module_fd, 0) P(module_delete, 0) P(time_zone, 0) P(time_adjust, 0)
    P(hostname_same, 0) P(domainname_same, 0)
};
PROBES(table)
