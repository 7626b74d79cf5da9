/* Shared by the files of the worker. The trusted part ends where native.c calls dlopen. */
#ifndef SA_WORKER_H
#define SA_WORKER_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "wire.h"

struct record { uint16_t op, by; uint32_t size; const uint8_t *data; };
struct program { uint32_t count; struct record records[SA_MAX_RECORDS]; };

/* What a stem has made for its workers. */
struct stem {
    struct program program;
    uint64_t birth;      /* namespaces each worker is cloned into */
    int proc;            /* /proc of the stem's own pid namespace */
    int root;            /* the new root while it is being made */
    int ruleset;         /* Landlock, or -1 */
    uint32_t applied;    /* records done by the stem */
    pid_t pid;
    uid_t uid;           /* the host's, to which a user namespace of its own maps */
    gid_t gid;
};

struct lane {
    int control, go, seal, memory, out, err, group;
    int attach[SA_MAX_ATTACH];
    uint32_t attached;
    uint32_t workers;    /* forked so far */
    uint64_t input_max, output_max;
    pid_t worker;        /* parked or running, or its init; 0 for none */
    int *init_saw;       /* the wait status that an init reports: shared, and unmapped in the worker */
};

static inline uint64_t sa_pad(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

/* program.c: -1 if the bytes are no well-formed program. */
int program_decode(const uint8_t *bytes, size_t size, struct program *out);
const struct record *program_find(const struct program *program, uint16_t op);

/* io.c */
enum { SA_MAX_FDS = 6 + SA_MAX_ATTACH + 1 };
ssize_t receive(int sock, void *buffer, size_t size, int *fds, int *count, int keyed);
int tell(int sock, const void *message, size_t size);
_Noreturn void fault(int fd, uint32_t worker, uint32_t index, uint32_t op, int error, const char *what);
uint64_t now_ns(void);
void close_quietly(int fd);
int write_file(int dir, const char *path, const char *text);

/* spawn.c: clone(2) past the stem's own filter. The key is in no memory that a child can see. */
int key_make(uint64_t *key_for_filter);
long keyed_call(long number, long a, long b, long c, long d);
pid_t spawn(uint64_t flags, int group);

/* ops.c and mounts.c: one function an operation; 0, or -1 with errno. */
int op_apply(struct stem *stem, const struct record *record);
int op_root(struct stem *stem);
int op_bind(struct stem *stem, const struct record *record);
int op_tmpfs(const struct record *record);
int op_symlink(struct stem *stem, const struct record *record);
int op_pivot(struct stem *stem);
int landlock_build(struct stem *stem, const struct record *record);
int read_back(struct sa_seal_msg *seal);
uint32_t filter_killed(int proc, pid_t pid);

_Noreturn void zygote_serve(int control, pid_t host);
_Noreturn void stem_main(int control, const uint8_t *bytes, size_t size, int zygote, uid_t uid, gid_t gid);
_Noreturn void worker_main(struct stem *stem, struct lane *lane);
void native_park(struct sa_answer *answer, struct lane *lane);
_Noreturn void native_run(const struct record *record, struct sa_answer *answer, struct lane *lane, uint64_t payload);

#endif
