/* SPDX-License-Identifier: Apache-2.0 */
#include "ffn/desc.h"

#include <math.h>
#include <stdio.h>

#include "base/act.h"
#include "base/checked.h"
#include "dtype/dtype.h"

static const struct swiglu_desc desc_defaults = {.struct_size = sizeof(struct swiglu_desc)};

void swiglu_desc_init(struct swiglu_desc *desc) {
    if (!desc) return;
    *desc = desc_defaults;
    desc->act = swiglu_act_default();
}

static int is_empty(const struct swiglu_matrix *m) { return !m->data && !m->read; }

static enum swiglu_status check_matrix(struct swiglu_matrix *m, const char *name, size_t rows, size_t cols,
                                       struct swiglu_error *error) {
    const struct swiglu_dtype_row *type = swiglu_dtype_find(m->dtype);
    size_t n, bytes;
    REQUIRE(type, SWIGLU_E_UNSUPPORTED, "%s: weight dtype %d has no decoder", name, m->dtype);
    REQUIRE(m->rows == rows && m->cols == cols, SWIGLU_E_SHAPE, "%s: is [%zu, %zu], the widths ask for [%zu, %zu]", name,
            m->rows, m->cols, rows, cols);
    REQUIRE(m->in_out == 0 || m->in_out == 1, SWIGLU_E_ARGUMENT, "%s: in_out %d is not 0 or 1", name, m->in_out);
    const size_t stored = swiglu_matrix_stored_cols(m);
    if (m->ld_elems == 0) m->ld_elems = stored;
    REQUIRE(m->ld_elems >= stored, SWIGLU_E_SHAPE, "%s: ld_elems %zu is below the stored row of %zu", name, m->ld_elems,
            stored);
    REQUIRE(type->block_elems == 1 || !m->in_out, SWIGLU_E_UNSUPPORTED, "%s: %s with in_out = 1", name, type->name);
    REQUIRE(stored % type->block_elems == 0 && m->ld_elems % type->block_elems == 0, SWIGLU_E_SHAPE,
            "%s: rows of %zu (ld_elems %zu) are not whole %s blocks of %zu", name, stored, m->ld_elems, type->name,
            type->block_elems);
    REQUIRE(!SW_MUL(swiglu_matrix_stored_rows(m), m->ld_elems, &n) && !SW_MUL(n, (size_t)8, &bytes), SWIGLU_E_SHAPE,
            "%s: [%zu, %zu] with ld_elems %zu overflows", name, m->rows, m->cols, m->ld_elems);
    REQUIRE(rows == 0 || cols == 0 || !is_empty(m), SWIGLU_E_ARGUMENT, "%s: neither data nor read is set", name);
    return SWIGLU_OK;
}

bool swiglu_desc_has_heads(const struct swiglu_desc *d) {
    return d->gate_head.cols || d->up_head.cols || d->down_head.rows;
}

const struct swiglu_matrix *swiglu_desc_trained(const struct swiglu_desc *d, int which) {
    const struct swiglu_matrix *const all[2][3] = {{&d->gate, &d->up, &d->down}, {&d->gate_head, &d->up_head, &d->down_head}};
    return all[swiglu_desc_has_heads(d)][which];
}

static enum swiglu_status check_no_head(const struct swiglu_matrix *head, const char *name, struct swiglu_error *error) {
    REQUIRE(is_empty(head) && !head->rows && !head->cols, SWIGLU_E_ARGUMENT, "%s head: set, but not used here", name);
    return SWIGLU_OK;
}

/* A matrix whose first n columns or rows (one of the two) are its head. */
static enum swiglu_status check_headed(struct swiglu_matrix *m, struct swiglu_matrix *head, const char *name, size_t rows,
                                       size_t cols, size_t head_rows, size_t head_cols, struct swiglu_error *error) {
    const size_t n = head_rows + head_cols;
    char head_name[32];
    if (!n) {
        TRY(check_no_head(head, name, error));
        return check_matrix(m, name, rows, cols, error);
    }
    REQUIRE(n % SWIGLU_HEAD_STEP == 0 && n <= (head_rows ? rows : cols), SWIGLU_E_SHAPE,
            "%s head: %zu is not a multiple of %d within %zu", name, n, SWIGLU_HEAD_STEP, head_rows ? rows : cols);
    snprintf(head_name, sizeof head_name, "%s head", name);
    TRY(check_matrix(head, head_name, head_rows ? head_rows : rows, head_cols ? head_cols : cols, error));
    return check_matrix(m, name, rows - head_rows, cols - head_cols, error);
}

static enum swiglu_status check_absent(const struct swiglu_matrix *m, const struct swiglu_vector *bias, const char *name,
                                       struct swiglu_error *error) {
    REQUIRE(is_empty(m), SWIGLU_E_ARGUMENT, "%s: set, but this layout does not use it", name);
    REQUIRE(!bias->data, SWIGLU_E_ARGUMENT, "%s bias: set, but this layout does not use it", name);
    return SWIGLU_OK;
}

static enum swiglu_status check_bias(const struct swiglu_vector *v, const char *name, struct swiglu_error *error) {
    REQUIRE(!v->data || swiglu_dtype_is_float(v->dtype), SWIGLU_E_UNSUPPORTED, "%s bias: dtype %d is not f32, f16 or bf16",
            name, v->dtype);
    return SWIGLU_OK;
}

enum swiglu_status swiglu_desc_check(const struct swiglu_desc *in, struct swiglu_desc *out, struct swiglu_error *error) {
    size_t two_f, area;
    swiglu_desc_init(out);
    REQUIRE(swiglu_struct_in(out, sizeof *out, in) == SWIGLU_OK, SWIGLU_E_ARGUMENT, "desc: NULL or a bad struct_size");
    REQUIRE(out->act.struct_size == sizeof out->act, SWIGLU_E_ARGUMENT, "desc.act: struct_size %zu is not %zu",
            out->act.struct_size, sizeof out->act);
    REQUIRE(out->layout >= SWIGLU_SEPARATE && out->layout <= SWIGLU_UNGATED, SWIGLU_E_ARGUMENT, "desc.layout %d is unknown",
            out->layout);
    TRY(swiglu_act_check(&out->act, out->layout != SWIGLU_UNGATED, error));
    /* 2^40 columns leave room for every later product with a few rows; real widths are below 2^17 */
    const size_t limit = (size_t)1 << 40;
    REQUIRE(out->d_in <= limit && out->d_ff <= limit && out->d_out <= limit, SWIGLU_E_SHAPE,
            "d_in %zu, d_ff %zu or d_out %zu is above 2^40", out->d_in, out->d_ff, out->d_out);
    REQUIRE(!SW_MUL(out->d_ff, (size_t)2, &two_f) && !SW_MUL(two_f, out->d_in, &area), SWIGLU_E_SHAPE,
            "d_ff %zu x d_in %zu overflows", out->d_ff, out->d_in);
    if (swiglu_desc_is_packed(out)) {
        TRY(check_headed(&out->gate, &out->gate_head, "packed gate and up", two_f, out->d_in, 0, out->gate_head.cols, error));
        TRY(check_absent(&out->up, &out->up_bias, "up", error));
        TRY(check_no_head(&out->up_head, "up", error));
    } else {
        const size_t head = out->up_head.cols; /* of both, as they share x */
        TRY(check_headed(&out->up, &out->up_head, "up", out->d_ff, out->d_in, 0, head, error));
        if (out->layout == SWIGLU_UNGATED) {
            TRY(check_absent(&out->gate, &out->gate_bias, "gate", error));
            TRY(check_no_head(&out->gate_head, "gate", error));
        } else {
            TRY(check_headed(&out->gate, &out->gate_head, "gate", out->d_ff, out->d_in, 0, head, error));
        }
    }
    TRY(check_headed(&out->down, &out->down_head, "down", out->d_out, out->d_ff, out->down_head.rows, 0, error));
    TRY(check_bias(&out->gate_bias, "gate", error));
    TRY(check_bias(&out->up_bias, "up", error));
    return check_bias(&out->down_bias, "down", error);
}

enum swiglu_status swiglu_desc_compute_check(const struct swiglu_desc *d, int compute, struct swiglu_error *error) {
    if (d->layout != SWIGLU_UNGATED) TRY(swiglu_compute_check(compute, d->gate.dtype, "gate", error));
    if (!swiglu_desc_is_packed(d)) TRY(swiglu_compute_check(compute, d->up.dtype, "up", error));
    return swiglu_compute_check(compute, d->down.dtype, "down", error);
}

enum swiglu_status swiglu_options_check(const struct swiglu_options *in, struct swiglu_options *out,
                                        struct swiglu_error *error) {
    *out = (struct swiglu_options){.struct_size = sizeof *out};
    if (!in) return SWIGLU_OK;
    REQUIRE(swiglu_struct_in(out, sizeof *out, in) == SWIGLU_OK, SWIGLU_E_ARGUMENT, "options: a bad struct_size");
    REQUIRE(!out->parts, SWIGLU_E_ARGUMENT, "options.parts %d: reserved, 0", out->parts);
    REQUIRE(swiglu_compute_known(out->compute), SWIGLU_E_ARGUMENT,
            "options.compute %d is unknown", out->compute);
    return SWIGLU_OK;
}

int swiglu_desc_halves(const struct swiglu_desc *d, struct swiglu_half halves[2]) {
    const struct swiglu_half up = {&d->up, &d->up_bias, 0, 1, &d->up_head, false};
    halves[0] = halves[1] = (struct swiglu_half){&d->gate, &d->gate_bias, 0, 1, &d->gate_head, false}; /* packed: both */
    switch (d->layout) {
    case SWIGLU_UNGATED: halves[0] = up; return 1;
    case SWIGLU_GATE_UP: halves[1].first = d->d_ff; break;
    case SWIGLU_UP_GATE: halves[0].first = d->d_ff; break;
    case SWIGLU_INTERLEAVED: halves[0].stride = halves[1].stride = 2, halves[1].first = 1; break;
    default: halves[1] = up; break;
    }
    return 2;
}

struct swiglu_half swiglu_desc_down(const struct swiglu_desc *d) {
    return (struct swiglu_half){&d->down, &d->down_bias, 0, 1, &d->down_head, true};
}
