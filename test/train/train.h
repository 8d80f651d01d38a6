/* SPDX-License-Identifier: Apache-2.0 */
/* Running a training step in one call, for tests. */
#ifndef SWIGLU_TEST_TRAIN_H
#define SWIGLU_TEST_TRAIN_H

#include "dtype/dtype.h"
#include "unit/forward.h"

/* What a step writes. Packed layouts have no up; ungated ones no gate. */
enum part { Y, DX, D_GATE, D_UP, D_DOWN, D_GATE_BIAS, D_UP_BIAS, D_DOWN_BIAS, N_PARTS };
UNUSED_FN const char *part_name(int part) {
    static const char *const names[] = {"y", "dx", "dW gate", "dW up", "dW down", "db gate", "db up", "db down"};
    return names[part];
}

/* All parts in one piece of memory, contiguous, f32. */
struct outcome {
    float *all, *part[N_PARTS];
    size_t n[N_PARTS], total;
};

UNUSED_FN struct outcome new_outcome(const struct swiglu_desc *d, size_t m) {
    const size_t n_gate = d->gate.rows, n_up = d->up.rows;
    struct outcome o = {.n = {m * d->d_out, m * d->d_in, n_gate * d->d_in, n_up * d->d_in, d->d_out * d->d_ff, n_gate, n_up,
                              d->d_out}};
    for (int i = 0; i < N_PARTS; i++) o.total += o.n[i];
    o.all = malloc((o.total + 1) * sizeof *o.all);
    assert_non_null(o.all);
    memset(o.all, 0xFF, (o.total + 1) * sizeof *o.all); /* NaN: whatever is not written shows */
    float *at = o.all;
    for (int i = 0; i < N_PARTS; at += o.n[i++]) o.part[i] = at;
    return o;
}

UNUSED_FN void assert_same_outcome(const struct outcome *a, const struct outcome *b, const char *what) {
    for (int i = 0; i < N_PARTS; i++)
        for (size_t j = 0; j < a->n[i]; j++)
            if (!same_float(a->part[i][j], b->part[i][j]))
                fail_msg("%s: %s [%zu of %zu] is %a instead of %a", what, part_name(i), j, a->n[i],
                         (double)a->part[i][j], (double)b->part[i][j]);
}

/* ---- where values lie: half 0 is gate, 1 is up; ungated blocks have half 0 alone, stored as up ---- */

UNUSED_FN unsigned n_halves(const struct swiglu_desc *d) { return d->layout == SWIGLU_UNGATED ? 1 : 2; }

/* The part of a half's weight gradient; its bias gradient lies D_GATE_BIAS - D_GATE further. */
UNUSED_FN int half_part(const struct swiglu_desc *d, unsigned half) {
    return is_packed(d->layout) || (d->layout == SWIGLU_SEPARATE && half == 0) ? D_GATE : D_UP;
}
UNUSED_FN const struct swiglu_matrix *half_matrix(const struct swiglu_desc *d, unsigned half) {
    return half_part(d, half) == D_GATE ? &d->gate : &d->up;
}
UNUSED_FN const struct swiglu_vector *half_bias(const struct swiglu_desc *d, unsigned half) {
    return half_part(d, half) == D_GATE ? &d->gate_bias : &d->up_bias;
}

/* Which output of its matrix hidden unit j of a half is. */
UNUSED_FN size_t half_output(const struct swiglu_desc *d, unsigned half, size_t j) {
    switch (d->layout) {
    case SWIGLU_GATE_UP: return half ? d->d_ff + j : j;
    case SWIGLU_UP_GATE: return half ? j : d->d_ff + j;
    case SWIGLU_INTERLEAVED: return 2 * j + half;
    default: return j;
    }
}

/* The place of a weight, and of its gradient, in a contiguous matrix. */
UNUSED_FN size_t weight_at(const struct swiglu_matrix *m, size_t output, size_t input) {
    return m->in_out ? input * m->rows + output : output * m->cols + input;
}

/* A value as it enters a product. */
UNUSED_FN float entered(float f, int compute) {
    return compute == SWIGLU_COMPUTE_BF16 ? swiglu_bf16_widen(swiglu_bf16_staging(f)) : f;
}
UNUSED_FN float entered_weight(const struct swiglu_matrix *m, size_t output, size_t input, int compute) {
    return entered(get_float(m->data, m->dtype, weight_at(m, output, input)), compute);
}

UNUSED_FN int compute_of_up(const struct swiglu_desc *d, int compute) {
    return swiglu_compute_resolve(compute, half_matrix(d, 0)->dtype, half_matrix(d, n_halves(d) - 1)->dtype);
}
UNUSED_FN int compute_of_down(const struct swiglu_desc *d, int compute) {
    return swiglu_compute_resolve(compute, d->down.dtype, d->down.dtype);
}

/* ---- a step ---- */

/* Every gradient that the layout has, f32 and contiguous. */
UNUSED_FN struct swiglu_grads grads_of(const struct outcome *o) {
    struct swiglu_grads g = {.struct_size = sizeof g};
    struct swiglu_rows *const rows[] = {&g.dx, &g.gate, &g.up, &g.down};
    for (int i = 0; i < 4; i++)
        *rows[i] = (struct swiglu_rows){o->n[DX + i] ? o->part[DX + i] : NULL, SWIGLU_F32, 0};
    g.gate_bias = o->n[D_GATE_BIAS] ? o->part[D_GATE_BIAS] : NULL;
    g.up_bias = o->n[D_UP_BIAS] ? o->part[D_UP_BIAS] : NULL;
    g.down_bias = o->n[D_DOWN_BIAS] ? o->part[D_DOWN_BIAS] : NULL;
    return g;
}

struct how {
    int compute;
    uint64_t level;
    unsigned flags;
    const struct swiglu_runner *runner;
};

UNUSED_FN struct swiglu_options options_of(struct how how) {
    return (struct swiglu_options){.struct_size = sizeof(struct swiglu_options), .compute = how.compute,
                                   .isa_mask = how.level};
}

/* Forward, then backward with these gradients; workspace and saved are full of NaN before. For any thread: asserts nothing. */
UNUSED_FN enum swiglu_status train_into(const struct swiglu_desc *d, struct how how, size_t m, struct swiglu_crows x,
                                        struct swiglu_crows dy, struct swiglu_rows y, const struct swiglu_grads *grads) {
    const struct swiglu_options options = options_of(how);
    struct swiglu_work work;
    size_t saved_bytes;
    enum swiglu_status status = swiglu_train_bytes(d, &options, m, how.flags, how.runner ? how.runner->n_threads : 1,
                                                   &work.bytes, &saved_bytes);
    if (status != SWIGLU_OK) return status;
    work.data = malloc(work.bytes);
    void *const saved = saved_bytes ? malloc(saved_bytes) : NULL;
    memset(work.data, 0xFF, work.bytes);
    if (saved) memset(saved, 0xFF, saved_bytes);
    status = swiglu_train_forward(d, &options, m, how.flags, x, y, saved, work, how.runner);
    memset(work.data, 0xFF, work.bytes);
    if (status == SWIGLU_OK)
        status = swiglu_train_backward(d, &options, m, how.flags, x, dy, saved, grads, work, how.runner);
    free(work.data), free(saved);
    return status;
}

UNUSED_FN void train(const struct swiglu_desc *d, struct how how, size_t m, struct swiglu_crows x, struct swiglu_crows dy,
                     struct outcome *o) {
    const struct swiglu_grads grads = grads_of(o);
    const struct swiglu_rows y = {o->part[Y], SWIGLU_F32, 0};
    assert_int_equal(train_into(d, how, m, x, dy, y, &grads), SWIGLU_OK);
}

/* A block with f32 rows of x and dy to train it on. */
struct lesson {
    struct block_data block;
    size_t m;
    float *x_data, *dy_data;
    struct swiglu_crows x, dy;
};

UNUSED_FN struct lesson new_lesson(struct block_data block, size_t m, double x_scale, uint64_t seed) {
    struct lesson l = {.block = block, .m = m};
    l.x_data = new_floats(SWIGLU_F32, m * block.desc.d_in, x_scale, &seed);
    l.dy_data = new_floats(SWIGLU_F32, m * block.desc.d_out, 1, &seed);
    l.x = (struct swiglu_crows){l.x_data, SWIGLU_F32, 0};
    l.dy = (struct swiglu_crows){l.dy_data, SWIGLU_F32, 0};
    return l;
}

UNUSED_FN void free_lesson(struct lesson *l) {
    free(l->x_data), free(l->dy_data);
    free_block(&l->block);
}

UNUSED_FN struct outcome learn(const struct lesson *l, struct how how) { /* free .all */
    struct outcome o = new_outcome(&l->block.desc, l->m);
    train(&l->block.desc, how, l->m, l->x, l->dy, &o);
    return o;
}

#endif
