/* What holds already while the module is loaded: constructors run inside dlopen, before the module is called.
 * Lines: ctor_no_new_privs=INFO N, ctor_seccomp_mode=INFO N, ctor_fds=INFO N (the number of open descriptors), and the verdicts
 * ctor_read_passwd, ctor_socket, ctor_fork, ctor_exec, ctor_signal_parent.
 */
#include "probe.h"
static int privs, mode, fds;
static struct { const char *name; long r; int e; } seen[] = {
    {"ctor_read_passwd", 0, 0}, {"ctor_socket", 0, 0}, {"ctor_fork", 0, 0}, {"ctor_exec", 0, 0}, {"ctor_signal_parent", 0, 0},
};
static long try_fork(void) {
    pid_t child = fork();
    if (child == 0) _exit(0);
    if (child > 0) waitpid(child, NULL, 0);
    return child;
}
static void note(int i, long r) { seen[i].r = r; seen[i].e = errno; }
__attribute__((constructor)) static void early(void) {
    privs = prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0);
    mode = prctl(PR_GET_SECCOMP);
    for (int fd = 0; fd < 4096; fd++) fds += fcntl(fd, F_GETFD) >= 0;
    note(0, read_some("/etc/passwd"));
    note(1, got(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)));
    note(2, try_fork());
    note(3, REACH(syscall(SYS_execve, "/bin/true", (void *)1, NULL), EFAULT));
    errno = ESRCH;
    note(4, getppid() > 0 ? kill(getppid(), 0) : -1);
}
EXECUTE {
    (void)in;
    (void)n;
    say("ctor_no_new_privs=INFO %d\nctor_seccomp_mode=INFO %d\nctor_fds=INFO %d\n", privs, mode, fds);
    for (size_t i = 0; i < sizeof seen / sizeof *seen; i++) verdict(seen[i].name, seen[i].r, seen[i].e);
    return p_answer(out, outn);
}
RELEASE { (void)len; free(p); }
