/* The calls of the C library that are stood in for: what changes files and names, and what makes them durable.

   Each does what the kernel does, and then notes it; or what was ordered instead. A call that is not stood in for passes
   by unseen: that none does in a node is shown by a test (`mirror` of chaos/disk/__init__.py). Writes through a shared
   mapping and links cannot be stood in for, or are not: nothing here uses them. */

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "disk.h"

#define REAL(type, name, ...)                                                                                          \
    static type (*next)(__VA_ARGS__);                                                                                  \
    if (next == NULL && (next = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)) == NULL)                                 \
        disk_give_up(name " is not to be found");                                                                      \
    disk_begin()

#define ALSO(name, other) extern __typeof(name) other __attribute__((alias(#name)))

int real_open(const char *path, int flags, mode_t mode) { return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode); }
ssize_t real_pread(int d, void *data, size_t size, int64_t at) { return syscall(SYS_pread64, d, data, size, at); }
ssize_t real_pwrite(int d, const void *data, size_t size, int64_t at) { return syscall(SYS_pwrite64, d, data, size, at); }
ssize_t real_write(int d, const void *data, size_t size) { return syscall(SYS_write, d, data, size); }
int real_truncate(int d, int64_t size) { return (int)syscall(SYS_ftruncate, d, size); }
int real_close(int d) { return (int)syscall(SYS_close, d); }

static int64_t size_of(int descriptor) {
    struct stat status;
    return fstat(descriptor, &status) == 0 ? status.st_size : 0;
}

static void delay(long delay_us) {
    struct timespec left = {delay_us / 1000000, delay_us % 1000000 * 1000};
    while (delay_us > 0 && nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
}

/* Asks for orders, waits as ordered, and tells whether the call goes on. With the lock held, which is let go meanwhile. */
static int goes_on(struct verdict verdict) {
    if (verdict.delay_us > 0) {
        disk_unlock();
        delay(verdict.delay_us);
        disk_lock();
    }
    errno = verdict.error;
    return verdict.error == 0;
}

/* ---- opening and closing */

static int opened(int directory, const char *path, int flags, int (*next)(int, const char *, int, mode_t), mode_t mode) {
    char below[PATH_MAX];
    if (!disk_path(directory, path, below))
        return next(directory, path, flags, mode);
    disk_lock();
    int descriptor = -1;
    if (goes_on(orders_for("open", below, 0, 0))) {
        struct file *before = disk_file(below);
        struct stat status;
        int64_t size = before != NULL && fstatat(directory, path, &status, 0) == 0 ? status.st_size : 0;
        descriptor = next(directory, path, flags, mode);
        if (descriptor >= 0) {
            int error = errno;
            disk_opened(descriptor, below, flags);
            struct open_file *open_file = disk_open_file(descriptor);
            if ((flags & O_TRUNC) && open_file != NULL && open_file->kind == A_FILE)
                platter_truncated(open_file->file, size, 0);
            errno = error;
        }
    }
    disk_unlock();
    return descriptor;
}

static int kernel_openat(int directory, const char *path, int flags, mode_t mode) {
    return (int)syscall(SYS_openat, directory, path, flags, mode);
}

static mode_t mode_of(int flags, va_list more) {
    return (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(more, mode_t) : 0;
}

int open(const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    mode_t mode = mode_of(flags, more);
    va_end(more);
    disk_begin();
    return opened(AT_FDCWD, path, flags, kernel_openat, mode);
}
ALSO(open, open64);

int openat(int directory, const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    mode_t mode = mode_of(flags, more);
    va_end(more);
    disk_begin();
    return opened(directory, path, flags, kernel_openat, mode);
}
ALSO(openat, openat64);

int __open_2(const char *path, int flags) { return open(path, flags); }
ALSO(__open_2, __open64_2);
int creat(const char *path, mode_t mode) { return open(path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
ALSO(creat, creat64);

/* What is written through the stream is not seen: its file counts as changed all over. */
FILE *fopen(const char *path, const char *mode) {
    REAL(FILE *, "fopen", const char *, const char *);
    char below[PATH_MAX];
    FILE *stream = next(path, mode);
    if (stream != NULL && disk_path(AT_FDCWD, path, below)) {
        disk_lock();
        disk_opened(fileno(stream), below, 0);
        struct open_file *open_file = disk_open_file(fileno(stream));
        if (open_file != NULL && open_file->kind == A_FILE && strpbrk(mode, "wa+") != NULL)
            range_add(&open_file->file->dirty, 0, END_OF_FILE);
        disk_unlock();
    }
    return stream;
}
ALSO(fopen, fopen64);

int close(int descriptor) {
    if (disk_may_be_ours(descriptor)) {
        disk_lock();
        disk_closed(descriptor);
        disk_unlock();
    }
    return real_close(descriptor);
}

/* ---- reading */

static int may_read(int descriptor) {
    if (!disk_may_be_ours(descriptor))
        return 1;
    disk_lock();
    struct open_file *open_file = disk_open_file(descriptor);
    int may = open_file == NULL || open_file->kind != A_FILE || open_file->file->path == NULL ||
              goes_on(orders_for("read", open_file->file->path, 0, 0));
    disk_unlock();
    return may;
}

ssize_t read(int descriptor, void *data, size_t size) {
    return may_read(descriptor) ? syscall(SYS_read, descriptor, data, size) : -1;
}

ssize_t pread(int descriptor, void *data, size_t size, off_t at) {
    return may_read(descriptor) ? real_pread(descriptor, data, size, at) : -1;
}
ALSO(pread, pread64);

/* ---- writing */

static int synced_file(struct open_file *open_file, int descriptor, struct flight *flight, int (*next)(int));

static int synced_already(int descriptor) {
    (void)descriptor; /* the system did so when it wrote */
    return 0;
}

#define HERE (-1) /* at the descriptor's own position */
#define BLOCK 4096 /* of a disk */

static size_t total(const struct iovec *parts, int count) {
    size_t bytes = 0;
    for (int number = 0; number < count; number++)
        bytes += parts[number].iov_len;
    return bytes;
}

static ssize_t put(int descriptor, const struct iovec *parts, int count, int64_t at) {
    return at == HERE ? syscall(SYS_writev, descriptor, parts, count)
                      : syscall(SYS_pwritev, descriptor, parts, count, (long)at, 0L);
}

static ssize_t put_at_most(int descriptor, const struct iovec *parts, int count, int64_t at, size_t most) {
    struct iovec few[1024];
    int kept = 0;
    for (; kept < count && most > 0; kept++) {
        few[kept] = parts[kept];
        if (few[kept].iov_len > most)
            few[kept].iov_len = most;
        most -= few[kept].iov_len;
    }
    return put(descriptor, few, kept, at);
}

static ssize_t written(struct open_file *open_file, int descriptor, const struct iovec *parts, int count, int64_t at) {
    struct file *file = open_file->file;
    int64_t size = size_of(descriptor);
    int appends = fcntl(descriptor, F_GETFL) & O_APPEND;
    int64_t from = appends ? size : at == HERE ? lseek(descriptor, 0, SEEK_CUR) : at;
    ssize_t bytes = (ssize_t)total(parts, count);
    int64_t fresh = from + bytes - (size > from ? size : from);
    struct verdict verdict = orders_for("write", file->path ? file->path : "", bytes, fresh > 0 ? fresh : 0);
    if (!goes_on(verdict))
        return -1;
    if (verdict.at_most > 0 && (fcntl(descriptor, F_GETFL) & O_DIRECT)) /* it ends short with a whole block */
        verdict.at_most = (verdict.at_most + BLOCK - 1) / BLOCK * BLOCK;
    ssize_t done = verdict.at_most >= 0 && verdict.at_most < bytes && count <= 1024
                       ? put_at_most(descriptor, parts, count, at, (size_t)verdict.at_most)
                       : put(descriptor, parts, count, at);
    if (done > 0) {
        platter_wrote(file, descriptor, from, from + done);
        if (open_file->synchronous) { /* what it wrote, and nothing else */
            struct flight *flight = platter_sync_of(file, from, from + done);
            if (synced_file(open_file, descriptor, flight, synced_already) != 0)
                return -1;
        }
    }
    return done;
}

static ssize_t write_out(int descriptor, const struct iovec *parts, int count, int64_t at) {
    if (!disk_may_be_ours(descriptor))
        return put(descriptor, parts, count, at);
    disk_lock();
    struct open_file *open_file = disk_open_file(descriptor);
    if (open_file == NULL || open_file->kind != A_FILE) {
        disk_unlock(); /* a pipe may make us wait */
        return put(descriptor, parts, count, at);
    }
    ssize_t done = written(open_file, descriptor, parts, count, at);
    disk_unlock();
    return done;
}

ssize_t write(int descriptor, const void *data, size_t size) {
    struct iovec part = {(void *)data, size};
    return write_out(descriptor, &part, 1, HERE);
}

ssize_t pwrite(int descriptor, const void *data, size_t size, off_t at) {
    struct iovec part = {(void *)data, size};
    return write_out(descriptor, &part, 1, at);
}
ALSO(pwrite, pwrite64);

ssize_t writev(int descriptor, const struct iovec *parts, int count) { return write_out(descriptor, parts, count, HERE); }

ssize_t pwritev(int descriptor, const struct iovec *parts, int count, off_t at) {
    return write_out(descriptor, parts, count, at);
}
ALSO(pwritev, pwritev64);

/* Without hints about waiting the same is written; other flags change what is written, or make it durable. */
ssize_t pwritev2(int descriptor, const struct iovec *parts, int count, off_t at, int flags) {
    if ((flags & ~(RWF_HIPRI | RWF_NOWAIT)) && disk_may_be_ours(descriptor))
        disk_give_up("pwritev2 with flags that are not known here");
    return write_out(descriptor, parts, count, at);
}
ALSO(pwritev2, pwritev64v2);

/* ---- lengths */

static int truncated(int descriptor, int64_t size) {
    struct open_file *open_file = disk_open_file(descriptor);
    if (open_file == NULL || open_file->kind != A_FILE)
        return real_truncate(descriptor, size);
    if (!goes_on(orders_for("truncate", open_file->file->path ? open_file->file->path : "", 0, 0)))
        return -1;
    int64_t before = size_of(descriptor);
    int result = real_truncate(descriptor, size);
    if (result == 0)
        platter_truncated(open_file->file, before, size);
    return result;
}

int ftruncate(int descriptor, off_t size) {
    disk_begin();
    disk_lock();
    int result = truncated(descriptor, size);
    disk_unlock();
    return result;
}
ALSO(ftruncate, ftruncate64);

int truncate(const char *path, off_t size) {
    int descriptor = open(path, O_WRONLY | O_CLOEXEC);
    if (descriptor < 0)
        return -1;
    int result = ftruncate(descriptor, size), error = errno;
    close(descriptor);
    errno = error;
    return result;
}
ALSO(truncate, truncate64);

/* Room that is kept for later changes nothing that is read; anything else may. */
int fallocate(int descriptor, int mode, off_t at, off_t size) {
    disk_begin();
    disk_lock();
    struct open_file *open_file = disk_open_file(descriptor);
    int ours = open_file != NULL && open_file->kind == A_FILE && mode != FALLOC_FL_KEEP_SIZE;
    int result = (int)syscall(SYS_fallocate, descriptor, mode, at, size);
    if (ours && result == 0)
        platter_wrote(open_file->file, descriptor, at, at + size);
    disk_unlock();
    return result;
}
ALSO(fallocate, fallocate64);

int posix_fallocate(int descriptor, off_t at, off_t size) { return fallocate(descriptor, 0, at, size) == 0 ? 0 : errno; }
ALSO(posix_fallocate, posix_fallocate64);

/* ---- syncing */

static int synced_directory(struct open_file *open_file, int descriptor, int (*next)(int)) {
    long up_to = disk_names_changed();
    const char *directory = open_file->directory;
    if (!goes_on(orders_for("sync-directory", directory, 0, 0)))
        return -1;
    int result = next(descriptor);
    if (result == 0)
        disk_names_synced(directory, up_to);
    return result;
}

static int synced_file(struct open_file *open_file, int descriptor, struct flight *flight, int (*next)(int)) {
    struct file *file = open_file->file;
    if (!goes_on(orders_for("sync", file->path ? file->path : "", 0, 0)))
        platter_sync_failed(file, errno);
    disk_unlock();
    int result = next(descriptor);
    disk_lock();
    platter_wait_for_earlier(file, flight);
    if (result != 0)
        platter_sync_failed(file, errno); /* the real disk's own error */
    platter_sync_ends(file, flight, descriptor);
    if (open_file->error_known != file->error) {
        open_file->error_known = file->error;
        errno = file->error_number;
        return -1;
    }
    return result;
}

static int sync_out(int descriptor, int (*next)(int)) {
    disk_begin();
    disk_lock();
    struct open_file *open_file = disk_open_file(descriptor);
    int result;
    if (open_file == NULL) {
        disk_unlock();
        return next(descriptor);
    }
    result = open_file->kind == A_FILE ? synced_file(open_file, descriptor, platter_sync_begins(open_file->file), next)
                                       : synced_directory(open_file, descriptor, next);
    disk_unlock();
    return result;
}

int fsync(int descriptor) {
    REAL(int, "fsync", int);
    return sync_out(descriptor, next);
}

int fdatasync(int descriptor) {
    REAL(int, "fdatasync", int);
    return sync_out(descriptor, next);
}

/* `sync_file_range` is the kernel's: it starts writing and promises nothing, so it makes nothing durable here. */

int posix_fadvise(int descriptor, off_t at, off_t size, int advice) {
    REAL(int, "posix_fadvise", int, off_t, off_t, int);
    if (advice == POSIX_FADV_DONTNEED) {
        disk_lock();
        struct open_file *open_file = disk_open_file(descriptor);
        if (open_file != NULL && open_file->kind == A_FILE)
            platter_forget_cached(open_file->file, descriptor, at, size == 0 ? END_OF_FILE : at + size);
        disk_unlock();
    }
    return next(descriptor, at, size, advice);
}
ALSO(posix_fadvise, posix_fadvise64);

/* ---- names */

int renameat(int from_directory, const char *from, int to_directory, const char *to) {
    char below_from[PATH_MAX], below_to[PATH_MAX];
    disk_begin();
    int leaves = disk_path(from_directory, from, below_from), arrives = disk_path(to_directory, to, below_to);
    if (!leaves && !arrives)
        return (int)syscall(SYS_renameat2, from_directory, from, to_directory, to, 0);
    disk_lock();
    int result = -1;
    if (goes_on(orders_for("rename", leaves ? below_from : below_to, 0, 0))) {
        result = (int)syscall(SYS_renameat2, from_directory, from, to_directory, to, 0);
        if (result == 0 && !(leaves && arrives))
            disk_give_up("a file was moved into the disk, or out of it");
        if (result == 0)
            disk_renamed(below_from, below_to);
    }
    disk_unlock();
    return result;
}

int rename(const char *from, const char *to) { return renameat(AT_FDCWD, from, AT_FDCWD, to); }

int renameat2(int from_directory, const char *from, int to_directory, const char *to, unsigned flags) {
    char below[PATH_MAX];
    disk_begin();
    if (flags == 0)
        return renameat(from_directory, from, to_directory, to);
    if (disk_path(from_directory, from, below) || disk_path(to_directory, to, below))
        disk_give_up("a kind of rename that is not stood in for");
    return (int)syscall(SYS_renameat2, from_directory, from, to_directory, to, flags);
}

int unlinkat(int directory, const char *path, int flags) {
    char below[PATH_MAX];
    disk_begin();
    if (!disk_path(directory, path, below))
        return (int)syscall(SYS_unlinkat, directory, path, flags);
    disk_lock();
    int result = -1;
    if (goes_on(orders_for("unlink", below, 0, 0))) {
        result = (int)syscall(SYS_unlinkat, directory, path, flags);
        if (result == 0)
            (flags & AT_REMOVEDIR ? disk_removed_directory : disk_unlinked)(below);
    }
    disk_unlock();
    return result;
}

int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

int remove(const char *path) {
    struct stat status;
    if (lstat(path, &status) != 0)
        return -1;
    return S_ISDIR(status.st_mode) ? rmdir(path) : unlink(path);
}

int mkdirat(int directory, const char *path, mode_t mode) {
    char below[PATH_MAX];
    disk_begin();
    int result = (int)syscall(SYS_mkdirat, directory, path, mode);
    if (result == 0 && disk_path(directory, path, below)) {
        disk_lock();
        disk_made_directory(below);
        disk_unlock();
    }
    return result;
}

int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

int linkat(int from_directory, const char *from, int to_directory, const char *to, int flags) {
    char below[PATH_MAX];
    disk_begin();
    if (disk_path(from_directory, from, below) || disk_path(to_directory, to, below))
        disk_give_up("a second name for a file");
    return (int)syscall(SYS_linkat, from_directory, from, to_directory, to, flags);
}

int link(const char *from, const char *to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }
