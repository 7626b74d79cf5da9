/* An attacker who knows how the worker is built: its shared memory, its stem, its siblings, what its filter lets pass.
 *
 * Payload key `do`:
 *   forge   state=N code=N size=N [text=1] end=exit|segv|return|N   writes the answer page itself, then ends so
 *   mark    span=N      fills N bytes of the shared memory;   look span=N: counts what is there but the payload (whole=1: all)
 *   scan    canary=HEX  bytes, each xor 0x5a: how often they stand anywhere in readable memory
 *   keyscan ms=N        tries every word of its own memory as the stem's key;   guess count=N: random and special ones
 *   strike  how=kill|tgkill|all|group|pid sig=N [pid=N]   real signals at everybody but itself
 *   flags               spoils the status flags of descriptors 0 to 2 and says them;   getflags: says them
 *   timers  ms=N        takes as many timers as it gets, then sleeps
 *   daemon  path=FILE   leaves a grandchild in a session of its own that writes a byte to FILE every 20 ms, for 3 s at most
 *   smear   ms=N        span=N  writes a SIGSEGV's wait status into every empty page beside the shared memory, again and again
 *   again               opens its own module for writing, and says whether memory can be made executable from a file
 */
#include "probe.h"
#include <dlfcn.h>
#include <link.h>
#include <sys/random.h>
#include <sys/wait.h>

struct answer { uint32_t state; int32_t code; uint64_t size; char text[256]; }; /* wire.h, sa_answer */
enum { PAGE = 4096, MIB = 1 << 20 };
static unsigned char *input;
static size_t input_size;
static int is(const char *what, const char *name) { const char *v = key(what); return v && !strcmp(v, name); }
static long now_ms(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000 + t.tv_nsec / 1000000; }
static void pass(long ms) { struct timespec t = {ms / 1000, ms % 1000 * 1000000}; while (nanosleep(&t, &t) && errno == EINTR) { } }

static void forge(void) {
    struct answer *a = (struct answer *)(void *)(input - PAGE);
    if (key("text")) memset(a->text, 0x1b, sizeof a->text); /* not ended, not printable */
    a->code = (int32_t)number("code");
    a->size = strtoull(key("size"), NULL, 0);
    a->state = (uint32_t)number("state");
    if (is("end", "return")) return;
    if (is("end", "segv")) { volatile uintptr_t low = 8; *(volatile int *)low = 1; }
    _exit(is("end", "exit") ? 0 : (int)number("end"));
}
static void mark(void) { memset(input + input_size, 0xa5, (size_t)number("span") - input_size); say("mark=INFO done\n"); }
static void look(void) {
    size_t dirty = 0;
    for (size_t i = key("whole") ? 0 : input_size; i < (size_t)number("span"); i++) dirty += input[i] != 0;
    say("dirty=INFO %zu\n", dirty);
}

/* Every readable page near the stack, the program, its heap, the libraries and the shared memory: /proc/self/maps is out of reach. */
static int test_pipe[2];
static int readable(const unsigned char *p) {
    unsigned char state, byte;
    if (syscall(SYS_mincore, p, PAGE, &state)) return 0;
    return write(test_pipe[1], p, 1) == 1 && read(test_pipe[0], &byte, 1) == 1;
}
struct range { uintptr_t from, to; };
static int first_object(struct dl_phdr_info *info, size_t size, void *out) {
    (void)size;
    *(uintptr_t *)out = info->dlpi_addr + info->dlpi_phdr[0].p_vaddr;
    return 1;
}
static int lower(const void *a, const void *b) {
    uintptr_t x = ((const struct range *)a)->from, y = ((const struct range *)b)->from;
    return x < y ? -1 : x > y;
}
static long walk(int (*visit)(const unsigned char *page)) {
    uintptr_t program = 0, at[] = {(uintptr_t)&program, 0, (uintptr_t)sbrk(0), (uintptr_t)walk, (uintptr_t)malloc, (uintptr_t)input};
    static const uintptr_t around[] = {16 * MIB, 64 * MIB, 64 * MIB, 256 * MIB, 256 * MIB, 256 * MIB};
    struct range r[6];
    long pages = 0;
    uintptr_t done = PAGE;
    dl_iterate_phdr(first_object, &program);
    at[1] = program;
    if (pipe2(test_pipe, O_CLOEXEC)) return -1;
    for (int i = 0; i < 6; i++) r[i].from = at[i] > around[i] ? (at[i] - around[i]) & ~(uintptr_t)(PAGE - 1) : PAGE, r[i].to = at[i] + around[i];
    qsort(r, 6, sizeof *r, lower);
    for (int i = 0; i < 6; i++)
        for (uintptr_t p = r[i].from > done ? r[i].from : done; p < r[i].to; p += PAGE, done = p) {
            if (!readable((const unsigned char *)p)) continue;
            pages++;
            if (visit((const unsigned char *)p)) return pages;
        }
    return pages;
}
static unsigned char coded[256];
static size_t coded_size, hits;
static int seek(const unsigned char *page) { /* a canary across two pages is missed: tests use many copies */
    for (size_t i = 0; i + coded_size <= PAGE; i++) {
        size_t k = 0;
        while (k < coded_size && (page[i + k] ^ 0x5a) == coded[k]) k++;
        hits += k == coded_size;
    }
    return 0;
}
static void scan(void) {
    const char *hex = key("canary");
    unsigned byte;
    for (coded_size = 0; sscanf(hex + 2 * coded_size, "%2x", &byte) == 1; ) coded[coded_size++] = (unsigned char)byte;
    long pages = walk(seek);
    say("pages=INFO %ld\nhits=INFO %zu\n", pages, hits);
}

/* wait4 tells whether a key fits without forking: ECHILD behind the filter, EPERM before it. */
static long tried, stop_at;
static int fits(uint64_t word) {
    tried++;
    if (syscall(SYS_wait4, -1, NULL, WNOHANG, NULL, 0, word) < 0 && errno != ECHILD) return 0;
    long child = syscall(SYS_clone, (long)SIGCHLD, 0, 0, 0, 0, word);
    if (child == 0) _exit(0);
    return child > 0;
}
static int found;
static int try_page(const unsigned char *page) {
    uint64_t v, last = 0;
    for (size_t i = 0; i + 8 <= PAGE && !found; i += 4) {
        memcpy(&v, page + i, 8);
        if (!v || v == last) continue;
        last = v;
        found = fits(v) || fits(v << 32 | v >> 32) || fits(__builtin_bswap64(v));
    }
    return found || now_ms() > stop_at;
}
static void keyscan(void) {
    stop_at = now_ms() + number("ms");
    long pages = walk(try_page);
    errno = EPERM;
    say("pages=INFO %ld\ntried=INFO %ld\nended=INFO %s\n", pages, tried, now_ms() > stop_at ? "early" : "whole");
    verdict("keyscan", found ? 0 : -1, EPERM);
}
static void guess(void) {
    uint64_t v[] = {0, 1, ~0ull, 0x5EA1F0A1C0DEC0DE, 0xC0DEC0DE5EA1F0A1, 0x5EA1F0A1, 0xC0DEC0DE, (uint64_t)getpid(), (uint64_t)getppid()};
    for (size_t i = 0; i < sizeof v / sizeof *v && !found; i++) found = fits(v[i]);
    for (long i = 0; i < number("count") && !found; i++) if (getrandom(v, sizeof *v, 0) == sizeof *v) found = fits(*v);
    say("tried=INFO %ld\n", tried);
    verdict("guess", found ? 0 : -1, EPERM);
}

static void strike(void) {
    int sig = (int)number("sig"), me = getpid();
    long ok = 0;
    if (is("how", "all")) ok = kill(-1, sig) == 0;
    else if (is("how", "group")) ok = kill(0, sig) == 0;
    else if (is("how", "pid")) ok = kill((pid_t)number("pid"), sig) == 0;
    else for (int p = 1; p <= 400; p++) if (p != me) ok += (is("how", "tgkill") ? syscall(SYS_tgkill, p, p, sig) : kill(p, sig)) == 0;
    say("struck=INFO %ld\n", ok);
}
static void say_flags(void) { for (int fd = 0; fd < 3; fd++) say("flags=INFO %d %o %x\n", fd, (unsigned)fcntl(fd, F_GETFL), (unsigned)fcntl(fd, F_GETFD)); }
static void timers(void) {
    struct sigevent quiet = {.sigev_notify = SIGEV_NONE};
    timer_t t;
    long got_ = 0;
    while (got_ < 2000 && !timer_create(CLOCK_MONOTONIC, &quiet, &t)) got_++;
    say("timers=INFO %ld\n", got_);
    if (key("ms")) pass(number("ms"));
}
static void leave_daemon(void) {
    pid_t child = fork();
    if (child == 0) {
        if (setsid() < 0 || fork()) _exit(0);
        int fd = open(key("path"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
        for (int i = 0; i < 150; i++) { if (write(fd, "x", 1) != 1 || write(1, "x", 1) != 1) _exit(1); pass(20); }
        _exit(0);
    }
    if (child > 0) waitpid(child, NULL, 0);
    pass(100);
    verdict("daemon", child, errno);
}
/* A page that stem and init share would be empty but for a status. A pipe writes without the risk of a fault. */
static const unsigned char *empty[4096];
static int empties;
static void find_empty(const unsigned char *from, const unsigned char *to) {
    static const unsigned char zero[PAGE];
    for (; from < to; from += PAGE) if (empties < 4096 && readable(from) && !memcmp(from, zero, PAGE)) empty[empties++] = from;
}
static void smear(void) {
    static const int status = SIGSEGV;
    const unsigned char *end = input + number("span");
    long until = now_ms() + number("ms"), wrote = 0;
    if (pipe2(test_pipe, O_CLOEXEC)) return;
    find_empty(input - PAGE - MIB, input - PAGE);
    find_empty(end, end + 16 * MIB);
    for (int first = 1; first || now_ms() < until; first = 0)
        for (int i = 0; i < empties; i++) {
            if (write(test_pipe[1], &status, sizeof status) != sizeof status) return;
            if (read(test_pipe[0], (void *)(uintptr_t)empty[i], sizeof status) == sizeof status) wrote += first;
            else if (read(test_pipe[0], (int[1]){0}, sizeof status) >= 0) empty[i--] = empty[--empties]; /* read only */
        }
    say("empty=INFO %d\nwrote=INFO %ld\n", empties, wrote);
}
static void again(void) {
    Dl_info where;
    int fd = dladdr((void *)(uintptr_t)again, &where) ? open(where.dli_fname, O_RDWR | O_CLOEXEC) : -1;
    verdict("own_module", fd, errno);
    got(fd);
}

EXECUTE {
    input = (unsigned char *)(uintptr_t)in;
    input_size = n;
    if (p_read_payload(in, n)) return ENOMEM;
    if (is("do", "forge")) { forge(); return 0; }
    if (is("do", "mark")) mark();
    if (is("do", "look")) look();
    if (is("do", "scan")) scan();
    if (is("do", "keyscan")) keyscan();
    if (is("do", "guess")) guess();
    if (is("do", "strike")) strike();
    if (is("do", "timers")) timers();
    if (is("do", "daemon")) leave_daemon();
    if (is("do", "smear")) smear();
    if (is("do", "again")) again();
    if (is("do", "flags")) for (int fd = 0; fd < 3; fd++) fcntl(fd, F_SETFL, O_NONBLOCK | O_DIRECT | O_ASYNC | O_APPEND);
    if (is("do", "flags") || is("do", "getflags")) say_flags();
    return p_answer(out, outn);
}
RELEASE { (void)len; free(p); }
