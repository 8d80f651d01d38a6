/* SPDX-License-Identifier: Apache-2.0 */
/* What a training step touches and refuses: guard pages around everything, read-only inputs, strides, absent gradients,
 * batches of nothing, bad arguments. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS, MAP_NORESERVE */
#include "train.h"
#include "unit/guard.h"

/* ---- guard pages ---- */

enum { MOST_FENCES = 24 };
struct fences { struct guarded all[MOST_FENCES]; size_t n; int side; };

static void *fence(struct fences *f, size_t bytes) {
    assert_true(f->n < MOST_FENCES);
    f->all[f->n] = guard(bytes, f->side);
    memset(f->all[f->n].data, 0xFF, bytes);
    return f->all[f->n++].data;
}

static const void *fence_input(struct fences *f, const void *src, size_t bytes) {
    void *const p = fence(f, bytes);
    memcpy(p, src, bytes);
    guard_from_writes(f->all[f->n - 1]);
    return p;
}

static void fence_weights(struct fences *f, struct swiglu_desc *d) {
    struct swiglu_matrix *const matrix[] = {&d->gate, &d->up, &d->down};
    struct swiglu_vector *const bias[] = {&d->gate_bias, &d->up_bias, &d->down_bias};
    for (int i = 0; i < 3; i++) {
        const size_t rows = matrix[i]->rows, size = float_bytes(matrix[i]->dtype);
        if (matrix[i]->data) matrix[i]->data = fence_input(f, matrix[i]->data, rows * matrix[i]->cols * size);
        if (bias[i]->data) bias[i]->data = fence_input(f, bias[i]->data, rows * float_bytes(bias[i]->dtype));
    }
}

/* Forward and two backward passes between fences; results go to o. */
static void run_fenced(struct fences *f, const struct lesson *l, struct how how, struct outcome *o) {
    struct swiglu_desc d = l->block.desc;
    struct outcome got = *o;
    const size_t m = l->m;
    const struct swiglu_options options = options_of(how);
    size_t work_bytes, saved_bytes;
    fence_weights(f, &d);
    const struct swiglu_crows x = {fence_input(f, l->x_data, m * d.d_in * 4), SWIGLU_F32, 0};
    const struct swiglu_crows dy = {fence_input(f, l->dy_data, m * d.d_out * 4), SWIGLU_F32, 0};
    for (int i = 0; i < N_PARTS; i++) got.part[i] = fence(f, o->n[i] * sizeof(float));
    assert_int_equal(swiglu_train_bytes(&d, &options, m, how.flags, 1, &work_bytes, &saved_bytes), SWIGLU_OK);
    void *const saved = fence(f, saved_bytes);
    const size_t saved_at = f->n - 1;
    const struct swiglu_work work = {fence(f, work_bytes), work_bytes};
    const struct swiglu_grads grads = grads_of(&got);
    assert_int_equal(swiglu_train_forward(&d, &options, m, how.flags, x, (struct swiglu_rows){got.part[Y], SWIGLU_F32, 0},
                                          saved, work, NULL), SWIGLU_OK);
    guard_from_writes(f->all[saved_at]);
    for (int pass = 0; pass < 2; pass++)
        assert_int_equal(swiglu_train_backward(&d, &options, m, how.flags, x, dy, saved, &grads, work, NULL), SWIGLU_OK);
    for (int i = 0; i < N_PARTS; i++) memcpy(o->part[i], got.part[i], o->n[i] * sizeof(float));
}

static void stays_within(size_t m, size_t d_in, size_t d_ff, size_t d_out, int dtype, int compute, uint64_t level) {
    static unsigned turn;
    const int layout = (int)(turn % 5), in_out = (int)(turn / 5 % 2);
    struct lesson l = new_lesson(new_block(d_in, d_ff, d_out, layout, "silu", dtype, in_out, 1, 3 + turn), m, 1, 4);
    struct outcome want = learn(&l, (struct how){compute, level, turn++ & 1, NULL});
    for (int side = 0; side < 2; side++) {
        struct fences f = {.side = side};
        struct outcome o = new_outcome(&l.block.desc, m);
        run_fenced(&f, &l, (struct how){compute, level, (unsigned)side, NULL}, &o);
        assert_same_outcome(&o, &want, "between fences");
        for (size_t i = 0; i < f.n; i++) unguard(f.all[i]);
        free(o.all);
    }
    free(want.all);
    free_lesson(&l);
}

/* C062: inputs, and what forward left, are pages that cannot be written. */
static void nothing_outside_is_touched(void **state) {
    (void)state;
    static const int dtypes[] = {SWIGLU_F32, SWIGLU_F16, SWIGLU_BF16};
    for (const uint64_t *level = each_level(); *level; level++)
        for (size_t t = 0; t < COUNT(dtypes); t++)
            for (int compute = SWIGLU_COMPUTE_F32; compute <= SWIGLU_COMPUTE_BF16; compute++) {
                stays_within(3, 5, 5, 5, dtypes[t], compute, *level);
                stays_within(13, 67, 71, 73, dtypes[t], compute, *level);
                stays_within(33, 17, 131, 9, dtypes[t], compute, *level);
                for (size_t i = 1; i <= 33; i += t ? 4 : 1) stays_within(1 + i % 7, i, i, i, dtypes[t], compute, *level);
            }
}

/* ---- strides and dtypes of rows ---- */

enum { M = 11, D_IN = 13, D_FF = 30, D_OUT = 10, LD = 40 };

/* A contiguous f32 matrix again with rows LD apart and NaN between them, as dtype; freed by the caller. */
static void *spread_out(const float *rows, size_t n_rows, size_t n, int dtype) {
    void *wide = malloc(n_rows * LD * sizeof(float));
    for (size_t i = 0; i < n_rows * LD; i++) put_float(wide, dtype, i, i % LD < n ? rows[i / LD * n + i % LD] : NAN);
    return wide;
}

/* Rows LD apart hold the values of `want`, rounded to dtype, and what was there before between them. */
static void assert_spread(const void *wide, int dtype, const float *want, size_t n_rows, size_t n, const void *before) {
    for (size_t i = 0; i < n_rows * LD; i++) {
        float expected = get_float(before, dtype, i);
        if (i % LD < n) put_float(&expected, dtype, 0, want[i / LD * n + i % LD]), expected = get_float(&expected, dtype, 0);
        if (!same_float(get_float(wide, dtype, i), expected)) fail_msg("row %zu column %zu", i / LD, i % LD);
    }
}

static void row_strides_leave_the_rest_alone(void **state) {
    (void)state;
    static const int dtypes[] = {SWIGLU_F32, SWIGLU_F16, SWIGLU_BF16};
    uint64_t seed = 5;
    for (const uint64_t *level = each_level(); *level; level++)
        for (size_t t = 0; t < COUNT(dtypes); t++)
            for (int in_out = 0; in_out < 2; in_out++) {
                struct lesson l = new_lesson(new_block(D_IN, D_FF, D_OUT, SWIGLU_SEPARATE, "silu", SWIGLU_F32, in_out, 1, 6), M,
                                             1, 7);
                const struct swiglu_desc *d = &l.block.desc;
                const struct how how = {SWIGLU_COMPUTE_F32, *level, in_out, NULL};
                for (size_t i = 0; i < M * D_IN; i++) /* values that each dtype holds */
                    l.x_data[i] = swiglu_bf16_widen(swiglu_bf16_store(l.x_data[i]));
                for (size_t i = 0; i < M * D_OUT; i++) l.dy_data[i] = swiglu_bf16_widen(swiglu_bf16_store(l.dy_data[i]));
                struct outcome want = learn(&l, how), o = new_outcome(d, M);
                void *x = spread_out(l.x_data, M, D_IN, dtypes[t]), *dy = spread_out(l.dy_data, M, D_OUT, dtypes[t]);
                void *before = new_floats(SWIGLU_F32, M * LD, 1, &seed), *dx = malloc(M * LD * 4), *w[3], *w_before[3];
                struct swiglu_grads g = grads_of(&o);
                struct swiglu_rows *const to[3] = {&g.gate, &g.up, &g.down};
                const struct swiglu_matrix *const of[3] = {&d->gate, &d->up, &d->down};
                for (int i = 0; i < 3; i++) {
                    const size_t rows = in_out ? of[i]->cols : of[i]->rows;
                    w[i] = malloc(rows * LD * 4), w_before[i] = new_floats(SWIGLU_F32, rows * LD, 1, &seed);
                    *to[i] = (struct swiglu_rows){memcpy(w[i], w_before[i], rows * LD * 4), SWIGLU_F32, LD};
                }
                g.dx = (struct swiglu_rows){memcpy(dx, before, M * LD * 4), dtypes[t], LD};
                assert_int_equal(train_into(d, how, M, (struct swiglu_crows){x, dtypes[t], LD},
                                            (struct swiglu_crows){dy, dtypes[t], LD},
                                            (struct swiglu_rows){o.part[Y], SWIGLU_F32, 0}, &g), SWIGLU_OK);
                assert_spread(dx, dtypes[t], want.part[DX], M, D_IN, before);
                for (int i = 0; i < 3; i++) {
                    const size_t rows = in_out ? of[i]->cols : of[i]->rows, cols = in_out ? of[i]->rows : of[i]->cols;
                    assert_spread(w[i], SWIGLU_F32, want.part[D_GATE + i], rows, cols, w_before[i]);
                    free(w[i]), free(w_before[i]);
                }
                free(x), free(dy), free(dx), free(before), free(want.all), free(o.all);
                free_lesson(&l);
            }
}

/* Weights with a stride, biases beside none, rows of x 2^30 + 8 floats apart: 8 GiB of addresses, a few pages of memory. */
static void inputs_may_lie_far_apart(void **state) {
    (void)state;
    const size_t ld = ((size_t)1 << 30) + 8, bytes = (2 * ld + D_IN) * sizeof(float);
    struct lesson l = new_lesson(new_block(D_IN, D_FF, D_OUT, SWIGLU_SEPARATE, "silu", SWIGLU_F32, 0, 1, 8), 3, 1, 9);
    struct swiglu_desc *d = &l.block.desc, strided = *d;
    float *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) {
        print_message("8 GiB of address space cannot be had\n");
        skip();
    }
    d->up_bias.data = strided.up_bias.data = NULL;
    strided.gate.data = spread_out(l.block.memory[0], D_FF, D_IN, SWIGLU_F32);
    strided.down.data = spread_out(l.block.memory[2], D_OUT, D_FF, SWIGLU_F32);
    strided.gate.ld_elems = strided.down.ld_elems = LD;
    for (size_t r = 0; r < 3; r++) memcpy(map + r * ld, l.x_data + r * D_IN, D_IN * sizeof *map);
    struct outcome want = learn(&l, (struct how){.compute = SWIGLU_COMPUTE_F32}), o = new_outcome(d, 3);
    train(&strided, (struct how){.compute = SWIGLU_COMPUTE_F32}, 3, (struct swiglu_crows){map, SWIGLU_F32, ld}, l.dy, &o);
    assert_same_outcome(&o, &want, "strided");
    munmap(map, bytes);
    free((void *)(uintptr_t)strided.gate.data), free((void *)(uintptr_t)strided.down.data);
    free(want.all), free(o.all);
    free_lesson(&l);
}

/* ---- absent gradients, batches of nothing ---- */

static void absent_gradients_change_no_other(void **state) {
    (void)state;
    for (int layout = SWIGLU_SEPARATE; layout <= SWIGLU_UNGATED; layout++)
        for (unsigned wanted = 0; wanted < 128; wanted++) {
            struct lesson l = new_lesson(new_block(D_IN, D_FF, D_OUT, layout, "silu", SWIGLU_F32, 0, 1, 10), M, 1, 11);
            struct outcome want = learn(&l, (struct how){.compute = SWIGLU_COMPUTE_F32}), o = new_outcome(&l.block.desc, M);
            struct swiglu_grads g = grads_of(&o);
            struct swiglu_rows *const rows[4] = {&g.dx, &g.gate, &g.up, &g.down};
            float **const biases[3] = {&g.gate_bias, &g.up_bias, &g.down_bias};
            for (int i = 0; i < 7; i++) {
                if (wanted >> i & 1) continue;
                if (i < 4) rows[i]->data = NULL;
                else *biases[i - 4] = NULL;
                memset(want.part[DX + i], 0xFF, want.n[DX + i] * sizeof(float)); /* stays as it was */
            }
            assert_int_equal(train_into(&l.block.desc, (struct how){.compute = SWIGLU_COMPUTE_F32}, M, l.x, l.dy,
                                        (struct swiglu_rows){o.part[Y], SWIGLU_F32, 0}, &g), SWIGLU_OK);
            assert_memory_equal(o.all, want.all, o.total * sizeof(float));
            free(want.all), free(o.all);
            free_lesson(&l);
        }
}

static void no_tokens_give_gradients_of_zero(void **state) { /* C058 */
    (void)state;
    const struct swiglu_crows none = {NULL, SWIGLU_F32, 0};
    for (int layout = SWIGLU_SEPARATE; layout <= SWIGLU_UNGATED; layout++)
        for (unsigned flags = 0; flags < 4; flags++) {
            struct block_data b = new_block(D_IN, D_FF, D_OUT, layout, "silu", SWIGLU_F32, 0, 1, 12);
            struct outcome o = new_outcome(&b.desc, 0);
            const struct swiglu_grads g = grads_of(&o);
            assert_int_equal(swiglu_train_forward(&b.desc, NULL, 0, flags, none, (struct swiglu_rows){NULL, SWIGLU_F32, 0}, NULL,
                                                  (struct swiglu_work){NULL, 0}, NULL), SWIGLU_OK);
            assert_int_equal(swiglu_train_backward(&b.desc, NULL, 0, flags, none, none, NULL, &g, (struct swiglu_work){NULL, 0},
                                                   NULL), SWIGLU_OK);
            for (size_t i = 0; i < o.total; i++)
                assert_int_equal(swiglu_f32_bits(o.all[i]), flags & SWIGLU_TRAIN_ACCUMULATE ? 0xFFFFFFFF : 0);
            free(o.all);
            free_block(&b);
        }
}

/* ---- refusals ---- */

/* Everything that a call takes, right unless a test changes it. */
struct call {
    struct lesson l;
    struct swiglu_desc desc;
    struct swiglu_options options;
    size_t m;
    unsigned flags;
    struct swiglu_crows x, dy;
    struct swiglu_rows y;
    void *saved, *work_data;
    struct outcome o;
    struct swiglu_grads grads;
    struct swiglu_work work;
};

static struct call new_call(int layout) {
    struct call c = {.m = M, .flags = SWIGLU_TRAIN_KEEP_GATE_UP, .options = {.struct_size = sizeof c.options}};
    size_t saved_bytes;
    c.l = new_lesson(new_block(D_IN, D_FF, D_OUT, layout, "silu", SWIGLU_F32, 0, 1, 13), M, 1, 14);
    c.desc = c.l.block.desc, c.x = c.l.x, c.dy = c.l.dy;
    c.o = new_outcome(&c.desc, M);
    c.grads = grads_of(&c.o);
    c.y = (struct swiglu_rows){c.o.part[Y], SWIGLU_F32, 0};
    assert_int_equal(swiglu_train_bytes(&c.desc, NULL, M, c.flags, 1, &c.work.bytes, &saved_bytes), SWIGLU_OK);
    c.work.data = c.work_data = calloc(c.work.bytes + 1, 1), c.saved = calloc(saved_bytes + 1, 1);
    return c;
}

static void free_call(struct call *c) {
    free(c->work_data), free(c->saved), free(c->o.all);
    free_lesson(&c->l);
}

static enum swiglu_status forward_status(const struct call *c) {
    return swiglu_train_forward(&c->desc, &c->options, c->m, c->flags, c->x, c->y, c->saved, c->work, NULL);
}
static enum swiglu_status backward_status(const struct call *c) {
    return swiglu_train_backward(&c->desc, &c->options, c->m, c->flags, c->x, c->dy, c->saved, &c->grads, c->work, NULL);
}

/* Runs a changed call: the status, and that nothing was written. */
static void refused(const struct call *right, const struct call *c, enum swiglu_status (*run)(const struct call *),
                    enum swiglu_status want, int line) {
    const enum swiglu_status status = run(c);
    if (status != want) fail_msg("line %d: %s instead of %s", line, swiglu_status_name(status), swiglu_status_name(want));
    for (size_t i = 0; i < right->o.total; i++)
        if (swiglu_f32_bits(right->o.all[i]) != 0xFFFFFFFF) fail_msg("line %d: something was written", line);
}
/* CHANGE is made to a copy c of the right call. */
#define REFUSED(run, want, change)                       \
    do {                                                 \
        struct call c = right;                           \
        change;                                          \
        refused(&right, &c, run, want, __LINE__);        \
    } while (0)

static enum swiglu_status refuse_to_read(void *ctx, uint64_t byte, void *dst, size_t n_bytes, struct swiglu_error *error) {
    (void)ctx, (void)byte, (void)dst, (void)n_bytes, (void)error;
    return SWIGLU_E_READ;
}

static void bad_arguments_are_refused(void **state) {
    (void)state;
    struct call right = new_call(SWIGLU_SEPARATE);
    enum swiglu_status (*const both[])(const struct call *) = {forward_status, backward_status};
    for (int i = 0; i < 2; i++) {
        REFUSED(both[i], SWIGLU_E_ARGUMENT, c.desc.struct_size = 3);
        REFUSED(both[i], SWIGLU_E_ARGUMENT, c.options.compute = 9);
        REFUSED(both[i], SWIGLU_E_ARGUMENT, c.flags = 8);
        REFUSED(both[i], SWIGLU_E_ARGUMENT, c.flags = SWIGLU_TRAIN_BF16_GRADIENTS | SWIGLU_TRAIN_ACCUMULATE);
        REFUSED(both[i], SWIGLU_E_HARDWARE, c.options.isa_mask = (uint64_t)1 << 40);
        REFUSED(both[i], SWIGLU_E_ARGUMENT, c.x.data = NULL);
        REFUSED(both[i], SWIGLU_E_ARGUMENT, c.x.dtype = SWIGLU_Q8_0);
        REFUSED(both[i], SWIGLU_E_SHAPE, c.x.ld_elems = D_IN - 1);
        REFUSED(both[i], SWIGLU_E_SHAPE, c.m = SIZE_MAX / 8);
        REFUSED(both[i], SWIGLU_E_SHAPE, c.desc.down.rows = D_OUT + 1);
        REFUSED(both[i], SWIGLU_E_UNSUPPORTED, (c.desc.gate.data = NULL, c.desc.gate.read = refuse_to_read));
        REFUSED(both[i], SWIGLU_E_WORKSPACE, c.saved = NULL);
        REFUSED(both[i], SWIGLU_E_WORKSPACE, c.work.data = NULL);
        REFUSED(both[i], SWIGLU_E_WORKSPACE, c.work.bytes--);
    }
    REFUSED(forward_status, SWIGLU_E_ARGUMENT, c.y.dtype = 77);
    REFUSED(forward_status, SWIGLU_E_SHAPE, c.y.ld_elems = D_OUT - 1);
    REFUSED(backward_status, SWIGLU_E_SHAPE, c.dy.ld_elems = D_OUT - 1);
    REFUSED(backward_status, SWIGLU_E_ARGUMENT, c.grads.struct_size = 2);
    REFUSED(backward_status, SWIGLU_E_ARGUMENT, c.grads.gate.dtype = SWIGLU_BF16);
    REFUSED(backward_status, SWIGLU_E_ARGUMENT, c.flags |= SWIGLU_TRAIN_BF16_GRADIENTS); /* f32 rows */
    REFUSED(backward_status, SWIGLU_E_SHAPE, c.grads.up.ld_elems = D_IN - 1);
    REFUSED(backward_status, SWIGLU_E_SHAPE, c.grads.dx.ld_elems = D_IN - 1);
    REFUSED(backward_status, SWIGLU_E_ARGUMENT, c.grads.dx.dtype = SWIGLU_Q4_0);
    assert_int_equal(forward_status(&right), SWIGLU_OK);
    assert_int_equal(backward_status(&right), SWIGLU_OK);
    assert_int_equal(swiglu_train_backward(&right.desc, NULL, M, right.flags, right.x, right.dy, right.saved, NULL, right.work,
                                           NULL), SWIGLU_E_ARGUMENT);
    free_call(&right);
}

static void gradients_of_what_is_not_there_are_refused(void **state) {
    (void)state;
    float other[2 * D_FF * D_IN];
    struct call right = new_call(SWIGLU_GATE_UP);
    REFUSED(backward_status, SWIGLU_E_ARGUMENT, c.grads.up.data = other);
    REFUSED(backward_status, SWIGLU_E_ARGUMENT, c.grads.up_bias = other);
    free_call(&right);
    right = new_call(SWIGLU_UNGATED);
    REFUSED(backward_status, SWIGLU_E_ARGUMENT, c.grads.gate.data = other);
    REFUSED(backward_status, SWIGLU_E_ARGUMENT, c.grads.gate_bias = other);
    free_call(&right);
}

static void outputs_may_not_overlap(void **state) {
    (void)state;
    struct call right = new_call(SWIGLU_SEPARATE);
    float *const x = right.l.x_data, *const dy = right.l.dy_data, *const gate = right.l.block.memory[0];
    float *const bias = right.l.block.memory[3];
    REFUSED(forward_status, SWIGLU_E_ALIAS, c.y.data = x + 1);
    REFUSED(forward_status, SWIGLU_E_ALIAS, c.y.data = gate);
    REFUSED(forward_status, SWIGLU_E_ALIAS, c.saved = x);
    REFUSED(forward_status, SWIGLU_E_ALIAS, c.work.data = x);
    REFUSED(forward_status, SWIGLU_E_ALIAS, c.work.data = gate);
    REFUSED(forward_status, SWIGLU_E_ALIAS, c.work.data = c.saved);
    REFUSED(backward_status, SWIGLU_E_ALIAS, c.work.data = c.saved);
    REFUSED(backward_status, SWIGLU_E_ALIAS, c.work.data = bias);
    float *const inputs[] = {x, dy, gate, bias, right.saved, right.work.data, right.o.part[D_DOWN]};
    for (size_t i = 0; i < COUNT(inputs); i++) {
        REFUSED(backward_status, SWIGLU_E_ALIAS, c.grads.dx.data = inputs[i]);
        REFUSED(backward_status, SWIGLU_E_ALIAS, c.grads.gate.data = inputs[i]);
        REFUSED(backward_status, SWIGLU_E_ALIAS, c.grads.up_bias = inputs[i]);
        REFUSED(backward_status, SWIGLU_E_ALIAS, c.grads.down_bias = inputs[i]);
    }
    REFUSED(backward_status, SWIGLU_E_ALIAS, c.grads.up_bias = c.grads.gate_bias);
    free_call(&right);
}

static void block_formats_cannot_be_trained(void **state) {
    (void)state;
    static const unsigned char blocks[32 * 34];
    size_t work_bytes, saved_bytes;
    struct block_data b = new_block(32, 32, 32, SWIGLU_SEPARATE, "silu", SWIGLU_F32, 0, 0, 15);
    struct swiglu_desc d = b.desc;
    d.down.data = blocks, d.down.dtype = SWIGLU_Q8_0;
    assert_int_equal(swiglu_train_bytes(&d, NULL, 4, 0, 1, &work_bytes, &saved_bytes), SWIGLU_E_UNSUPPORTED);
    assert_int_equal(swiglu_train_bytes(&b.desc, NULL, 4, 0, 1, NULL, &saved_bytes), SWIGLU_E_ARGUMENT);
    assert_int_equal(swiglu_train_bytes(&b.desc, NULL, 4, 8, 1, &work_bytes, &saved_bytes), SWIGLU_E_ARGUMENT);
    assert_int_equal(swiglu_train_bytes(NULL, NULL, 4, 0, 1, &work_bytes, &saved_bytes), SWIGLU_E_ARGUMENT);
    free_block(&b);
}

/* Recomputing keeps nothing of size m x d_ff: neither saved nor in the workspace, whose backward part ends to grow. */
static void what_is_kept_is_what_is_said(void **state) {
    (void)state;
    struct block_data gated = new_block(32, 4096, 32, SWIGLU_SEPARATE, "silu", SWIGLU_F32, 0, 0, 16);
    struct block_data plain = new_block(32, 4096, 32, SWIGLU_UNGATED, "silu", SWIGLU_F32, 0, 0, 17);
    size_t work[2], saved;
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(swiglu_train_bytes(&gated.desc, NULL, i ? 1 << 20 : 1024, SWIGLU_TRAIN_KEEP_X, 2, &work[i], &saved),
                         SWIGLU_OK);
        assert_int_equal(saved, 0);
    }
    assert_true(work[0] == work[1]);
    assert_int_equal(swiglu_train_bytes(&gated.desc, NULL, 100, SWIGLU_TRAIN_KEEP_GATE_UP, 1, work, &saved), SWIGLU_OK);
    assert_int_equal(saved, 104 * 2 * 4096 * 4); /* rows in steps of 8 */
    assert_int_equal(swiglu_train_bytes(&plain.desc, NULL, 100, SWIGLU_TRAIN_KEEP_GATE_UP, 1, work, &saved), SWIGLU_OK);
    assert_int_equal(saved, 104 * 4096 * 4);
    for (size_t i = 0; i < 2; i++) /* sums in f32 are kept for a second chunk of tokens only */
        assert_int_equal(swiglu_train_bytes(&gated.desc, NULL, i ? 513 : 512, SWIGLU_TRAIN_BF16_GRADIENTS, 1, &work[i], &saved),
                         SWIGLU_OK);
    assert_true(work[1] >= work[0] + (size_t)3 * 32 * 4096 * 4);
    assert_int_equal(swiglu_train_bytes(&gated.desc, NULL, 512, 0, 1, &work[1], &saved), SWIGLU_OK);
    assert_true(work[0] == work[1]);
    free_block(&gated);
    free_block(&plain);
}

/* All of saved is written, at every level, and no more than what was said holds it. */
static void kept_bits_do_not_depend_on_memory(void **state) {
    (void)state;
    for (const uint64_t *level = each_level(); *level; level++)
        for (size_t m = 1; m <= 521; m += m < 40 ? 1 : 60)
            for (int layout = SWIGLU_SEPARATE; layout <= SWIGLU_UNGATED; layout += SWIGLU_UNGATED - SWIGLU_SEPARATE) {
                struct lesson l = new_lesson(new_block(3, 1 + m * 7 % 140, 2, layout, "silu", SWIGLU_F32, 0, 0, 18), m, 1, 19);
                const struct swiglu_options options = {.struct_size = sizeof options, .isa_mask = *level};
                struct outcome o = new_outcome(&l.block.desc, m);
                struct swiglu_work work;
                size_t n;
                assert_int_equal(swiglu_train_bytes(&l.block.desc, &options, m, SWIGLU_TRAIN_KEEP_GATE_UP, 1, &work.bytes, &n),
                                 SWIGLU_OK);
                work.data = malloc(work.bytes);
                unsigned char *saved[2] = {malloc(n), malloc(n)};
                for (int i = 0; i < 2; i++) {
                    memset(saved[i], i ? 0x5A : 0xFF, n);
                    assert_int_equal(swiglu_train_forward(&l.block.desc, &options, m, SWIGLU_TRAIN_KEEP_GATE_UP, l.x,
                                                          (struct swiglu_rows){o.part[Y], SWIGLU_F32, 0}, saved[i], work, NULL),
                                     SWIGLU_OK);
                }
                assert_memory_equal(saved[0], saved[1], n);
                free(saved[0]), free(saved[1]), free(work.data), free(o.all);
                free_lesson(&l);
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_outside_is_touched),
        cmocka_unit_test(row_strides_leave_the_rest_alone),
        cmocka_unit_test(inputs_may_lie_far_apart),
        cmocka_unit_test(absent_gradients_change_no_other),
        cmocka_unit_test(no_tokens_give_gradients_of_zero),
        cmocka_unit_test(bad_arguments_are_refused),
        cmocka_unit_test(gradients_of_what_is_not_there_are_refused),
        cmocka_unit_test(outputs_may_not_overlap),
        cmocka_unit_test(block_formats_cannot_be_trained),
        cmocka_unit_test(what_is_kept_is_what_is_said),
        cmocka_unit_test(kept_bits_do_not_depend_on_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
