/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stands before the C library: the SHIM_N-th call of SHIM_CALL (open, pread, write, fsync, rename, close) fails or is
 * followed by a signal, by SHIM_DO:
 *   a number   errno of the failure        short   a read or write of at most one byte
 *   eof        a read of nothing           kill, int, term, stop   the call is made, then the process gets the signal
 * The file SHIM_HIT is created when that happens. With SHIM_ALL=1 every later call fails too. Counters of a coverage build,
 * which are written when the process ends, are left alone.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

enum what { PASS, FAIL, SHORT, END, AFTER };

static int signal_wanted(const char *what) {
    static const struct { const char *name; int number; } known[] = {
        {"kill", SIGKILL}, {"int", SIGINT}, {"term", SIGTERM}, {"stop", SIGSTOP}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (!strcmp(what, known[i].name)) return known[i].number;
    return 0;
}

static enum what strike(const char *call) {
    static long n;
    const char *wanted = getenv("SHIM_CALL"), *what = getenv("SHIM_DO"), *hit = getenv("SHIM_HIT");
    const long at = getenv("SHIM_N") ? atol(getenv("SHIM_N")) : 0;
    if (!wanted || !what || strcmp(wanted, call) || ++n < at || (n > at && !getenv("SHIM_ALL"))) return PASS;
    if (hit) syscall(SYS_close, syscall(SYS_openat, AT_FDCWD, hit, O_CREAT | O_WRONLY, 0600));
    if (signal_wanted(what)) return AFTER;
    if (!strcmp(what, "short")) return SHORT;
    if (!strcmp(what, "eof")) return END;
    errno = atoi(what);
    return FAIL;
}

static void follow(enum what what) {
    const int saved = errno;
    if (what == AFTER) kill(getpid(), signal_wanted(getenv("SHIM_DO")));
    errno = saved;
}

#define REAL(name) (*(__typeof__(&name) *)&(void *){dlsym(RTLD_NEXT, #name)})

/* A failed close has closed all the same, as on Linux. */
int close(int fd) {
    const enum what what = fd > 2 ? strike("close") : PASS;
    const int saved = errno, result = REAL(close)(fd);
    if (what == FAIL) errno = saved;
    follow(what);
    return what == FAIL ? -1 : result;
}

int fsync(int fd) {
    const enum what what = strike("fsync");
    const int result = what == FAIL ? -1 : REAL(fsync)(fd);
    follow(what);
    return result;
}

int rename(const char *from, const char *to) {
    const enum what what = strike("rename");
    const int result = what == FAIL ? -1 : REAL(rename)(from, to);
    follow(what);
    return result;
}

ssize_t write(int fd, const void *data, size_t n) {
    const enum what what = fd > 2 ? strike("write") : PASS;
    if (what == SHORT && n > 1) n = 1;
    const ssize_t result = what == FAIL ? -1 : REAL(write)(fd, data, n);
    follow(what);
    return result;
}

#define PREAD(name)                                                        \
    ssize_t name(int fd, void *data, size_t n, off_t at) {                 \
        const enum what what = strike("pread");                            \
        if (what == SHORT && n > 1) n = 1;                                 \
        if (what == END) return 0;                                         \
        const ssize_t result = what == FAIL ? -1 : REAL(name)(fd, data, n, at); \
        follow(what);                                                      \
        return result;                                                     \
    }
PREAD(pread)
PREAD(pread64)

#define OPEN(name)                                                         \
    int name(const char *path, int flags, ...) {                           \
        va_list args;                                                      \
        va_start(args, flags);                                             \
        const mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;    \
        va_end(args);                                                      \
        const enum what what = strstr(path, ".gcda") ? PASS : strike("open"); \
        const int result = what == FAIL ? -1 : REAL(name)(path, flags, mode); \
        follow(what);                                                      \
        return result;                                                     \
    }
OPEN(open)
OPEN(open64)
