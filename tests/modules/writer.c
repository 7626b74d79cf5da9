/* What a module does with the folders that a policy grants: legitimate work, overfilling, and set-user-id files.
 *
 * Payload keys: do=NAME, dir=FOLDER or path=FILE.
 *   shape  dir   the ordinary work in a writable tree      suid   dir   every way to leave a set-id file or a device
 *   fill   dir   one file until an error                   inodes dir   empty files until an error
 *   touch  path  makes it                                  see    path  stat;   get path: its first line
 *   change path  every way to change a file that may be read only
 */
#include "probe.h"
#include <sys/sysmacros.h>

#define TRY(name, expr) do { errno = 0; long r_ = (long)(expr); verdict(name, r_ < 0 ? -1 : 0, errno); } while (0)
static char here[4096], there[4096];
static const char *in_dir(const char *name) { snprintf(here, sizeof here, "%s/%s", key("dir"), name); return here; }
static const char *also_in_dir(const char *name) { snprintf(there, sizeof there, "%s/%s", key("dir"), name); return there; }
static long make(const char *path, const char *text) {
    int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) return -1;
    long r = write(fd, text, strlen(text));
    return close(fd) ? -1 : r;
}
static void shape(void) {
    struct timespec when[2] = {{1000000000, 0}, {1000000000, 0}};
    TRY("mkdir", mkdir(in_dir("sub"), 0755));
    TRY("make", make(in_dir("sub/file"), "text\n"));
    TRY("rename_across", rename(in_dir("sub/file"), also_in_dir("moved")));
    TRY("link", link(in_dir("moved"), also_in_dir("sub/linked")));
    TRY("symlink", symlink("moved", in_dir("soft")));
    TRY("chmod", chmod(in_dir("moved"), 0640));
    TRY("truncate", truncate(in_dir("moved"), 2));
    TRY("utime", utimensat(AT_FDCWD, in_dir("moved"), when, 0));
    TRY("fifo", mkfifo(in_dir("pipe"), 0600));
    TRY("unlink", unlink(in_dir("sub/linked")));
}
/* The set-id ones count only where the bit is really there; directories where the call was let pass. */
static void set_id(const char *name, const char *path, long r) {
    struct stat st;
    int e = errno;
    if (r >= 0 && !stat(path, &st) && (S_ISDIR(st.st_mode) || (st.st_mode & 06000) || S_ISCHR(st.st_mode) || S_ISBLK(st.st_mode))) verdict(name, 0, 0);
    else verdict(name, -1, r < 0 ? e : ENODATA);
}
static const char *plain(const char *name) { make(in_dir(name), "#!/bin/sh\n"); return in_dir(name); }
static long f_mode(const char *path, mode_t mode) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    long r = fd < 0 ? -1 : fchmod(fd, mode);
    int e = errno;
    got(fd);
    errno = e;
    return r;
}
static void suid(void) {
    struct { uint64_t flags, mode, resolve; } how = {O_CREAT | O_WRONLY | O_CLOEXEC, 04755, 0};
    const int flags = O_CREAT | O_WRONLY | O_CLOEXEC;
    const char *p;
    umask(0);
    p = in_dir("open"); set_id("open", p, got(syscall(SYS_open, p, flags, 04755)));
    p = in_dir("open_sgid"); set_id("open_sgid", p, got(syscall(SYS_open, p, flags, 02755)));
    p = in_dir("openat"); set_id("openat", p, got(syscall(SYS_openat, AT_FDCWD, p, flags, 04755)));
    p = in_dir("openat_high"); set_id("openat_high", p, got(syscall(SYS_openat, AT_FDCWD, p, flags, 04755UL | 1UL << 40)));
    p = in_dir("openat_flags"); set_id("openat_flags", p, got(syscall(SYS_openat, AT_FDCWD, p, (unsigned long)flags | 1UL << 40, 06755)));
    p = in_dir("creat"); set_id("creat", p, got(syscall(SYS_creat, p, 04755)));
    p = in_dir("openat2"); set_id("openat2", p, got(syscall(SYS_openat2, AT_FDCWD, p, &how, sizeof how)));
    p = plain("chmod"); set_id("chmod", p, syscall(SYS_chmod, p, 04755));
    p = plain("chmod_high"); set_id("chmod_high", p, syscall(SYS_chmod, p, 04755UL | 1UL << 40));
    p = plain("fchmod"); set_id("fchmod", p, f_mode(p, 04755));
    p = plain("fchmod_sgid"); set_id("fchmod_sgid", p, f_mode(p, 02755));
    p = plain("fchmodat"); set_id("fchmodat", p, syscall(SYS_fchmodat, AT_FDCWD, p, 04755));
    p = plain("fchmodat2"); set_id("fchmodat2", p, syscall(452, AT_FDCWD, p, 04755, 0));
    p = in_dir("mkdir"); set_id("mkdir", p, syscall(SYS_mkdir, p, 06755));
    p = in_dir("mkdirat"); set_id("mkdirat", p, syscall(SYS_mkdirat, AT_FDCWD, p, 02755));
    p = in_dir("mknod"); set_id("mknod", p, syscall(SYS_mknod, p, S_IFREG | 04755, 0));
    p = in_dir("mknodat"); set_id("mknodat", p, syscall(SYS_mknodat, AT_FDCWD, p, S_IFREG | 06755, 0));
    p = in_dir("mknod_notype"); set_id("mknod_notype", p, syscall(SYS_mknod, p, 04755, 0));
    p = in_dir("mknod_char"); set_id("mknod_char", p, syscall(SYS_mknod, p, S_IFCHR | 0666, makedev(1, 3)));
    p = in_dir("mknod_block"); set_id("mknod_block", p, syscall(SYS_mknod, p, S_IFBLK | 0666, makedev(7, 0)));
}
static void fill(void) {
    static char block[65536];
    long long bytes = 0;
    int fd = open(in_dir("big"), O_CREAT | O_WRONLY | O_CLOEXEC, 0644), e = errno;
    for (ssize_t k = 1; fd >= 0 && k > 0 && bytes < 1LL << 30; ) { k = write(fd, block, sizeof block); e = errno; if (k > 0) bytes += k; }
    say("bytes=INFO %lld %s\n", bytes, strerrorname_np(e));
}
static void inodes(void) {
    char name[32];
    long made = 0;
    for (; made < 20000; made++) {
        snprintf(name, sizeof name, "f%ld", made);
        if (got(open(in_dir(name), O_CREAT | O_WRONLY | O_CLOEXEC, 0644)) < 0) break;
    }
    say("inodes=INFO %ld %s\n", made, strerrorname_np(errno));
}
static long first_line(const char *path) {
    char b[128];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t k = fd < 0 ? -1 : read(fd, b, sizeof b - 1);
    int e = errno;
    got(fd);
    errno = e;
    if (k < 0) return -1;
    b[k] = 0;
    b[strcspn(b, "\n")] = 0;
    say("line=INFO %s\n", b);
    return 0;
}
static void change(const char *path) {
    char other[4096];
    snprintf(other, sizeof other, "%s.new", path);
    TRY("write", got(open(path, O_WRONLY | O_CLOEXEC)));
    TRY("open_truncate", got(open(path, O_RDONLY | O_TRUNC | O_CLOEXEC)));
    TRY("create_beside", got(open(other, O_CREAT | O_WRONLY | O_CLOEXEC, 0644)));
    unlink(other);
    TRY("truncate", truncate(path, 1));
    TRY("chmod", chmod(path, 0777));
    TRY("utime", utimensat(AT_FDCWD, path, NULL, 0));
    TRY("link", link(path, other));
    TRY("rename", rename(path, other));
    TRY("unlink", unlink(path));
}
EXECUTE {
    if (p_read_payload(in, n)) return ENOMEM;
    const char *what = key("do");
    if (!what) return EINVAL;
    if (!strcmp(what, "shape")) shape();
    if (!strcmp(what, "suid")) suid();
    if (!strcmp(what, "fill")) fill();
    if (!strcmp(what, "inodes")) inodes();
    if (!strcmp(what, "touch")) TRY("touch", make(key("path"), "left\n"));
    if (!strcmp(what, "see")) { struct stat st; TRY("see", stat(key("path"), &st)); }
    if (!strcmp(what, "get")) TRY("get", first_line(key("path")));
    if (!strcmp(what, "change")) change(key("path"));
    return p_answer(out, outn);
}
RELEASE { (void)len; free(p); }
