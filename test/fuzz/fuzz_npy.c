/* SPDX-License-Identifier: Apache-2.0 */
/* The tool's reader of .npy files, with a cli_fail that comes back here instead of ending the process. */
#define _XOPEN_SOURCE 700 /* O_CLOEXEC */
#include "fuzz/fuzz.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "../../cli/cli.h"
#include "../../cli/npy.h"
#include "../../cli/output.h"
#include "base/alloc.h"

enum { ALLOCATED = 4 };
static void *allocated[ALLOCATED]; /* by one reading */
static size_t n_allocated;
static jmp_buf failed;
static const char *path;

static void check_line(const char *format, va_list args) {
    char line[1024];
    MUST(vsnprintf(line, sizeof line, format, args) < (int)sizeof line);
    MUST(strstr(line, path) == line);
}

void cli_note(const char *format, ...) {
    va_list args;
    va_start(args, format);
    check_line(format, args);
    va_end(args);
}

noreturn void cli_fail(int code, const char *format, ...) {
    va_list args;
    va_start(args, format);
    check_line(format, args);
    va_end(args);
    MUST(code == CLI_USAGE);
    longjmp(failed, 1);
}

void cli_require(enum swiglu_status status, const struct swiglu_error *error, const char *what) {
    (void)error, (void)what;
    MUST(status == SWIGLU_OK);
}

void *cli_alloc(size_t n, size_t size) {
    MUST(n_allocated < ALLOCATED);
    void *p = swiglu_alloc_array(n, size);
    MUST(p);
    return allocated[n_allocated++] = p;
}

void npy_free(void *p); /* what npy.c is compiled with in place of free */
void npy_free(void *p) { (void)p; /* comes with the rest, after the reading */ }

/* The writer is part of the file that is linked, and not called. */
void cli_output_open(const char *file) { (void)file, abort(); }
void cli_output_write(const void *data, size_t n_bytes) { (void)data, (void)n_bytes, abort(); }
void cli_output_commit(void) { abort(); }

static void use_array(const struct cli_npy *array, size_t n) {
    size_t product = 1;
    MUST(array->rank >= 1 && array->rank <= CLI_NPY_RANK_MAX);
    for (size_t i = 0; i < array->rank; i++) product *= array->shape[i];
    MUST(product == array->n_elems && array->n_elems <= n / 2);
    uint64_t sum = 0;
    for (size_t i = 0; i < array->n_elems; i++) {
        uint32_t bits;
        memcpy(&bits, &array->data[i], sizeof bits); /* all of them are there */
        sum += bits;
    }
    MUST(sum <= (uint64_t)array->n_elems << 32);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    struct cli_npy array = {0};
    path = fuzz_file("x.npy", data, n);
    const int next = open(path, O_RDONLY | O_CLOEXEC); /* the number that the reader's descriptor will have */
    MUST(next >= 0 && !close(next));
    if (!setjmp(failed)) {
        cli_npy_read(path, &array);
        use_array(&array, n);
    } else {
        MUST(!close(next));
    }
    while (n_allocated) swiglu_free(allocated[--n_allocated]);
    return 0;
}
