/* Packets, descriptors, clocks. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "worker.h"

/* One packet and its descriptors. A truncated packet or control message is an error, with nothing left open. */
ssize_t receive(int sock, void *buffer, size_t size, int *fds, int *count, int keyed)
{
    union { char bytes[CMSG_SPACE(sizeof(int) * SA_MAX_FDS)]; struct cmsghdr align; } control;
    struct iovec span = {buffer, size};
    struct msghdr msg = {.msg_iov = &span, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = CMSG_LEN(sizeof(int) * SA_MAX_FDS)}; /* not CMSG_SPACE: its padding has room for one more */
    const int flags = MSG_CMSG_CLOEXEC | MSG_DONTWAIT;
    ssize_t n = keyed ? keyed_call(SYS_recvmsg, sock, (long)&msg, flags, 0) : recvmsg(sock, &msg, flags);
    int got = 0;
    if (n < 0) return -1;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
        int here = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        for (int i = 0; i < here && got < SA_MAX_FDS; i++) memcpy(&fds[got++], CMSG_DATA(c) + i * sizeof(int), sizeof(int));
    }
    if (msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
        while (got) close(fds[--got]);
        errno = EMSGSIZE;
        n = -1;
    }
    *count = got;
    return n;
}

/* write(2), not send(2): its six arguments leave none for the key, and SIGPIPE is ignored until the worker is born. */
int tell(int sock, const void *message, size_t size)
{
    return write(sock, message, size) == (ssize_t)size ? 0 : -1;
}

_Noreturn void fault(int fd, uint32_t worker, uint32_t index, uint32_t op, int error, const char *what)
{
    struct sa_fault_msg m = {.type = SA_MSG_FAULT, .worker = worker, .index = index, .op = op, .error = error};
    snprintf(m.what, sizeof m.what, "%s", what);
    tell(fd, &m, sizeof m);
    _exit(121);
}

uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* For the way out of a function: errno stays that of what failed before. */
void close_quietly(int fd)
{
    int error = errno;
    close(fd);
    errno = error;
}

int write_file(int dir, const char *path, const char *text)
{
    int fd = openat(dir, path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    ssize_t n = write(fd, text, strlen(text));
    close_quietly(fd);
    return n == (ssize_t)strlen(text) ? 0 : -1;
}
