/* Decodes a program. The bytes come from the host, yet a bug there must not become a worker that skips a record: every
 * length is checked here, once, and the operations then rely on it. Fuzzed by tests/fuzz/program.c. */
#include <string.h>

#include "worker.h"

/* Size of the fixed part of each operation, and how many NUL-terminated strings follow it. */
static const struct { uint16_t fixed; int8_t strings; } shape[SA_OP_END] = {
    [SA_OP_RLIMIT] = {sizeof(struct sa_rlimit), 0},   [SA_OP_PRCTL] = {sizeof(struct sa_prctl), 0},
    [SA_OP_IDENTITY] = {sizeof(struct sa_identity), 0}, [SA_OP_NAMESPACES] = {sizeof(struct sa_flags), 0},
    [SA_OP_BIRTH] = {sizeof(struct sa_flags), 0},     [SA_OP_ROOT] = {0, 0},
    [SA_OP_BIND] = {sizeof(struct sa_bind), 2},       [SA_OP_TMPFS] = {sizeof(struct sa_tmpfs), -1},
    [SA_OP_SYMLINK] = {0, 2},                         [SA_OP_PIVOT] = {0, 0},
    [SA_OP_LANDLOCK] = {sizeof(struct sa_landlock), -1}, [SA_OP_FILTER] = {sizeof(struct sa_filter), -1},
    [SA_OP_THREAD_STACK] = {sizeof(struct sa_flags), 0}, [SA_OP_NATIVE] = {sizeof(struct sa_native), -1},
};

/* Exactly `count` non-empty strings fill the bytes; -1 means one or more, later ones perhaps empty. */
static int strings_ok(const uint8_t *bytes, size_t size, int count)
{
    int seen = 0;
    while (size) {
        const uint8_t *end = memchr(bytes, 0, size);
        if (!end || (end == bytes && seen == 0)) return 0;
        size -= (size_t)(end - bytes) + 1;
        bytes = end + 1;
        seen++;
    }
    return count < 0 ? seen > 0 : seen == count;
}

static int rules_ok(const uint8_t *bytes, size_t size)
{
    while (size) {
        struct sa_rule rule;
        if (size < sizeof rule) return 0;
        memcpy(&rule, bytes, sizeof rule);
        uint64_t whole = sizeof rule + sa_pad(rule.size, 8);
        if (whole > size || !strings_ok(bytes + sizeof rule, rule.size, 1)) return 0;
        bytes += whole;
        size -= whole;
    }
    return 1;
}

static int filter_ok(const uint8_t *bytes, size_t size)
{
    struct sa_filter filter;
    memcpy(&filter, bytes, sizeof filter);
    return filter.count > 0 && filter.count <= 4096 && size == sizeof filter + (size_t)filter.count * 8;
}

static int record_ok(const struct record *r)
{
    if (r->op == 0 || r->op >= SA_OP_END || (r->by != SA_BY_STEM && r->by != SA_BY_WORKER)) return 0;
    size_t fixed = shape[r->op].fixed;
    if (r->size < fixed) return 0;
    if (r->op == SA_OP_LANDLOCK) return rules_ok(r->data + fixed, r->size - fixed);
    if (r->op == SA_OP_FILTER) return filter_ok(r->data, r->size);
    return strings_ok(r->data + fixed, r->size - fixed, shape[r->op].strings);
}

int program_decode(const uint8_t *bytes, size_t size, struct program *out)
{
    out->count = 0;
    while (size) {
        struct sa_record head;
        if (size < sizeof head || out->count == SA_MAX_RECORDS) return -1;
        memcpy(&head, bytes, sizeof head);
        uint64_t whole = sizeof head + sa_pad(head.size, 8);
        if (whole > size) return -1;
        struct record *r = &out->records[out->count++];
        *r = (struct record){head.op, head.by, head.size, bytes + sizeof head};
        if (!record_ok(r)) return -1;
        bytes += whole;
        size -= whole;
    }
    /* The last record is the one that runs the module, and no other does. */
    const struct record *run = program_find(out, SA_OP_NATIVE);
    return run && run == &out->records[out->count - 1] && run->by == SA_BY_WORKER ? 0 : -1;
}

const struct record *program_find(const struct program *program, uint16_t op)
{
    for (uint32_t i = 0; i < program->count; i++)
        if (program->records[i].op == op) return &program->records[i];
    return NULL;
}
