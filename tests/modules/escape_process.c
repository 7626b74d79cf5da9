/* Attacks on processes: making new ones, replacing this one, and reaching others by pid.
 *
 * Payload keys: pid=PID, a process of the host (a sleeper of the same user is best). The reaching attacks come in three forms:
 *   NAME_pid    on that process       NAME_parent  on the parent       NAME_any  on each of the pids 1 to 300 but ourselves
 * Signals are signal 0; priorities, masks, limits and schedulers are set to what they are; nothing is read from or written to
 * another's memory but the unmapped address 0x1000. ptrace attaches without stopping and is undone as its child exits.
 * async_signal makes the kernel send SIGURG, which is ignored by default.
 * execve_* pass an argv that cannot be read: EFAULT comes after the program was found and allowed. execve_real really runs
 * /bin/true and answers only where fork works: alone. So are ptrace_any and async_any, to disturb nobody in an unconfined run.
 */
#include "probe.h"
#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/uio.h>

static long ended(long child) {
    if (child == 0) _exit(0);
    if (child > 0) waitpid((pid_t)child, NULL, __WALL);
    return child;
}
static long do_fork(void) { return ended(syscall(SYS_fork)); }
static long libc_fork(void) { return ended(fork()); }
static long do_vfork(void) { pid_t c = vfork(); if (c == 0) _exit(0); return ended(c); }
static long raw_clone(unsigned long flags) { return ended(syscall(SYS_clone, flags, NULL, NULL, NULL, 0UL)); }
static long clone_plain(void) { return raw_clone(SIGCHLD); }
static long clone_no_signal(void) { return raw_clone(0); }
static long clone_files(void) { return raw_clone(CLONE_FILES | CLONE_FS | SIGCHLD); }
static long clone_parent(void) { /* the child is our parent's to reap */
    long child = syscall(SYS_clone, CLONE_PARENT | SIGCHLD, NULL, NULL, NULL, 0UL);
    if (child == 0) _exit(0);
    return child;
}
static long clone_high_bits(void) { return raw_clone((1UL << 40) | SIGCHLD); }
static int nothing(void *unused) { (void)unused; return 0; }
/* Shares memory but is no thread: neither CLONE_SIGHAND nor CLONE_THREAD. */
static long clone_vm(void) {
    static char stack[65536] __attribute__((aligned(16)));
    return ended(clone(nothing, stack + sizeof stack, CLONE_VM | SIGCHLD, NULL) ?: -1);
}
/* A true thread by its flags that brings a namespace along: VM, SIGHAND and THREAD alone must not let it pass. */
static long thread_with(int extra) {
    static char stack[65536] __attribute__((aligned(16)));
    static volatile int alive;
    int flags = CLONE_VM | CLONE_SIGHAND | CLONE_THREAD | CLONE_FILES | CLONE_CHILD_CLEARTID;
    if (!extra) flags |= CLONE_FS | CLONE_SYSVSEM; /* each excludes a namespace */
    alive = 1;
    int child = clone(nothing, stack + sizeof stack, flags | extra, NULL, NULL, NULL, &alive);
    for (int i = 0; child > 0 && alive && i < 2000; i++) usleep(1000);
    return child;
}
static long thread_raw(void) { return thread_with(0); } /* legitimate: the same without one */
static long thread_newns(void) { return thread_with(CLONE_NEWNS); }
static long thread_newuts(void) { return thread_with(CLONE_NEWUTS); }
static long thread_newipc(void) { return thread_with(CLONE_NEWIPC); }
static long thread_newnet(void) { return thread_with(CLONE_NEWNET); }
static long thread_newcgroup(void) { return thread_with(CLONE_NEWCGROUP); }
static long clone_sighand(void) { /* shares memory and handlers, and still is a process of its own */
    static char stack[65536] __attribute__((aligned(16)));
    return ended(clone(nothing, stack + sizeof stack, CLONE_VM | CLONE_SIGHAND | SIGCHLD, NULL) ?: -1);
}
static long clone3_fork(void) {
    struct clone_args a = {.exit_signal = SIGCHLD};
    return ended(syscall(SYS_clone3, &a, sizeof a));
}
static long spawn(void) {
    pid_t child;
    char *argv[] = {"true", NULL};
    int e = posix_spawn(&child, "/bin/true", NULL, NULL, argv, argv + 1);
    if (!e) return ended(child);
    errno = e;
    return -1;
}
static long unreadable_argv(const char *path) { return REACH(syscall(SYS_execve, path, (void *)1, NULL), EFAULT); }
static long execve_true(void) { return unreadable_argv("/bin/true"); }
static long execve_shell(void) { return unreadable_argv("/bin/sh"); }
static long execve_loader(void) { return unreadable_argv("/lib64/ld-linux-x86-64.so.2"); }
static long execve_self(void) { return unreadable_argv("/proc/self/exe"); }
static long execveat_path(void) { return REACH(syscall(SYS_execveat, AT_FDCWD, "/bin/true", (void *)1, NULL, 0), EFAULT); }
static long execveat_memfd(void) {
    int fd = memfd_create("sa-probe", MFD_CLOEXEC);
    if (fd < 0) return -1;
    long r = REACH(syscall(SYS_execveat, fd, "", (void *)1, NULL, AT_EMPTY_PATH), EFAULT);
    int e = errno;
    close(fd);
    errno = e;
    return r;
}
static long execve_real(void) {
    char *argv[] = {"true", NULL};
    int status = 0;
    pid_t child = fork();
    if (child < 0) return execve("/bin/true", argv, argv + 1);
    if (child == 0) { execve("/bin/true", argv, argv + 1); _exit(errno); }
    waitpid(child, &status, 0);
    errno = WEXITSTATUS(status);
    return status ? -1 : 0;
}
static void *come_up(void *count) { __atomic_add_fetch((int *)count, 1, __ATOMIC_SEQ_CST); return NULL; }
/* Threads are legitimate: four must come up and be joined. */
static long thread(void) {
    pthread_t t[4];
    int up = 0, made = 0, e = 0;
    while (made < 4 && !(e = pthread_create(&t[made], NULL, come_up, &up))) made++;
    for (int i = 0; i < made; i++) pthread_join(t[i], NULL);
    errno = e;
    return up == 4 ? 0 : -1;
}

/* From here on: one attack by pid each. */
static long a_kill(pid_t p) { return kill(p, 0); }
static long a_tgkill(pid_t p) { return syscall(SYS_tgkill, p, p, 0); }
static long a_tkill(pid_t p) { return syscall(SYS_tkill, p, 0); }
static long a_sigqueue(pid_t p) { siginfo_t i = {.si_code = SI_QUEUE}; return syscall(SYS_rt_sigqueueinfo, p, 0, &i); }
static long a_tgsigqueue(pid_t p) { siginfo_t i = {.si_code = SI_QUEUE}; return syscall(SYS_rt_tgsigqueueinfo, p, p, 0, &i); }
static long with_pidfd(pid_t p, long (*use)(int)) {
    int fd = (int)syscall(SYS_pidfd_open, p, 0);
    if (fd < 0) return -1;
    long r = use ? use(fd) : 0;
    int e = errno;
    close(fd);
    errno = e;
    return r;
}
static long use_signal(int fd) { return syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0); }
static long use_getfd(int fd) { long r = syscall(SYS_pidfd_getfd, fd, 0, 0); return r < 0 && errno == EBADF ? 0 : got(r); }
static long use_madvise(int fd) { /* 20: MADV_COLD */
    struct iovec v = {(void *)0x1000, 4096};
    return REACH(syscall(SYS_process_madvise, fd, &v, 1, 20, 0), ENOMEM);
}
static long a_pidfd_open(pid_t p) { return with_pidfd(p, NULL); }
static long a_pidfd_signal(pid_t p) { return with_pidfd(p, use_signal); }
static long a_pidfd_getfd(pid_t p) { return with_pidfd(p, use_getfd); }
static long a_madvise(pid_t p) { return with_pidfd(p, use_madvise); }
static long a_ptrace(pid_t p) { return ptrace(PTRACE_SEIZE, p, 0, 0); }
static long vm_move(pid_t p, long call) {
    char b[8] = {0};
    struct iovec l = {b, sizeof b}, r = {(void *)0x1000, sizeof b};
    return REACH(syscall(call, p, &l, 1, &r, 1, 0), EFAULT);
}
static long a_vm_readv(pid_t p) { return vm_move(p, SYS_process_vm_readv); }
static long a_vm_writev(pid_t p) { return vm_move(p, SYS_process_vm_writev); }
static long a_prlimit_get(pid_t p) { struct rlimit l; return prlimit(p, RLIMIT_NOFILE, NULL, &l); }
static long a_prlimit_set(pid_t p) {
    struct rlimit l;
    return prlimit(p, RLIMIT_NOFILE, NULL, &l) ? -1 : prlimit(p, RLIMIT_NOFILE, &l, NULL);
}
static long a_setpriority(pid_t p) {
    errno = 0;
    int now = getpriority(PRIO_PROCESS, (id_t)p);
    return errno ? -1 : setpriority(PRIO_PROCESS, (id_t)p, now);
}
static long a_getpriority(pid_t p) { errno = 0; getpriority(PRIO_PROCESS, (id_t)p); return errno ? -1 : 0; }
static long a_affinity(pid_t p) { cpu_set_t s; return sched_getaffinity(p, sizeof s, &s) ? -1 : sched_setaffinity(p, sizeof s, &s); }
static long a_scheduler(pid_t p) {
    struct sched_param s;
    int policy = sched_getscheduler(p);
    return policy < 0 || sched_getparam(p, &s) ? -1 : sched_setscheduler(p, policy, &s);
}
static long a_ioprio(pid_t p) { long now = syscall(SYS_ioprio_get, 1, p); return now < 0 ? -1 : syscall(SYS_ioprio_set, 1, p, now); }
static long a_migrate(pid_t p) { unsigned long zero = 1; return REACH(syscall(SYS_migrate_pages, p, 64UL, &zero, &zero), EINVAL); }
static long a_move_pages(pid_t p) { return syscall(SYS_move_pages, p, 0UL, NULL, NULL, NULL, 0); }
static long a_kcmp(pid_t p) { return syscall(SYS_kcmp, p, p, 1, 0, 0); }
static long a_getpgid(pid_t p) { return getpgid(p); }
static long a_robust_list(pid_t p) { void *head; size_t len; return syscall(SYS_get_robust_list, p, &head, &len); }
static long a_proc(pid_t p, const char *name) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)p, name);
    return got(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
}
static long a_proc_mem(pid_t p) { return a_proc(p, "mem"); }
static long a_proc_environ(pid_t p) { return a_proc(p, "environ"); }
static long a_proc_cmdline(pid_t p) { return a_proc(p, "cmdline"); }
static long a_proc_fd(pid_t p) { return a_proc(p, "fd"); }
static long a_proc_root(pid_t p) { return a_proc(p, "root"); }
static long a_proc_oom(pid_t p) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/oom_score_adj", (int)p);
    return got(open(path, O_WRONLY | O_CLOEXEC));
}
static long owned_pipe(pid_t p, int how) {
    int ends[2];
    struct { int type; pid_t pid; } owner = {1, p};
    if (pipe2(ends, O_CLOEXEC)) return -1;
    long r = how == 1 ? fcntl(ends[0], 15 /* F_SETOWN_EX */, &owner) : fcntl(ends[0], F_SETOWN, p);
    if (!r && how == 2) r = fcntl(ends[0], F_SETSIG, SIGURG) || fcntl(ends[0], F_SETFL, O_ASYNC) ? -1 : 0;
    if (!r && how == 2 && write(ends[1], "x", 1) != 1) r = -1;
    int e = errno;
    close(ends[0]);
    close(ends[1]);
    errno = e;
    return r;
}
static long a_setown(pid_t p) { return owned_pipe(p, 0); }
static long a_setown_ex(pid_t p) { return owned_pipe(p, 1); }
static long a_async(pid_t p) { return owned_pipe(p, 2); }

/* Taken when the module loads: a probe in a child of its own has another parent. 0 means outside our pid namespace. */
static pid_t parent;
__attribute__((constructor)) static void know_parent(void) { parent = getppid(); }
static long on_parent(long (*attack)(pid_t)) { errno = ESRCH; return parent > 0 ? attack(parent) : -1; }
static long on_pid(long (*attack)(pid_t)) { return key("pid") ? attack((pid_t)number("pid")) : P_NO_KEY; }
static long on_any(long (*attack)(pid_t)) {
    int worst = 0, kept = 0;
    for (pid_t p = 1; p <= 300; p++) {
        if (p == getpid() || p == (pid_t)syscall(SYS_gettid)) continue;
        if (attack(p) >= 0) return 0;
        kept = errno;
        if (kept != ESRCH && kept != ENOENT) worst = kept;
    }
    errno = worst ? worst : kept;
    return -1;
}
#define BY_PID(name) \
    static long name##_pid(void) { return on_pid(a_##name); } \
    static long name##_parent(void) { return on_parent(a_##name); } \
    static long name##_any(void) { return on_any(a_##name); }
#define ATTACKS(X) X(kill) X(tgkill) X(tkill) X(sigqueue) X(tgsigqueue) X(pidfd_open) X(pidfd_signal) X(pidfd_getfd) X(madvise) \
    X(vm_readv) X(vm_writev) X(prlimit_get) X(prlimit_set) X(setpriority) X(getpriority) X(affinity) X(scheduler) X(ioprio) X(migrate) \
    X(move_pages) X(kcmp) X(getpgid) X(robust_list) X(proc_mem) X(proc_environ) X(proc_cmdline) X(proc_fd) X(proc_root) X(proc_oom) \
    X(setown) X(setown_ex)
ATTACKS(BY_PID)
BY_PID(ptrace)
BY_PID(async)
static long kill_all(void) { return kill(-1, 0); }
static long kill_group(void) { errno = ESRCH; return parent > 1 ? kill(-parent, 0) : -1; }
static long kill_session(void) { /* denied also where the session is our own */
    pid_t s = getsid(0);
    errno = ESRCH;
    return s > 1 && s != getpid() ? kill(-s, 0) : -1;
}

#define P(name) {#name, name, 0},
#define ROW3(name, any) {#name "_pid", name##_pid, P_FORK}, {#name "_parent", name##_parent, P_FORK}, \
    {#name "_any", name##_any, P_FORK | (any)},
#define ROWS(name) ROW3(name, 0)
static const probe table[] = {
    P(do_fork) P(libc_fork) P(do_vfork) P(clone_plain) P(clone_no_signal) P(clone_files) P(clone_high_bits) P(clone_vm)
    P(clone_sighand) P(thread_raw) {"thread_newns", thread_newns, P_FORK}, {"thread_newuts", thread_newuts, P_FORK},
    {"thread_newipc", thread_newipc, P_FORK}, {"thread_newnet", thread_newnet, P_FORK},
    {"thread_newcgroup", thread_newcgroup, P_FORK}, P(clone3_fork) P(spawn)
    P(execve_true) P(execve_shell) P(execve_loader) P(execve_self) P(execveat_path) P(execveat_memfd)
    P(thread) P(kill_all) P(kill_group) P(kill_session)
    ATTACKS(ROWS) ROW3(ptrace, P_ALONE) ROW3(async, P_ALONE)
    {"clone_parent", clone_parent, P_ALONE}, {"execve_real", execve_real, P_ALONE},
};
PROBES(table)
