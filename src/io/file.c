/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L /* pread, strerror_r, O_CLOEXEC */
#define _FILE_OFFSET_BITS 64
#include "io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void swiglu_file_show(char shown[SWIGLU_SHOWN_BYTES], const char *path) {
    enum { TAIL = 150 };
    const size_t n = strlen(path);
    char *at = shown;
    size_t room = SWIGLU_SHOWN_BYTES;
    if (n > TAIL) {
        memcpy(at, "...", 3);
        at += 3, room -= 3, path += n - TAIL;
    }
    swiglu_escape(at, room, path, n > TAIL ? TAIL : n);
}

/* strerror_r comes in two kinds, by feature macros that whoever compiles a single-file build may set. */
static const char *file_reason_posix(int failed, const char *buffer) { return failed ? "unknown error" : buffer; }
static const char *file_reason_gnu(const char *text, const char *buffer) { return text ? text : buffer; }
#define FILE_REASON(err, buffer)                                                                          \
    _Generic(strerror_r((err), (buffer), sizeof(buffer)), int: file_reason_posix, char *: file_reason_gnu)( \
        strerror_r((err), (buffer), sizeof(buffer)), (buffer))

enum swiglu_status swiglu_file_fail(const char *shown, enum swiglu_status code, const char *what, int err,
                                    struct swiglu_error *error) {
    char buffer[128];
    return swiglu_fail(error, code, SWIGLU_NO_OFFSET, err, "%s: %s: %s", shown, what, FILE_REASON(err, buffer));
}

enum swiglu_status swiglu_file_irregular(const char *shown, int err, struct swiglu_error *error) {
    return swiglu_fail(error, SWIGLU_E_OPEN, SWIGLU_NO_OFFSET, err, "%s: not a regular file, but a device, FIFO or socket",
                       shown);
}

enum swiglu_status swiglu_file_open(struct swiglu_file *file, const char *path, struct swiglu_error *error) {
    struct stat st;
    swiglu_file_show(file->shown, path);
    /* O_NONBLOCK: opening a FIFO without a writer would wait; on a regular file it has no effect. */
    file->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (file->fd < 0) return swiglu_file_fail(file->shown, SWIGLU_E_OPEN, "cannot open", errno, error);
    const char *what = "cannot tell the size";
    int err = 0;
    if (fstat(file->fd, &st)) {
        err = errno;
    } else if (!S_ISREG(st.st_mode)) {
        what = "not a regular file";
        err = S_ISDIR(st.st_mode) ? EISDIR : ESPIPE;
    }
    if (err) {
        swiglu_file_close(file);
        if (err == ESPIPE) return swiglu_file_irregular(file->shown, err, error);
        return swiglu_file_fail(file->shown, SWIGLU_E_OPEN, what, err, error);
    }
    file->bytes = (uint64_t)st.st_size;
    file->changed_s = (int64_t)st.st_mtim.tv_sec, file->changed_ns = (int64_t)st.st_mtim.tv_nsec;
    return SWIGLU_OK;
}

bool swiglu_file_is(const struct swiglu_file *file, const char *path) {
    struct stat opened, named;
    return file->fd >= 0 && !fstat(file->fd, &opened) && !stat(path, &named) && opened.st_dev == named.st_dev &&
           opened.st_ino == named.st_ino;
}

void swiglu_file_close(struct swiglu_file *file) {
    if (file->fd >= 0) close(file->fd); /* read only: nothing can be lost here */
    file->fd = -1;
}

/* After a read: what was read is of the file that was opened. */
static enum swiglu_status file_check_unchanged(const struct swiglu_file *file, struct swiglu_error *error) {
    struct stat st;
    if (fstat(file->fd, &st)) return swiglu_file_fail(file->shown, SWIGLU_E_READ, "cannot tell its state", errno, error);
    if ((uint64_t)st.st_size == file->bytes && (int64_t)st.st_mtim.tv_sec == file->changed_s &&
        (int64_t)st.st_mtim.tv_nsec == file->changed_ns)
        return SWIGLU_OK;
    return swiglu_fail(error, SWIGLU_E_READ, SWIGLU_NO_OFFSET, 0,
                       "%s: the file has changed since it was opened: %llu bytes then, %llu now", file->shown,
                       (unsigned long long)file->bytes, (unsigned long long)st.st_size);
}

enum swiglu_status swiglu_file_read(const struct swiglu_file *file, uint64_t at, void *dst, size_t n,
                                    struct swiglu_error *error) {
    size_t done = 0;
    while (done < n) {
        const ssize_t got = pread(file->fd, (char *)dst + done, n - done, (off_t)(at + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            char what[64];
            snprintf(what, sizeof what, "read at byte %llu", (unsigned long long)(at + done));
            return swiglu_file_fail(file->shown, SWIGLU_E_READ, what, errno, error);
        }
        if (got == 0)
            return swiglu_fail(error, SWIGLU_E_READ, at + done, 0,
                               "%s: short read at byte %llu: %zu bytes wanted, %zu read; the file had %llu bytes at "
                               "open",
                               file->shown, (unsigned long long)(at + done), n, done, (unsigned long long)file->bytes);
        done += (size_t)got;
    }
    return file_check_unchanged(file, error);
}
