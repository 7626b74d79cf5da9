/* A stem: forked from the zygote once per module of a Sandbox. It stands in its namespaces, has given up every
 * privilege that its workers do not need, and forks one worker a run. The program says which records the stem does for
 * all its workers and which each worker does for itself. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "uapi.h"
#include "worker.h"

_Static_assert(sizeof(struct sa_seal_msg) == sizeof(struct sa_fault_msg), "one at a time");

static struct stem stem = {.proc = -1, .root = -1, .ruleset = -1};
static struct lane lanes[SA_MAX_LANES];
static sigset_t nothing_blocked;

static void wake(int sig) { (void)sig; }

/* With a new user namespace the present ids map to themselves, so that files keep the owner they have. */
static int map_own_ids(const struct stem *s)
{
    char map[64];
    snprintf(map, sizeof map, "%u %u 1", s->uid, s->uid);
    if (write_file(s->proc, "self/uid_map", map) || write_file(s->proc, "self/setgroups", "deny")) return -1;
    snprintf(map, sizeof map, "%u %u 1", s->gid, s->gid);
    return write_file(s->proc, "self/gid_map", map);
}

/* The stem's share of the program; a Landlock ruleset is built here, in the stem's view of files, for workers to enforce. */
static void prepare(int control)
{
    /* A rule names an inode: what a worker mounts for itself is there only after its mount. */
    int own_mounts = program_find(&stem.program, SA_OP_TMPFS) != NULL;
    for (uint32_t i = 0; i < stem.program.count; i++) {
        const struct record *r = &stem.program.records[i];
        if (r->by == SA_BY_STEM) {
            if (op_apply(&stem, r)) fault(control, 0, i, r->op, errno, "stem");
            stem.applied++;
        } else if (r->op == SA_OP_LANDLOCK && !own_mounts) {
            if (landlock_build(&stem, r)) fault(control, 0, i, r->op, errno, "ruleset");
        }
    }
}

static _Noreturn void worker_fault(const struct lane *lane, uint32_t index, uint32_t op, const char *what)
{
    fault(lane->seal, lane->workers, index, op, errno, what);
}

/* Closes all but these (-1 is none): what belongs to other lanes would count against this worker's RLIMIT_NOFILE. */
static int keep_only(int *fds, int count)
{
    unsigned from = 3;
    for (int i = 0; i < count; i++) {
        int lowest = i;
        for (int j = i + 1; j < count; j++)
            if (fds[j] < fds[lowest]) lowest = j;
        unsigned fd = (unsigned)fds[lowest];
        fds[lowest] = fds[i];
        if ((int)fd < (int)from) continue;
        if (fd > from && syscall(SYS_close_range, from, fd - 1, 0)) return -1;
        from = fd + 1;
    }
    return (int)syscall(SYS_close_range, from, ~0U, 0);
}

/* Standard input is an empty pipe without a writer, and nobody else's. The other two outlive a run: status flags that an
 * earlier module set on them must not. */
static int own_streams(const struct lane *lane)
{
    int input[2];
    if (pipe2(input, O_CLOEXEC) || dup2(input[0], 0) < 0 || close(input[0]) || close(input[1])) return -1;
    if (dup2(lane->out, 1) < 0 || dup2(lane->err, 2) < 0) return -1;
    return fcntl(1, F_SETFL, 0) || fcntl(2, F_SETFL, 0) ? -1 : 0;
}

/* Everything that does not need the payload, then the seal; then parked until the host says go. */
_Noreturn void worker_main(struct stem *s, struct lane *lane)
{
    struct sa_seal_msg seal = {.type = SA_MSG_SEAL, .worker = lane->workers, .applied = s->applied};
    struct sa_run_msg m;
    for (uint32_t i = 0; i < lane->attached; i++)
        if (write(lane->attach[i], "0", 1) != 1) worker_fault(lane, i, 0, "join group");
    signal(SIGCHLD, SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &nothing_blocked, NULL);
    if (own_streams(lane)) worker_fault(lane, 0, 0, "streams");
    uint64_t size = SA_PAGE + sa_pad(lane->input_max, SA_PAGE) + sa_pad(lane->output_max, SA_PAGE);
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, lane->memory, 0);
    if (memory == MAP_FAILED) worker_fault(lane, 0, 0, "map payload");
    int needed[] = {lane->seal, lane->go, s->proc, s->root, s->ruleset};
    if (keep_only(needed, 5)) worker_fault(lane, 0, 0, "close_range");
    /* Files that it makes in a mount of its own need an owner that its user namespace knows. */
    const uint64_t own = SA_CLONE_NEWUSER | SA_CLONE_NEWNS;
    if ((s->birth & own) == own && (prctl(PR_SET_DUMPABLE, 1) || map_own_ids(s) || prctl(PR_SET_DUMPABLE, 0)))
        worker_fault(lane, 0, 0, "map ids");
    for (uint32_t i = 0; i < s->program.count - 1; i++) {
        const struct record *r = &s->program.records[i];
        if (r->by != SA_BY_WORKER) continue;
        if (op_apply(s, r)) worker_fault(lane, i, r->op, "worker");
        seal.applied++;
    }
    /* A change of user has reset both. */
    if (prctl(PR_SET_DUMPABLE, 0) || prctl(PR_SET_PDEATHSIG, SIGKILL)) worker_fault(lane, 0, 0, "prctl");
    if (!(s->birth & SA_CLONE_NEWPID) && getppid() != s->pid) _exit(121); /* the stem is gone already */
    if (read_back(&seal)) worker_fault(lane, 0, 0, "read back");
    native_park(memory, lane);
    if (tell(lane->seal, &seal, sizeof seal)) _exit(121);
    /* Of all descriptors only `go` is left while it waits, and that is closed before the module loads. */
    if (dup2(lane->go, 3) != 3 || syscall(SYS_close_range, 4, ~0U, 0)) _exit(121);
    do { /* a RUN for a worker that was killed before it heard of it is nobody's */
        if (read(3, &m, sizeof m) != sizeof m || m.type != SA_MSG_RUN || m.payload > lane->input_max) _exit(0);
    } while (m.worker != lane->workers);
    if (close(3)) _exit(0);
    native_run(&s->program.records[s->program.count - 1], memory, lane, m.payload);
}

/* Where the module may start processes, the worker has a pid namespace of its own: this init is its first process, so
 * that signals work in the worker as anywhere, and when it leaves, the kernel ends whatever the worker left behind. */
static void become_init_and_worker(struct stem *s, struct lane *lane)
{
    pid_t reaped, pid = spawn(0, -1);
    int status;
    if (pid < 0) worker_fault(lane, 0, 0, "init");
    if (pid == 0) {
        /* Of every lane, not only its own: through another's page it would speak for that lane's worker. */
        for (int i = 0; i < SA_MAX_LANES; i++)
            if (lanes[i].init_saw && munmap(lanes[i].init_saw, SA_PAGE)) worker_fault(lane, 0, 0, "init");
        return;
    }
    for (uint32_t i = 0; i < s->program.count; i++)
        if (s->program.records[i].op == SA_OP_IDENTITY && op_apply(s, &s->program.records[i])) _exit(121);
    if (prctl(PR_SET_DUMPABLE, 0) || syscall(SYS_close_range, 0, ~0U, 0)) _exit(121);
    while ((reaped = wait4(-1, &status, 0, NULL)) != pid)
        if (reaped < 0 && errno != EINTR) _exit(121);
    *lane->init_saw = status;
    _exit(0);
}

static void lane_close(struct lane *lane)
{
    if (lane->worker) kill(lane->worker, SIGKILL); /* reaped later; the slot is free only then */
    close(lane->control), close(lane->go), close(lane->seal), close(lane->memory), close(lane->out), close(lane->err);
    for (uint32_t i = 0; i < lane->attached; i++) close(lane->attach[i]);
    if (lane->group >= 0) close(lane->group);
    if (lane->init_saw && lane->init_saw != MAP_FAILED) munmap(lane->init_saw, SA_PAGE);
    lane->init_saw = NULL;
    lane->control = -1;
}

/* The next worker of a lane is forked as soon as the last is reaped: a run finds it parked and pays for no fork. */
static void lane_fork(struct lane *lane)
{
    lane->workers++;
    pid_t pid = spawn(stem.birth, lane->group);
    if (pid == 0 && lane->init_saw) become_init_and_worker(&stem, lane);
    if (pid == 0) worker_main(&stem, lane);
    lane->worker = pid > 0 ? pid : 0;
    if (pid > 0) return;
    struct sa_fault_msg m = {.type = SA_MSG_FAULT, .worker = lane->workers, .error = errno, .what = "clone"};
    tell(lane->control, &m, sizeof m);
    lane_close(lane);
}

static void lane_open(const struct sa_lane_msg *m, int *fds, int count)
{
    int wanted = 6 + (int)m->attach + (m->group ? 1 : 0), slot = 0;
    while (slot < SA_MAX_LANES && (lanes[slot].control >= 0 || lanes[slot].worker)) slot++;
    if (m->attach > SA_MAX_ATTACH || m->group > 1 || count != wanted || slot == SA_MAX_LANES) {
        while (count) close(fds[--count]); /* the host sees its lane closed */
        return;
    }
    struct lane *lane = &lanes[slot];
    *lane = (struct lane){.control = fds[0], .go = fds[1], .seal = fds[2], .memory = fds[3], .out = fds[4], .err = fds[5],
                          .group = -1, .attached = m->attach, .input_max = m->input_max, .output_max = m->output_max};
    for (uint32_t i = 0; i < m->attach; i++) lane->attach[i] = fds[6 + i];
    if (m->group) lane->group = fds[wanted - 1];
    if (stem.birth & SA_CLONE_NEWPID) {
        lane->init_saw = mmap(NULL, SA_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (lane->init_saw == MAP_FAILED) return lane_close(lane);
    }
    lane_fork(lane);
}

/* KILL, or the host's end of the lane is closed: either way this lane runs nothing more. */
static void lane_message(struct lane *lane)
{
    struct sa_run_msg m;
    int fds[SA_MAX_FDS], count = 0;
    ssize_t n = receive(lane->control, &m, sizeof m, fds, &count, 1);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    while (count) close(fds[--count]);
    if (n != sizeof m || m.type != SA_MSG_KILL || !lane->worker) return lane_close(lane);
    close(lane->go);
    lane->go = -1; /* no successor */
    kill(lane->worker, SIGKILL);
}

static int reap_one(void)
{
    siginfo_t info = {0};
    struct rusage u;
    int status;
    if (keyed_call(SYS_waitid, P_ALL, 0, (long)&info, WEXITED | WNOHANG | WNOWAIT) || !info.si_pid) return 0;
    struct sa_status_msg m = {.type = SA_MSG_STATUS};
    if (info.si_code != CLD_EXITED && info.si_status == SIGSYS) m.filter = filter_killed(stem.proc, info.si_pid);
    if (stem.birth & SA_CLONE_NEWPID) m.filter = SA_FILTER_UNKNOWN; /* it was the init's child */
    if (keyed_call(SYS_wait4, info.si_pid, (long)&status, 0, (long)&u) != info.si_pid) return 0;
    for (int i = 0; i < SA_MAX_LANES; i++) {
        struct lane *lane = &lanes[i];
        if (lane->worker != info.si_pid) continue;
        if (lane->init_saw && WIFEXITED(status) && WEXITSTATUS(status) == 0) status = *lane->init_saw;
        m.worker = lane->workers, m.status = status, m.ended_ns = now_ns();
        m.user_us = (uint64_t)u.ru_utime.tv_sec * 1000000u + (uint64_t)u.ru_utime.tv_usec;
        m.system_us = (uint64_t)u.ru_stime.tv_sec * 1000000u + (uint64_t)u.ru_stime.tv_usec;
        m.switches = (uint64_t)u.ru_nvcsw + (uint64_t)u.ru_nivcsw, m.maxrss_kib = (uint64_t)u.ru_maxrss;
        m.read_blocks = (uint64_t)u.ru_inblock, m.write_blocks = (uint64_t)u.ru_oublock;
        lane->worker = 0;
        if (lane->control < 0) continue;
        /* A worker that could not even be sealed has no successor, or a set-up that fails would fork for ever. The host
         * takes the seal out of the pipe as soon as it is told, so the look comes first. */
        int sealed = 0;
        if (ioctl(lane->seal, FIONREAD, &sealed)) sealed = 0;
        struct sa_run_msg unheard;
        int left = 0;
        if (lane->go >= 0 && !ioctl(lane->go, FIONREAD, &left) && left == sizeof unheard)
            m.unheard = read(lane->go, &unheard, sizeof unheard) == sizeof unheard;
        tell(lane->control, &m, sizeof m);
        if (lane->go >= 0 && sealed == sizeof(struct sa_seal_msg) && !(WIFEXITED(status) && WEXITSTATUS(status) == 121))
            lane_fork(lane);
    }
    return 1;
}

static void control_message(int control)
{
    struct sa_lane_msg m;
    int fds[SA_MAX_FDS], count = 0;
    ssize_t n = receive(control, &m, sizeof m, fds, &count, 1);
    if (n < 0 && (errno == EAGAIN || errno == EINTR || errno == EMSGSIZE)) return; /* EMSGSIZE: no room for its fds */
    if (n == sizeof m && m.type == SA_MSG_LANE) return lane_open(&m, fds, count);
    _exit(0); /* the host closed the Sandbox, or speaks another language: workers die with us */
}

static void serve(int control)
{
    struct pollfd polled[1 + SA_MAX_LANES];
    int slot[1 + SA_MAX_LANES];
    for (;;) {
        nfds_t n = 1;
        polled[0] = (struct pollfd){.fd = control, .events = POLLIN};
        for (int i = 0; i < SA_MAX_LANES; i++)
            if (lanes[i].control >= 0) polled[n] = (struct pollfd){.fd = lanes[i].control, .events = POLLIN}, slot[n++] = i;
        if (ppoll(polled, n, NULL, &nothing_blocked) < 0 && errno != EINTR) _exit(121);
        while (reap_one()) { }
        if (polled[0].revents) control_message(control);
        for (nfds_t i = 1; i < n; i++)
            if (polled[i].revents && lanes[slot[i]].control == polled[i].fd) lane_message(&lanes[slot[i]]);
    }
}

_Noreturn void stem_main(int control, const uint8_t *bytes, size_t size, int zygote, uid_t uid, gid_t gid)
{
    struct sigaction action = {.sa_handler = wake};
    const struct record *r;
    struct sa_flags ns = {0};
    for (int i = 0; i < SA_MAX_LANES; i++) lanes[i].control = -1;
    sigaction(SIGCHLD, &action, NULL);
    if (program_decode(bytes, size, &stem.program)) fault(control, 0, 0, 0, EBADMSG, "program");
    stem.pid = getpid();
    stem.uid = uid, stem.gid = gid;
    stem.proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if ((r = program_find(&stem.program, SA_OP_NAMESPACES))) memcpy(&ns, r->data, sizeof ns);
    if ((ns.flags & SA_CLONE_NEWUSER) && map_own_ids(&stem)) fault(control, 0, 0, 0, errno, "map ids");
    prepare(control);
    struct pollfd parent = {.fd = zygote, .events = POLLIN};
    if (prctl(PR_SET_DUMPABLE, 0) || prctl(PR_SET_PDEATHSIG, SIGKILL)) fault(control, 0, 0, 0, errno, "prctl");
    if (poll(&parent, 1, 0) != 0) _exit(121); /* it died before we asked to be told */
    close(zygote);
    struct sa_seal_msg ready = {.type = SA_MSG_READY, .applied = stem.applied};
    if (tell(control, &ready, sizeof ready)) _exit(121);
    serve(control);
    _exit(0);
}
