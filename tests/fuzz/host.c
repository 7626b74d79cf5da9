/* Target: all that the host reads in a run, against a scripted stem and worker over real sockets, pipes and memory: the
 * packets on `control`, the seal, fd 1 and 2, the answer page. The clock jumps, so that deadlines pass without waiting.
 *
 * Input: limits, the answer page, then steps that the other side takes one by one each time the host polls. */
#define _GNU_SOURCE
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>
int fuzz_clock(clockid_t which, struct timespec *t);
int fuzz_ppoll(struct pollfd *p, nfds_t n, const struct timespec *t, const sigset_t *set);
int fuzz_poll(struct pollfd *p, nfds_t n, int ms);
ssize_t fuzz_write(int fd, const void *data, size_t size);
#define ppoll fuzz_ppoll
#define poll fuzz_poll
#define clock_gettime fuzz_clock
#define write fuzz_write
#include "../../sandboxactor/_worker/host.c"
#undef ppoll
#undef poll
#undef clock_gettime
#undef write
#include "common.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct bytes input;
static int control, seal, out[2];
static uint64_t now;

int fuzz_clock(clockid_t which, struct timespec *t)
{
    (void)which;
    now += 1000000u << (take_byte(&input) & 7);
    *t = (struct timespec){(time_t)(now / 1000000000u), (long)(now % 1000000000u)};
    return 0;
}

/* One step of the other side: a well-formed report or fault, any packet, a seal or any bytes of one, output, an end. */
static void act(void)
{
    uint8_t any[128];
    struct sa_status_msg status = {.type = SA_MSG_STATUS, .worker = 1};
    struct sa_fault_msg fault = {.type = SA_MSG_FAULT, .worker = 1};
    struct sa_seal_msg sealed = {.type = SA_MSG_SEAL, .worker = 1};
    switch (take_byte(&input) % 10) {
    case 0: take(&input, &status.worker, sizeof status - 4), send_packet(control, &status, sizeof status, NULL, 0); break;
    case 1: take(&input, &fault.worker, sizeof fault - 4), send_packet(control, &fault, sizeof fault, NULL, 0); break;
    case 2: send_packet(control, any, take(&input, any, take_byte(&input) % sizeof any), NULL, 0); break;
    case 3: take(&input, &sealed.worker, sizeof sealed - 4), (void)!write(seal, &sealed, sizeof sealed); break;
    case 4: (void)!write(seal, any, take(&input, any, take_byte(&input) % sizeof any)); break;
    case 5: shutdown(control, SHUT_RDWR); break;
    case 6: send_packet(control, &status, sizeof status, NULL, 0); break;
    case 7: (void)!write(seal, &fault, sizeof fault); break;
    default:
        for (int i = take_byte(&input) % 32; i >= 0; i--) (void)!write(out[i % 2], any, sizeof any);
    }
}

int fuzz_ppoll(struct pollfd *p, nfds_t n, const struct timespec *t, const sigset_t *set)
{
    (void)t, (void)set;
    if (input.left && input.at[0] == 255) return take_byte(&input), errno = EINTR, -1;
    act();
    return poll(p, n, 0);
}

int fuzz_poll(struct pollfd *p, nfds_t n, int ms) { return (void)ms, fuzz_ppoll(p, n, NULL, NULL); }
ssize_t fuzz_write(int fd, const void *data, size_t size) { return act(), write(fd, data, size); }

/* Every byte must be there to be read: the sanitizer looks. */
static void read_all(const uint8_t *data, size_t size)
{
    static volatile uint8_t last;
    for (size_t i = 0; i < size; i++) last = data[i];
    (void)last;
}

static void check(struct sa_run *run, int state)
{
    CHECK(run->answer.text[sizeof run->answer.text - 1] == 0);
    for (int i = 0; i < 2; i++) {
        CHECK(run->streams[i].size <= run->stream_max && run->streams[i].size <= run->streams[i].room);
        if (run->streams[i].size) read_all(run->streams[i].data, run->streams[i].size);
    }
    if (state != SA_DONE || run->answer.state != SA_ANSWERED || run->answer.code) return;
    CHECK(run->reported && run->answer.size <= run->output_max);
    if (run->answer.size) read_all(run->output, run->answer.size);
}

static void one_run(struct sa_run *run, const uint8_t *payload)
{
    struct sa_answer answer = {.state = SA_ANSWERED};
    uint8_t how = take_byte(&input);
    answer.size = (uint64_t)take_byte(&input) << (how & 31);
    if (how & 32) take(&input, &answer, sizeof answer);
    (void)!pwrite(run->memory, &answer, sizeof answer, 0);
    run->payload = payload, run->payload_size = take_byte(&input) % (run->input_max + 1);
    run->timeout_ns = (uint64_t)take_byte(&input) * 20000000u, run->grace_ns = 1000000000u;
    run->cancelled = how & 64 ? 1 : 0;
    int state = sa_run(run);
    while (state == SA_INTERRUPTED) state = sa_wait(run);
    check(run, state);
    if (run->mapped || how & 128) sa_release(run); /* the library does so before it uses a lane again */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t payload[256];
    int ends[2], go[2], seals[2], pipes[2][2];
    struct sa_run run = {0};
    note_open();
    input = (struct bytes){data, size};
    now = 1000000000u;
    run.input_max = take_byte(&input), run.output_max = (uint64_t)take_byte(&input) << (take_byte(&input) % 14);
    run.stream_max = (uint64_t)take_byte(&input) << (take_byte(&input) % 10);
    CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) && !pipe2(go, O_NONBLOCK) && !pipe2(seals, O_NONBLOCK));
    for (int i = 0; i < 2; i++) {
        CHECK(!pipe2(pipes[i], O_NONBLOCK));
        run.pipes[i] = pipes[i][0], out[i] = pipes[i][1];
    }
    run.control = ends[0], control = ends[1], run.go = go[1], run.seal_end = seals[0], seal = seals[1];
    run.memory = memfd_create("fuzz", MFD_CLOEXEC);
    CHECK(run.memory >= 0 && !ftruncate(run.memory, (off_t)(SA_PAGE + page_up(run.input_max) + page_up(run.output_max))));
    for (int runs = 0; runs < 4 && (runs == 0 || input.left); runs++) one_run(&run, payload);
    sa_retire(&run);
    sa_free(&run);
    CHECK(!run.mapped && !run.output);
    CHECK(left_open() == 11);
    return 0;
}
