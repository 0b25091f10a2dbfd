/* Records what a process does to files below one directory, in order, as a power failure would see it.
 *
 * Loaded with LD_PRELOAD. Every call that changes a file, and every sync, is made and recorded under one lock, so that the
 * order of the record is the order of the calls. Syncs are recorded and not made: the record decides what is durable.
 *
 * PERENNIAL_RECORDER_ROOT  the directory, without a slash at the end
 * PERENNIAL_RECORDER_LOG   the record, to which is appended
 * PERENNIAL_RECORDER_FAIL  KIND:NUMBER:ERRNO:REPEATS, for example sync:7:5:0. The call of that kind (sync or write) on files
 *                          of a store with that number fails, and those after it if REPEATS is 1
 *
 * A record is: kind (1 byte), file number (8), offset (8), length (4), all in the machine's byte order, then the bytes.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define FILES 4096

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char root[4096];
static size_t root_length;
static int record = -1;
/* 0: not recorded, 1: recorded, 2: a file of the store. */
static char known[FILES];
static char fail_kind;
static long fail_number, fail_errno, fail_repeats, syncs, writes;

__attribute__((constructor)) static void begin(void) {
    const char *directory = getenv("PERENNIAL_RECORDER_ROOT"), *log = getenv("PERENNIAL_RECORDER_LOG");
    const char *fail = getenv("PERENNIAL_RECORDER_FAIL");
    char kind[16];
    if (!directory || !log || strlen(directory) >= sizeof root) return;
    strcpy(root, directory);
    root_length = strlen(root);
    record = (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fail && sscanf(fail, "%15[a-z]:%ld:%ld:%ld", kind, &fail_number, &fail_errno, &fail_repeats) == 4)
        fail_kind = kind[0];
}

static void note(char kind, uint64_t file, uint64_t offset, const void *bytes, uint32_t length) {
    char header[21];
    int before = errno;
    header[0] = kind;
    memcpy(header + 1, &file, 8);
    memcpy(header + 9, &offset, 8);
    memcpy(header + 17, &length, 4);
    struct iovec parts[2] = {{header, sizeof header}, {(void *)bytes, length}};
    if (syscall(SYS_writev, record, parts, 2) != (long)(sizeof header + length)) abort();
    errno = before;
}

static int is_below(const char *path) {
    return record >= 0 && path && !strncmp(path, root, root_length) && (!path[root_length] || path[root_length] == '/');
}

static int is_index(const char *path) {
    size_t length = strlen(path);
    return length > 4 && !strcmp(path + length - 4, "-shm");
}

static int is_known(int fd) { return fd >= 0 && fd < FILES && known[fd]; }

static uint64_t number_of(int fd) {
    struct stat status;
    return fstat(fd, &status) ? 0 : status.st_ino;
}

/* Whether this call has to fail. */
static int fails(char kind, int fd) {
    long number;
    if (known[fd] != 2) return 0;
    number = kind == 's' ? ++syncs : ++writes;
    return fail_kind == kind && (number == fail_number || (fail_repeats && number > fail_number));
}

static int open_at(int directory, const char *path, int flags, mode_t mode) {
    struct stat status;
    int existed, fd;
    if (!is_below(path) || is_index(path)) {
        fd = (int)syscall(SYS_openat, directory, path, flags, mode);
        if (fd >= 0 && fd < FILES) known[fd] = 0;
        return fd;
    }
    pthread_mutex_lock(&lock);
    existed = !lstat(path, &status);
    fd = (int)syscall(SYS_openat, directory, path, flags, mode);
    if (fd >= 0 && fd < FILES) {
        known[fd] = strncmp(path + root_length, "/store", 6) ? 1 : 2;
        note(existed ? 'o' : 'O', number_of(fd), 0, path, (uint32_t)strlen(path));
        if (existed && (flags & O_TRUNC)) note('T', number_of(fd), 0, "", 0);
    }
    pthread_mutex_unlock(&lock);
    return fd;
}

#define OPEN_IN(directory)                        \
    {                                             \
        mode_t mode = 0;                          \
        if (flags & (O_CREAT | __O_TMPFILE)) {    \
            va_list rest;                         \
            va_start(rest, flags);                \
            mode = va_arg(rest, mode_t);          \
            va_end(rest);                         \
        }                                         \
        return open_at(directory, path, flags, mode); \
    }

int open(const char *path, int flags, ...) OPEN_IN(AT_FDCWD)
int open64(const char *path, int flags, ...) OPEN_IN(AT_FDCWD)
int openat(int directory, const char *path, int flags, ...) OPEN_IN(directory)
int openat64(int directory, const char *path, int flags, ...) OPEN_IN(directory)

int close(int fd) {
    if (fd >= 0 && fd < FILES) known[fd] = 0;
    return (int)syscall(SYS_close, fd);
}

static ssize_t write_at(int fd, const void *bytes, size_t length, off_t offset, int has_offset) {
    ssize_t written;
    if (!is_known(fd))
        return has_offset ? syscall(SYS_pwrite64, fd, bytes, length, offset) : syscall(SYS_write, fd, bytes, length);
    pthread_mutex_lock(&lock);
    if (fails('w', fd)) {
        pthread_mutex_unlock(&lock);
        errno = (int)fail_errno;
        return -1;
    }
    if (has_offset) {
        written = syscall(SYS_pwrite64, fd, bytes, length, offset);
    } else {
        written = syscall(SYS_write, fd, bytes, length);
        offset = syscall(SYS_lseek, fd, 0, SEEK_CUR) - (written > 0 ? written : 0);
    }
    if (written > 0) note('W', number_of(fd), (uint64_t)offset, bytes, (uint32_t)written);
    pthread_mutex_unlock(&lock);
    return written;
}

ssize_t write(int fd, const void *bytes, size_t length) { return write_at(fd, bytes, length, 0, 0); }
ssize_t pwrite(int fd, const void *bytes, size_t length, off_t offset) { return write_at(fd, bytes, length, offset, 1); }
ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t offset) { return write_at(fd, bytes, length, offset, 1); }

static int truncate_to(int fd, off_t length) {
    int done;
    if (!is_known(fd)) return (int)syscall(SYS_ftruncate, fd, length);
    pthread_mutex_lock(&lock);
    done = (int)syscall(SYS_ftruncate, fd, length);
    if (!done) note('T', number_of(fd), (uint64_t)length, "", 0);
    pthread_mutex_unlock(&lock);
    return done;
}

int ftruncate(int fd, off_t length) { return truncate_to(fd, length); }
int ftruncate64(int fd, off64_t length) { return truncate_to(fd, length); }

static int sync_file(int fd, long call) {
    int failed;
    if (!is_known(fd)) return (int)syscall(call, fd);
    pthread_mutex_lock(&lock);
    failed = fails('s', fd);
    note(failed ? 's' : 'S', number_of(fd), 0, "", 0);
    pthread_mutex_unlock(&lock);
    if (failed) errno = (int)fail_errno;
    return failed ? -1 : 0;
}

int fsync(int fd) { return sync_file(fd, SYS_fsync); }
int fdatasync(int fd) { return sync_file(fd, SYS_fdatasync); }

static int unlink_at(int directory, const char *path, int flags) {
    int done;
    if (!is_below(path) || is_index(path)) return (int)syscall(SYS_unlinkat, directory, path, flags);
    pthread_mutex_lock(&lock);
    done = (int)syscall(SYS_unlinkat, directory, path, flags);
    if (!done) note('U', 0, 0, path, (uint32_t)strlen(path));
    pthread_mutex_unlock(&lock);
    return done;
}

int unlink(const char *path) { return unlink_at(AT_FDCWD, path, 0); }
int unlinkat(int directory, const char *path, int flags) { return unlink_at(directory, path, flags); }

int rename(const char *from, const char *to) {
    char both[8192];
    int done, length;
    if (!is_below(from) || !is_below(to)) return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
    pthread_mutex_lock(&lock);
    done = (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
    length = snprintf(both, sizeof both, "%s\n%s", from, to);
    if (!done) note('R', 0, 0, both, (uint32_t)length);
    pthread_mutex_unlock(&lock);
    return done;
}
