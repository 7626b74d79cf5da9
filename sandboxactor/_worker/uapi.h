/* Kernel interfaces newer than the headers of the oldest system we build on (Debian 12: 6.1). */
#ifndef SA_UAPI_H
#define SA_UAPI_H

#include <stdint.h>
#include <sys/syscall.h>

#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#define SYS_landlock_add_rule 445
#define SYS_landlock_restrict_self 446
#endif
#ifndef SYS_mount_setattr
#define SYS_mount_setattr 442
#endif

#define SA_CLONE_INTO_CGROUP 0x200000000ULL
#define SA_CLONE_NEWUSER 0x10000000ULL
#define SA_CLONE_NEWPID 0x20000000ULL
#define SA_CLONE_NEWNS 0x00020000ULL
#define SA_PR_GET_TID_ADDRESS 40
#define SA_MADV_WIPEONFORK 18
#define SA_MADV_POPULATE_READ 22
#define SA_MADV_POPULATE_WRITE 23

/* EXECUTE, WRITE_FILE, READ_FILE, TRUNCATE, IOCTL_DEV */
#define SA_LANDLOCK_FILE 0xC007ULL

struct sa_landlock_attr { uint64_t handled_fs, handled_net, scoped; };
struct sa_landlock_path { uint64_t access; int32_t parent; } __attribute__((packed));

struct sa_clone_args {
    uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size, cgroup;
};

#endif
