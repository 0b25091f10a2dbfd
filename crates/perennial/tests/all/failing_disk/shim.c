/* Preloaded into a process to make its disk fail: while the file $PERENNIAL_DISK_FLAG holds the word "full", writes to
   the database find no space; while it holds "sync", syncs of it fail. Nothing else is touched. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static int is_armed(const char *word) {
    char found[8] = {0};
    const char *path = getenv("PERENNIAL_DISK_FLAG");
    int flag = path ? open(path, O_RDONLY) : -1;
    if (flag < 0) return 0;
    ssize_t length = read(flag, found, sizeof found - 1);
    close(flag);
    return length > 0 && strcmp(found, word) == 0;
}

static int is_database(int fd) {
    char link[64], path[4096] = {0};
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    return readlink(link, path, sizeof path - 1) > 0 && strstr(path, "shop.db") != NULL;
}

static int fails(int fd, const char *word, int error) {
    if (!is_database(fd) || !is_armed(word)) return 0;
    errno = error;
    return 1;
}

#define REAL(name) __typeof__(&name) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t offset) {
    REAL(pwrite);
    return fails(fd, "full", ENOSPC) ? -1 : real(fd, bytes, length, offset);
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t offset) {
    REAL(pwrite64);
    return fails(fd, "full", ENOSPC) ? -1 : real(fd, bytes, length, offset);
}

ssize_t write(int fd, const void *bytes, size_t length) {
    REAL(write);
    return fails(fd, "full", ENOSPC) ? -1 : real(fd, bytes, length);
}

int fsync(int fd) {
    REAL(fsync);
    return fails(fd, "sync", EIO) ? -1 : real(fd);
}

int fdatasync(int fd) {
    REAL(fdatasync);
    return fails(fd, "sync", EIO) ? -1 : real(fd);
}
