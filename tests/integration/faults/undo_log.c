/* What a loss of power would take away, kept while a process runs: LD_PRELOAD this into it.
 *
 * Every change below the folder UNDO_ROOT is noted in the file UNDO_LOG before it is made, with what is needed to take
 * it back; every fsync, fdatasync and syncfs that succeeded is noted after it. The page cache survives kill -9, and so does
 * the log: power.py reads it once the process is dead and takes back what was never made durable.
 *
 * Noted: pwrite, pwritev, write, writev, ftruncate, truncate, creation by open, mkdir, rename, unlink. Not noted: mmap,
 * fallocate, unlinkat and rmdir (what they take stays taken), O_TRUNC.
 *
 * UNDO_SYNC_US: each sync takes so many microseconds longer, so that there is something to lose. UNDO_LIE=1: syncs are not
 * noted, as if the disk lied; it shows that somebody would notice.
 *
 * A sync covers what was noted before it was called. A change that is noted and then fails was taken back by nobody and
 * needs it least: taking it back writes what is there already.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

/* Followed by `length` bytes: the old bytes of a write or truncation, or paths that end in a NUL each. */
struct entry {
    uint32_t kind;
    uint32_t length;
    uint64_t inode;
    uint64_t offset;   /* where the old bytes were; of a sync: how much of the log it covers */
    uint64_t old_size; /* of the file */
};
enum { WRITE = 1, SYNC, CREATE, RENAME, UNLINK, BORN, SYNC_ALL };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int log_fd = -1;
static uint64_t log_size;
static char root[PATH_MAX / 2];
static size_t root_length;
static unsigned graves;
static useconds_t sync_us;
static int is_lying;

#define REAL(name) ((__typeof__(&name))real(#name, &real_##name))
static void *real(const char *name, void **known) {
    if (*known == NULL) *known = dlsym(RTLD_NEXT, name);
    return *known;
}
#define DECLARE(name) static void *real_##name
DECLARE(pwrite64); DECLARE(pwritev64); DECLARE(write); DECLARE(writev); DECLARE(ftruncate64); DECLARE(pwritev64v2);
DECLARE(open64); DECLARE(fsync); DECLARE(fdatasync); DECLARE(syncfs); DECLARE(rename); DECLARE(unlink); DECLARE(mkdir);

static void give_up(const char *what) {
    dprintf(2, "undo_log: %s: %s\n", what, strerror(errno));
    abort();
}

__attribute__((constructor)) static void start(void) {
    const char *folder = getenv("UNDO_ROOT"), *path = getenv("UNDO_LOG");
    if (folder == NULL || path == NULL) return;
    if (strlen(folder) >= sizeof root) abort();
    strcpy(root, folder);
    root_length = strlen(root);
    /* Appended to: what an earlier life of the node wrote may still be in the page cache only. */
    log_fd = REAL(open64)(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (log_fd < 0) give_up(path);
    struct stat64 status;
    if (fstat64(log_fd, &status) != 0) give_up(path);
    log_size = (uint64_t)status.st_size;
    const char *delay = getenv("UNDO_SYNC_US"), *lie = getenv("UNDO_LIE");
    sync_us = delay == NULL ? 0 : (useconds_t)atol(delay);
    is_lying = lie != NULL && lie[0] == '1';
    graves = (unsigned)getpid() * 1000000u;
}

static int is_below_root(const char *path) {
    return log_fd >= 0 && path[0] == '/' && strncmp(path, root, root_length) == 0 && path[root_length] == '/';
}

/* The path of a regular file or folder below the root; 0 for all others. */
static int path_of(int fd, char *path) {
    if (log_fd < 0 || fd == log_fd) return 0;
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    return is_below_root(path) || strcmp(path, root) == 0;
}

/* With the lock held. One write: a kill leaves a whole entry, or a torn last one. */
static void note(struct entry entry, const void *bytes) {
    struct iovec parts[2] = {{&entry, sizeof entry}, {(void *)bytes, entry.length}};
    ssize_t size = (ssize_t)(sizeof entry + entry.length);
    if (REAL(writev)(log_fd, parts, 2) != size) give_up("the log");
    log_size += (uint64_t)size;
}

/* Before bytes [offset, offset + size) of the file change, or its size does. */
static void note_change(int fd, uint64_t offset, uint64_t size) {
    struct stat64 status;
    if (fstat64(fd, &status) != 0 || !S_ISREG(status.st_mode)) return;
    uint64_t old_size = (uint64_t)status.st_size, end = offset + size;
    if (end > old_size) end = old_size;
    uint64_t length = end > offset ? end - offset : 0;
    char *old = malloc(length + 1);
    if (old == NULL) give_up("memory");
    if (length > 0) {
        /* The descriptor may be write-only. */
        char path[64];
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        int reader = REAL(open64)(path, O_RDONLY | O_CLOEXEC);
        if (reader < 0 || pread64(reader, old, length, (off64_t)offset) != (ssize_t)length) give_up("old bytes");
        close(reader);
    }
    note((struct entry){WRITE, (uint32_t)length, status.st_ino, offset, old_size}, old);
    free(old);
}

static void before_write(int fd, uint64_t offset, uint64_t size) {
    char path[PATH_MAX];
    if (!path_of(fd, path)) return;
    note_change(fd, offset, size);
}

static uint64_t size_of(const struct iovec *parts, int count) {
    uint64_t size = 0;
    for (int i = 0; i < count; i++) size += parts[i].iov_len;
    return size;
}

/* The lock is held over note and change, so that the log has the order of the changes. */
#define CHANGE(before, call)        \
    pthread_mutex_lock(&lock);      \
    int saved = errno;              \
    before;                         \
    errno = saved;                  \
    __auto_type answer = call;      \
    pthread_mutex_unlock(&lock);    \
    return answer

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset) {
    CHANGE(before_write(fd, (uint64_t)offset, size), REAL(pwrite64)(fd, data, size, offset));
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) { return pwrite64(fd, data, size, offset); }

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t offset) {
    CHANGE(before_write(fd, (uint64_t)offset, size_of(parts, count)), REAL(pwritev64)(fd, parts, count, offset));
}
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset) {
    return pwritev64(fd, parts, count, offset);
}

/* What Python's os.pwritev calls. */
ssize_t pwritev64v2(int fd, const struct iovec *parts, int count, off64_t offset, int flags) {
    CHANGE(before_write(fd, (uint64_t)offset, size_of(parts, count)),
           REAL(pwritev64v2)(fd, parts, count, offset, flags));
}

/* At the descriptor's own position, or at the end (O_APPEND). Sockets and pipes take the short way: they may block. */
static int is_ours(int fd) {
    char path[PATH_MAX];
    return path_of(fd, path);
}
static uint64_t position_of(int fd) {
    struct stat64 status;
    if (fcntl(fd, F_GETFL) & O_APPEND) return fstat64(fd, &status) == 0 ? (uint64_t)status.st_size : 0;
    off64_t position = lseek64(fd, 0, SEEK_CUR);
    return position < 0 ? 0 : (uint64_t)position;
}

ssize_t write(int fd, const void *data, size_t size) {
    if (!is_ours(fd)) return REAL(write)(fd, data, size);
    CHANGE(note_change(fd, position_of(fd), size), REAL(write)(fd, data, size));
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    if (!is_ours(fd)) return REAL(writev)(fd, parts, count);
    CHANGE(note_change(fd, position_of(fd), size_of(parts, count)), REAL(writev)(fd, parts, count));
}

int ftruncate64(int fd, off64_t size) {
    CHANGE(before_write(fd, (uint64_t)size, UINT64_MAX - (uint64_t)size), REAL(ftruncate64)(fd, size));
}
int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }

int truncate64(const char *path, off64_t size) {
    int fd = REAL(open64)(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    int answer = ftruncate64(fd, size);
    close(fd);
    return answer;
}
int truncate(const char *path, off_t size) { return truncate64(path, size); }

static int note_creation(const char *path) {
    struct stat64 status;
    if (!is_below_root(path) || lstat64(path, &status) == 0) return 0;
    note((struct entry){CREATE, (uint32_t)strlen(path) + 1, 0, 0, 0}, path);
    return 1;
}

/* File systems use the numbers of removed files again: what was noted of this one before is not about this file. */
static int open_new(const char *path, int flags, mode_t mode, int is_new) {
    int fd = REAL(open64)(path, flags, mode), saved = errno;
    struct stat64 status;
    if (fd >= 0 && is_new && fstat64(fd, &status) == 0) note((struct entry){BORN, 0, status.st_ino, 0, 0}, "");
    errno = saved;
    return fd;
}

static mode_t mode_of(int flags, va_list more) { return flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0; }

int open64(const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    mode_t mode = mode_of(flags, more);
    va_end(more);
    if (!(flags & O_CREAT)) return REAL(open64)(path, flags, mode);
    int is_new;
    CHANGE(is_new = note_creation(path), open_new(path, flags, mode, is_new));
}
int open(const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    mode_t mode = mode_of(flags, more);
    va_end(more);
    return open64(path, flags, mode);
}

int mkdir(const char *path, mode_t mode) { CHANGE(note_creation(path), REAL(mkdir)(path, mode)); }

/* A second name for what is about to lose its only one, so that it can come back. Empty where there is nothing. */
static void bury(const char *path, char *grave) {
    struct stat64 status;
    grave[0] = 0;
    if (lstat64(path, &status) != 0 || !S_ISREG(status.st_mode)) return;
    snprintf(grave, PATH_MAX, "%s.graves/%u", root, graves++);
    if (link(path, grave) != 0) grave[0] = 0; /* no such folder: then it stays lost */
}

static void note_names(uint32_t kind, const char *first, const char *second, const char *third) {
    char names[3 * PATH_MAX];
    int length = snprintf(names, sizeof names, "%s%c%s%c%s", first, 0, second, 0, third);
    note((struct entry){kind, (uint32_t)length + 1, 0, 0, 0}, names);
}

static void note_rename(const char *from, const char *to) {
    char grave[PATH_MAX];
    if (!is_below_root(from) || !is_below_root(to)) return;
    bury(to, grave);
    note_names(RENAME, from, to, grave);
}
int rename(const char *from, const char *to) { CHANGE(note_rename(from, to), REAL(rename)(from, to)); }

static void note_unlink(const char *path) {
    char grave[PATH_MAX];
    if (!is_below_root(path)) return;
    bury(path, grave);
    note_names(UNLINK, path, grave, "");
}
int unlink(const char *path) { CHANGE(note_unlink(path), REAL(unlink)(path)); }

static int sync_noted(int fd, int (*sync)(int), uint32_t kind) {
    char path[PATH_MAX];
    if (!path_of(fd, path)) return sync(fd);
    pthread_mutex_lock(&lock);
    uint64_t covered = log_size;
    pthread_mutex_unlock(&lock);
    if (sync_us > 0) usleep(sync_us);
    int answer = sync(fd), saved = errno;
    struct stat64 status;
    if (answer == 0 && !is_lying && fstat64(fd, &status) == 0) {
        pthread_mutex_lock(&lock);
        note((struct entry){kind, (uint32_t)strlen(path) + 1, status.st_ino, covered, 0}, path);
        pthread_mutex_unlock(&lock);
    }
    errno = saved;
    return answer;
}
int fsync(int fd) { return sync_noted(fd, REAL(fsync), SYNC); }
int fdatasync(int fd) { return sync_noted(fd, REAL(fdatasync), SYNC); }
int syncfs(int fd) { return sync_noted(fd, REAL(syncfs), SYNC_ALL); }
