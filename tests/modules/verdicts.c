/* One behaviour a payload, for the verdicts of Result. The payload is WORD or WORD:ARGUMENT; anything else is echoed.
 *
 *   echo:TEXT        answers TEXT                          rc:N           returns N, no output
 *   exit:N _exit:N   leaves by exit(N) or _exit(N)          big:N          answers N bytes 'Z'
 *   big_rc           returns 7 with an output set           null_len       NULL with length 100
 *   huge_len         one byte with length 2^40              bad_ptr        pointer 1 with length 16
 *   static_ptr       static memory, which free() would abort on (our free leaves it be)
 *   nothing          rc 0, output pointer and length untouched
 *   abort segv fpe   end by that signal                     raise:N        raises signal N with its default action
 *   sigsys           sends itself SIGSYS by tgkill          badabi         calls getpid by int 0x80
 *   badabi_thread    the same in a thread of its own
 *   badcall          a system call number that is none       overflow       recurses until the stack ends
 *   hang             spins                                  hang_masked    spins, every signal blocked and ignored
 *   sleep_masked     sleeps for ever, the same              stop           SIGSTOP to itself, then answers
 *   closeall         closes descriptors 0 to 65535, answers  scribble       writes garbage to descriptors 0 to 1023, answers
 *   scribble_shm     writes garbage over every shared writable mapping it finds in /proc/self/maps, answers
 *   bgthreads:N      leaves N spinning threads, answers     threads:N      says how many of N (at most 2000) threads come up
 *   forks:N          says how many of N (at most 500) children come up, and ends them
 *   alloc:N          touches N MiB in steps of one and says how far it got
 *   flood:N          writes N MiB to fd 1 and fd 2 each      write:FD:TEXT  writes TEXT to FD, says how much
 *   sleep:MS         sleeps                                 burn:MS        uses so much CPU time of its own
 *   freecount        allascode_action_free writes "free called N times, L bytes" to fd 2
 *   stdin            says what reading fd 0 gives
 */
#include "probe.h"
#include <pthread.h>
#include <time.h>

static int counting, calls, fixed;
static char *word;
static const char *argument(void) { const char *c = strchr(word, ':'); return c ? c + 1 : ""; }
static long amount(void) { return strtol(argument(), NULL, 10); }
static void *spin(void *p) { for (;;) __asm__ volatile("" ::: "memory"); return p; }
static void *rest(void *gate) { pthread_mutex_lock(gate); pthread_mutex_unlock(gate); return NULL; }
static int depth(long left, volatile char *from) {
    volatile char frame[4096];
    frame[0] = from ? from[0] : 1;
    return left ? depth(left - 1, frame) + frame[0] : 0;
}
static void mask_all(void) {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    for (int s = 1; s < 65; s++) signal(s, SIG_IGN);
}
static void threads(long want) {
    static pthread_t t[2000];
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    pthread_attr_t small;
    long up = 0;
    int e = 0;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 65536);
    pthread_mutex_lock(&gate);
    while (up < want && up < 2000 && !(e = pthread_create(&t[up], &small, rest, &gate))) up++;
    pthread_mutex_unlock(&gate);
    for (long i = 0; i < up; i++) pthread_join(t[i], NULL);
    say("threads=%ld errno=%d\n", up, e);
}
static void forks(long want) {
    static pid_t c[500];
    long up = 0;
    int e = 0;
    for (; up < want && up < 500; up++) {
        c[up] = fork();
        if (c[up] < 0) { e = errno; break; }
        if (c[up] == 0) { alarm(60); for (;;) pause(); }
    }
    for (long i = 0; i < up; i++) { kill(c[i], SIGKILL); waitpid(c[i], NULL, 0); }
    say("forks=%ld errno=%d\n", up, e);
}
static void touch(long mib) {
    long done = 0;
    int e = 0;
    for (; done < mib; done++) {
        char *p = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED) { e = errno; break; }
        memset(p, 0x5a, 1 << 20);
    }
    say("alloc=%ld errno=%d\n", done, e);
}
static void flood(long mib) {
    static char block[65536];
    size_t wrote[3] = {0, 0, 0};
    int e = 0;
    memset(block, 'A', sizeof block);
    for (long i = 0; i < mib * 16; i++) for (int fd = 1; fd <= 2; fd++) {
        ssize_t k = write(fd, block, sizeof block);
        if (k < 0) e = errno; else wrote[fd] += (size_t)k;
    }
    say("flood=%zu %zu errno=%d\n", wrote[1], wrote[2], e);
}
static void write_to(void) {
    char *text = NULL;
    long fd = strtol(argument(), &text, 10);
    text += *text == ':';
    ssize_t k = write((int)fd, text, strlen(text));
    int e = k < 0 ? errno : 0;
    say("write=%zd errno=%d\n", k, e);
}
static void burn(long ms) {
    struct timespec t;
    do clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); while (t.tv_sec * 1000 + t.tv_nsec / 1000000 < ms);
    say("burn=%ld\n", ms);
}
static void pass(long ms) {
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&t, &t) && errno == EINTR) { }
    say("sleep=%ld\n", ms);
}
/* Descriptors are made non-blocking for it: a full pipe must not hold us, but a peer that shares the description will see it. */
static void scribble(void) {
    static unsigned char junk[8192];
    int hit = 0;
    for (size_t i = 0; i < sizeof junk; i++) junk[i] = (unsigned char)(i * 167 + 13);
    signal(SIGPIPE, SIG_IGN);
    for (int fd = 0; fd < 1024; fd++) {
        int flags = fcntl(fd, F_GETFL);
        if (flags < 0) continue;
        if (fd > 2) fcntl(fd, F_SETFL, flags | O_NONBLOCK);
        hit += write(fd, junk, sizeof junk) > 0;
        hit += send(fd, junk, sizeof junk, MSG_DONTWAIT | MSG_NOSIGNAL) > 0;
        hit += pwrite(fd, junk, sizeof junk, 0) > 0;
    }
    say("scribble=%d\n", hit);
}
static void scribble_shared(void) {
    char line[512], mode[8];
    unsigned long from, to;
    int hit = 0;
    FILE *f = fopen("/proc/self/maps", "re");
    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "%lx-%lx %7s", &from, &to, mode) == 3 && mode[1] == 'w' && mode[3] == 's') {
            memset((void *)from, 0xa5, to - from);
            hit++;
        }
    }
    if (f) fclose(f);
    say("scribble_shm=%d%s\n", hit, f ? "" : " unreadable");
}
static void badabi(void) {
#ifdef __x86_64__
    long r;
    __asm__ volatile("int $0x80" : "=a"(r) : "a"(20L) : "memory", "r8", "r9", "r10", "r11");
    say("badabi=%ld\n", r);
#endif
}
static void *other_abi(void *p) { badabi(); return p; }
static void background(long n) {
    pthread_t t;
    long up = 0;
    while (up < n && up < 64 && !pthread_create(&t, NULL, spin, NULL)) { pthread_detach(t); up++; }
    say("bgthreads=%ld\n", up);
}
static void from_stdin(void) { char b[64]; errno = 0; ssize_t k = read(0, b, sizeof b); say("stdin=%zd errno=%d\n", k, errno); }
static int give(unsigned char **out, size_t *outn, void *p, size_t n, int rc) { *out = p; *outn = n; return rc; }
static int big(unsigned char **out, size_t *outn, size_t n) {
    void *p = malloc(n ? n : 1);
    if (!p) return ENOMEM;
    return give(out, outn, memset(p, 'Z', n), n, 0);
}
static int is(const char *name) { size_t k = strlen(name); return !strncmp(word, name, k) && (word[k] == 0 || word[k] == ':'); }

/* Those that end or hang the process, or stop it. */
static void last_acts(void) {
    if (is("exit")) exit((int)amount());
    if (is("_exit")) _exit((int)amount());
    if (is("abort")) abort();
    if (is("segv")) { volatile uintptr_t low = 8; *(volatile int *)low = 1; }
    if (is("fpe")) { volatile int zero = 0; zero = 4711 / zero; }
    if (is("raise")) { signal((int)amount(), SIG_DFL); raise((int)amount()); }
    if (is("sigsys")) syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGSYS);
    if (is("overflow")) say("%d", depth(1L << 40, NULL));
    if (is("hang")) spin(NULL);
    if (is("hang_masked")) { mask_all(); spin(NULL); }
    if (is("sleep_masked")) { mask_all(); for (;;) sleep(1000); }
    if (is("stop")) raise(SIGSTOP);
    if (is("badabi")) badabi();
    if (is("badabi_thread")) { pthread_t t; if (!pthread_create(&t, NULL, other_abi, NULL)) pthread_join(t, NULL); }
    if (is("badcall")) { errno = 0; long r = syscall(999999L); say("badcall=%ld errno=%d\n", r, errno); }
}
static void reports(void) {
    if (is("closeall")) for (int fd = 0; fd < 65536; fd++) close(fd);
    if (is("scribble")) scribble();
    if (is("scribble_shm")) scribble_shared();
    if (is("bgthreads")) background(amount());
    if (is("threads")) threads(amount());
    if (is("forks")) forks(amount());
    if (is("alloc")) touch(amount());
    if (is("flood")) flood(amount());
    if (is("write")) write_to();
    if (is("sleep")) pass(amount());
    if (is("burn")) burn(amount());
    if (is("freecount")) { counting = 1; say("freecount\n"); }
    if (is("stdin")) from_stdin();
    if (is("echo")) say("%s", argument());
}

EXECUTE {
    static unsigned char st[4] = "abc";
    p_used = 0;
    fixed = 0;
    word = malloc(n + 1);
    if (!word) return ENOMEM;
    if (n) memcpy(word, in, n);
    word[n] = 0;
    if (is("rc")) return (int)amount();
    if (is("nothing")) return 0;
    if (is("null_len")) return give(out, outn, NULL, 100, 0);
    if (is("huge_len")) return give(out, outn, malloc(1), (size_t)1 << 40, 0);
    if (is("bad_ptr")) return give(out, outn, (void *)1, 16, 0);
    if (is("static_ptr")) { fixed = 1; return give(out, outn, st, 3, 0); }
    if (is("big_rc")) return give(out, outn, strdup("partial"), 7, 7);
    if (is("big")) return big(out, outn, strtoul(argument(), NULL, 10));
    last_acts();
    reports();
    if (!p_used && !is("echo")) say("%s", word);
    free(word);
    return p_answer(out, outn);
}
RELEASE {
    char line[96];
    calls++;
    int k = snprintf(line, sizeof line, "free called %d times, %zu bytes\n", calls, len);
    if (counting && write(2, line, (size_t)k) != k) counting = 0;
    if (!fixed) free(p);
}
