/* A root of its own: a tmpfs, detached copies of a few host folders, pivot_root. Nothing of the host is written,
 * chmod'ed or chown'ed; where the host is root, the owner of a folder appears as the sandbox's user (an idmapped mount). */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "uapi.h"
#include "worker.h"

#define SA_MS_PRIVATE (1u << 18)
#define SA_MS_REC 16384u

static int sys_mount_setattr(int fd, unsigned flags, struct mount_attr *attr)
{
    return (int)syscall(SYS_mount_setattr, fd, "", flags, attr, sizeof *attr);
}

static int new_fs(const char *type, const char *const *options)
{
    int fs = (int)syscall(SYS_fsopen, type, 1 /* FSOPEN_CLOEXEC */), mnt = -1;
    if (fs < 0) return -1;
    int bad = 0;
    for (; *options && !bad; options += 2) bad = syscall(SYS_fsconfig, fs, 1 /* SET_STRING */, options[0], options[1], 0) != 0;
    if (!bad && !syscall(SYS_fsconfig, fs, 6 /* CMD_CREATE */, NULL, NULL, 0))
        mnt = (int)syscall(SYS_fsmount, fs, 1, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
    close_quietly(fs);
    return mnt;
}

static int attach(int mnt, int dir, const char *path)
{
    return (int)syscall(SYS_move_mount, mnt, "", dir, path, 4 /* MOVE_MOUNT_F_EMPTY_PATH */);
}

/* A private /proc of this pid namespace, attached nowhere: for id maps, and to tell a filter's kill from a raised
 * SIGSYS. The new root is then hung over /proc for the moment before pivot_root makes it the root. */
int op_root(struct stem *stem)
{
    static const char *const proc[] = {NULL}, *const root[] = {"size", "1M", "nr_inodes", "512", "mode", "755", NULL};
    if (syscall(SYS_mount, NULL, "/", NULL, SA_MS_REC | SA_MS_PRIVATE, NULL)) return -1;
    int own = new_fs("proc", proc);
    if (own < 0 && (stem->proc < 0)) return -1;
    if (own >= 0) stem->proc = own;
    if (sethostname("sandbox", 7)) return -1;
    stem->root = new_fs("tmpfs", root);
    return stem->root < 0 ? -1 : attach(stem->root, AT_FDCWD, "/proc");
}

/* A user namespace whose id map a mount can borrow: its only process waits for the map to be written and is gone. */
static int user_namespace(struct stem *stem, const struct sa_bind *op)
{
    char path[64], map[64];
    int fd = -1;
    pid_t pid = spawn(SA_CLONE_NEWUSER, -1);
    if (pid == 0) for (;;) pause();
    if (pid < 0) return -1;
    snprintf(path, sizeof path, "%d/uid_map", (int)pid);
    snprintf(map, sizeof map, "%u %u 1", op->uid_from, op->uid_to);
    int bad = write_file(stem->proc, path, map);
    snprintf(path, sizeof path, "%d/gid_map", (int)pid);
    snprintf(map, sizeof map, "%u %u 1", op->gid_from, op->gid_to);
    if (!bad) bad = write_file(stem->proc, path, map);
    snprintf(path, sizeof path, "%d/ns/user", (int)pid);
    if (!bad) fd = openat(stem->proc, path, O_RDONLY | O_CLOEXEC);
    int error = errno;
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    errno = error;
    return fd;
}

static int idmap(struct stem *stem, int mnt, const struct sa_bind *op)
{
    int ns = user_namespace(stem, op);
    if (ns < 0) return -1;
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (uint64_t)ns};
    int result = sys_mount_setattr(mnt, AT_EMPTY_PATH, &attr);
    close_quietly(ns);
    return result;
}

/* Every look-up below the new root: no symlink is followed, and nothing leaves the root. */
static int look(int dir, const char *path, uint64_t resolve)
{
    struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = resolve | RESOLVE_NO_SYMLINKS};
    return (int)syscall(SYS_openat2, dir, path, &how, sizeof how);
}

/* `path` in the new root as a mount point of the right type: an O_PATH descriptor. What is missing is made, but only in
 * the root's own file system: below a bind, which a module may be changing at this moment, it must be there already. */
static int mount_point(int root, const char *path, int is_dir)
{
    char part[PATH_MAX];
    if (path[0] != '/' || strlen(path) >= sizeof part) return errno = EINVAL, -1;
    int fd = look(root, path + 1, RESOLVE_BENEATH), dir = root;
    if (fd >= 0 || errno != ENOENT) return fd;
    for (const char *at = path + 1;;) {
        const char *slash = strchr(at, '/');
        snprintf(part, sizeof part, "%.*s", (int)(slash ? slash - at : (int)strlen(at)), at);
        int made = slash || is_dir ? mkdirat(dir, part, 0755) : mknodat(dir, part, S_IFREG | 0444, 0);
        fd = made && errno != EEXIST ? -1 : look(dir, part, RESOLVE_BENEATH | RESOLVE_NO_XDEV);
        if (dir != root) close_quietly(dir);
        if (fd < 0 || !slash) return fd;
        dir = fd, at = slash + 1;
    }
}

static int hang(int mnt, int root, const char *path, int is_dir)
{
    int at = mount_point(root, path, is_dir);
    if (at < 0) return -1;
    int result = (int)syscall(SYS_move_mount, mnt, "", at, "", 0x44 /* MOVE_MOUNT_F_EMPTY_PATH, T_EMPTY_PATH */);
    close_quietly(at);
    return result;
}

static int bind_object(struct stem *stem, const struct sa_bind *op, int object, const char *target)
{
    struct stat st;
    if (fstat(object, &st)) return -1;
    if (op->ino && (st.st_ino != op->ino || st.st_dev != op->dev)) return errno = ESTALE, -1; /* swapped since */
    int mapped = (op->flags & (SA_BIND_IDMAP | SA_BIND_IDMAP_TRY)) != 0, result = -1;
    unsigned recursive = mapped ? 0 : 0x8000u; /* AT_RECURSIVE: a folder with locked mounts may not be split */
    int mnt = (int)syscall(SYS_open_tree, object, "", AT_EMPTY_PATH | O_CLOEXEC | 1u /* OPEN_TREE_CLONE */ | recursive);
    if (mnt < 0) return -1;
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV};
    if (!(op->flags & SA_BIND_WRITABLE)) attr.attr_set |= MOUNT_ATTR_RDONLY;
    if (!(op->flags & SA_BIND_EXEC)) attr.attr_set |= MOUNT_ATTR_NOEXEC;
    if (!sys_mount_setattr(mnt, AT_EMPTY_PATH | recursive, &attr) &&
        (!mapped || !idmap(stem, mnt, op) || (op->flags & SA_BIND_IDMAP_TRY)))
        result = hang(mnt, stem->root, target, S_ISDIR(st.st_mode));
    close_quietly(mnt);
    return result;
}

int op_bind(struct stem *stem, const struct record *r)
{
    struct sa_bind op;
    memcpy(&op, r->data, sizeof op);
    const char *source = (const char *)r->data + sizeof op, *target = source + strlen(source) + 1;
    int object = look(AT_FDCWD, source, 0); /* a plan names real paths */
    if (object < 0) return (op.flags & SA_BIND_OPTIONAL) ? 0 : -1;
    int result = bind_object(stem, &op, object, target);
    close_quietly(object);
    return result;
}

enum { MAX_KEPT = 64 };

/* Copies of what stands below the target now, to be hung back into the new file system. */
static int take_kept(const char *at, const char *end, const char **paths, int *trees)
{
    int count = 0;
    for (; at < end; at += strlen(at) + 1) {
        if (count == MAX_KEPT) return errno = E2BIG, -1;
        trees[count] = (int)syscall(SYS_open_tree, AT_FDCWD, at, 1u /* OPEN_TREE_CLONE */ | O_CLOEXEC | 0x8000u);
        if (trees[count] < 0) return -1;
        paths[count++] = at;
    }
    return count;
}

static int hang_kept(const char *target, int count, const char **paths, const int *trees)
{
    int root = open(target, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0) return -1;
    for (int i = 0; i < count; i++) {
        struct stat st;
        const char *below = paths[i] + strlen(target);
        if (strncmp(paths[i], target, strlen(target))) return errno = EINVAL, -1;
        if (fstat(trees[i], &st) || hang(trees[i], root, below, S_ISDIR(st.st_mode))) return -1;
        close(trees[i]);
    }
    close(root);
    return 0;
}

int op_tmpfs(const struct record *r)
{
    struct sa_tmpfs op;
    char size[32], inodes[32];
    const char *paths[MAX_KEPT], *target = (const char *)r->data + sizeof op;
    int trees[MAX_KEPT];
    memcpy(&op, r->data, sizeof op);
    int kept = take_kept(target + strlen(target) + 1, (const char *)r->data + r->size, paths, trees);
    snprintf(size, sizeof size, "%llu", (unsigned long long)op.size);
    snprintf(inodes, sizeof inodes, "%llu", (unsigned long long)op.inodes);
    const char *const options[] = {"size", size, "nr_inodes", inodes, "mode", "1777", NULL};
    int mnt = kept < 0 ? -1 : new_fs("tmpfs", options);
    if (mnt < 0) return -1;
    struct mount_attr attr = {.attr_clr = op.executable ? MOUNT_ATTR_NOEXEC : 0};
    if (sys_mount_setattr(mnt, AT_EMPTY_PATH, &attr) || attach(mnt, AT_FDCWD, target)) return -1;
    close(mnt);
    return hang_kept(target, kept, paths, trees);
}

int op_symlink(struct stem *stem, const struct record *r)
{
    const char *target = (const char *)r->data, *path = target + strlen(target) + 1;
    return symlinkat(target, stem->root, path + (*path == '/'));
}

int op_pivot(struct stem *stem)
{
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY};
    const struct record *tmpfs = program_find(&stem->program, SA_OP_TMPFS);
    if (tmpfs) {
        int at = mount_point(stem->root, (const char *)tmpfs->data + sizeof(struct sa_tmpfs), 1);
        if (at < 0) return -1;
        close(at);
    }
    if (fchdir(stem->root) || syscall(SYS_pivot_root, ".", ".") || syscall(SYS_umount2, ".", 2 /* MNT_DETACH */)) return -1;
    if (sys_mount_setattr(stem->root, AT_EMPTY_PATH, &attr) || chdir("/")) return -1;
    close(stem->root);
    stem->root = -1;
    return 0;
}
