/* Attacks on memory accounting, limits and identity, and reports of what the module can see of itself and its host.
 *
 * Payload keys: pid=PID (for PR_SET_PTRACER). Everything is undone or done in a child that ends.
 * The probes of memory outside the data limit (map_shared, map_growsdown, memfd_plain, pipe_size, lock_*) must be refused where memory is
 * held without a cgroup; with one they are charged and may be allowed: see `combined` in catalog.py.
 * Reports are INFO lines: environ (one line an entry), cmdline, fds, limits, ids, caps, status, cwd, counts.
 */
#include "probe.h"
#include <dlfcn.h>
#include <grp.h>
#include <linux/capability.h>
#include <sys/file.h>
#include <sys/fsuid.h>
#include <sys/resource.h>

static long mapped(int prot, int flags) {
    void *m = mmap(NULL, 65536, prot, flags | MAP_ANONYMOUS, -1, 0);
    if (m == MAP_FAILED) return -1;
    return munmap(m, 65536);
}
static long map_shared(void) { return mapped(PROT_READ | PROT_WRITE, MAP_SHARED); }
static long map_shared_high(void) {
    long m = syscall(SYS_mmap, NULL, 65536UL, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | (1UL << 40), -1, 0UL);
    return m < 0 ? -1 : munmap((void *)m, 65536);
}
static long map_growsdown(void) { return mapped(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_GROWSDOWN); }
static long map_hugetlb(void) { return REACH(mapped(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_HUGETLB), ENOMEM, EINVAL); }
static long map_private(void) { return mapped(PROT_READ | PROT_WRITE, MAP_PRIVATE); } /* legitimate */
static long map_locked(void) { return mapped(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_LOCKED); }
static long memfd_plain(void) { return got(memfd_create("sa-probe", MFD_CLOEXEC)); }
static long memfd_hidden(void) { return got(syscall(SYS_memfd_secret, 0)); }
static long on_pipe(int (*use)(int)) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC)) return -1;
    long r = use(ends[0]);
    int e = errno;
    close(ends[0]);
    close(ends[1]);
    errno = e;
    return r;
}
static int grow(int fd) { return fcntl(fd, F_SETPIPE_SZ, 1 << 17); }
static int grow_high(int fd) { return (int)syscall(SYS_fcntl, fd, F_SETPIPE_SZ | (1UL << 32), 1UL << 17); }
static int lock_range(int fd, int command) {
    struct flock l = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_len = 1};
    return fcntl(fd, command, &l);
}
static int lock_own(int fd) { return lock_range(fd, F_SETLK); }
static int lock_open(int fd) { return lock_range(fd, F_OFD_SETLK); }
static int lock_whole(int fd) { return flock(fd, LOCK_SH | LOCK_NB); }
static int notify(int fd) { int r = fcntl(fd, F_NOTIFY, 0); return r < 0 && errno == ENOTDIR ? 0 : r; }
static long pipe_size(void) { return on_pipe(grow); }
static long pipe_size_high(void) { return on_pipe(grow_high); }
/* Locks go on the module's own file: a pipe takes no record lock everywhere. */
static long on_own_file(int (*use)(int)) {
    Dl_info where;
    int fd = dladdr((void *)(uintptr_t)on_pipe, &where) ? open(where.dli_fname, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return on_pipe(use);
    long r = use(fd);
    int e = errno;
    close(fd);
    errno = e;
    return r;
}
static long lock_posix(void) { return on_own_file(lock_own); }
static long lock_ofd(void) { return on_own_file(lock_open); }
static long lock_flock(void) { return on_own_file(lock_whole); }
static long dnotify(void) { return on_own_file(notify); }
static long lock_memory(void) { static char page[8192]; long r = mlock(page, sizeof page); if (!r) munlock(page, sizeof page); return r; }
static long lock_all(void) { long r = mlockall(MCL_FUTURE); if (!r) munlockall(); return r; }

static long death_signal(void) {
    int was = 0;
    prctl(PR_GET_PDEATHSIG, &was);
    long r = prctl(PR_SET_PDEATHSIG, 0);
    if (!r) prctl(PR_SET_PDEATHSIG, was);
    return r;
}
static long dumpable(void) {
    int was = prctl(PR_GET_DUMPABLE);
    long r = prctl(PR_SET_DUMPABLE, 1);
    if (!r && was == 0) prctl(PR_SET_DUMPABLE, 0);
    return r;
}
static long set_mm(void) { return REACH(prctl(PR_SET_MM, PR_SET_MM_BRK, 1UL, 0, 0), EINVAL); }
static long set_mm_map(void) { unsigned size = 0; return prctl(PR_SET_MM, PR_SET_MM_MAP_SIZE, &size, 0, 0); }
static long ptracer(void) { return REACH(prctl(PR_SET_PTRACER, key("pid") ? number("pid") : -1L, 0, 0, 0), EINVAL); } /* EINVAL: no Yama */
static long subreaper(void) {
    int was = 0;
    prctl(PR_GET_CHILD_SUBREAPER, &was);
    long r = prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (!r) prctl(PR_SET_CHILD_SUBREAPER, was);
    return r;
}
static long keep_caps(void) { return prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0); }
static long speculation(void) { return REACH(prctl(PR_SET_SPECULATION_CTRL, PR_SPEC_STORE_BYPASS, PR_SPEC_ENABLE, 0, 0), ENXIO, ENODEV); }
static long thread_name(void) { char was[16]; return prctl(PR_GET_NAME, was) ? -1 : prctl(PR_SET_NAME, was); } /* legitimate */
static long limit_raise(int which, rlim_t to) {
    struct rlimit was, up;
    if (getrlimit(which, &was)) return -1;
    if (was.rlim_max == RLIM_INFINITY) return 0; /* there is nothing left to raise */
    up.rlim_cur = was.rlim_cur;
    up.rlim_max = was.rlim_max + to;
    long r = setrlimit(which, &up);
    if (!r) setrlimit(which, &was);
    return r;
}
static long raise_nofile(void) { return limit_raise(RLIMIT_NOFILE, 1); }
static long raise_data(void) { return limit_raise(RLIMIT_DATA, 4096); }
static long raise_as(void) { return limit_raise(RLIMIT_AS, 4096); }
static long raise_nproc(void) { return limit_raise(RLIMIT_NPROC, 1); }
static long raise_memlock(void) { return limit_raise(RLIMIT_MEMLOCK, 4096); }
static long raise_core(void) {
    struct rlimit was, up;
    if (getrlimit(RLIMIT_CORE, &was)) return -1;
    up = was;
    up.rlim_cur = 4096;
    if (up.rlim_max < 4096) up.rlim_max = 4096;
    long r = setrlimit(RLIMIT_CORE, &up);
    if (!r) setrlimit(RLIMIT_CORE, &was);
    return r;
}
static long become_root(void) { return setuid(0); }
static long become_other(void) { return setresuid(12345, 12345, 12345); }
static long group_root(void) { return setgid(0); }
static long group_other(void) { return setresgid(12345, 12345, 12345); }
static long groups_set(void) { gid_t g[1] = {0}; return setgroups(1, g); }
static long groups_clear(void) { return setgroups(0, NULL); }
static long fs_uid(void) { setfsuid(12345); errno = EPERM; return setfsuid((uid_t)-1) == 12345 ? 0 : -1; }
static long caps(int raise) {
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct two[2] = {{0}, {0}};
    if (syscall(SYS_capget, &head, two)) return -1;
    if (raise) two[0].effective |= 1U << CAP_SYS_ADMIN, two[0].permitted |= 1U << CAP_SYS_ADMIN;
    return syscall(SYS_capset, &head, two);
}
static long caps_same(void) { return caps(0); }
static long caps_raise(void) { return caps(1); }
static long ambient_raise(void) {
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct two[2] = {{0}, {0}};
    if (syscall(SYS_capget, &head, two)) return -1;
    two[0].inheritable |= 1U << CAP_NET_RAW;
    if (syscall(SYS_capset, &head, two)) return -1;
    return prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_NET_RAW, 0, 0);
}
static long new_session(void) { return setsid(); }
static long new_group(void) { return setpgid(0, 0); }

extern char **environ;
static long report_environ(void) {
    int count = 0;
    for (char **e = environ; e && *e; e++, count++) say("environ=INFO %s\n", *e);
    say("environ_count=INFO %d\n", count);
    return P_SAID;
}
static void file_as_line(const char *name, const char *path) {
    char b[4096];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t k = fd < 0 ? -1 : read(fd, b, sizeof b - 1);
    int e = errno;
    got(fd);
    if (k < 0) { verdict(name, -1, e); return; }
    for (ssize_t i = 0; i < k; i++) if (b[i] == 0 || b[i] == '\n') b[i] = ' ';
    b[k] = 0;
    say("%s=INFO %s\n", name, b);
}
static long report_cmdline(void) { file_as_line("cmdline", "/proc/self/cmdline"); return P_SAID; }
static long report_cgroup(void) { file_as_line("cgroup", "/proc/self/cgroup"); return P_SAID; }
static long report_fds(void) {
    int count = 0;
    for (int fd = 0; fd < 4096; fd++) {
        struct stat st;
        char link[64], to[256];
        if (fcntl(fd, F_GETFD) < 0) continue;
        count++;
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t k = readlink(link, to, sizeof to - 1);
        to[k < 0 ? 0 : k] = 0;
        memset(&st, 0, sizeof st);
        if (fstat(fd, &st)) say("fd=INFO %d unknown errno=%d\n", fd, errno);
        else say("fd=INFO %d mode=%o flags=%x %s\n", fd, (unsigned)st.st_mode, (unsigned)fcntl(fd, F_GETFL), to);
        int up = S_ISDIR(st.st_mode) ? openat(fd, "../../../../../../../etc/passwd", O_RDONLY | O_CLOEXEC) : -1;
        if (up >= 0) { say("fd_escape=ALLOWED errno=0\n"); close(up); }
    }
    say("fd_count=INFO %d\n", count);
    return P_SAID;
}
static long report_limits(void) {
    static const char *name[] = {"cpu", "fsize", "data", "stack", "core", "rss", "nproc", "nofile", "memlock", "as", "locks",
                                 "sigpending", "msgqueue", "nice", "rtprio", "rttime"};
    struct rlimit l;
    for (int i = 0; i < 16; i++) {
        if (getrlimit(i, &l)) continue;
        say("limit=INFO %s %llu %llu\n", name[i], (unsigned long long)l.rlim_cur, (unsigned long long)l.rlim_max);
    }
    return P_SAID;
}
static long report_ids(void) {
    uid_t r, e, s;
    gid_t g, h, t, groups[64];
    if (!getresuid(&r, &e, &s)) say("uid=INFO %u %u %u\n", r, e, s);
    if (!getresgid(&g, &h, &t)) say("gid=INFO %u %u %u\n", g, h, t);
    int count = getgroups(64, groups);
    say("groups=INFO %d", count);
    for (int i = 0; i < count; i++) say(" %u", groups[i]);
    say("\n");
    say("pid=INFO %d parent=%d session=%d\n", (int)getpid(), (int)getppid(), (int)getsid(0));
    return P_SAID;
}
static long report_caps(void) {
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct d[2];
    if (syscall(SYS_capget, &head, d)) verdict("caps", -1, errno);
    else say("caps=INFO effective=%08x%08x permitted=%08x%08x inheritable=%08x%08x\n", d[1].effective, d[0].effective,
             d[1].permitted, d[0].permitted, d[1].inheritable, d[0].inheritable);
    say("no_new_privs=INFO %d\n", prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
    say("seccomp_mode=INFO %d\n", prctl(PR_GET_SECCOMP));
    say("dumpable=INFO %d\n", prctl(PR_GET_DUMPABLE));
    return P_SAID;
}
static long report_cwd(void) { char b[4096]; say("cwd=INFO %s\n", getcwd(b, sizeof b) ? b : "?"); return P_SAID; }

#define P(name, flags) {#name, name, flags},
static const probe table[] = {
    P(map_shared, 0) P(map_shared_high, 0) P(map_growsdown, 0) P(map_hugetlb, 0) P(map_private, 0) P(map_locked, 0)
    P(memfd_plain, 0) P(memfd_hidden, 0) P(pipe_size, 0) P(pipe_size_high, 0) P(lock_posix, 0) P(lock_ofd, 0) P(lock_flock, 0) P(dnotify, 0)
    P(lock_memory, 0) P(lock_all, P_FORK) P(death_signal, 0) P(dumpable, 0) P(set_mm, 0) P(set_mm_map, 0) P(ptracer, P_FORK) P(subreaper, 0)
    P(keep_caps, P_FORK) P(speculation, P_FORK) P(thread_name, 0) P(raise_nofile, 0) P(raise_data, 0) P(raise_as, 0)
    P(raise_nproc, 0) P(raise_memlock, 0) P(raise_core, 0) P(become_root, P_FORK) P(become_other, P_FORK) P(group_root, P_FORK)
    P(group_other, P_FORK) P(groups_set, P_FORK) P(groups_clear, P_FORK) P(fs_uid, P_FORK) P(caps_same, P_FORK) P(caps_raise, P_FORK)
    P(ambient_raise, P_FORK) P(new_session, P_FORK) P(new_group, P_FORK)
    P(report_environ, 0) P(report_cmdline, 0) P(report_cgroup, 0) P(report_fds, 0) P(report_limits, 0) P(report_ids, 0) P(report_caps, 0)
    P(report_cwd, 0)
};
PROBES(table)
