/* The host's side of one run, called from Python through cffi: one call without the GIL does all of it. */
#ifndef SA_HOST_H
#define SA_HOST_H

#include "wire.h"

struct sa_write { int32_t fd, size; const char *data; };
struct sa_stream { uint8_t *data; uint64_t size, room; uint32_t cut, pad; };

struct sa_run {
    /* set once a lane */
    int32_t control, go, seal_end, memory, pipes[2];
    uint64_t input_max, output_max, stream_max;
    uint32_t befores, afters, releases, pad;
    struct sa_write before[8], release[4];
    int32_t after[8];
    /* set for each run; each path must still be the file of that device and inode */
    const char *path[4];
    uint64_t path_dev[4], path_ino[4];
    const uint8_t *payload;
    uint64_t payload_size, timeout_ns, grace_ns, slice_ns; /* slice: return SA_INTERRUPTED at least so often, 0 never */
    /* answers */
    uint64_t begun_ns, ended_ns;
    uint32_t started, sealed, faulted, reported, timed_out, cancelled, killed, lost;
    int32_t error; /* errno of the host's own call that failed, with its name in `failed` */
    char failed[32];
    struct sa_seal_msg seal;
    struct sa_status_msg status;
    struct sa_fault_msg fault;
    struct sa_answer answer;
    struct sa_stream streams[2];
    int32_t reading_size[8];
    char reading[8][512];
    uint8_t *output; /* answer.size bytes once it is an answer within bounds */
    uint64_t output_room;
    uint32_t mapped, pad2;
};

enum { SA_DONE, SA_INTERRUPTED, SA_FAILED, SA_STALE };

int sa_run(struct sa_run *run);    /* start and wait */
int sa_wait(struct sa_run *run);   /* go on after SA_INTERRUPTED */
void sa_cancel(struct sa_run *run); /* from any thread */
void sa_retire(struct sa_run *run);  /* end the parked worker, and wait until it is reaped */
void sa_release(struct sa_run *run); /* unmap and wipe what the last run left */
void sa_free(struct sa_run *run);

#endif
