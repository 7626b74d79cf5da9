/* Shared by the targets: a reader of the fuzzer's bytes, and descriptors that must all be closed again. */
#ifndef SA_FUZZ_H
#define SA_FUZZ_H

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CHECK(condition) ((condition) ? (void)0 : (fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition), abort()))

struct bytes { const uint8_t *at; size_t left; };

static inline uint8_t take_byte(struct bytes *b)
{
    if (!b->left) return 0;
    b->left--;
    return *b->at++;
}

static inline size_t take(struct bytes *b, void *to, size_t size)
{
    if (size > b->left) size = b->left;
    if (size) memcpy(to, b->at, size);
    b->at += size, b->left -= size;
    return size;
}

enum { FUZZ_FDS = 512 };
static uint8_t open_before[FUZZ_FDS];

static inline void note_open(void)
{
    for (int fd = 3; fd < FUZZ_FDS; fd++) open_before[fd] = fcntl(fd, F_GETFD) >= 0;
}

/* Closes what the code under test left open, and returns how much that was. */
static inline int left_open(void)
{
    int left = 0;
    for (int fd = 3; fd < FUZZ_FDS; fd++)
        if (!open_before[fd] && fcntl(fd, F_GETFD) >= 0) close(fd), left++;
    return left;
}

/* One packet with `count` descriptors of /dev/null; more than the receiver has room for is part of the test. */
static inline void send_packet(int sock, const void *data, size_t size, const int *fds, int count)
{
    union { char bytes[CMSG_SPACE(sizeof(int) * 32)]; struct cmsghdr align; } control = {{0}};
    struct iovec span = {(void *)(uintptr_t)data, size};
    struct msghdr msg = {.msg_iov = &span, .msg_iovlen = 1};
    if (count) {
        msg.msg_control = &control, msg.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)count);
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)count);
        memcpy(CMSG_DATA(c), fds, sizeof(int) * (size_t)count);
    }
    (void)!sendmsg(sock, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
}

#endif
