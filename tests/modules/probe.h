/* What every attack module here shares: a payload of key=value lines, a table of probes, one line of verdict for each.
 *
 *   name=ALLOWED errno=0               the forbidden thing worked
 *   name=DENIED errno=1 EPERM          it was refused (or what it needs is not there to be seen)
 *   name=UNSUPPORTED errno=38 ENOSYS   the kernel says that it has not got it; a filter that answers ENOSYS looks the same from
 *                                      in here, so a test compares with the unconfined control before it believes this
 *   name=INFO words                    a report, no verdict
 *
 * Payload: one key=value a line. `probe=NAME` runs one probe; without it all run that can neither kill nor replace the process.
 * A payload without any '=' is taken as the name itself. A probe whose key is missing says UNSUPPORTED with "missing-key".
 * Probes that would change the process for those after them run in a forked child where fork works, and otherwise in place: where
 * fork is refused, so are they, and nothing is changed.
 */
#ifndef SA_PROBE_H
#define SA_PROBE_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAYBE_UNUSED __attribute__((unused))
#define EXECUTE int allascode_action_execute(const unsigned char *in, size_t n, unsigned char **out, size_t *outn)
#define RELEASE void allascode_action_free(unsigned char *p, size_t len)

enum { P_FORK = 1, P_ALONE = 2 };                            /* isolate in a child; run only when named */
enum { P_SAID = -1000, P_LACKS = -1001, P_NO_KEY = -1002 };  /* it wrote its own lines; not to be had here; key missing */

typedef struct probe {
    const char *name;
    long (*run)(void); /* >= 0: worked; -1 with errno: refused; or one of the above */
    unsigned flags;
} probe;

static char p_text[1 << 17];
static size_t p_used;
static char *p_payload; /* private copy, lines ended by NUL */
static size_t p_size;

MAYBE_UNUSED __attribute__((format(printf, 1, 2))) static void say(const char *format, ...) {
    va_list args;
    va_start(args, format);
    int k = vsnprintf(p_text + p_used, sizeof p_text - p_used, format, args);
    va_end(args);
    if (k > 0) p_used = p_used + (size_t)k < sizeof p_text ? p_used + (size_t)k : sizeof p_text - 1;
}

MAYBE_UNUSED static void verdict(const char *name, long r, int e) {
    const char *word = "DENIED", *why = strerrorname_np(e);
    if (r >= 0) word = "ALLOWED", e = 0, why = "";
    else if (r == P_NO_KEY) word = "UNSUPPORTED", e = 0, why = "missing-key";
    else if (r == P_LACKS || e == ENOSYS || e == EAFNOSUPPORT || e == EPROTONOSUPPORT || e == ESOCKTNOSUPPORT || e == EOPNOTSUPP)
        word = "UNSUPPORTED";
    say("%s=%s errno=%d%s%s\n", name, word, e, *why ? " " : "", e || r == P_NO_KEY ? why : "");
}

/* Value of a payload key, or NULL. */
MAYBE_UNUSED static const char *key(const char *name) {
    size_t len = strlen(name);
    for (size_t at = 0; at < p_size; at += strlen(p_payload + at) + 1)
        if (!strncmp(p_payload + at, name, len) && p_payload[at + len] == '=') return p_payload + at + len + 1;
    return NULL;
}

MAYBE_UNUSED static long number(const char *name) { const char *v = key(name); return v ? strtol(v, NULL, 10) : -1; }

/* "worked" also where the kernel got as far as one of these errors, which lie behind every permission check of that call. */
MAYBE_UNUSED static long p_reach(long r, const int *past) {
    int e = errno;
    if (r >= 0) return r;
    for (; *past; past++) if (*past == e) return 0;
    errno = e;
    return -1;
}
#define REACH(expr, ...) p_reach((long)(expr), (const int[]){__VA_ARGS__, 0})

/* Closes a descriptor that a probe got; keeps errno where it got none. */
MAYBE_UNUSED static long got(long fd) { if (fd >= 0) { close((int)fd); return 0; } return -1; }

/* A name for new files that no earlier run can have left behind: an EEXIST would look like a refusal. */
MAYBE_UNUSED static const char *tag(void) {
    static char name[64];
    struct timespec t = {0, 0};
    if (!*name) {
        clock_gettime(CLOCK_REALTIME, &t);
        snprintf(name, sizeof name, ".sa-%d-%lx%lx", (int)getpid(), (long)t.tv_sec, (long)t.tv_nsec);
    }
    return name;
}

MAYBE_UNUSED static long read_some(const char *path) {
    char c;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return -1;
    long r = read(fd, &c, 1);
    int e = errno;
    close(fd);
    errno = e;
    return r;
}

/* One probe in a child of its own: 1 when that was possible and *r and *e are set. */
MAYBE_UNUSED static int p_in_child(long (*run)(void), long *r, int *e) {
    long answer[2] = {-1, 0};
    int ends[2], status = 0;
    if (pipe2(ends, O_CLOEXEC)) return 0;
    pid_t child = fork();
    if (child == 0) {
        alarm(10);
        errno = 0;
        answer[0] = run();
        answer[1] = errno;
        _exit(write(ends[1], answer, sizeof answer) != (ssize_t)sizeof answer);
    }
    close(ends[1]);
    int whole = child > 0 && read(ends[0], answer, sizeof answer) == (ssize_t)sizeof answer;
    close(ends[0]);
    if (child < 0) return 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) { }
    *r = whole ? answer[0] : -1;
    *e = whole ? (int)answer[1] : ECHILD;
    return 1;
}

MAYBE_UNUSED static int p_answer(unsigned char **out, size_t *outn) {
    unsigned char *copy = malloc(p_used ? p_used : 1);
    if (!copy) return ENOMEM;
    memcpy(copy, p_text, p_used);
    *out = copy;
    *outn = p_used;
    return 0;
}

MAYBE_UNUSED static int p_read_payload(const unsigned char *in, size_t n) {
    int keyed = n && memchr(in, '=', n) != NULL;
    p_used = 0;
    p_size = n + (keyed ? 1 : 7);
    p_payload = malloc(p_size);
    if (!p_payload) return ENOMEM;
    if (!keyed) memcpy(p_payload, "probe=", 6);
    if (n) memcpy(p_payload + (keyed ? 0 : 6), in, n);
    p_payload[p_size - 1] = 0;
    for (size_t i = 0; i < p_size; i++) if (p_payload[i] == '\n') p_payload[i] = 0;
    return 0;
}

MAYBE_UNUSED static int p_run(const probe *table, size_t count, const unsigned char *in, size_t n, unsigned char **out, size_t *outn) {
    if (p_read_payload(in, n)) return ENOMEM;
    const char *only = key("probe");
    if (only && !*only) only = NULL;
    for (size_t i = 0; i < count; i++) {
        long r = -1;
        int e = 0;
        if (only ? strcmp(only, table[i].name) != 0 : (table[i].flags & P_ALONE) != 0) continue;
        if (!(table[i].flags & P_FORK) || !p_in_child(table[i].run, &r, &e)) {
            errno = 0;
            r = table[i].run();
            e = errno;
        }
        if (r != P_SAID) verdict(table[i].name, r, e);
    }
    if (only && !p_used) say("%s=INFO no such probe\n", only);
    free(p_payload);
    return p_answer(out, outn);
}
#define PROBES(table) \
    EXECUTE { return p_run(table, sizeof table / sizeof table[0], in, n, out, outn); } \
    RELEASE { (void)len; free(p); }
#endif
