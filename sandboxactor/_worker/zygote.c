/* The zygote: one small process per host. It forks stems and, when the host is gone, ends them and removes what they
 * leave: the kernel closes everything but control groups. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "uapi.h"
#include "worker.h"

enum { MAX_STEMS = 4096, MAX_BASES = 16 };
static pid_t stems[MAX_STEMS];
static char *bases[MAX_BASES];
static uint8_t message[SA_MAX_PROGRAM + 8];

static void wake(int sig) { (void)sig; }

static void reap(int options)
{
    pid_t pid;
    while ((pid = waitpid(-1, NULL, options)) > 0 || (pid < 0 && errno == EINTR))
        for (int i = 0; i < MAX_STEMS; i++)
            if (pid > 0 && stems[i] == pid) stems[i] = 0;
}

/* Kernel files vanish with their folder, so only folders are removed: the groups of this host, then their base. A group
 * is busy until its dead are reaped, for which the kernel may take a moment. */
static void remove_base(const char *base)
{
    const struct timespec moment = {0, 2000000};
    for (int tries = 0; tries < 200; tries++) {
        DIR *dir = opendir(base);
        struct dirent *entry;
        if (!dir) return;
        while ((entry = readdir(dir)))
            if (entry->d_type == DT_DIR && entry->d_name[0] != '.') unlinkat(dirfd(dir), entry->d_name, AT_REMOVEDIR);
        closedir(dir);
        if (!rmdir(base) || errno == ENOENT) return;
        nanosleep(&moment, NULL);
    }
}

static _Noreturn void finish(void)
{
    for (int i = 0; i < MAX_STEMS; i++)
        if (stems[i]) kill(stems[i], SIGKILL);
    reap(0);
    for (int i = 0; i < MAX_BASES; i++)
        if (bases[i]) remove_base(bases[i]);
    _exit(0);
}

static void start_stem(const uint8_t *bytes, size_t size, int sock, int group, int control, int host)
{
    static struct program program;
    struct sa_flags ns = {0};
    const struct record *r;
    int slot = 0;
    while (slot < MAX_STEMS && stems[slot]) slot++;
    struct sa_fault_msg m = {.type = SA_MSG_FAULT, .error = EBADMSG, .what = "program"};
    if (program_decode(bytes, size, &program) || slot == MAX_STEMS) {
        tell(sock, &m, sizeof m);
        return;
    }
    if ((r = program_find(&program, SA_OP_NAMESPACES))) memcpy(&ns, r->data, sizeof ns);
    uid_t uid = getuid();
    gid_t gid = getgid();
    int self = (int)syscall(SYS_pidfd_open, getpid(), 0); /* a stem in a pid namespace cannot see its parent otherwise */
    pid_t pid = self < 0 ? -1 : spawn(ns.flags, group);
    if (pid == 0) {
        close(control);
        close(host);
        if (group >= 0) close(group);
        explicit_bzero(message + 8 + size, sizeof message - 8 - size); /* the tail of an earlier, longer program */
        stem_main(sock, bytes, size, self, uid, gid);
    }
    if (self >= 0) close_quietly(self);
    if (pid > 0) {
        stems[slot] = pid;
        return;
    }
    m = (struct sa_fault_msg){.type = SA_MSG_FAULT, .op = SA_OP_NAMESPACES, .error = errno, .what = "clone"};
    tell(sock, &m, sizeof m);
}

static void add_base(const uint8_t *path, size_t size)
{
    for (int i = 0; i < MAX_BASES; i++)
        if (!bases[i] && size && path[size - 1] == 0) {
            bases[i] = strdup((const char *)path);
            return;
        }
}

static void control_message(int control, int host)
{
    int fds[SA_MAX_FDS], count = 0;
    uint32_t type;
    ssize_t n = receive(control, message, sizeof message, fds, &count, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n < 8) finish(); /* closed */
    memcpy(&type, message, sizeof type);
    if (type == SA_MSG_STEM && (count == 1 || count == 2))
        start_stem(message + 8, (size_t)n - 8, fds[0], count == 2 ? fds[1] : -1, control, host);
    if (type == SA_MSG_BASE) add_base(message + 8, (size_t)n - 8);
    while (count) close(fds[--count]);
}

/* `host` is the process to outlive by no more than a moment. EOF alone would not tell: a fork of the host keeps the
 * socket open. */
_Noreturn void zygote_serve(int control, pid_t host)
{
    struct sigaction action = {.sa_handler = wake};
    struct rlimit files;
    sigset_t blocked, waiting;
    int pidfd = (int)syscall(SYS_pidfd_open, host, 0);
    if (pidfd < 0 || getppid() != host) _exit(121);
    fcntl(pidfd, F_SETFD, FD_CLOEXEC);
    fcntl(control, F_SETFD, FD_CLOEXEC);
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    umask(022);
    if (!getrlimit(RLIMIT_NOFILE, &files)) files.rlim_cur = files.rlim_max, setrlimit(RLIMIT_NOFILE, &files);
    sigaction(SIGCHLD, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&waiting);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGCHLD); /* delivered only inside ppoll; a stem keeps this mask, a worker clears it */
    sigprocmask(SIG_SETMASK, &blocked, NULL);
    for (;;) {
        struct pollfd polled[2] = {{.fd = control, .events = POLLIN}, {.fd = pidfd, .events = POLLIN}};
        if (ppoll(polled, 2, NULL, &waiting) < 0 && errno != EINTR) finish();
        reap(WNOHANG);
        /* What the host said before it died comes first: perhaps which groups to remove. */
        if (polled[0].revents) control_message(control, pidfd);
        else if (polled[1].revents) finish();
    }
}
