/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conformance vectors: every line of conformance.txt names a block and holds the bits of its output. Weights and inputs
 * come from an integer generator, so that the file is small and another implementation can repeat them; the file's own
 * header says all that it needs. Uses the public interface alone.
 *
 *     conformance [FILE]           checks every line on every level of this CPU; prints "N passed, N failed"
 *     conformance --write [FILE]   prints the file with the outputs of the generic level
 */
#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "swiglu/swiglu.h"

struct vector_case {
    char act[24], layout[16], weights[8], compute[8], x[8], y[8], flags[8];
    size_t m, d_in, d_ff, d_out;
    uint64_t seed;
};

static void die(const char *what, const char *which) {
    fprintf(stderr, "conformance: %s: %s\n", what, which);
    exit(2);
}

static void *memory(size_t bytes) {
    void *p = calloc(bytes ? bytes : 1, 1);
    if (!p) die("no memory", "");
    return p;
}

static void must(enum swiglu_status status, const char *what) {
    if (status) die(swiglu_status_name(status), what);
}

/* ---- the numbers, as the header of conformance.txt defines them ---- */

static uint64_t next(uint64_t *seed) { /* SplitMix64 */
    uint64_t z = *seed += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

/* A 24-bit integer times a power of two: exact in f32. */
static float next_value(uint64_t *seed, int exponent) {
    return ldexpf((float)((int32_t)(next(seed) >> 40) - (1 << 23)), exponent);
}

static const int dtypes[] = {SWIGLU_F32,  SWIGLU_F16,  SWIGLU_BF16, SWIGLU_Q4_0, SWIGLU_Q4_1,
                             SWIGLU_Q5_0, SWIGLU_Q5_1, SWIGLU_Q8_0, SWIGLU_Q2_K, SWIGLU_Q3_K,
                             SWIGLU_Q4_K, SWIGLU_Q5_K, SWIGLU_Q6_K, SWIGLU_MXFP4};

static int dtype_of(const char *name, struct swiglu_dtype_info *info) {
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        *info = (struct swiglu_dtype_info){.struct_size = sizeof *info};
        must(swiglu_dtype_query(dtypes[i], info), "dtype");
        if (strcmp(info->name, name) == 0) return dtypes[i];
    }
    die("unknown dtype", name);
    return -1;
}

/* n values of the dtype: floats rounded once from the generator, blocks as raw bytes. */
static void *next_array(const char *dtype, size_t n, int exponent, uint64_t *seed) {
    struct swiglu_dtype_info info;
    const int type = dtype_of(dtype, &info);
    unsigned char *array = memory(n / info.block_elems * info.block_bytes);
    if (info.block_elems > 1) {
        for (size_t i = 0; i < n / info.block_elems * info.block_bytes; i++) array[i] = next(seed) & 0x7B;
        return array;
    }
    for (size_t i = 0; i < n; i++) {
        const float f = next_value(seed, exponent);
        must(swiglu_encode(type, &f, 1, array + i * info.block_bytes), "encode");
    }
    return array;
}

/* Flag s: row r has a value that is none, or nearly none, at column r mod d_in. */
static void put_specials(const struct vector_case *c, void *x) {
    static const uint32_t bits[] = {0x7FC00000, 0x7F800000, 0xFF800000, 0x7F7FFFFF, 0x00000001, 0x80000000, 0x00800000,
                                    0x80400000};
    struct swiglu_dtype_info info;
    const int type = dtype_of(c->x, &info);
    for (size_t r = 0; r < c->m; r++) {
        float f;
        memcpy(&f, &bits[r % 8], sizeof f);
        must(swiglu_encode(type, &f, 1, (char *)x + (r * c->d_in + r % c->d_in) * info.block_bytes), "encode");
    }
}

/* ---- one case ---- */

static int has(const struct vector_case *c, char flag) { return strchr(c->flags, flag) != NULL; }

static int index_of(const char *name, const char *const *names, int n, const char *what) {
    for (int i = 0; i < n; i++)
        if (strcmp(name, names[i]) == 0) return i;
    die(what, name);
    return -1;
}

static struct swiglu_matrix next_matrix(const struct vector_case *c, const char *dtype, size_t rows, size_t cols,
                                        uint64_t *seed) {
    struct swiglu_dtype_info info;
    const int type = dtype_of(dtype, &info);
    return (struct swiglu_matrix){.data = next_array(dtype, rows * cols, -25, seed), .dtype = type,
                                  .in_out = has(c, 't'), .rows = rows, .cols = cols};
}

static struct swiglu_desc describe(const struct vector_case *c, uint64_t *seed) {
    static const char *const layouts[] = {"separate", "gate|up", "up|gate", "interleaved", "ungated"};
    struct swiglu_dtype_info info;
    struct swiglu_desc d;
    dtype_of(c->weights, &info);
    const char *const floats = info.block_elems > 1 ? "f32" : c->weights; /* of down and the biases */
    swiglu_desc_init(&d);
    d.d_in = c->d_in, d.d_ff = c->d_ff, d.d_out = c->d_out;
    d.layout = index_of(c->layout, layouts, 5, "unknown layout");
    must(swiglu_act_init(&d.act, c->act), c->act);
    const int packed = d.layout != SWIGLU_SEPARATE && d.layout != SWIGLU_UNGATED;
    const size_t n_gate = packed ? 2 * c->d_ff : d.layout == SWIGLU_UNGATED ? 0 : c->d_ff, n_up = packed ? 0 : c->d_ff;
    if (n_gate) d.gate = next_matrix(c, c->weights, n_gate, c->d_in, seed);
    if (n_up) d.up = next_matrix(c, c->weights, n_up, c->d_in, seed);
    d.down = next_matrix(c, floats, c->d_out, c->d_ff, seed);
    if (!has(c, 'b')) return d;
    d.gate_bias.dtype = d.up_bias.dtype = d.down_bias.dtype = dtype_of(floats, &info);
    if (n_gate) d.gate_bias.data = next_array(floats, n_gate, -23, seed);
    if (n_up) d.up_bias.data = next_array(floats, n_up, -23, seed);
    d.down_bias.data = next_array(floats, c->d_out, -23, seed);
    return d;
}

static void free_desc(struct swiglu_desc *d) {
    const void *const all[] = {d->gate.data,      d->up.data,      d->down.data,
                               d->gate_bias.data, d->up_bias.data, d->down_bias.data};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) free((void *)(uintptr_t)all[i]);
}

/* The output as hex words, one per value, separated by blanks. Returns memory of its own. */
static char *outputs(const struct vector_case *c, uint64_t level) {
    static const char *const computes[] = {"auto", "f32", "bf16"};
    const struct swiglu_options options = {.struct_size = sizeof options, .isa_mask = level,
                                           .compute = index_of(c->compute, computes, 3, "unknown compute")};
    struct swiglu_dtype_info xi, yi;
    const int x_type = dtype_of(c->x, &xi), y_type = dtype_of(c->y, &yi);
    uint64_t seed = c->seed;
    struct swiglu_desc d = describe(c, &seed);
    void *x = next_array(c->x, c->m * c->d_in, -21, &seed), *y = memory(c->m * c->d_out * yi.block_bytes);
    char *text = memory(c->m * c->d_out * 9 + 1);
    struct swiglu_block *block;
    struct swiglu_work work;
    if (has(c, 's')) put_specials(c, x);
    must(swiglu_block_create(&d, &options, &block, NULL), "block_create");
    must(swiglu_forward_bytes(block, c->m, 1, &work.bytes), "forward_bytes");
    work.data = memory(work.bytes);
    must(swiglu_forward(block, c->m, (struct swiglu_crows){x, x_type, 0}, (struct swiglu_rows){y, y_type, 0}, work,
                        NULL), "forward");
    for (size_t i = 0; i < c->m * c->d_out; i++) {
        uint32_t bits = 0;
        memcpy(&bits, (char *)y + i * yi.block_bytes, yi.block_bytes);
        sprintf(text + strlen(text), i ? " %0*x" : "%0*x", (int)(2 * yi.block_bytes), (unsigned)bits);
    }
    swiglu_block_destroy(block);
    free_desc(&d);
    free(work.data), free(x), free(y);
    return text;
}

/* ---- the file ---- */

static int parse(const char *line, struct vector_case *c) {
    unsigned long long seed;
    const int n = sscanf(line, "%23s %15s %7s %7s %7s %7s %7s %zu %zu %zu %zu %llu", c->act, c->layout, c->weights,
                         c->compute, c->x, c->y, c->flags, &c->m, &c->d_in, &c->d_ff, &c->d_out, &seed);
    if (n != 12 || c->m > 64 || c->d_in > 4096 || c->d_ff > 4096 || c->d_out > 64) return 0;
    c->seed = seed;
    return 1;
}

static size_t n_passed, n_failed;

static void check_line(char *line, size_t number) {
    struct swiglu_level_info level = {.struct_size = sizeof level};
    struct vector_case c;
    char *want = strchr(line, '=');
    if (!want || !parse(line, &c)) die("not a vector", line);
    want += strspn(want, "= ");
    for (size_t i = 0; swiglu_level_query(i, &level) == SWIGLU_OK; i++) {
        if (!level.can || !level.compiled) continue;
        char *got = outputs(&c, level.bit);
        if (strcmp(got, want) == 0) n_passed++;
        else n_failed++, printf("line %zu, level %s: %s\n  instead of %s\n", number, level.name, got, want);
        free(got);
    }
}

static void write_line(char *line) {
    struct vector_case c;
    char *const equals = strchr(line, '=');
    if (equals) *equals = 0;
    if (!parse(line, &c)) die("not a vector", line);
    line[strcspn(line, "\n")] = 0;
    for (size_t n = strlen(line); n && line[n - 1] == ' '; n--) line[n - 1] = 0;
    char *got = outputs(&c, SWIGLU_ISA_GENERIC);
    printf("%s = %s\n", line, got);
    free(got);
}

int main(int argc, char **argv) {
    static char line[4096];
    char path[1024];
    const char *const source = getenv("SWIGLU_SOURCE");
    const int writing = argc > 1 && strcmp(argv[1], "--write") == 0;
    snprintf(path, sizeof path, "%s/test/vectors/conformance.txt", source ? source : ".");
    if (argc > 1 + writing) snprintf(path, sizeof path, "%s", argv[1 + writing]);
    FILE *file = fopen(path, "r");
    if (!file) die(strerror(errno), path);
    for (size_t number = 1; fgets(line, sizeof line, file); number++) {
        if (line[0] == '#' || line[0] == '\n') {
            if (writing) fputs(line, stdout);
        } else if (writing) {
            write_line(line);
        } else {
            line[strcspn(line, "\n")] = 0;
            check_line(line, number);
        }
    }
    fclose(file);
    if (writing) return 0;
    printf("%zu passed, %zu failed\n", n_passed, n_failed);
    return n_failed != 0 || n_passed == 0;
}
