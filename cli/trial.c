/* SPDX-License-Identifier: Apache-2.0 */
#include "trial.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "judge.h"
#include "noise.h"

enum { MAX_SHOWN = 20, SEED = 7 };

struct buffers {
    struct swiglu_desc desc;
    void *owned[7]; /* weights, biases and x */
    size_t n_owned;
    const void *x; /* in the trial's dtype, and the same widened */
    float *x_f32;
};

static const char *layout_name(int layout) {
    static const char *const names[] = {"separate", "gate|up", "up|gate", "interleaved", "ungated"};
    return names[layout];
}

static void *own(struct buffers *b, size_t n, size_t size) { return b->owned[b->n_owned++] = cli_alloc(n, size); }

static size_t elem_bytes(int dtype) { return dtype == SWIGLU_F32 ? 4 : 2; }

/* n values of noise times scale in a plain format. */
static void *make_plain(struct buffers *b, unsigned stream, int dtype, size_t n, float scale) {
    void *data = own(b, n, elem_bytes(dtype));
    float *values = cli_alloc(n, sizeof *values);
    cli_noise_fill(SEED, stream, 0, n, values);
    for (size_t i = 0; i < n; i++) values[i] *= scale;
    cli_require(swiglu_encode(dtype, values, n, data), NULL, "check");
    free(values);
    return data;
}

/* Random blocks whose scales are between 2^-7 and 2^-6, so that sums stay finite. */
static void *make_blocks(struct buffers *b, unsigned stream, const struct swiglu_dtype_info *info, size_t n_blocks) {
    const struct swiglu_scales *scales = &info->scales;
    unsigned char *data = own(b, n_blocks, info->block_bytes);
    for (size_t i = 0; i < n_blocks * info->block_bytes; i++)
        data[i] = (unsigned char)cli_noise_bits(SEED, stream, i);
    for (size_t i = 0; i < n_blocks; i++) {
        unsigned char *block = data + i * info->block_bytes;
        for (unsigned s = 0; s < scales->n_f16; s++)
            block[scales->at[s] + 1] = (unsigned char)((block[scales->at[s] + 1] & 0x83) | 0x20);
        if (scales->n_e8m0) block[scales->at[0]] = 120;
    }
    return data;
}

static struct swiglu_matrix make_matrix(struct buffers *b, const struct cli_trial *t, unsigned stream, size_t rows,
                                        size_t cols) {
    struct swiglu_dtype_info info = {.struct_size = sizeof info};
    struct swiglu_matrix w = {.dtype = t->dtype, .in_out = t->in_out, .rows = rows, .cols = cols};
    cli_require(swiglu_dtype_query(t->dtype, &info), NULL, "check");
    float scale = cols ? 1 / sqrtf((float)cols) : 1;
    w.data = info.block_elems > 1 ? make_blocks(b, stream, &info, rows * (cols / info.block_elems))
                                  : make_plain(b, stream, t->dtype, rows * cols, scale);
    return w;
}

static void disturb(const struct cli_trial *t, float *x) {
    static const float specials[] = {NAN, INFINITY, -INFINITY, 0x1p-149f, -0x1.fffffep-127f, -0.0f, 0x1.fffffep127f};
    enum { N_SPECIALS = sizeof specials / sizeof specials[0] };
    size_t n = t->m * t->d_in;
    for (size_t i = 0; i < n; i++) {
        switch (t->data) {
        case CLI_DATA_ZERO: x[i] = i % 2 ? -0.0f : 0; break;
        case CLI_DATA_ONE_HOT: x[i] = i % (t->d_in + 1) == 0; break;
        case CLI_DATA_HUGE: x[i] *= 0x1p120f; break;
        case CLI_DATA_TINY: x[i] *= 0x1p-100f; break;
        case CLI_DATA_SUBNORMAL: x[i] *= 0x1p-130f; break;
        case CLI_DATA_SPECIAL: /* one special value a row, at another lane each time */
            if (i % t->d_in == i / t->d_in * 5 % t->d_in) x[i] = specials[i / t->d_in % N_SPECIALS];
            break;
        }
    }
}

static void make_buffers(struct buffers *b, const struct cli_trial *t) {
    *b = (struct buffers){0};
    swiglu_desc_init(&b->desc);
    struct swiglu_desc *desc = &b->desc;
    int packed = t->layout == SWIGLU_GATE_UP || t->layout == SWIGLU_UP_GATE || t->layout == SWIGLU_INTERLEAVED;
    int gated = t->layout != SWIGLU_UNGATED;
    desc->d_in = t->d_in, desc->d_ff = t->d_ff, desc->d_out = t->d_out, desc->layout = t->layout;
    cli_require(swiglu_act_init(&desc->act, t->activation), NULL, t->activation);
    if (gated) desc->gate = make_matrix(b, t, CLI_STREAM_GATE, packed ? 2 * t->d_ff : t->d_ff, t->d_in);
    if (!packed) desc->up = make_matrix(b, t, CLI_STREAM_UP, t->d_ff, t->d_in);
    desc->down = make_matrix(b, t, CLI_STREAM_DOWN, t->d_out, t->d_ff);
    if (t->bias) {
        if (gated)
            desc->gate_bias = (struct swiglu_vector){make_plain(b, 11, SWIGLU_F32, (packed ? 2 : 1) * t->d_ff, 0.5f),
                                                     SWIGLU_F32};
        if (!packed) desc->up_bias = (struct swiglu_vector){make_plain(b, 12, SWIGLU_F16, t->d_ff, 0.5f), SWIGLU_F16};
        desc->down_bias = (struct swiglu_vector){make_plain(b, 13, SWIGLU_BF16, t->d_out, 0.5f), SWIGLU_BF16};
    }
    size_t n = t->m * t->d_in;
    b->x_f32 = cli_alloc(n, sizeof(float));
    cli_noise_fill(SEED, CLI_STREAM_X, 0, n, b->x_f32);
    disturb(t, b->x_f32);
    void *x = own(b, n, elem_bytes(t->x_dtype));
    cli_require(swiglu_encode(t->x_dtype, b->x_f32, n, x), NULL, "check");
    cli_require(swiglu_decode(t->x_dtype, x, n, b->x_f32), NULL, "check");
    b->x = x;
}

static void free_buffers(struct buffers *b) {
    for (size_t i = 0; i < b->n_owned; i++) free(b->owned[i]);
    free(b->x_f32);
}

/* y of the trial on the levels within the mask; which of them answered is in *isa. NULL: the block is refused. */
static void *evaluate(const struct cli_grid *grid, const struct cli_trial *t, const struct buffers *b, uint64_t mask,
                      int plain_run, uint64_t *isa) {
    const struct cli_machine *machine = t->two_threads && !plain_run ? &grid->two : &grid->one;
    struct swiglu_options options = {.struct_size = sizeof options, .compute = t->compute, .isa_mask = mask};
    struct swiglu_block_info info = {.struct_size = sizeof info};
    struct swiglu_block *block;
    enum swiglu_status status = swiglu_block_create(&b->desc, &options, &block, NULL);
    /* An ungated block has no up side, so activations with up bounds or an up offset are refused there, rightly. */
    if (status == SWIGLU_E_ARGUMENT && t->layout == SWIGLU_UNGATED) return NULL;
    cli_require(status, NULL, "check");
    cli_require(swiglu_block_query(block, &info), NULL, "check");
    size_t y_bytes = t->m * t->d_out * elem_bytes(t->y_dtype), first = 0, m = t->m;
    char *y = cli_alloc(y_bytes, 1);
    if (t->row_alone && !plain_run) first = m - 1, m = 1;
    struct swiglu_work work = {0};
    cli_require(swiglu_forward_bytes(block, m, machine->n_threads, &work.bytes), NULL, "check");
    work.data = cli_alloc(work.bytes, 1);
    struct swiglu_crows x = {(const char *)b->x + first * t->d_in * elem_bytes(t->x_dtype), t->x_dtype, 0};
    struct swiglu_rows out = {y + first * t->d_out * elem_bytes(t->y_dtype), t->y_dtype, 0};
    cli_require(swiglu_forward(block, m, x, out, work, &machine->runner), NULL, "check");
    free(work.data);
    swiglu_block_destroy(block);
    *isa = info.isa;
    return y;
}

static void count(struct cli_grid *grid, unsigned number, const struct cli_trial *t, int passed, const char *why) {
    struct swiglu_level_info level;
    *(passed ? &grid->passed[number] : &grid->failed[number]) += 1;
    if (passed || grid->n_shown++ >= MAX_SHOWN || !cli_level(number, &level)) return;
    cli_note("check failed: %s: %s, %s, %s weights%s%s, compute %s, x %s, y %s, data %d, %zu rows%s%s, widths "
             "%zu/%zu/%zu: %s", level.name, t->activation, layout_name(t->layout), cli_dtype_name(t->dtype),
             t->in_out ? " [in,out]" : "", t->bias ? " with biases" : "", cli_compute_name(t->compute),
             cli_dtype_name(t->x_dtype), cli_dtype_name(t->y_dtype), t->data, t->m,
             t->row_alone ? ", the last alone" : "", t->two_threads ? ", two threads" : "", t->d_in, t->d_ff, t->d_out,
             why);
}

/* The first difference in words; both hold the same number of bytes. */
static void compare(struct cli_grid *grid, unsigned level, const struct cli_trial *t, const unsigned char *y,
                    const unsigned char *generic) {
    size_t size = elem_bytes(t->y_dtype), n = t->m * t->d_out;
    char why[128] = "";
    for (size_t i = t->row_alone ? n - t->d_out : 0; i < n && !*why; i++) {
        if (!memcmp(y + i * size, generic + i * size, size)) continue;
        float got, want;
        cli_require(swiglu_decode(t->y_dtype, y + i * size, 1, &got), NULL, "check");
        cli_require(swiglu_decode(t->y_dtype, generic + i * size, 1, &want), NULL, "check");
        snprintf(why, sizeof why, "row %zu, column %zu: %.9g, generic %.9g", i / t->d_out, i % t->d_out, (double)got,
                 (double)want);
    }
    count(grid, level, t, !*why, why);
}

/* The generic level itself has the reference as its judge, which is written for f32 outputs of whole batches. */
static void judge_generic(struct cli_grid *grid, const struct cli_trial *t, const struct buffers *b, const float *y) {
    struct cli_verdict verdict;
    char why[128];
    const struct swiglu_options options = {.struct_size = sizeof options, .compute = t->compute,
                                           .isa_mask = SWIGLU_ISA_GENERIC};
    struct swiglu_block *block;
    cli_require(swiglu_block_create(&b->desc, &options, &block, NULL), NULL, "check");
    const struct cli_case judged = {&b->desc, block, NULL, t->compute, t->m, b->x_f32, y, SEED, "check"};
    cli_judge(&judged, &verdict);
    snprintf(why, sizeof why, "row %zu, %s %zu: %.9g, reference %.9g, bound %.3g", verdict.row,
             verdict.in_hidden ? "hidden unit" : "column", verdict.col, verdict.got, verdict.reference, verdict.bound);
    count(grid, 0, t, verdict.kept, why);
    swiglu_block_destroy(block);
}

void cli_trial_run(struct cli_grid *grid, const struct cli_trial *t) {
    struct buffers b;
    uint64_t isa;
    make_buffers(&b, t);
    void *generic = evaluate(grid, t, &b, SWIGLU_ISA_GENERIC, 1, &isa);
    if (generic && t->y_dtype == SWIGLU_F32 && !t->row_alone && !t->two_threads) judge_generic(grid, t, &b, generic);
    struct swiglu_level_info level;
    for (unsigned i = 0; generic && cli_level(i, &level); i++) {
        if (!(grid->levels & level.bit) || (i == 0 && !t->row_alone && !t->two_threads)) continue;
        void *y = evaluate(grid, t, &b, level.limit, 0, &isa);
        /* A level without a kernel of its own for this block hands down to one that was compared before. */
        if (isa == level.bit) compare(grid, i, t, y, generic);
        free(y);
    }
    free(generic);
    free_buffers(&b);
}
