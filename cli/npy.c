/* SPDX-License-Identifier: Apache-2.0 */
#define _XOPEN_SOURCE 700
#include "npy.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"
#include "output.h"

struct reader {
    const char *path;
    int fd;
    uint64_t file_bytes;
    uint64_t text_at;    /* offset of the dictionary in the file */
    size_t n, at;        /* its length, and the position of the parser */
    char *text;          /* n bytes and no more */
    int dtype, seen[3];
};

static const char *const keys[] = {"descr", "fortran_order", "shape"};
enum { DESCR, FORTRAN_ORDER, SHAPE, N_KEYS };

static noreturn void fail_format(const struct reader *r, const char *field, uint64_t offset, const char *format, ...)
    CLI_PRINTF(4, 5);
static noreturn void fail_format(const struct reader *r, const char *field, uint64_t offset, const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    cli_fail(CLI_USAGE, "%s: %s: offset %" PRIu64 ": %s", r->path, field, offset, text);
}

static void read_at(const struct reader *r, uint64_t offset, void *dst, size_t n) {
    char *p = dst;
    while (n) {
        ssize_t got = pread(r->fd, p, n, (off_t)offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) cli_fail(CLI_IO, "%s: read: offset %" PRIu64 ": %s", r->path, offset, strerror(errno));
        if (got == 0) cli_fail(CLI_IO, "%s: read: offset %" PRIu64 ": the file ends here, %zu bytes missing", r->path,
                               offset, n);
        p += got;
        offset += (uint64_t)got;
        n -= (size_t)got;
    }
}

/* O_NONBLOCK: opening a pipe must not wait for its writer. */
static void open_file(struct reader *r) {
    struct stat status;
    r->fd = open(r->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (r->fd < 0 || fstat(r->fd, &status)) cli_fail(CLI_USAGE, "%s: %s", r->path, strerror(errno));
    if (!S_ISREG(status.st_mode)) cli_fail(CLI_USAGE, "%s: not a regular file", r->path);
    r->file_bytes = (uint64_t)status.st_size;
}

/* ---- the dictionary ---------------------------------------------------------------------------------------------- */

static noreturn void fail_at(const struct reader *r, const char *field, const char *expected) {
    if (r->at >= r->n) fail_format(r, field, r->text_at + r->at, "the header ends where %s is expected", expected);
    fail_format(r, field, r->text_at + r->at, "byte 0x%02x where %s is expected",
                (unsigned)(unsigned char)r->text[r->at], expected);
}

static void skip_space(struct reader *r) {
    while (r->at < r->n && strchr(" \t\r\n", r->text[r->at]) && r->text[r->at]) r->at++;
}

static int take(struct reader *r, char c) {
    skip_space(r);
    if (r->at >= r->n || r->text[r->at] != c) return 0;
    r->at++;
    return 1;
}

static void expect(struct reader *r, const char *field, char c) {
    char name[] = {'\'', c, '\'', 0};
    if (!take(r, c)) fail_at(r, field, name);
}

/* A string literal without escapes; values that NumPy writes have none. The text is cut short when it is long. */
static void parse_string(struct reader *r, const char *field, char *value, size_t size) {
    skip_space(r);
    char quote = r->at < r->n ? r->text[r->at] : 0;
    if (quote != '\'' && quote != '"') fail_at(r, field, "a quoted string");
    size_t begin = ++r->at;
    while (r->at < r->n && r->text[r->at] != quote) {
        char c = r->text[r->at];
        if (c == '\\' || c == '\n' || c == 0) fail_at(r, field, "a plain character");
        r->at++;
    }
    if (r->at >= r->n) fail_at(r, field, "a closing quote");
    size_t n = r->at++ - begin;
    if (n >= size) n = size - 1;
    memcpy(value, r->text + begin, n);
    value[n] = 0;
}

static void parse_descr(struct reader *r) {
    char value[64];
    skip_space(r);
    uint64_t offset = r->text_at + r->at;
    if (r->at < r->n && r->text[r->at] == '[')
        fail_format(r, "descr", offset, "a structured type; only '<f4' and '<f2' are read");
    parse_string(r, "descr", value, sizeof value);
    if (!strcmp(value, "<f4"))
        r->dtype = SWIGLU_F32;
    else if (!strcmp(value, "<f2"))
        r->dtype = SWIGLU_F16;
    else if (strchr(value, 'O'))
        fail_format(r, "descr", offset, "'%s' is an object array (pickle), which is never read", value);
    else
        fail_format(r, "descr", offset, "'%s'%s; only '<f4' and '<f2' are read: store it with numpy.save(..., x.astype('<f4'))",
                    value, value[0] == '>' ? " is big-endian" : "");
}

static int take_word(struct reader *r, const char *word) {
    size_t n = strlen(word);
    if (r->n - r->at < n || memcmp(r->text + r->at, word, n)) return 0;
    r->at += n;
    return 1;
}

static void parse_order(struct reader *r) {
    skip_space(r);
    uint64_t offset = r->text_at + r->at;
    if (take_word(r, "True"))
        fail_format(r, "fortran_order", offset, "True; only C order is read (save numpy.ascontiguousarray(x))");
    if (!take_word(r, "False")) fail_at(r, "fortran_order", "False or True");
}

static size_t parse_length(struct reader *r, const char *field) {
    skip_space(r);
    size_t begin = r->at, value = 0;
    for (; r->at < r->n && r->text[r->at] >= '0' && r->text[r->at] <= '9'; r->at++) {
        size_t digit = (size_t)(r->text[r->at] - '0');
        if (value > ((size_t)PTRDIFF_MAX - digit) / 10)
            fail_format(r, field, r->text_at + begin, "above the limit %zu", (size_t)PTRDIFF_MAX);
        value = value * 10 + digit;
    }
    if (r->at == begin) fail_at(r, field, "a decimal number");
    if (r->at - begin > 1 && r->text[begin] == '0') fail_format(r, field, r->text_at + begin, "a leading zero");
    return value;
}

/* () or (n,) or (n, m) or (n, m,): a lone number needs its comma, as in Python. */
static void parse_shape(struct reader *r, struct cli_npy *array) {
    char field[16] = "shape";
    expect(r, field, '(');
    int comma = 1;
    for (array->rank = 0; !take(r, ')'); array->rank++) {
        if (!comma) fail_at(r, "shape", "',' or ')'");
        if (array->rank == CLI_NPY_RANK_MAX)
            fail_format(r, "shape", r->text_at + r->at, "rank above the limit %d", CLI_NPY_RANK_MAX);
        snprintf(field, sizeof field, "shape[%zu]", array->rank);
        array->shape[array->rank] = parse_length(r, field);
        comma = take(r, ',');
    }
    if (array->rank == 0) fail_format(r, "shape", r->text_at + r->at, "(): rank 0; 1 to %d are read", CLI_NPY_RANK_MAX);
    if (array->rank == 1 && !comma) fail_format(r, "shape", r->text_at + r->at, "a number, not a tuple: no comma");
}

static void parse_member(struct reader *r, struct cli_npy *array) {
    char key[64];
    skip_space(r);
    uint64_t offset = r->text_at + r->at;
    parse_string(r, "header", key, sizeof key);
    int i = 0;
    while (i < N_KEYS && strcmp(key, keys[i])) i++;
    if (i == N_KEYS) fail_format(r, "header", offset, "unknown key '%s'", key);
    if (r->seen[i]++) fail_format(r, "header", offset, "duplicate key '%s'", key);
    expect(r, keys[i], ':');
    switch (i) {
    case DESCR: parse_descr(r); break;
    case FORTRAN_ORDER: parse_order(r); break;
    default: parse_shape(r, array); break;
    }
}

static void parse_header(struct reader *r, struct cli_npy *array) {
    skip_space(r);
    if (!take(r, '{')) fail_at(r, "header", "'{' of a dictionary");
    for (int comma = 1; !take(r, '}');) {
        if (!comma) fail_at(r, "header", "',' or '}'");
        parse_member(r, array);
        comma = take(r, ',');
    }
    skip_space(r);
    if (r->at < r->n) fail_at(r, "header", "nothing more");
    for (int i = 0; i < N_KEYS; i++)
        if (!r->seen[i]) fail_format(r, "header", r->text_at, "key '%s' is missing", keys[i]);
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

/* Magic, version and length of the dictionary; leaves the dictionary's text in r. */
static void read_preamble(struct reader *r) {
    unsigned char head[12] = {0};
    size_t have = r->file_bytes < sizeof head ? (size_t)r->file_bytes : sizeof head;
    read_at(r, 0, head, have);
    if (have >= 4 && !memcmp(head, "PK\3\4", 4))
        fail_format(r, "magic", 0, "a zip archive: this is an .npz, unpack it first");
    if (have < 10 || memcmp(head, "\x93NUMPY", 6))
        fail_format(r, "magic", 0, "not a .npy file (size %" PRIu64 " bytes; \\x93NUMPY and a version are expected)",
                    r->file_bytes);
    if (head[6] < 1 || head[6] > 3 || head[7] != 0)
        fail_format(r, "version", 6, "%u.%u; 1.0, 2.0 and 3.0 are read", head[6], head[7]);
    uint64_t n = (uint64_t)head[8] | (uint64_t)head[9] << 8;
    if (head[6] > 1) n |= (uint64_t)head[10] << 16 | (uint64_t)head[11] << 24;
    r->text_at = head[6] > 1 ? 12 : 10;
    if (r->file_bytes < r->text_at) fail_format(r, "header length", 8, "truncated: the file has %zu bytes", have);
    uint64_t have_text = r->file_bytes - r->text_at;
    if (n > have_text)
        fail_format(r, "header length", 8, "%" PRIu64 " bytes, but only %" PRIu64 " follow", n, have_text);
    if (n > CLI_NPY_HEADER_MAX)
        fail_format(r, "header length", 8, "%" PRIu64 " bytes, limit %d", n, CLI_NPY_HEADER_MAX);
    if (n == 0) fail_format(r, "header length", 8, "0: there is no header");
    r->n = (size_t)n;
    r->text = cli_alloc(r->n, 1);
    read_at(r, r->text_at, r->text, r->n);
}

static void check_size(const struct reader *r, struct cli_npy *array, size_t elem_bytes) {
    uint64_t data_at = r->text_at + r->n, have = r->file_bytes - data_at;
    size_t n = 1;
    for (size_t i = 0; i < array->rank; i++) {
        if (array->shape[i] && n > (size_t)PTRDIFF_MAX / sizeof(float) / array->shape[i])
            fail_format(r, "shape", r->text_at, "product of the %zu lengths is above the limit %zu", array->rank,
                        (size_t)PTRDIFF_MAX / sizeof(float));
        n *= array->shape[i];
    }
    uint64_t need = (uint64_t)n * elem_bytes;
    if (have < need)
        fail_format(r, "data", data_at, "%" PRIu64 " bytes, needs %" PRIu64, have, need);
    if (have > need)
        cli_note("%s: warning: %" PRIu64 " trailing byte%s after the data", r->path, have - need,
                 have - need == 1 ? "" : "s");
    array->n_elems = n;
}

static void read_halves(const struct reader *r, uint64_t offset, size_t n, float *dst) {
    unsigned char chunk[2048];
    while (n) {
        size_t part = n < sizeof chunk / 2 ? n : sizeof chunk / 2;
        read_at(r, offset, chunk, 2 * part);
        cli_require(swiglu_decode(SWIGLU_F16, chunk, part, dst), NULL, r->path);
        offset += 2 * part;
        dst += part;
        n -= part;
    }
}

void cli_npy_read(const char *path, struct cli_npy *array) {
    struct reader r = {.path = path};
    open_file(&r);
    read_preamble(&r);
    parse_header(&r, array);
    check_size(&r, array, r.dtype == SWIGLU_F32 ? 4 : 2);
    array->data = cli_alloc(array->n_elems, sizeof(float));
    if (r.dtype == SWIGLU_F32)
        read_at(&r, r.text_at + r.n, array->data, array->n_elems * sizeof(float));
    else
        read_halves(&r, r.text_at + r.n, array->n_elems, array->data);
    free(r.text);
    close(r.fd);
}

void cli_npy_write(const struct cli_npy *array) {
    char text[512];
    enum { PREAMBLE = 10, ALIGNMENT = 64 };
    size_t n = (size_t)snprintf(text, sizeof text, "{'descr': '<f4', 'fortran_order': False, 'shape': (");
    for (size_t i = 0; i < array->rank; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%zu%s", i ? " " : "", array->shape[i],
                              i + 1 < array->rank || array->rank == 1 ? "," : "");
    n += (size_t)snprintf(text + n, sizeof text - n, "), }");
    while ((PREAMBLE + n + 1) % ALIGNMENT) text[n++] = ' ';
    text[n++] = '\n';
    unsigned char preamble[PREAMBLE] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (unsigned char)n, (unsigned char)(n >> 8)};
    cli_output_write(preamble, sizeof preamble);
    cli_output_write(text, n);
    cli_output_write(array->data, array->n_elems * sizeof(float));
    cli_output_commit();
}
