/* Target: all that a stem hears, through its own loop: packets on its control socket and on the control sockets of its
 * lanes, with any number of descriptors, and the ends of workers in any order. No process is made: spawn() only counts.
 *
 * Input: actions of one byte. 0 to 3: a lane message of the next bytes; 4: any packet; 5: a packet to a lane; 6: hang up
 * on a lane; 7: a worker ends. */
#define _GNU_SOURCE
#include <setjmp.h>
#define _exit fuzz_exit
#define kill fuzz_kill
#define ppoll fuzz_ppoll
#include "../../sandboxactor/_worker/stem.c"
#undef _exit
#undef kill
#undef ppoll
#include "common.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PEERS = 8 };
static jmp_buf out;
static struct bytes input;
static int ours, peers[PEERS], peer_count, fail_spawn;
static pid_t next_pid, ended;

_Noreturn void fuzz_exit(int status) { (void)status, longjmp(out, 1); }
int fuzz_kill(pid_t pid, int sig) { return CHECK(pid > 1 && sig == SIGKILL), 0; }

/* What is linked elsewhere: never reached, since no worker is ever born. */
int op_apply(struct stem *s, const struct record *r) { return (void)s, (void)r, 0; }
int landlock_build(struct stem *s, const struct record *r) { return (void)s, (void)r, 0; }
int read_back(struct sa_seal_msg *seal) { return (void)seal, 0; }
void native_park(struct sa_answer *answer, struct lane *lane) { (void)answer, (void)lane; }
_Noreturn void native_run(const struct record *r, struct sa_answer *a, struct lane *l, uint64_t p) { (void)r, (void)a, (void)l, (void)p, abort(); }

pid_t spawn(uint64_t flags, int group)
{
    (void)flags, (void)group;
    if (fail_spawn) return errno = EAGAIN, -1;
    return ++next_pid;
}

long keyed_call(long number, long a, long b, long c, long d)
{
    if (number == SYS_recvmsg) return recvmsg((int)a, (struct msghdr *)b, (int)c);
    if (number == SYS_waitid) {
        if (ended) *(siginfo_t *)c = (siginfo_t){.si_code = CLD_EXITED}, ((siginfo_t *)c)->si_pid = ended;
        return 0;
    }
    CHECK(number == SYS_wait4 && a == ended);
    *(int *)b = take_byte(&input) << 8;
    memset((void *)d, 0, sizeof(struct rusage));
    ended = 0;
    return a;
}

static void send_lane(int any)
{
    int fds[24], count = take_byte(&input) % 24, pair[2];
    uint8_t packet[96];
    struct sa_lane_msg m = {.type = SA_MSG_LANE};
    fail_spawn = take_byte(&input) == 255;
    for (int i = 0; i < count; i++) fds[i] = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (count && peer_count < PEERS && !socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair)) {
        close(fds[0]);
        fds[0] = pair[0], peers[peer_count++] = pair[1];
    }
    if (any) {
        size_t n = take(&input, packet, take_byte(&input) % sizeof packet);
        send_packet(ours, packet, n, fds, count);
    } else {
        m.attach = take_byte(&input) % 6, m.group = take_byte(&input) % 3;
        take(&input, &m.input_max, 16);
        send_packet(ours, &m, sizeof m, fds, count);
    }
    while (count) close(fds[--count]);
}

static void act(void)
{
    uint8_t packet[96], action = take_byte(&input) % 8;
    int *peer = &peers[peer_count ? take_byte(&input) % peer_count : 0];
    if (action < 5) return send_lane(action == 4);
    if (action == 7) {
        for (int i = 0, skip = take_byte(&input) % 4; i < SA_MAX_LANES && !ended; i++)
            if (lanes[i].worker && skip-- == 0) ended = lanes[i].worker;
        return;
    }
    if (!peer_count || *peer < 0) return;
    if (action == 6) {
        close(*peer);
        *peer = -1;
        return;
    }
    struct sa_run_msg kill_it = {.type = SA_MSG_KILL};
    size_t n = take(&input, packet, take_byte(&input) % sizeof packet);
    int fds[24], count = take_byte(&input) % 24;
    for (int i = 0; i < count; i++) fds[i] = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (n) send_packet(*peer, packet, n, fds, count);
    else send_packet(*peer, &kill_it, sizeof kill_it, fds, count);
    while (count) close(fds[--count]);
}

int fuzz_ppoll(struct pollfd *polled, nfds_t n, const struct timespec *t, const sigset_t *set)
{
    (void)t, (void)set;
    CHECK(n <= 1 + SA_MAX_LANES);
    if (!input.left) longjmp(out, 2);
    act();
    return poll(polled, n, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int control[2];
    signal(SIGPIPE, SIG_IGN);
    note_open();
    input = (struct bytes){data, size};
    peer_count = fail_spawn = 0, next_pid = 1000, ended = 0;
    for (int i = 0; i < SA_MAX_LANES; i++) lanes[i] = (struct lane){.control = -1};
    CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control));
    ours = control[1];
    int how = setjmp(out);
    if (!how) serve(control[0]);
    for (int i = 0; i < SA_MAX_LANES; i++)
        if (lanes[i].control >= 0) lane_close(&lanes[i]);
    for (int i = 0; i < peer_count; i++)
        if (peers[i] >= 0) close(peers[i]);
    close(control[0]);
    close(control[1]);
    int left = left_open();
    CHECK(how == 1 || left == 0); /* a stem that exits may leave all of it to the kernel */
    return 0;
}
