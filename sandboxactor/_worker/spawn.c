/* Cloning a worker from a stem that already runs under the worker's own filter.
 *
 * Installing a filter costs more than the rest of a run (the kernel compiles it anew and synchronises every processor),
 * so a stem installs it once and its workers are born with it. The one thing that tells stem from worker is a 64-bit
 * key in the sixth argument register, which clone, clone3, wait4 and recvmsg do not use: the filter lets these calls
 * pass only with it. The stem draws the key itself; it is kept in a page that a child gets as zeroes
 * (MADV_WIPEONFORK), loaded into the register directly before the call and cleared directly behind it, in parent and
 * child alike. A worker could only guess it. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <unistd.h>

#include "uapi.h"
#include "worker.h"

static const uint64_t no_key;
static const uint64_t *key = &no_key;

int key_make(uint64_t *key_for_filter)
{
    uint64_t *page = mmap(NULL, SA_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED || madvise(page, SA_PAGE, SA_MADV_WIPEONFORK)) return -1;
    if (getrandom(page, sizeof *page, 0) != sizeof *page) return -1;
    *key_for_filter = *page;
    key = page;
    return 0;
}

#if defined(__x86_64__)
static long raw_call(long number, long a, long b, long c, long d, long e)
{
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    long result;
    __asm__ volatile("movq (%[key]), %%r9\n\tsyscall\n\txorl %%r9d, %%r9d"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), [key] "r"(key)
                     : "rcx", "r11", "r9", "memory");
    return result;
}
enum { TID_FOURTH = 1 }; /* clone(flags, stack, parent_tid, child_tid, tls) */
#elif defined(__aarch64__)
static long raw_call(long number, long a, long b, long c, long d, long e)
{
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    __asm__ volatile("ldr x5, [%[key]]\n\tsvc #0\n\tmov x5, xzr"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), [key] "r"(key)
                     : "x5", "memory");
    return x0;
}
enum { TID_FOURTH = 0 }; /* clone(flags, stack, parent_tid, tls, child_tid) */
#else
#error "the keyed call is written for x86_64 and aarch64"
#endif

static long checked(long result)
{
    if (result >= 0 || result < -4095) return result;
    errno = (int)-result;
    return -1;
}

long keyed_call(long number, long a, long b, long c, long d)
{
    return checked(raw_call(number, a, b, c, d, 0));
}

/* fork(2) with flags, as glibc does it: the cached thread id is renewed, or raise() in the child names its parent. */
pid_t spawn(uint64_t flags, int group)
{
    int *tid = NULL;
    if (prctl(SA_PR_GET_TID_ADDRESS, &tid, 0, 0, 0)) tid = NULL;
    if (tid) flags |= 0x01000000u | 0x00200000u; /* CLONE_CHILD_SETTID, CLONE_CHILD_CLEARTID */
    if (group >= 0) {
        struct sa_clone_args args = {.flags = flags | SA_CLONE_INTO_CGROUP, .child_tid = (uintptr_t)tid,
                                     .exit_signal = SIGCHLD, .cgroup = (uint64_t)group};
        return (pid_t)checked(raw_call(SYS_clone3, (long)&args, sizeof args, 0, 0, 0));
    }
    long fourth = TID_FOURTH ? (long)tid : 0, fifth = TID_FOURTH ? 0 : (long)tid;
    return (pid_t)checked(raw_call(SYS_clone, (long)(flags | SIGCHLD), 0, 0, fourth, fifth));
}
