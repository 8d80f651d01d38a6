/* SPDX-License-Identifier: Apache-2.0 */
#define _XOPEN_SOURCE 700
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"

static char target[PATH_MAX], temporary[PATH_MAX];
static volatile sig_atomic_t unfinished; /* temporary names a file of ours */
static int fd = -1;

static const int deadly[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
enum { N_DEADLY = sizeof deadly / sizeof deadly[0] };

static void remove_and_die(int number) {
    if (unfinished) unlink(temporary);
    signal(number, SIG_DFL);
    raise(number);
}

static void install_handlers(void) {
    for (int i = 0; i < N_DEADLY; i++) {
        struct sigaction action = {.sa_handler = remove_and_die}, old;
        sigemptyset(&action.sa_mask);
        if (sigaction(deadly[i], NULL, &old) == 0 && old.sa_handler == SIG_DFL) sigaction(deadly[i], &action, NULL);
    }
}

static void block_deadly(sigset_t *old) {
    sigset_t set;
    sigemptyset(&set);
    for (int i = 0; i < N_DEADLY; i++) sigaddset(&set, deadly[i]);
    sigprocmask(SIG_BLOCK, &set, old);
}

void cli_output_discard(void) {
    if (!unfinished) return;
    close(fd);
    unlink(temporary);
    unfinished = 0;
}

/* O_EXCL: two writers never share a temporary file, and a link planted under its name is not followed. */
static void create_temporary(void) {
    sigset_t old;
    block_deadly(&old);
    for (int i = 0; i < 100; i++) {
        int n = snprintf(temporary, sizeof temporary, "%s.%ld-%d.tmp", target, (long)getpid(), i);
        if (n < 0 || (size_t)n >= sizeof temporary) {
            errno = ENAMETOOLONG;
            break;
        }
        fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0 || errno != EEXIST) break;
    }
    int why = errno;
    unfinished = fd >= 0;
    sigprocmask(SIG_SETMASK, &old, NULL);
    if (fd < 0) cli_fail(CLI_USAGE, "%s: %s", target, strerror(why));
}

void cli_output_judge(const char *path) {
    cli_output_open(path);
    cli_output_discard();
}

void cli_output_open(const char *path) {
    struct stat status;
    if (!*path) cli_fail(CLI_USAGE, "the output has an empty name");
    if (strlen(path) >= sizeof target) cli_fail(CLI_USAGE, "%s: %s", path, strerror(ENAMETOOLONG));
    strcpy(target, path);
    fd = -1;
    int exists = stat(path, &status) == 0;
    /* A rename would put a plain file in the place of a device or pipe. */
    if (exists && !S_ISREG(status.st_mode))
        cli_fail(CLI_USAGE, "%s: exists and is not a regular file%s", path,
                 S_ISDIR(status.st_mode) ? " but a folder" : "");
    install_handlers();
    create_temporary();
    if (exists && fchmod(fd, status.st_mode & 0777)) cli_fail(CLI_IO, "%s: chmod: %s", temporary, strerror(errno));
}

void cli_output_write(const void *data, size_t n_bytes) {
    const char *p = data;
    while (n_bytes) {
        ssize_t n = write(fd, p, n_bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) cli_fail(CLI_IO, "%s: write: %s", temporary, strerror(errno));
        p += n;
        n_bytes -= (size_t)n;
    }
}

static void sync_folder(void) {
    char folder[PATH_MAX];
    strcpy(folder, target);
    char *slash = strrchr(folder, '/');
    if (!slash)
        strcpy(folder, ".");
    else
        slash[slash == folder] = 0;
    int folder_fd = open(folder, O_RDONLY | O_CLOEXEC);
    if (folder_fd < 0) return; /* a folder that may be written but not read: the file itself is synced */
    /* EINVAL: file systems that have nothing to sync for a folder. */
    if (fsync(folder_fd) && errno != EINVAL) cli_fail(CLI_IO, "%s: sync: %s", folder, strerror(errno));
    close(folder_fd);
}

void cli_output_commit(void) {
    int synced;
    do synced = fsync(fd);
    while (synced && errno == EINTR);
    if (synced && errno != EINVAL) cli_fail(CLI_IO, "%s: sync: %s", temporary, strerror(errno));
    if (close(fd) && errno != EINTR) {
        int why = errno;
        unlink(temporary);
        unfinished = 0;
        cli_fail(CLI_IO, "%s: close: %s", temporary, strerror(why));
    }
    sigset_t old;
    block_deadly(&old);
    int renamed = rename(temporary, target), why = errno;
    if (renamed) unlink(temporary);
    unfinished = 0;
    sigprocmask(SIG_SETMASK, &old, NULL);
    if (renamed) cli_fail(CLI_IO, "%s: rename: %s", target, strerror(why));
    sync_folder();
}
