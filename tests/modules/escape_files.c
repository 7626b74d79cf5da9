/* Attacks on files: what can be read, listed and changed outside, and in a directory that the payload names.
 *
 * Payload keys:
 *   dir=PATH   a directory that holds the files `victim` and `expendable` and the empty directories `emptydir` and `sub`. Every
 *              change is undone: new names are removed, `expendable` and `emptydir` are made again (modes 0600 and 0700), modes,
 *              owners, times and sizes of `victim` are set to what they were.
 *   read=PATH  one more file to read          list=PATH  one more directory to list
 *   pid=PID    a process whose /proc/PID/root is used as a way round
 * Under Landlock alone the stat_* probes stay open; a mount namespace closes them.
 */
#include "probe.h"
#include <dirent.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/xattr.h>

#define IN_DIR(var, name) const char *var = at(name); if (!var) return P_NO_KEY
#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif

static const char *at(const char *name) {
    static char path[4][4096];
    static unsigned turn;
    char *p = path[turn++ % 4];
    if (!key("dir")) return NULL;
    snprintf(p, sizeof path[0], "%s/%s", key("dir"), name);
    return p;
}
static const char *in_sub(void) { static char p[80]; snprintf(p, sizeof p, "sub/%s", tag()); return p; }
static long undo(long r, const char *path) { int e = errno; if (r >= 0) remove(path); errno = e; return r; }
static long kept(long r, int fd) { int e = errno; close(fd); errno = e; return r; }
static long create(const char *p, int flags) { return undo(got(open(p, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC | flags, 0600)), p); }

static long create_in(const char *folder) {
    char path[128];
    snprintf(path, sizeof path, "%s%s", folder, tag());
    return create(path, 0);
}

static long list_some(const char *path) {
    DIR *d = opendir(path);
    if (!d) return -1;
    long r = readdir(d) ? 0 : -1;
    closedir(d);
    return r;
}
static long read_passwd(void) { return read_some("/etc/passwd"); }
static long read_shadow(void) { return read_some("/etc/shadow"); }
static long read_hostname(void) { return read_some("/etc/hostname"); }
static long read_environ_1(void) { return read_some("/proc/1/environ"); }
static long read_environ_self(void) { return read_some("/proc/self/environ"); }
static long read_cmdline_1(void) { return read_some("/proc/1/cmdline"); }
static long read_mounts(void) { return read_some("/proc/self/mountinfo"); }
static long read_dmesg(void) { return got(open("/dev/kmsg", O_RDONLY | O_CLOEXEC | O_NONBLOCK)); }
static long read_kallsyms(void) { return read_some("/proc/kallsyms"); }
static long read_sys(void) { return read_some("/sys/kernel/notes"); }
static long read_given(void) { return key("read") ? read_some(key("read")) : P_NO_KEY; }
static long read_dir_victim(void) { IN_DIR(p, "victim"); return read_some(p); }
static long read_by_root_link(void) {
    char p[64];
    if (!key("pid")) return P_NO_KEY;
    snprintf(p, sizeof p, "/proc/%ld/root/etc/passwd", number("pid"));
    return read_some(p);
}
static long read_by_dotdot(void) { return read_some("../../../../../../../../etc/passwd"); }
static long list_root(void) { return list_some("/"); }
static long list_etc(void) { return list_some("/etc"); }
static long list_home(void) { return list_some("/root"); }
static long list_proc(void) { return list_some("/proc"); }
static long list_given(void) { return key("list") ? list_some(key("list")) : P_NO_KEY; }
static long stat_shadow(void) { struct stat st; return stat("/etc/shadow", &st); }
static long stat_victim(void) { struct stat st; IN_DIR(p, "victim"); return stat(p, &st); }
static long access_victim(void) { IN_DIR(p, "victim"); return access(p, F_OK); }
static long open_path_only(void) { IN_DIR(p, "victim"); return got(open(p, O_PATH | O_CLOEXEC)); }
static long readlink_exe(void) { char b[256]; return readlink("/proc/1/exe", b, sizeof b); }
static long open_disk(void) {
    const char *disks[] = {"/dev/vda", "/dev/sda", "/dev/nvme0n1"};
    for (int i = 0; i < 3; i++) if (!got(open(disks[i], O_RDONLY | O_CLOEXEC | O_NONBLOCK))) return 0;
    return -1;
}
static long open_mem(void) { return got(open("/dev/mem", O_RDONLY | O_CLOEXEC)); }
static long open_core_pattern(void) { return got(open("/proc/sys/kernel/core_pattern", O_WRONLY | O_CLOEXEC)); }
static long open_own_mem(void) { return got(open("/proc/self/mem", O_RDWR | O_CLOEXEC)); }

static long write_victim(void) { IN_DIR(p, "victim"); return got(open(p, O_WRONLY | O_APPEND | O_CLOEXEC)); }
static long create_file(void) { IN_DIR(p, tag()); return create(p, 0); }
static long create_tmpfile(void) { IN_DIR(p, ""); return got(open(p, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600)); }
static long create_openat2(void) {
    struct { uint64_t flags, mode, resolve; } how = {O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600, 0};
    IN_DIR(p, tag());
    return undo(got(syscall(SYS_openat2, AT_FDCWD, p, &how, sizeof how)), p);
}
static long create_creat(void) { IN_DIR(p, tag()); return undo(got(syscall(SYS_creat, p, 0600)), p); }
static long create_in_tmp(void) { return create_in("/tmp/"); }
static long create_in_var_tmp(void) { return create_in("/var/tmp/"); }
static long create_in_shm(void) { return create_in("/dev/shm/"); }
static long create_in_root(void) { return create_in("/"); }
static long create_in_cwd(void) { return create_in(""); }
static long make_dir(void) { IN_DIR(p, tag()); return undo(mkdir(p, 0700), p); }
static long remove_dir(void) { IN_DIR(p, "emptydir"); long r = rmdir(p); if (!r) mkdir(p, 0700); return r; }
static long remove_file(void) {
    IN_DIR(p, "expendable");
    long r = unlink(p);
    if (!r) got(open(p, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    return r;
}
static long make_link(void) { IN_DIR(p, "victim"); IN_DIR(q, tag()); return undo(link(p, q), q); }
static long link_by_proc(void) {
    char from[64];
    IN_DIR(p, "victim");
    IN_DIR(q, tag());
    int fd = open(p, O_PATH | O_CLOEXEC);
    if (fd < 0) return -1;
    snprintf(from, sizeof from, "/proc/self/fd/%d", fd);
    return kept(undo(linkat(AT_FDCWD, from, AT_FDCWD, q, AT_SYMLINK_FOLLOW), q), fd);
}
static long make_symlink(void) { IN_DIR(q, tag()); return undo(symlink("/etc/passwd", q), q); }
static long there_and_back(const char *from, const char *to) {
    long r = rename(from, to);
    int e = errno;
    if (!r && rename(to, from)) e = errno;
    errno = e;
    return r;
}
static long move_file(void) { IN_DIR(p, "victim"); IN_DIR(q, tag()); return there_and_back(p, q); }
static long move_across(void) { IN_DIR(p, "victim"); IN_DIR(q, in_sub()); return there_and_back(p, q); }
static long move_exchange(void) {
    IN_DIR(p, "victim");
    IN_DIR(q, "expendable");
    long r = renameat2(AT_FDCWD, p, AT_FDCWD, q, RENAME_EXCHANGE);
    return r ? r : renameat2(AT_FDCWD, p, AT_FDCWD, q, RENAME_EXCHANGE);
}
static long node(mode_t kind, dev_t dev) { IN_DIR(q, tag()); return undo(mknod(q, kind | 0600, dev), q); }
static long mknod_char(void) { return node(S_IFCHR, (1 << 8) | 3); }
static long mknod_block(void) { return node(S_IFBLK, 7 << 8); }
static long mknod_fifo(void) { return node(S_IFIFO, 0); }
static long mknod_socket(void) { return node(S_IFSOCK, 0); }
static long mknod_file(void) { return node(S_IFREG, 0); }
static long make_fifo(void) { IN_DIR(q, tag()); return undo(mkfifo(q, 0600), q); }
static long bind_path(void) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    IN_DIR(q, tag());
    if (strlen(q) >= sizeof a.sun_path) return P_NO_KEY;
    memcpy(a.sun_path, q, strlen(q));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return fd < 0 ? -1 : kept(undo(bind(fd, (struct sockaddr *)&a, sizeof a), q), fd);
}

/* The metadata calls set what was set before; where even stat is refused, the call itself is still tried, with an unlikely value
 * on a name that is not there. */
static struct stat before;
static const char *known(void) {
    const char *p = at("victim");
    if (p && stat(p, &before)) { p = "/sa-no-such/file"; before.st_mode = 0600; }
    return p;
}
#define ON_VICTIM(p) const char *p = known(); if (!p) return P_NO_KEY
#define ON_FD(fd, flags) ON_VICTIM(p_); int fd = open(p_, (flags) | O_CLOEXEC); if (fd < 0) return -1
static mode_t mode(void) { return before.st_mode & 07777; }
static long chmod_victim(void) { ON_VICTIM(p); return chmod(p, mode()); }
static long fchmod_victim(void) { ON_FD(fd, O_RDONLY); return kept(fchmod(fd, mode()), fd); }
static long fchmodat_victim(void) { ON_VICTIM(p); return syscall(SYS_fchmodat, AT_FDCWD, p, mode()); }
static long fchmodat2_victim(void) { ON_VICTIM(p); return syscall(SYS_fchmodat2, AT_FDCWD, p, mode(), 0); }
static long chown_victim(void) { ON_VICTIM(p); return chown(p, before.st_uid, before.st_gid); }
static long lchown_victim(void) { ON_VICTIM(p); return lchown(p, before.st_uid, before.st_gid); }
static long fchown_victim(void) { ON_FD(fd, O_RDONLY); return kept(fchown(fd, before.st_uid, before.st_gid), fd); }
static long fchownat_victim(void) { ON_VICTIM(p); return fchownat(AT_FDCWD, p, before.st_uid, before.st_gid, 0); }
static long utime_victim(void) {
    ON_VICTIM(p);
    struct { long a, m; } both = {before.st_atime, before.st_mtime};
    return syscall(SYS_utime, p, &both);
}
static long utimes_victim(void) {
    ON_VICTIM(p);
    struct timeval both[2] = {{before.st_atime, 0}, {before.st_mtime, 0}};
    return syscall(SYS_utimes, p, both);
}
static long utimensat_victim(void) {
    ON_VICTIM(p);
    struct timespec both[2] = {before.st_atim, before.st_mtim};
    return utimensat(AT_FDCWD, p, both, 0);
}
static long futimens_victim(void) {
    ON_FD(fd, O_RDONLY);
    struct timespec both[2] = {before.st_atim, before.st_mtim};
    return kept(futimens(fd, both), fd);
}
/* Resizing to the same size still touches the times. */
static long times_back(long r, const char *p) {
    struct timespec both[2] = {before.st_atim, before.st_mtim};
    int e = errno;
    if (r >= 0 && utimensat(AT_FDCWD, p, both, 0)) e = errno;
    errno = e;
    return r;
}
static long truncate_victim(void) { ON_VICTIM(p); return times_back(truncate(p, before.st_size), p); }
static long ftruncate_victim(void) { ON_FD(fd, O_WRONLY); return kept(times_back(ftruncate(fd, before.st_size), p_), fd); }
static long fallocate_victim(void) { ON_FD(fd, O_WRONLY); return kept(times_back(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 1), p_), fd); }
static long open_trunc(void) { IN_DIR(p, "expendable"); return got(open(p, O_WRONLY | O_TRUNC | O_CLOEXEC)); }
static long xattr(const char *name) {
    ON_VICTIM(p);
    long r = setxattr(p, name, "1", 1, 0);
    if (!r) removexattr(p, name);
    return r;
}
static long setxattr_user(void) { return xattr("user.sa_probe"); }
static long setxattr_trusted(void) { return xattr("trusted.sa_probe"); }
static long fsetxattr_user(void) {
    ON_FD(fd, O_RDONLY);
    long r = fsetxattr(fd, "user.sa_probe", "1", 1, 0);
    if (!r) fremovexattr(fd, "user.sa_probe");
    return kept(r, fd);
}
static long removexattr_none(void) { ON_VICTIM(p); return REACH(removexattr(p, "user.sa_none"), ENODATA); }
static long inode_flags(void) {
    int flags = 0;
    ON_FD(fd, O_RDONLY);
    long r = ioctl(fd, FS_IOC_GETFLAGS, &flags);
    return kept(r ? r : ioctl(fd, FS_IOC_SETFLAGS, &flags), fd);
}
static long suid(int how) {
    struct stat st;
    IN_DIR(p, tag());
    int fd = open(p, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, how ? 0700 : 04700);
    if (fd < 0) return -1;
    long r = how == 1 ? fchmod(fd, 04700) : how == 2 ? chmod(p, 02770) : 0;
    if (!r) { errno = EPERM; r = !fstat(fd, &st) && st.st_mode & (S_ISUID | S_ISGID) ? 0 : -1; }
    int e = errno;
    unlink(p);
    errno = e;
    return kept(r, fd);
}
static long suid_open(void) { return suid(0); }
static long suid_fchmod(void) { return suid(1); }
static long sgid_chmod(void) { return suid(2); }
static long map_executable(void) {
    ON_FD(fd, O_RDONLY);
    void *m = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
    if (m != MAP_FAILED) munmap(m, 4096);
    return kept(m == MAP_FAILED ? -1 : 0, fd);
}
static long flock_victim(void) { ON_FD(fd, O_RDONLY); return kept(flock(fd, LOCK_SH | LOCK_NB), fd); }
static long lease_victim(void) { ON_FD(fd, O_RDONLY); return kept(fcntl(fd, F_SETLEASE, F_RDLCK), fd); }
static long chdir_dir(void) { IN_DIR(p, ""); return chdir(p); }
static long umask_open(void) { mode_t was = umask(0); umask(was); return 0; } /* legitimate: the process's own */

#define P(name) {#name, name, 0}
static const probe table[] = {
    P(read_passwd), P(read_shadow), P(read_hostname), P(read_environ_1), P(read_environ_self), P(read_cmdline_1), P(read_mounts),
    P(read_dmesg), P(read_kallsyms), P(read_sys), P(read_given), P(read_dir_victim), P(read_by_root_link), P(read_by_dotdot),
    P(list_root), P(list_etc), P(list_home), P(list_proc), P(list_given), P(stat_shadow), P(stat_victim), P(access_victim),
    P(open_path_only), P(readlink_exe), P(open_disk), P(open_mem), P(open_core_pattern), P(open_own_mem), P(write_victim),
    P(create_file), P(create_tmpfile), P(create_openat2), P(create_creat), P(create_in_tmp), P(create_in_var_tmp), P(create_in_shm),
    P(create_in_root), P(create_in_cwd), P(make_dir), P(remove_dir), P(remove_file), P(make_link), P(link_by_proc), P(make_symlink),
    P(move_file), P(move_across), P(move_exchange), P(mknod_char), P(mknod_block), P(mknod_fifo), P(mknod_socket), P(mknod_file),
    P(make_fifo), P(bind_path), P(chmod_victim), P(fchmod_victim), P(fchmodat_victim), P(fchmodat2_victim), P(chown_victim),
    P(lchown_victim), P(fchown_victim), P(fchownat_victim), P(utime_victim), P(utimes_victim), P(utimensat_victim),
    P(futimens_victim), P(truncate_victim), P(ftruncate_victim), P(fallocate_victim), P(open_trunc), P(setxattr_user),
    P(setxattr_trusted), P(fsetxattr_user), P(removexattr_none), P(inode_flags), P(suid_open), P(suid_fchmod), P(sgid_chmod),
    P(map_executable), P(flock_victim), P(lease_victim), {"chdir_dir", chdir_dir, P_FORK}, P(umask_open),
};
PROBES(table)
