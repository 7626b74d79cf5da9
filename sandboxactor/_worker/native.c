/* The last trusted lines before the module, and the first hostile ones behind them. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "uapi.h"
#include "worker.h"

typedef int execute_fn(const unsigned char *, size_t, unsigned char **, size_t *);
typedef void free_fn(unsigned char *, size_t);

static void say(struct sa_answer *answer, const char *text)
{
    snprintf(answer->text, sizeof answer->text, "%s", text ? text : "unknown reason");
}

/* The policy's environment and nothing else: "NAME=VALUE\0" strings behind the module's path. */
static void set_environment(const char *at, const char *end)
{
    static char *list[1024];
    size_t n = 0;
    for (; at < end && n < sizeof list / sizeof *list - 1; at += strlen(at) + 1) list[n++] = (char *)at;
    list[n] = NULL;
    environ = list;
}

/* One call for all the page faults of a large span, instead of one fault a page. */
static void populate(unsigned char *at, size_t size, int advice)
{
    if (size > 4 * SA_PAGE) madvise(at, size, advice);
}

static void take_output(struct sa_answer *answer, struct lane *lane, unsigned char *to, const unsigned char *from, size_t size)
{
    if (size > lane->output_max) {
        answer->size = size;
        answer->state = SA_OVERSIZE;
    } else if (size && !from) {
        answer->state = SA_NULL_OUTPUT;
    } else {
        populate(to, size, SA_MADV_POPULATE_WRITE);
        if (size) memcpy(to, from, size); /* an unreadable pointer ends here, by SIGSEGV */
        answer->size = size;
    }
}

static int populate_segments(struct dl_phdr_info *info, size_t size, void *loader)
{
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        uintptr_t from = (info->dlpi_addr + p->p_vaddr) & ~(uintptr_t)(SA_PAGE - 1), to = info->dlpi_addr + p->p_vaddr + p->p_memsz;
        if (p->p_type != PT_LOAD) continue;
        if (p->p_flags & PF_W) madvise((void *)from, to - from, SA_MADV_POPULATE_WRITE);
        else if (info->dlpi_addr == (uintptr_t)loader) madvise((void *)from, to - from, SA_MADV_POPULATE_READ);
    }
    return 0;
}

/* Takes the page faults of dlopen while the worker waits, not while its run does: the loader's code, every data segment,
 * some stack and heap, and the shared pages that a short answer touches. Failing costs time and nothing else. */
void native_park(struct sa_answer *answer, struct lane *lane)
{
    volatile char stack[4 * SA_PAGE];
    for (size_t i = 0; i < sizeof stack; i += SA_PAGE) stack[i] = 0;
    free(malloc(64 * 1024));
    dl_iterate_phdr(populate_segments, (void *)getauxval(AT_BASE));
    madvise(answer, 2 * SA_PAGE, SA_MADV_POPULATE_WRITE);
    madvise((char *)answer + SA_PAGE + sa_pad(lane->input_max, SA_PAGE), SA_PAGE, SA_MADV_POPULATE_WRITE);
}

_Noreturn void native_run(const struct record *r, struct sa_answer *answer, struct lane *lane, uint64_t payload)
{
    const char *path = (const char *)r->data + sizeof(struct sa_native);
    unsigned char *input = (unsigned char *)answer + SA_PAGE, *output = NULL;
    unsigned char *span = input + sa_pad(lane->input_max, SA_PAGE);
    struct sa_native expected;
    struct stat st;
    size_t size = 0;

    memcpy(&expected, r->data, sizeof expected);
    answer->state = SA_LOADING; /* from here on the run was taken */
    set_environment(path + strlen(path) + 1, (const char *)r->data + r->size);
    if (stat(path, &st) == 0 && (st.st_ino != expected.ino || st.st_dev != expected.dev)) {
        say(answer, "the file was changed while it was loaded");
        answer->state = SA_BAD_MODULE;
        _exit(0);
    }
    void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL); /* constructors run in here */
    if (!module) {
        say(answer, dlerror());
        answer->state = SA_BAD_MODULE;
        _exit(0);
    }
    execute_fn *execute = (execute_fn *)(uintptr_t)dlsym(module, "allascode_action_execute");
    free_fn *release = (free_fn *)(uintptr_t)dlsym(module, "allascode_action_free");
    if (!execute || !release) {
        say(answer, execute ? "missing symbol allascode_action_free" : "missing symbol allascode_action_execute");
        answer->state = SA_BAD_MODULE;
        _exit(0);
    }
    answer->state = SA_RUNNING;
    populate(input, payload, SA_MADV_POPULATE_READ);
    int code = execute(input, payload, &output, &size);
    answer->code = code;
    if (code == 0) take_output(answer, lane, span, output, size);
    if (output) release(output, size);
    explicit_bzero(input, payload);
    if (answer->state == SA_RUNNING) answer->state = SA_ANSWERED;
    _exit(0); /* no destructor of the module runs: one may hang */
}
