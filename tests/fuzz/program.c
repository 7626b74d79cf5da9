/* Target: program_decode. What it accepts is then read the way the operations read it, without a further check. */
#include "../../sandboxactor/_worker/worker.h"
#include "common.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t touch_strings(const uint8_t *at, const uint8_t *end)
{
    size_t total = 0;
    while (at < end) { /* strlen reads past the record if its last string has no end: the sanitizer sees it */
        size_t n = strlen((const char *)at);
        CHECK(at + n < end);
        total += n, at += n + 1;
    }
    return total;
}

static void use(const struct record *r)
{
    const uint8_t *end = r->data + r->size;
    if (r->op == SA_OP_FILTER) {
        struct sa_filter f;
        memcpy(&f, r->data, sizeof f);
        CHECK(f.count > 0 && sizeof f + f.count * 8u == r->size);
    } else if (r->op == SA_OP_LANDLOCK) {
        for (const uint8_t *at = r->data + sizeof(struct sa_landlock); at < end;) {
            struct sa_rule rule;
            memcpy(&rule, at, sizeof rule);
            CHECK(touch_strings(at + sizeof rule, at + sizeof rule + rule.size) > 0);
            at += sizeof rule + sa_pad(rule.size, 8);
        }
    } else if (r->op == SA_OP_BIND) {
        touch_strings(r->data + sizeof(struct sa_bind), end);
    } else if (r->op == SA_OP_TMPFS) {
        touch_strings(r->data + sizeof(struct sa_tmpfs), end);
    } else if (r->op == SA_OP_SYMLINK || r->op == SA_OP_NATIVE) {
        CHECK(r->size > 0);
        touch_strings(r->data, end);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct program program;
    uint8_t *exact = malloc(size ? size : 1); /* so that one byte too far is a fault */
    if (size) memcpy(exact, data, size);
    if (!program_decode(exact, size, &program)) {
        CHECK(program.count > 0 && program.count <= SA_MAX_RECORDS);
        CHECK(program.records[program.count - 1].op == SA_OP_NATIVE);
        CHECK(program_find(&program, SA_OP_NATIVE) == &program.records[program.count - 1]);
        for (uint32_t i = 0; i < program.count; i++) use(&program.records[i]);
    }
    free(exact);
    return 0;
}
