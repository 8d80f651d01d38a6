/* SPDX-License-Identifier: Apache-2.0 */
#define _DEFAULT_SOURCE /* madvise */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cli.h"
#include "output.h"

static int progress_shown;

static int is_control(char c) { return (unsigned char)c < 0x20 || c == 0x7f; }

/* A file's name or contents may hold terminal escape codes; they are printed as \xNN. */
static void write_printable(const char *text, FILE *to) {
    for (const char *p = text; *p; p++) {
        if (is_control(*p))
            fprintf(to, "\\x%02x", (unsigned)(unsigned char)*p);
        else
            putc(*p, to);
    }
}

static void print_line(const char *format, va_list args) {
    char shortened[2048], *whole = NULL;
    va_list again;
    va_copy(again, args);
    const int n = vsnprintf(shortened, sizeof shortened, format, args);
    if (n >= (int)sizeof shortened && (whole = malloc((size_t)n + 1))) vsnprintf(whole, (size_t)n + 1, format, again);
    va_end(again);
    fputs("swiglu: ", stderr);
    write_printable(whole ? whole : shortened, stderr);
    putc('\n', stderr);
    free(whole);
}

void cli_note(const char *format, ...) {
    va_list args;
    va_start(args, format);
    cli_progress(NULL);
    fflush(stdout); /* keeps the two streams in order where both end in one terminal or file */
    print_line(format, args);
    va_end(args);
}

noreturn void cli_fail(int code, const char *format, ...) {
    va_list args;
    va_start(args, format);
    cli_progress(NULL);
    fflush(stdout);
    print_line(format, args);
    va_end(args);
    cli_output_discard();
    exit(code);
}

static int exit_code(enum swiglu_status status) {
    switch (status) {
    case SWIGLU_E_READ:
    case SWIGLU_E_WRITE:
    case SWIGLU_E_MEMORY:
    case SWIGLU_E_WORKSPACE:
        return CLI_IO;
    default:
        return CLI_USAGE;
    }
}

noreturn void cli_fail_status(enum swiglu_status status, const struct swiglu_error *error, const char *what) {
    if (error && error->text[0]) cli_fail(exit_code(status), "%s", error->text);
    if (status == SWIGLU_E_MEMORY) cli_fail(CLI_IO, "%s: out of memory", what);
    cli_fail(exit_code(status), "%s: %s", what, swiglu_status_name(status));
}

void cli_require(enum swiglu_status status, const struct swiglu_error *error, const char *what) {
    if (status) cli_fail_status(status, error, what);
}

void cli_progress(const char *format, ...) {
    if (!format) {
        if (progress_shown) fputs("\r\033[K", stderr);
        progress_shown = 0;
        return;
    }
    if (!isatty(STDERR_FILENO)) return;
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    fputs("\r\033[K", stderr);
    write_printable(text, stderr);
    fflush(stderr);
    va_end(args);
    progress_shown = 1;
}

void cli_stdout_finish(void) {
    cli_progress(NULL);
    errno = 0;
    int failed = ferror(stdout);
    failed |= fflush(stdout);
    if (!failed) return;
    if (errno == EPIPE) {
        cli_output_discard();
        _exit(CLI_IO);
    }
    cli_fail(CLI_IO, "standard output: %s", errno ? strerror(errno) : "a write failed");
}

void *cli_alloc_huge(size_t bytes) {
    const size_t page = (size_t)2 << 20, rounded = (bytes + page - 1) / page * page;
    void *p = rounded < bytes ? NULL : aligned_alloc(page, rounded);
    if (p) (void)madvise(p, rounded, MADV_HUGEPAGE); /* advice: a kernel without huge pages still works */
    return p;
}

void *cli_alloc(size_t n, size_t size) {
    const size_t large = (size_t)4 << 20;
    const int huge = n && size && n >= large / size && n <= SIZE_MAX / size;
    void *p = huge ? cli_alloc_huge(n * size) : calloc(n ? n : 1, size);
    if (p && huge) memset(p, 0, n * size);
    if (!p) cli_fail(CLI_IO, "out of memory: %zu x %zu bytes", n, size);
    return p;
}

const char *cli_printable(const char *s) {
    size_t n = 0;
    for (const char *p = s; *p; p++) n += is_control(*p) ? 4 : 1;
    if (n == strlen(s)) return s;
    char *made = cli_alloc(n + 1, 1), *out = made;
    for (; *s; s++) {
        if (is_control(*s))
            out += sprintf(out, "\\x%02x", (unsigned)(unsigned char)*s);
        else
            *out++ = *s;
    }
    return made;
}

void cli_refuse_dash(const char *path, const char *why) {
    if (!strcmp(path, "-")) cli_fail(CLI_USAGE, "-: %s; a file of that name is ./-", why);
}

const char *cli_quote(const char *s) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./,:@%";
    if (*s && s[strspn(s, plain)] == 0) return s;
    char *quoted = cli_alloc(4 * strlen(s) + 3, 1), *out = quoted;
    *out++ = '\'';
    for (; *s; s++) {
        if (*s == '\'') {
            memcpy(out, "'\\''", 4);
            out += 4;
        } else {
            *out++ = *s;
        }
    }
    *out = '\'';
    return quoted;
}
