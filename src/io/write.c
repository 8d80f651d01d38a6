/* SPDX-License-Identifier: Apache-2.0 */
#define _DEFAULT_SOURCE /* flock */
#define _FILE_OFFSET_BITS 64
#include "io/write.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"

/* TARGET.swiglu-PID-N.tmp; the part from the target is cut so that the whole is a valid file name. */
enum { STEM_BYTES = 180, SUFFIX_BYTES = 64, TRIES = 1000 };
#define MARK ".swiglu-"
#define END ".tmp"

static enum swiglu_status writer_fail(const struct swiglu_writer *w, enum swiglu_status code, const char *what,
                                      struct swiglu_error *error) {
    return swiglu_file_fail(w->shown, code, what, errno, error);
}

static const char *writer_base(const struct swiglu_writer *w) {
    const char *slash = strrchr(w->target, '/');
    return slash ? slash + 1 : w->target;
}

static char *writer_path(const char *folder, const char *name) {
    const size_t n = strlen(folder), bytes = n + strlen(name) + SUFFIX_BYTES;
    char *path = swiglu_alloc(bytes);
    if (path) snprintf(path, bytes, "%s%s%s", folder, n && folder[n - 1] != '/' ? "/" : "", name);
    return path;
}

static enum swiglu_status writer_paths(struct swiglu_writer *w, const char *path, struct swiglu_error *error) {
    const size_t n = strlen(path);
    const char *slash = strrchr(path, '/');
    const size_t folder_bytes = !slash ? 0 : slash == path ? 1 : (size_t)(slash - path);
    char stem[STEM_BYTES + 1];
    w->target = swiglu_alloc(n + 1);
    w->folder = swiglu_alloc(folder_bytes + 2);
    if (w->target && w->folder) {
        memcpy(w->target, path, n);
        memcpy(w->folder, folder_bytes ? path : ".", folder_bytes ? folder_bytes : 1);
        snprintf(stem, sizeof stem, "%s", writer_base(w));
        w->temporary = writer_path(w->folder, stem);
    }
    REQUIRE(w->temporary, SWIGLU_E_MEMORY, "%s: out of memory", w->shown);
    return SWIGLU_OK;
}

/* ---- leftovers ---- */

/* Whether name is one that writer_create gives for a target with this stem. */
static bool leftover_named(const char *name, const char *stem) {
    const size_t n = strlen(stem);
    if (strncmp(name, stem, n) || strncmp(name + n, MARK, strlen(MARK))) return false;
    const char *p = name + n + strlen(MARK);
    if (!isdigit((unsigned char)*p)) return false;
    p += strspn(p, "0123456789");
    if (*p != '-' || !isdigit((unsigned char)p[1])) return false;
    p++;
    return !strcmp(p + strspn(p, "0123456789"), END);
}

/* Whoever gets the lock knows that the writer is gone: locks end with their process, whatever namespace its number is
 * from. The name is looked at again under the lock, since another cleaner may have removed it before. */
static void leftover_remove(const char *path) {
    struct stat opened, named;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return;
    if (!fstat(fd, &opened) && S_ISREG(opened.st_mode) && !flock(fd, LOCK_EX | LOCK_NB) && !lstat(path, &named) &&
        opened.st_dev == named.st_dev && opened.st_ino == named.st_ino)
        unlink(path);
    close(fd);
}

/* A folder that cannot be listed keeps its leftovers; they do no harm but take space. */
static void leftovers_remove(const struct swiglu_writer *w, const struct swiglu_file *inputs, size_t n_inputs) {
    const char *stem = strrchr(w->temporary, '/') + 1;
    DIR *folder = opendir(w->folder);
    if (!folder) return;
    for (const struct dirent *entry; (entry = readdir(folder));) {
        if (!leftover_named(entry->d_name, stem)) continue;
        char *path = writer_path(w->folder, entry->d_name);
        size_t i = 0;
        while (path && i < n_inputs && !swiglu_file_is(&inputs[i], path)) i++;
        if (path && i == n_inputs) leftover_remove(path);
        swiglu_free(path);
    }
    closedir(folder);
}

/* ---- the temporary ---- */

/* A file of our own, locked. The name is unique by O_EXCL, which also follows no link that somebody planted. A cleaner
 * may come between open and lock: then the file has no name any more, and another is made. */
static int temporary_create(const struct swiglu_writer *w, mode_t mode) {
    char *suffix = w->temporary + strlen(w->temporary);
    struct stat st;
    for (int i = 0; i < TRIES; i++) {
        snprintf(suffix, SUFFIX_BYTES, MARK "%ld-%d" END, (long)getpid(), i);
        const int fd = open(w->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
        if (fd < 0) {
            if (errno == EEXIST || errno == EINTR) continue;
            return -1;
        }
        /* A file system without locks is no failure: there nobody can take the file for a leftover either. */
        const int busy = flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK;
        if (!busy && !fstat(fd, &st) && st.st_nlink) return fd;
        close(fd);
    }
    errno = EEXIST;
    return -1;
}

/* Whether a file may be put there; st is of what is there already, or NULL with errno. */
static enum swiglu_status writer_check(const struct swiglu_writer *w, const char *path, const struct stat *st,
                                       struct swiglu_error *error) {
    REQUIRE(*path, SWIGLU_E_OPEN, "the output has an empty name");
    if (!st && errno != ENOENT) return writer_fail(w, SWIGLU_E_OPEN, "cannot create", error);
    if (!*writer_base(w) || (st && S_ISDIR(st->st_mode))) {
        errno = EISDIR;
        return writer_fail(w, SWIGLU_E_OPEN, "not a regular file", error);
    }
    if (st && !S_ISREG(st->st_mode) && !S_ISLNK(st->st_mode)) return swiglu_file_irregular(w->shown, EEXIST, error);
    return SWIGLU_OK;
}

enum swiglu_status swiglu_writer_open(struct swiglu_writer *w, const char *path, const struct swiglu_file *inputs,
                                      size_t n_inputs, struct swiglu_error *error) {
    struct stat st;
    *w = (struct swiglu_writer){.fd = -1};
    swiglu_file_show(w->shown, path);
    enum swiglu_status status = writer_paths(w, path, error);
    const int exists = status == SWIGLU_OK && !lstat(path, &st), regular = exists && S_ISREG(st.st_mode);
    if (status == SWIGLU_OK) status = writer_check(w, path, exists ? &st : NULL, error);
    if (status == SWIGLU_OK) {
        leftovers_remove(w, inputs, n_inputs);
        w->fd = temporary_create(w, regular ? 0600 : 0666);
        if (w->fd < 0) status = writer_fail(w, SWIGLU_E_OPEN, "cannot create a file beside it", error);
    }
    if (status == SWIGLU_OK && regular && fchmod(w->fd, st.st_mode & 0777))
        status = writer_fail(w, SWIGLU_E_WRITE, "chmod", error);
    if (status != SWIGLU_OK) swiglu_writer_close(w);
    return status;
}

bool swiglu_writer_exists(const char *path) {
    struct stat st;
    return !lstat(path, &st);
}

void swiglu_writer_undo(struct swiglu_writer *w) {
    if (w->fd < 0 && w->target) unlink(w->target);
}

void swiglu_writer_close(struct swiglu_writer *w) {
    if (w->fd >= 0) {
        unlink(w->temporary);
        close(w->fd);
    }
    swiglu_free(w->target);
    swiglu_free(w->folder);
    swiglu_free(w->temporary);
    *w = (struct swiglu_writer){.fd = -1};
}

/* ---- bytes ---- */

enum swiglu_status swiglu_writer_put(struct swiglu_writer *w, const void *data, size_t n, struct swiglu_error *error) {
    const char *p = data;
    while (n) {
        const ssize_t done = write(w->fd, p, n);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) {
            char what[64];
            if (done == 0) errno = EIO;
            snprintf(what, sizeof what, "write at byte %llu", (unsigned long long)w->at);
            return writer_fail(w, SWIGLU_E_WRITE, what, error);
        }
        p += done, n -= (size_t)done, w->at += (uint64_t)done;
    }
    return SWIGLU_OK;
}

enum swiglu_status swiglu_writer_pad(struct swiglu_writer *w, uint64_t to, struct swiglu_error *error) {
    static const char zeros[4096];
    while (w->at < to) {
        const uint64_t left = to - w->at;
        TRY(swiglu_writer_put(w, zeros, left < sizeof zeros ? (size_t)left : sizeof zeros, error));
    }
    return SWIGLU_OK;
}

/* EINVAL: file systems that have nothing to sync. */
static bool sync_failed(int fd) {
    int failed;
    do failed = fsync(fd);
    while (failed && errno == EINTR);
    return failed && errno != EINVAL;
}

/* Some file systems report a failed write at close only, so a copy is closed here: the descriptor itself holds the lock
 * and stays open until the rename. After EINTR a descriptor is closed too. */
enum swiglu_status swiglu_writer_sync(struct swiglu_writer *w, struct swiglu_error *error) {
    if (sync_failed(w->fd)) return writer_fail(w, SWIGLU_E_WRITE, "sync", error);
    const int copy = dup(w->fd);
    if (copy < 0 || (close(copy) && errno != EINTR)) return writer_fail(w, SWIGLU_E_WRITE, "close", error);
    return SWIGLU_OK;
}

enum swiglu_status swiglu_writer_commit(struct swiglu_writer *w, struct swiglu_error *error) {
    int failed;
    do failed = rename(w->temporary, w->target);
    while (failed && errno == EINTR);
    if (failed) return writer_fail(w, SWIGLU_E_WRITE, "rename", error);
    close(w->fd); /* its bytes are on the disk: nothing can be lost here */
    w->fd = -1;
    int folder;
    do folder = open(w->folder, O_RDONLY | O_CLOEXEC);
    while (folder < 0 && errno == EINTR);
    if (folder < 0 && errno == EACCES) return SWIGLU_OK; /* one that may be written but not read cannot be synced */
    if (folder < 0 || sync_failed(folder)) {
        const enum swiglu_status status =
            writer_fail(w, SWIGLU_E_WRITE, "complete and in place, but its folder cannot be synced", error);
        if (folder >= 0) close(folder);
        return status;
    }
    close(folder);
    return SWIGLU_OK;
}
