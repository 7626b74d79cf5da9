/* The operations that confine a process, one function each. They know the kernel and nothing of policy. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/securebits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "uapi.h"
#include "worker.h"

/* Bytes of address space that the process has now; its own /proc is not in its root. */
static int address_space(int proc, uint64_t *bytes)
{
    char text[64] = {0};
    int fd = openat(proc, "self/statm", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    if (n <= 0) return -1;
    *bytes = strtoull(text, NULL, 10) * SA_PAGE;
    return 0;
}

static int op_rlimit(const struct stem *stem, const struct record *r)
{
    struct sa_rlimit op;
    uint64_t now = 0;
    memcpy(&op, r->data, sizeof op);
    if (op.above_now && address_space(stem->proc, &now)) return -1;
    op.value += now;
    struct rlimit limit = {op.value, op.value}, old;
    if (getrlimit((int)op.resource, &old)) return -1;
    if (limit.rlim_max > old.rlim_max) limit.rlim_cur = limit.rlim_max = old.rlim_max; /* the host's own, tighter limit */
    return setrlimit((int)op.resource, &limit);
}

static int op_prctl(const struct record *r)
{
    struct sa_prctl op;
    memcpy(&op, r->data, sizeof op);
    return prctl((int)op.option, op.argument, 0, 0, 0) < 0 ? -1 : 0;
}

static int capabilities(int set, uint64_t *union_of_all)
{
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {0};
    if (set && syscall(SYS_capset, &head, data)) return -1;
    if (syscall(SYS_capget, &head, data)) return -1;
    *union_of_all = 0;
    for (int i = 0; i < 2; i++)
        *union_of_all |= (uint64_t)(data[i].effective | data[i].permitted | data[i].inheritable) << (32 * i);
    return 0;
}

/* Depth only, since no_new_privs and empty sets already hold: refused without CAP_SETPCAP, and then not needed. */
static void lock_privileges(void)
{
    const int locked = SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_CAP_AMBIENT_RAISE | SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED |
                       SECBIT_KEEP_CAPS_LOCKED;
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    prctl(PR_SET_SECUREBITS, locked, 0, 0, 0);
    for (int cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++) prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
}

static int op_identity(const struct record *r)
{
    struct sa_identity op;
    uint64_t left;
    memcpy(&op, r->data, sizeof op);
    lock_privileges();
    if (op.change) {
        if (setgroups(0, NULL) || setresgid(op.gid, op.gid, op.gid) || setresuid(op.uid, op.uid, op.uid)) return -1;
        if (setuid(0) == 0 || setgid(0) == 0) return errno = EPERM, -1; /* the way back is open */
    }
    if (capabilities(1, &left)) return -1;
    return left ? (errno = EPERM, -1) : 0;
}

/* Replaces each 32-bit constant `from` that a comparison uses; returns how many there were. */
static int patch(struct sock_filter *code, uint32_t count, uint32_t from, uint32_t to)
{
    int patched = 0;
    for (uint32_t i = 0; i < count; i++)
        if (BPF_CLASS(code[i].code) == BPF_JMP && code[i].k == from) code[i].k = to, patched++;
    return patched;
}

static int patch_slots(const struct sa_filter *op, struct sock_filter *code, int by_stem)
{
    uint64_t secret = 0;
    if (op->pid_slot && !patch(code, op->count, op->pid_slot, (uint32_t)getpid())) return errno = EBADMSG, -1;
    if (!op->key_slot) return 0;
    /* A worker that installs its own filter forks nobody any more: a key that no one keeps. */
    if (by_stem ? key_make(&secret) : getrandom(&secret, sizeof secret, 0) != sizeof secret) return -1;
    int high = patch(code, op->count, (uint32_t)(op->key_slot >> 32), (uint32_t)(secret >> 32));
    int low = patch(code, op->count, (uint32_t)op->key_slot, (uint32_t)secret);
    explicit_bzero(&secret, sizeof secret);
    return high && low ? 0 : (errno = EBADMSG, -1);
}

static int op_filter(const struct record *r)
{
    struct sa_filter op;
    memcpy(&op, r->data, sizeof op);
    size_t size = (size_t)op.count * sizeof(struct sock_filter);
    struct sock_filter *code = malloc(size);
    if (!code) return -1;
    memcpy(code, r->data + sizeof op, size);
    struct sock_fprog program = {(unsigned short)op.count, code};
    int result = patch_slots(&op, code, r->by == SA_BY_STEM);
    if (!result) result = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
    int error = errno;
    explicit_bzero(code, size); /* the key was in it */
    free(code);
    errno = error;
    return result;
}

int landlock_build(struct stem *stem, const struct record *r)
{
    struct sa_landlock op;
    memcpy(&op, r->data, sizeof op);
    struct sa_landlock_attr attr = {op.handled_fs, op.handled_net, op.scoped};
    /* An older kernel takes a shorter struct: fields that the plan does not use are left off. */
    size_t size = op.scoped ? sizeof attr : op.handled_net ? 16 : 8;
    stem->ruleset = (int)syscall(SYS_landlock_create_ruleset, &attr, size, 0);
    if (stem->ruleset < 0) return -1;
    const uint8_t *at = r->data + sizeof op, *end = r->data + r->size;
    while (at < end) {
        struct sa_rule rule;
        memcpy(&rule, at, sizeof rule);
        int fd = open((const char *)at + sizeof rule, O_PATH | O_CLOEXEC);
        at += sizeof rule + sa_pad(rule.size, 8);
        if (fd < 0 && (errno == ENOENT || errno == EACCES)) continue; /* nothing below it can be reached either */
        struct stat st;
        struct sa_landlock_path path = {rule.access, fd};
        /* On anything but a folder, only the rights of a file are valid. */
        int failed = fd < 0 || fstat(fd, &st);
        if (!failed && !S_ISDIR(st.st_mode)) path.access &= SA_LANDLOCK_FILE;
        if (!failed && rule.ino && (st.st_ino != rule.ino || st.st_dev != rule.dev)) failed = 1, errno = ESTALE; /* swapped */
        failed = failed || syscall(SYS_landlock_add_rule, stem->ruleset, 1, &path, 0);
        if (fd >= 0) close_quietly(fd);
        if (failed) return -1;
    }
    return 0;
}

static int op_landlock(struct stem *stem, const struct record *r)
{
    if (stem->ruleset < 0 && landlock_build(stem, r)) return -1;
    if (syscall(SYS_landlock_restrict_self, stem->ruleset, 0)) return -1;
    close(stem->ruleset); /* it stays writable: not one instruction of the module may see it */
    stem->ruleset = -1;
    return 0;
}

/* glibc takes the default from RLIMIT_STACK at exec; without this each thread would charge 8 MiB to RLIMIT_DATA. */
static int op_thread_stack(const struct record *r)
{
    struct sa_flags op;
    pthread_attr_t attr;
    memcpy(&op, r->data, sizeof op);
    int error = pthread_attr_init(&attr);
    if (!error) error = pthread_attr_setstacksize(&attr, (size_t)op.flags);
    if (!error) error = pthread_setattr_default_np(&attr);
    return error ? (errno = error, -1) : 0;
}

int op_apply(struct stem *stem, const struct record *r)
{
    struct sa_flags birth;
    switch (r->op) {
    case SA_OP_RLIMIT: return op_rlimit(stem, r);
    case SA_OP_PRCTL: return op_prctl(r);
    case SA_OP_IDENTITY: return op_identity(r);
    case SA_OP_NAMESPACES: return 0; /* the stem was cloned into them */
    case SA_OP_BIRTH: memcpy(&birth, r->data, sizeof birth); stem->birth |= birth.flags; return 0;
    case SA_OP_ROOT: return op_root(stem);
    case SA_OP_BIND: return op_bind(stem, r);
    case SA_OP_TMPFS: return op_tmpfs(r);
    case SA_OP_SYMLINK: return op_symlink(stem, r);
    case SA_OP_PIVOT: return op_pivot(stem);
    case SA_OP_LANDLOCK: return op_landlock(stem, r);
    case SA_OP_FILTER: return op_filter(r);
    case SA_OP_THREAD_STACK: return op_thread_stack(r);
    }
    return errno = ENOSYS, -1;
}

int read_back(struct sa_seal_msg *seal)
{
    seal->no_new_privs = (uint32_t)prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0);
    seal->seccomp = (uint32_t)prctl(PR_GET_SECCOMP, 0, 0, 0, 0);
    seal->dumpable = (uint32_t)prctl(PR_GET_DUMPABLE, 0, 0, 0, 0);
    seal->uid = getuid();
    seal->gid = getgid();
    /* No plan grants `/` itself, so Landlock must refuse to list it: a rule is read back by trying. */
    int fd = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    seal->landlock = fd < 0 && errno == EACCES;
    if (fd >= 0) close(fd);
    return capabilities(0, &seal->capabilities);
}

/* A filter's kill leaves the main thread's mode at 3 (dead, since Linux 5.17); a raised SIGSYS leaves it at 2. */
uint32_t filter_killed(int proc, pid_t pid)
{
    char path[64], text[4096];
    snprintf(path, sizeof path, "%d/status", (int)pid);
    int fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    text[n < 0 ? 0 : n] = 0;
    const char *line = strstr(text, "\nSeccomp:\t");
    if (!line) return SA_FILTER_UNKNOWN;
    return line[10] == '3' ? SA_FILTER_KILLED : SA_FILTER_NO;
}
