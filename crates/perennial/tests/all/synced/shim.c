/* Preloaded into a process to write down, in the order they happen, what it writes to the write-ahead log of its database
   and when that is synced: one line each, appended to $PERENNIAL_SYNC_JOURNAL. Of what is written only the marks are
   noted ("mark-" and six digits), which the process puts into its payloads. Nothing is changed. */
#define _GNU_SOURCE
#include <ctype.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#define REAL(name) __typeof__(&name) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

/* Past the functions below, so that taking notes is not noted. */
static void note(const char *word, long number) {
    char line[64];
    const char *path = getenv("PERENNIAL_SYNC_JOURNAL");
    int journal = path ? open(path, O_WRONLY | O_APPEND | O_CREAT, 0600) : -1;
    if (journal < 0) return;
    int length = snprintf(line, sizeof line, "%s %ld\n", word, number);
    if (syscall(SYS_write, journal, line, length) != length) abort();
    close(journal);
}

static int is_log(int fd) {
    char link[64], path[4096] = {0};
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    return length > 4 && strcmp(path + length - 4, "-wal") == 0;
}

static void note_marks(int fd, const char *bytes, ssize_t length) {
    if (length < 11 || !is_log(fd)) return;
    for (ssize_t at = 0; at + 11 <= length; at++) {
        if (memcmp(bytes + at, "mark-", 5) != 0) continue;
        char digits[7] = {0};
        memcpy(digits, bytes + at + 5, 6);
        int is_mark = 1;
        for (int i = 0; i < 6; i++) is_mark = is_mark && isdigit((unsigned char)digits[i]);
        if (is_mark) note("wrote", atol(digits));
    }
}

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t offset) {
    REAL(pwrite);
    ssize_t written = real(fd, bytes, length, offset);
    note_marks(fd, bytes, written);
    return written;
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t offset) {
    REAL(pwrite64);
    ssize_t written = real(fd, bytes, length, offset);
    note_marks(fd, bytes, written);
    return written;
}

ssize_t write(int fd, const void *bytes, size_t length) {
    REAL(write);
    ssize_t written = real(fd, bytes, length);
    note_marks(fd, bytes, written);
    return written;
}

/* What was written before a sync begins is on disk once it has ended well. */
static int noted(int fd, int (*sync)(int)) {
    if (!is_log(fd)) return sync(fd);
    long thread = syscall(SYS_gettid);
    note("begins", thread);
    int outcome = sync(fd);
    note(outcome == 0 ? "synced" : "failed", thread);
    return outcome;
}

int fsync(int fd) {
    REAL(fsync);
    return noted(fd, real);
}

int fdatasync(int fd) {
    REAL(fdatasync);
    return noted(fd, real);
}
