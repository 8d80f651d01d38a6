/* SPDX-License-Identifier: Apache-2.0 */
/* Public entries of training: validate, then call down. */
#include "ffn/train.h"

#include <math.h>
#include <string.h>

#include "api/rows.h"
#include "base/checked.h"
#include "dtype/dtype.h"
#include "ffn/schedule.h"

enum { KNOWN_FLAGS = SWIGLU_TRAIN_KEEP_GATE_UP | SWIGLU_TRAIN_ACCUMULATE | SWIGLU_TRAIN_BF16_GRADIENTS };

static int is_raw(const struct swiglu_matrix *m) {
    return swiglu_dtype_is_float(m->dtype) && (m->data || m->rows == 0 || m->cols == 0);
}

/* checked holds the description that step points to. */
static enum swiglu_status open_step(const struct swiglu_desc *desc, const struct swiglu_options *options, size_t m,
                                    unsigned flags, struct swiglu_desc *checked, struct swiglu_step *step) {
    struct swiglu_error *const error = NULL;
    struct swiglu_options chosen;
    TRY(swiglu_desc_check(desc, checked, error));
    TRY(swiglu_options_check(options, &chosen, error));
    if (flags & ~(unsigned)KNOWN_FLAGS) return SWIGLU_E_ARGUMENT;
    if (flags & SWIGLU_TRAIN_ACCUMULATE && flags & SWIGLU_TRAIN_BF16_GRADIENTS) return SWIGLU_E_ARGUMENT;
    struct swiglu_half halves[2];
    const int n_halves = swiglu_desc_halves(checked, halves);
    const struct swiglu_matrix *const gate = halves[0].matrix, *const up = halves[n_halves - 1].matrix;
    if (!is_raw(gate) || !is_raw(up) || !is_raw(&checked->down)) return SWIGLU_E_UNSUPPORTED;
    for (int i = 0; i < 3; i++)
        if (!is_raw(swiglu_desc_trained(checked, i))) return SWIGLU_E_UNSUPPORTED;
    TRY(swiglu_desc_compute_check(checked, chosen.compute, error));
    *step = (struct swiglu_step){.desc = checked, .m = m, .flags = flags};
    step->compute_first = swiglu_compute_resolve(chosen.compute, gate->dtype, up->dtype);
    step->compute_down = swiglu_compute_resolve(chosen.compute, checked->down.dtype, checked->down.dtype);
    const struct swiglu_need needs[2] = {swiglu_kern_need(step->compute_first, SWIGLU_F32, SWIGLU_F32),
                                         swiglu_kern_need(step->compute_down, SWIGLU_F32, SWIGLU_F32)};
    step->kern = swiglu_kern_select(chosen.isa_mask, needs, 2);
    return step->kern ? SWIGLU_OK : SWIGLU_E_HARDWARE;
}

enum swiglu_status swiglu_train_bytes(const struct swiglu_desc *desc, const struct swiglu_options *options, size_t m,
                                      unsigned flags, unsigned n_threads, size_t *work_bytes, size_t *saved_bytes) {
    struct swiglu_desc checked;
    struct swiglu_step step;
    if (!work_bytes || !saved_bytes) return SWIGLU_E_ARGUMENT;
    TRY(open_step(desc, options, m, flags, &checked, &step));
    return swiglu_train_size(&step, n_threads, work_bytes, saved_bytes) ? SWIGLU_E_SHAPE : SWIGLU_OK;
}

/* The aligned workspace, or NULL when it is too small. */
static char *aligned_work(const struct swiglu_step *step, struct swiglu_work work, const struct swiglu_runner *runner,
                          size_t *saved_bytes) {
    size_t need;
    if (swiglu_train_size(step, swiglu_runner_threads(runner), &need, saved_bytes)) return NULL;
    if (!work.data || work.bytes < need) return NULL;
    return (char *)work.data + (-(uintptr_t)work.data & 63);
}

enum { N_WEIGHTS = 9 }; /* matrices, heads, then biases */

static void weight_spans(const struct swiglu_desc *d, struct swiglu_span *spans) {
    const struct swiglu_matrix *const matrices[] = {&d->gate, &d->up, &d->down, &d->gate_head, &d->up_head, &d->down_head};
    const struct swiglu_vector *const biases[] = {&d->gate_bias, &d->up_bias, &d->down_bias};
    for (int i = 0; i < 6; i++) {
        const struct swiglu_matrix *m = matrices[i];
        struct swiglu_crows rows = {swiglu_offset(m->data, m->start), m->dtype, m->ld_elems};
        (void)swiglu_rows_check(&rows, swiglu_matrix_stored_rows(m), swiglu_matrix_stored_cols(m), &spans[i]); /* fits */
    }
    for (int i = 0; i < 3; i++) {
        const size_t n = i == 2 ? d->d_out : matrices[i]->rows;
        spans[6 + i] = (struct swiglu_span){biases[i]->data, biases[i]->data ? n * swiglu_float_bytes(biases[i]->dtype) : 0};
    }
}

/* No output may touch an input or another output. */
static enum swiglu_status check_apart(const struct swiglu_span *out, size_t n_out, const struct swiglu_span *in,
                                      size_t n_in) {
    for (size_t i = 0; i < n_out; i++) {
        for (size_t j = 0; j < n_in; j++)
            if (swiglu_spans_meet(out[i], in[j])) return SWIGLU_E_ALIAS;
        for (size_t j = 0; j < i; j++)
            if (swiglu_spans_meet(out[i], out[j])) return SWIGLU_E_ALIAS;
    }
    return SWIGLU_OK;
}

enum swiglu_status swiglu_train_forward(const struct swiglu_desc *desc, const struct swiglu_options *options, size_t m,
                                        unsigned flags, struct swiglu_crows x, struct swiglu_rows y, void *saved,
                                        struct swiglu_work work, const struct swiglu_runner *runner) {
    struct swiglu_desc checked;
    struct swiglu_step step;
    struct swiglu_span in[N_WEIGHTS + 1], out[3];
    size_t saved_bytes;
    TRY(open_step(desc, options, m, flags, &checked, &step));
    TRY(swiglu_rows_check(&x, m, checked.d_in, &in[N_WEIGHTS]));
    struct swiglu_crows y_rows = {y.data, y.dtype, y.ld_elems};
    TRY(swiglu_rows_check(&y_rows, m, checked.d_out, &out[0]));
    y.ld_elems = y_rows.ld_elems;
    if (m == 0 || (checked.d_out == 0 && !(flags & SWIGLU_TRAIN_KEEP_GATE_UP))) return SWIGLU_OK;
    char *const aligned = aligned_work(&step, work, runner, &saved_bytes);
    if (!aligned || (saved_bytes && !saved)) return SWIGLU_E_WORKSPACE;
    out[1] = (struct swiglu_span){saved, saved_bytes};
    out[2] = (struct swiglu_span){work.data, work.bytes};
    weight_spans(&checked, in);
    const bool in_place = x.data == y.data && x.dtype == y.dtype && x.ld_elems == y.ld_elems;
    if (in_place) out[0].bytes = swiglu_max(out[0].bytes, in[N_WEIGHTS].bytes); /* x and y are one */
    TRY(check_apart(out, 3, in, in_place ? N_WEIGHTS : N_WEIGHTS + 1));
    swiglu_train_forward_run(&step, x, y, saved_bytes ? saved : NULL, aligned, runner);
    return SWIGLU_OK;
}

/* A weight gradient laid out as its weight: [stored rows][stored columns]. */
static enum swiglu_status check_gradient(struct swiglu_rows *g, const struct swiglu_matrix *m, int dtype,
                                         struct swiglu_span *span) {
    *span = (struct swiglu_span){NULL, 0};
    if (!g->data) return SWIGLU_OK;
    if (!m || g->dtype != dtype) return SWIGLU_E_ARGUMENT;
    struct swiglu_crows rows = {g->data, g->dtype, g->ld_elems};
    TRY(swiglu_rows_check(&rows, swiglu_matrix_stored_rows(m), swiglu_matrix_stored_cols(m), span));
    g->ld_elems = rows.ld_elems;
    return SWIGLU_OK;
}

static void zero_gradient(const struct swiglu_rows *g, const struct swiglu_matrix *m) {
    if (!g->data || !swiglu_matrix_stored_cols(m)) return; /* there may be any number of empty rows */
    for (size_t r = 0; r < swiglu_matrix_stored_rows(m); r++)
        memset((char *)g->data + r * g->ld_elems * swiglu_float_bytes(g->dtype), 0,
               swiglu_matrix_stored_cols(m) * swiglu_float_bytes(g->dtype));
}

static void zero_gradients(const struct swiglu_desc *d, const struct swiglu_grads *g) {
    const size_t f = d->d_ff;
    zero_gradient(&g->gate, swiglu_desc_trained(d, 0));
    zero_gradient(&g->up, swiglu_desc_trained(d, 1));
    zero_gradient(&g->down, swiglu_desc_trained(d, 2));
    if (g->gate_bias) memset(g->gate_bias, 0, (swiglu_desc_is_packed(d) ? 2 * f : f) * sizeof(float));
    if (g->up_bias) memset(g->up_bias, 0, f * sizeof(float));
    if (g->down_bias) memset(g->down_bias, 0, d->d_out * sizeof(float));
}

enum { N_GRADIENTS = 7 };

/* NULL where there are heads, but not of this matrix. */
static const struct swiglu_matrix *trained(const struct swiglu_desc *d, int which) {
    const struct swiglu_matrix *const m = swiglu_desc_trained(d, which);
    return swiglu_desc_has_heads(d) && !m->rows && !m->cols ? NULL : m;
}

/* grads, copied and filled in, and what they span. */
static enum swiglu_status open_gradients(const struct swiglu_step *step, const struct swiglu_grads *in,
                                         struct swiglu_grads *g, struct swiglu_span *spans) {
    const struct swiglu_desc *d = step->desc;
    const int dtype = step->flags & SWIGLU_TRAIN_BF16_GRADIENTS ? SWIGLU_BF16 : SWIGLU_F32;
    *g = (struct swiglu_grads){.struct_size = sizeof *g};
    if (swiglu_struct_in(g, sizeof *g, in)) return SWIGLU_E_ARGUMENT;
    const int gated = d->layout != SWIGLU_UNGATED, separate = !swiglu_desc_is_packed(d);
    struct swiglu_crows dx = {g->dx.data, g->dx.dtype, g->dx.ld_elems};
    spans[0] = (struct swiglu_span){NULL, 0};
    if (dx.data) TRY(swiglu_rows_check(&dx, step->m, d->d_in, &spans[0]));
    g->dx.ld_elems = dx.ld_elems;
    TRY(check_gradient(&g->gate, gated ? trained(d, 0) : NULL, dtype, &spans[1]));
    TRY(check_gradient(&g->up, separate ? trained(d, 1) : NULL, dtype, &spans[2]));
    TRY(check_gradient(&g->down, trained(d, 2), dtype, &spans[3]));
    if ((g->gate_bias && !gated) || (g->up_bias && !separate)) return SWIGLU_E_ARGUMENT;
    spans[4] = (struct swiglu_span){g->gate_bias, g->gate_bias ? d->gate.rows * sizeof(float) : 0};
    spans[5] = (struct swiglu_span){g->up_bias, g->up_bias ? d->up.rows * sizeof(float) : 0};
    spans[6] = (struct swiglu_span){g->down_bias, g->down_bias ? d->d_out * sizeof(float) : 0};
    return SWIGLU_OK;
}

enum swiglu_status swiglu_train_backward(const struct swiglu_desc *desc, const struct swiglu_options *options, size_t m,
                                         unsigned flags, struct swiglu_crows x, struct swiglu_crows dy, const void *saved,
                                         const struct swiglu_grads *grads, struct swiglu_work work,
                                         const struct swiglu_runner *runner) {
    struct swiglu_desc checked;
    struct swiglu_step step;
    struct swiglu_grads g;
    struct swiglu_span in[N_WEIGHTS + 3], out[N_GRADIENTS + 1];
    size_t saved_bytes = 0;
    TRY(open_step(desc, options, m, flags, &checked, &step));
    TRY(swiglu_rows_check(&x, m, checked.d_in, &in[N_WEIGHTS]));
    TRY(swiglu_rows_check(&dy, m, checked.d_out, &in[N_WEIGHTS + 1]));
    char *const aligned = aligned_work(&step, work, runner, &saved_bytes);
    if (m && (!aligned || (saved_bytes && !saved))) return SWIGLU_E_WORKSPACE;
    in[N_WEIGHTS + 2] = (struct swiglu_span){saved, saved_bytes};
    out[N_GRADIENTS] = (struct swiglu_span){work.data, m ? work.bytes : 0};
    weight_spans(&checked, in);
    TRY(open_gradients(&step, grads, &g, out));
    TRY(check_apart(out, N_GRADIENTS + 1, in, N_WEIGHTS + 3));
    if (m == 0 && !(flags & SWIGLU_TRAIN_ACCUMULATE)) zero_gradients(&checked, &g);
    if (m == 0) return SWIGLU_OK;
    /* Rows without values are all the same, and so are the sums over any number of them: zeros, or NaN from the biases. */
    if (!checked.d_in && !checked.d_out && !(flags & SWIGLU_TRAIN_KEEP_GATE_UP)) step.m = 1;
    swiglu_train_backward_run(&step, x, dy, saved_bytes ? saved : NULL, &g, aligned, runner);
    return SWIGLU_OK;
}
