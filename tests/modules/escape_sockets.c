/* Attacks by socket: every family with every common type, and the ways round a filter that looks at one call or at 32 bits.
 *
 * No payload keys but probe=. socket_F_T is family F (0 to 45) with type T: stream, dgram, raw, seqpacket. UNSUPPORTED is the kernel's
 * "no such family" or "no such type"; both come after the call was let through. Sockets are closed at once and never connected.
 * `families` alone runs them all; a single one is named as probe=socket_F_T.
 */
#include "probe.h"
#include <linux/io_uring.h>
#include <netinet/in.h>

static const struct { const char *name; int type; } types[] = {
    {"stream", SOCK_STREAM}, {"dgram", SOCK_DGRAM}, {"raw", SOCK_RAW}, {"seqpacket", SOCK_SEQPACKET},
};

static void one(int family, int t) {
    char name[64];
    snprintf(name, sizeof name, "socket_%d_%s", family, types[t].name);
    errno = 0;
    int protocol = types[t].type != SOCK_RAW ? 0 : family == AF_INET ? IPPROTO_ICMP : family == AF_INET6 ? IPPROTO_ICMPV6 : 0;
    long r = socket(family, types[t].type | SOCK_CLOEXEC, protocol);
    int e = errno;
    if (r < 0 && (e == EINVAL || e == ESOCKTNOSUPPORT)) verdict(name, P_LACKS, e);
    else verdict(name, got(r), e);
}
static long families(void) {
    for (int family = 0; family <= 45; family++) for (int t = 0; t < 4; t++) one(family, t);
    return P_SAID;
}
static long raw_call(unsigned long family, unsigned long type) { return got(syscall(SYS_socket, family, type, 0UL)); }
static long high_family(void) { return raw_call(AF_INET | (1UL << 32), SOCK_DGRAM); }
static long high_type(void) { return raw_call(AF_INET, SOCK_DGRAM | (1UL << 40)); }
static long high_unix(void) { return raw_call(AF_UNIX | (1UL << 63), SOCK_STREAM); }
static long typed_flags(void) { return raw_call(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC); }
static long mptcp(void) { return got(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_MPTCP)); }
static long sctp(void) { return got(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_SCTP)); }
static long pair(int type) {
    int ends[2];
    long r = socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends);
    if (!r) { close(ends[0]); close(ends[1]); }
    return r;
}
static long pair_stream(void) { return pair(SOCK_STREAM); }
static long pair_dgram(void) { return pair(SOCK_DGRAM); }
static long uring(void) {
    struct io_uring_params p;
    memset(&p, 0, sizeof p);
    return got(syscall(SYS_io_uring_setup, 2, &p));
}
static long uring_enter(void) { return REACH(syscall(SYS_io_uring_enter, -1, 0, 0, 0, NULL, 0), EBADF, EOPNOTSUPP); }
static long uring_register(void) { return REACH(syscall(SYS_io_uring_register, -1, 0, NULL, 0), EBADF, EINVAL); }
/* Calls on a descriptor that is none: EBADF or ENOTSOCK is the kernel's own answer. */
static struct sockaddr_in inet = {.sin_family = AF_INET};
#define INET (struct sockaddr *)&inet, sizeof inet
static long reach_connect(void) { return REACH(connect(-1, INET), EBADF); }
static long reach_bind(void) { return REACH(bind(-1, INET), EBADF); }
static long reach_listen(void) { return REACH(listen(-1, 1), EBADF); }
static long reach_accept(void) { return REACH(accept4(-1, NULL, NULL, 0), EBADF); }
static long reach_sendto(void) { return REACH(sendto(-1, "", 1, MSG_NOSIGNAL, INET), EBADF); }
static long reach_sendmsg(void) { struct msghdr m = {0}; return REACH(sendmsg(-1, &m, MSG_NOSIGNAL), EBADF); }
static long reach_recvmsg(void) { struct msghdr m = {0}; return REACH(recvmsg(-1, &m, 0), EBADF); }

#define P(name) {#name, name, 0}
static const probe table[] = {
    P(families), P(high_family), P(high_type), P(high_unix), P(typed_flags), P(mptcp), P(sctp), P(pair_stream), P(pair_dgram), P(uring),
    P(uring_enter), P(uring_register), P(reach_connect), P(reach_bind), P(reach_listen), P(reach_accept), P(reach_sendto),
    P(reach_sendmsg), P(reach_recvmsg),
};
EXECUTE {
    int family = 0;
    char type[16];
    char name[64] = "";
    size_t skip = n >= 6 && !memcmp(in, "probe=", 6) ? 6 : 0;
    if (n - skip < sizeof name && n) memcpy(name, in + skip, n - skip);
    if (sscanf(name, "socket_%d_%15[a-z]", &family, type) != 2) return p_run(table, sizeof table / sizeof table[0], in, n, out, outn);
    p_used = 0;
    for (int t = 0; t < 4; t++) if (!strcmp(type, types[t].name)) one(family, t);
    return p_answer(out, outn);
}
RELEASE { (void)len; free(p); }
