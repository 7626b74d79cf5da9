/* The bytes between host, zygote, stem and worker. One machine, one build: native order, fixed-width fields.
 *
 * A program is a sequence of records, each a sa_record and its payload padded to 8 bytes. Host, zygote and stem
 * exchange one message a packet over SOCK_SEQPACKET; descriptors travel with SCM_RIGHTS. Python reads these very
 * declarations through cffi: there is no second copy. */
#ifndef SA_WIRE_H
#define SA_WIRE_H

#include <stdint.h>

enum {
    SA_MAX_PROGRAM = 131072, /* bytes of one program */
    SA_MAX_RECORDS = 256,
    SA_MAX_ATTACH = 4,
    SA_MAX_LANES = 256,
    SA_PAGE = 4096,
};

enum sa_op {
    SA_OP_RLIMIT = 1,
    SA_OP_PRCTL,
    SA_OP_IDENTITY,
    SA_OP_NAMESPACES,
    SA_OP_BIRTH,
    SA_OP_ROOT,
    SA_OP_BIND,
    SA_OP_TMPFS,
    SA_OP_SYMLINK,
    SA_OP_PIVOT,
    SA_OP_LANDLOCK,
    SA_OP_FILTER,
    SA_OP_THREAD_STACK,
    SA_OP_NATIVE,
    SA_OP_END,
};

enum { SA_BY_STEM = 1, SA_BY_WORKER = 2 }; /* sa_record.by */

struct sa_record { uint16_t op, by; uint32_t size; };
struct sa_rlimit { uint32_t resource, above_now; uint64_t value; };
struct sa_prctl { uint64_t option, argument; };
struct sa_identity { uint32_t uid, gid, change, pad; };
struct sa_flags { uint64_t flags; };

enum { SA_BIND_WRITABLE = 1, SA_BIND_EXEC = 2, SA_BIND_IDMAP = 4, SA_BIND_IDMAP_TRY = 8, SA_BIND_OPTIONAL = 16 };
/* followed by "source\0target\0"; dev and ino, unless 0, are those of the object that the host opened */
struct sa_bind { uint32_t flags, uid_from, uid_to, gid_from, gid_to, pad; uint64_t dev, ino; };
struct sa_tmpfs { uint64_t size, inodes, executable; }; /* followed by "target\0" and each "kept\0" */
struct sa_landlock { uint64_t handled_fs, handled_net, scoped; };
struct sa_rule { uint64_t access, dev, ino; uint32_t size, pad; }; /* followed by "path\0", size bytes in all, padded to 8 */
struct sa_filter { uint64_t key_slot; uint32_t pid_slot, count; }; /* followed by count struct sock_filter */
struct sa_native { uint64_t dev, ino; }; /* followed by "module\0" and each "NAME=VALUE\0" */
/* SA_OP_SYMLINK: "target\0path\0" */

enum sa_type {
    SA_MSG_STEM = 1, /* host to zygote: a program; descriptors: the stem's socket, perhaps its group */
    SA_MSG_BASE,     /* host to zygote: a directory of groups to remove when the host is gone */
    SA_MSG_LANE,     /* host to stem: a concurrency slot; descriptors: control, go, seal, memory, fd 1, fd 2, attach...,
                        group */
    SA_MSG_RUN,      /* host to the parked worker, on `go` */
    SA_MSG_KILL,     /* host to stem, on `control`: end the worker and fork none after it */
    SA_MSG_READY,    /* stem to host: every record of the stem is done */
    SA_MSG_FAULT,    /* stem or worker to host: a record failed; nothing of the module was touched */
    SA_MSG_SEAL,     /* worker to host, on `seal`: what was applied and how it reads back */
    SA_MSG_STATUS,   /* stem to host, on `control`: the worker was reaped */
};

struct sa_lane_msg { uint32_t type, attach, group, pad; uint64_t input_max, output_max; };
struct sa_run_msg { uint32_t type, worker; uint64_t payload; }; /* a successor never takes its predecessor's run */
struct sa_fault_msg { uint32_t type, worker, index, op; int32_t error; char what[44]; };

/* As long as a fault: both travel in one pipe, whose reader takes one at a time. */
struct sa_seal_msg {
    uint32_t type, worker, applied, no_new_privs, seccomp, dumpable, landlock, uid, gid, pad[5];
    uint64_t capabilities; /* effective, permitted and inheritable, or-ed */
};

enum { SA_FILTER_NO, SA_FILTER_KILLED, SA_FILTER_UNKNOWN }; /* sa_status_msg.filter */

struct sa_status_msg {
    uint32_t type, worker; /* counted from 1 in each lane */
    int32_t status; /* as wait4(2) gives it */
    uint32_t filter;
    uint64_t unheard; /* its RUN still lay in `go` and was taken out: it died before it heard of it */
    uint64_t ended_ns, user_us, system_us, switches, maxrss_kib, read_blocks, write_blocks;
};

/* The first page of the memory that host and worker share; then the payload, then the output, each page-aligned. The
 * module can write all of it, so the host believes none of it beyond one bounded span of bytes. */
enum sa_state { SA_NOT_LOADED, SA_BAD_MODULE, SA_RUNNING, SA_ANSWERED, SA_OVERSIZE, SA_NULL_OUTPUT, SA_LOADING };
struct sa_answer { uint32_t state; int32_t code; uint64_t size; char text[256]; };

#endif
