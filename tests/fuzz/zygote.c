/* Target: all that a zygote hears on its control socket. No process is made and nothing is removed.
 *
 * Input: packets, each a type byte (0: a stem, 1: a base, 2: anything), a count of descriptors, a length, and the bytes. */
#define _GNU_SOURCE
#include <setjmp.h>
#define _exit fuzz_exit
#define kill fuzz_kill
#define rmdir fuzz_rmdir
#define unlinkat fuzz_unlinkat
#define opendir fuzz_opendir
#define nanosleep fuzz_nanosleep
#define waitpid fuzz_waitpid
#include "../../sandboxactor/_worker/zygote.c"
#undef _exit
#undef kill
#undef rmdir
#undef unlinkat
#undef opendir
#undef nanosleep
#undef waitpid
#include "common.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static jmp_buf out;
static pid_t next_pid;
static size_t seen;

_Noreturn void fuzz_exit(int status) { (void)status, longjmp(out, 1); }
int fuzz_kill(pid_t pid, int sig) { return CHECK(pid > 1 && sig == SIGKILL), 0; }
int fuzz_rmdir(const char *path) { return seen += strlen(path), 0; }
int fuzz_unlinkat(int dir, const char *path, int flags) { return (void)dir, (void)path, (void)flags, 0; }
DIR *fuzz_opendir(const char *path) { return seen += strlen(path), errno = ENOENT, NULL; }
int fuzz_nanosleep(const struct timespec *a, struct timespec *b) { return (void)a, (void)b, 0; }
pid_t fuzz_waitpid(pid_t pid, int *status, int options) { return (void)pid, (void)status, (void)options, errno = ECHILD, -1; }
pid_t spawn(uint64_t flags, int group) { return (void)flags, (void)group, next_pid++ % 7 ? next_pid : -1; }
long keyed_call(long n, long a, long b, long c, long d) { return syscall(n, a, b, c, d); }
_Noreturn void stem_main(int c, const uint8_t *b, size_t n, int z, uid_t u, gid_t g) { (void)c, (void)b, (void)n, (void)z, (void)u, (void)g, abort(); }

static void packet(int to, struct bytes *input)
{
    static uint8_t body[8 + 65536];
    uint64_t kind = take_byte(input) % 3;
    int fds[24], count = take_byte(input), size = take_byte(input) | take_byte(input) << 8;
    count = count < 200 ? 1 : count % 24;
    size_t n = 0;
    if (kind < 2) {
        kind = kind == 0 ? SA_MSG_STEM : SA_MSG_BASE;
        memcpy(body, &kind, 8);
        n = 8;
    }
    n += take(input, body + n, (size_t)size);
    for (int i = 0; i < count; i++) fds[i] = open("/dev/null", O_RDWR | O_CLOEXEC);
    send_packet(to, body, n, fds, count);
    while (count) close(fds[--count]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int pair[2];
    static struct bytes input;
    signal(SIGPIPE, SIG_IGN);
    note_open();
    input = (struct bytes){data, size};
    next_pid = 1000;
    memset(stems, 0, sizeof stems);
    CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair));
    int ended = setjmp(out);
    while (!ended && input.left) {
        packet(pair[1], &input);
        control_message(pair[0], -1);
        for (int i = 0; i < MAX_BASES; i++)
            if (bases[i]) seen += strlen(bases[i]);
    }
    for (int i = 0; i < MAX_BASES; i++) free(bases[i]), bases[i] = NULL;
    close(pair[0]);
    close(pair[1]);
    int left = left_open();
    CHECK(ended || left == 0);
    return 0;
}
