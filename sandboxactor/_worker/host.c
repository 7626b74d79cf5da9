/* Host side of a run: send, poll, drain, kill, collect. Believes the worker's seal (sent before the module was loaded),
 * the stem's report and the kernel; of what the module wrote, one bounded span of bytes and nothing else. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "host.h"

enum { SMALL_OUTPUT = 256 * 1024, CHUNK = 64 * 1024 };

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t page_up(uint64_t n) { return (n + SA_PAGE - 1) / SA_PAGE * SA_PAGE; }

static int failed(struct sa_run *run, const char *what)
{
    run->error = errno;
    snprintf(run->failed, sizeof run->failed, "%s", what);
    return SA_FAILED;
}

static int write_all(int fd, const uint8_t *data, uint64_t size, off_t at)
{
    while (size) {
        ssize_t n = pwrite(fd, data, size, at);
        if (n <= 0) return -1;
        data += n, size -= (uint64_t)n, at += n;
    }
    return 0;
}

static void write_each(const struct sa_write *writes, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (pwrite(writes[i].fd, writes[i].data, (size_t)writes[i].size, 0) < 0) continue; /* the kill goes on regardless */
}

/* Whole memory back to zero pages: what one run left, no later run of this lane can see. */
static int wipe(struct sa_run *run)
{
    if (run->memory < 0) return 0; /* the lane is closed, and the number may be somebody else's by now */
    off_t size = (off_t)(SA_PAGE + page_up(run->input_max) + page_up(run->output_max));
    return fallocate(run->memory, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, size);
}

static void kill_worker(struct sa_run *run)
{
    struct sa_run_msg m = {.type = SA_MSG_KILL};
    if (run->killed) return;
    run->killed = 1;
    write_each(run->release, run->releases); /* a throttled task dies only when it is scheduled */
    if (send(run->control, &m, sizeof m, MSG_NOSIGNAL) != sizeof m) run->lost = 1;
}

/* The stem's word on `control`: the worker was reaped, or none could be forked. */
static void hear(struct sa_run *run)
{
    union { uint32_t type; struct sa_status_msg status; struct sa_fault_msg fault; } m;
    ssize_t n = recv(run->control, &m, sizeof m, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n == sizeof m.status && m.type == SA_MSG_STATUS) run->status = m.status, run->reported = 1;
    else if (n == sizeof m.fault && m.type == SA_MSG_FAULT) run->fault = m.fault, run->faulted = 1;
    else run->lost = 1;
    /* Killed from outside while it was parked, before or after we wrote: this run never began. */
    if (run->reported && !run->killed && (run->status.unheard || run->status.ended_ns < run->begun_ns)) run->started = 0;
}

/* The worker's own word, from before its module was loaded: a pipe that nobody polls, so that it wakes nobody. */
static void read_seal(struct sa_run *run)
{
    union { uint32_t type; struct sa_seal_msg seal; struct sa_fault_msg fault; } m;
    ssize_t n = read(run->seal_end, &m, sizeof m);
    if (n == sizeof m.seal && m.type == SA_MSG_SEAL && m.seal.worker == run->status.worker) run->seal = m.seal, run->sealed = 1;
    else if (n == sizeof m.fault && m.type == SA_MSG_FAULT) run->fault = m.fault, run->faulted = 1;
}

/* Keeps the first stream_max bytes, drops the rest: the module never blocks for long and the host never grows. */
static void drain(struct sa_run *run, int which)
{
    struct sa_stream *s = &run->streams[which];
    static _Thread_local uint8_t chunk[CHUNK];
    for (int rounds = 0; rounds < 64; rounds++) { /* then look at the clock again */
        ssize_t n = read(run->pipes[which], chunk, sizeof chunk);
        if (n <= 0) return;
        uint64_t keep = run->stream_max - s->size < (uint64_t)n ? run->stream_max - s->size : (uint64_t)n;
        if (s->size + keep > s->room) {
            uint64_t room = s->room ? s->room : CHUNK;
            while (room < s->size + keep) room *= 2;
            uint8_t *more = realloc(s->data, room);
            if (!more) keep = 0;
            else s->data = more, s->room = room;
        }
        if (keep) memcpy(s->data + s->size, chunk, keep);
        s->size += keep;
        if (keep < (uint64_t)n) s->cut = 1;
    }
}

static void read_output(struct sa_run *run)
{
    struct sa_answer *a = &run->answer;
    off_t at = (off_t)(SA_PAGE + page_up(run->input_max));
    if (pread(run->memory, a, sizeof *a, 0) != sizeof *a) a->state = SA_NOT_LOADED;
    a->text[sizeof a->text - 1] = 0;
    if (a->state == SA_OVERSIZE && a->size <= run->output_max) a->state = SA_NOT_LOADED; /* written by the module itself */
    if (a->state != SA_ANSWERED || a->code != 0) return;
    if (a->size > run->output_max) { /* only a module that wrote here itself can say so */
        a->state = SA_OVERSIZE;
    } else if (a->size > SMALL_OUTPUT) {
        uint8_t *span = mmap(NULL, page_up(a->size), PROT_READ, MAP_SHARED | MAP_POPULATE, run->memory, at);
        if (span == MAP_FAILED) failed(run, "map output");
        else free(run->output), run->output = span, run->mapped = 1, run->output_room = 0;
    } else if (a->size) {
        if (!run->output_room) run->output = malloc(SMALL_OUTPUT), run->output_room = run->output ? SMALL_OUTPUT : 0;
        if (!run->output || pread(run->memory, run->output, a->size, at) != (ssize_t)a->size) failed(run, "read output");
    }
}

static int finish(struct sa_run *run)
{
    run->ended_ns = run->reported ? run->status.ended_ns : now_ns();
    if (run->reported) read_seal(run);
    for (int i = 0; i < 2; i++)
        for (uint64_t before = ~0ull; before != run->streams[i].size;) before = run->streams[i].size, drain(run, i);
    for (uint32_t i = 0; i < run->afters; i++) {
        ssize_t n = pread(run->after[i], run->reading[i], sizeof run->reading[i], 0);
        run->reading_size[i] = n < 0 ? 0 : (int32_t)n;
    }
    if (run->lost || run->faulted) return SA_FAILED;
    read_output(run);
    if (!run->mapped && wipe(run)) return failed(run, "wipe");
    return run->error ? SA_FAILED : SA_DONE;
}

/* What the last run answered does not wait in the host's memory for the next one. */
static void forget(struct sa_run *run)
{
    if (run->output && run->answer.size <= run->output_room) explicit_bzero(run->output, run->answer.size);
    for (int i = 0; i < 2; i++)
        if (run->streams[i].data) explicit_bzero(run->streams[i].data, run->streams[i].size), run->streams[i].size = 0;
}

static int moved(const struct sa_run *run)
{
    for (int i = 0; i < 4; i++) {
        struct stat st;
        if (run->path[i] && (stat(run->path[i], &st) || st.st_dev != run->path_dev[i] || st.st_ino != run->path_ino[i])) return 1;
    }
    return 0;
}

static int begin(struct sa_run *run)
{
    struct sa_run_msg m = {.type = SA_MSG_RUN, .worker = run->status.worker + 1, .payload = run->payload_size};
    if (run->mapped) sa_release(run);
    forget(run);
    run->started = run->sealed = run->faulted = run->reported = run->timed_out = run->killed = run->lost = 0;
    run->error = 0;
    if (moved(run)) return SA_STALE;
    if (hear(run), run->reported || run->lost || run->faulted) return finish(run), SA_FAILED; /* died while parked */
    memset(&run->answer, 0, sizeof run->answer);
    run->streams[0].size = run->streams[1].size = run->streams[0].cut = run->streams[1].cut = 0;
    for (uint32_t i = 0; i < run->befores; i++)
        if (pwrite(run->before[i].fd, run->before[i].data, (size_t)run->before[i].size, 0) != run->before[i].size)
            return failed(run, "reset group");
    if (write_all(run->memory, run->payload, run->payload_size, SA_PAGE)) return failed(run, "write payload");
    run->begun_ns = now_ns();
    if (write(run->go, &m, sizeof m) != sizeof m) return failed(run, "send");
    run->started = 1;
    return SA_DONE;
}

int sa_wait(struct sa_run *run)
{
    uint64_t deadline = run->begun_ns + run->timeout_ns;
    while (!run->reported && !run->lost && !run->faulted) {
        uint64_t now = now_ns(), until = run->killed ? deadline + run->grace_ns : deadline;
        if (__atomic_load_n(&run->cancelled, __ATOMIC_SEQ_CST)) {
            if (!run->killed) deadline = now, run->timeout_ns = now - run->begun_ns;
            kill_worker(run);
        }
        if (now >= until) {
            if (run->killed) { run->lost = 1; break; }
            run->timed_out = 1;
            kill_worker(run);
            continue;
        }
        uint64_t left = until - now;
        int sliced = run->slice_ns && left > run->slice_ns;
        if (sliced) left = run->slice_ns;
        struct timespec t = {(time_t)(left / 1000000000u), (long)(left % 1000000000u)};
        struct pollfd p[3] = {{run->control, POLLIN, 0}, {run->pipes[0], POLLIN, 0}, {run->pipes[1], POLLIN, 0}};
        int n = ppoll(p, 3, &t, NULL);
        if ((n < 0 && errno == EINTR) || (n == 0 && sliced)) return SA_INTERRUPTED;
        if (n < 0) return failed(run, "poll");
        if (p[1].revents) drain(run, 0);
        if (p[2].revents) drain(run, 1);
        if (p[0].revents) hear(run);
    }
    return finish(run);
}

int sa_run(struct sa_run *run)
{
    int begun = begin(run);
    return begun == SA_DONE ? sa_wait(run) : begun;
}

/* The socket is a packet socket: a KILL sent beside a RUN is never mixed into it. */
void sa_cancel(struct sa_run *run)
{
    struct sa_run_msg m = {.type = SA_MSG_KILL};
    __atomic_store_n(&run->cancelled, 1, __ATOMIC_SEQ_CST);
    write_each(run->release, run->releases);
    if (send(run->control, &m, sizeof m, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) return; /* the stem is gone: so is the worker */
}

void sa_retire(struct sa_run *run)
{
    uint64_t until = now_ns() + 2000000000u;
    sa_cancel(run);
    for (run->reported = run->lost = run->faulted = 0; !run->reported && !run->lost && !run->faulted && now_ns() < until;) {
        struct pollfd p = {run->control, POLLIN, 0};
        if (poll(&p, 1, 100) > 0) hear(run);
    }
}

void sa_release(struct sa_run *run)
{
    if (run->mapped) {
        munmap(run->output, page_up(run->answer.size));
        run->output = NULL, run->mapped = 0, run->output_room = 0;
        wipe(run);
    }
    forget(run);
    for (int i = 0; i < 2; i++)
        if (run->streams[i].room > CHUNK) free(run->streams[i].data), run->streams[i] = (struct sa_stream){0};
}

void sa_free(struct sa_run *run)
{
    sa_release(run);
    free(run->output);
    run->output = NULL, run->output_room = 0;
    for (int i = 0; i < 2; i++) free(run->streams[i].data), run->streams[i] = (struct sa_stream){0};
}
