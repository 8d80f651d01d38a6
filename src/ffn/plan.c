/* SPDX-License-Identifier: Apache-2.0 */
#include "ffn/plan.h"

#include "base/alloc.h"
#include "dtype/dtype.h"
#include "ffn/weights.h"

const char *swiglu_plan_why(int weight_dtype, int compute_asked) {
    if (compute_asked == SWIGLU_COMPUTE_F32) return "f32 compute was asked for";
    if (compute_asked == SWIGLU_COMPUTE_BF16) return "bf16 compute was asked for";
    if (weight_dtype == SWIGLU_BF16) return "auto: bf16 weights compute in bf16";
    if (weight_dtype == SWIGLU_F16) return "auto: f16 weights compute in f32, widened in registers";
    if (weight_dtype == SWIGLU_F32) return "auto: f32 weights compute in f32";
    return "auto: decoded to f32 at prepare, since no kernel for this format exists";
}

/* Packed bytes per weight above the file's: a block format was decoded, or a pair of two dtypes widened. */
static int is_expanded(const struct swiglu_product *p, const struct swiglu_matrix *m) {
    const struct swiglu_dtype_row *t = swiglu_dtype_find(m->dtype);
    const struct swiglu_form_info *form = &swiglu_forms[p->path->form];
    return (uint64_t)form->lane_bytes * t->block_elems > (uint64_t)t->block_bytes * form->k_block;
}

static uint64_t matrix_bytes(const struct swiglu_matrix *m) {
    return (uint64_t)swiglu_matrix_stored_rows(m) * swiglu_matrix_row_bytes(m);
}

static enum swiglu_status pack_all(struct swiglu_block *b, const struct swiglu_desc *desc,
                                   const struct swiglu_options *options, struct swiglu_error *error) {
    const struct swiglu_half gate_up[2] = {swiglu_desc_half(desc, 0), swiglu_desc_half(desc, 1)};
    const struct swiglu_half down = swiglu_desc_down(desc);
    const int n_halves = b->gated ? 2 : 1;
    struct swiglu_progress progress = {.call = options->progress, .ctx = options->progress_ctx, .total = b->file_bytes};
    TRY(swiglu_product_pack(&b->up, b->kern, b->gated ? gate_up : gate_up + 1, n_halves, b->gated ? "gate and up" : "up",
                            &progress, error));
    TRY(swiglu_product_pack(&b->down, b->kern, &down, 1, "down", &progress, error));
    b->packed_bytes = sizeof *b + b->up.data_bytes + b->down.data_bytes;
    return SWIGLU_OK;
}

enum swiglu_status swiglu_block_prepare(const struct swiglu_desc *desc, const struct swiglu_options *options,
                                        struct swiglu_block **block, struct swiglu_error *error) {
    REQUIRE(!swiglu_desc_has_heads(desc), SWIGLU_E_UNSUPPORTED, "a head: only a training step reads it");
    const int gated = desc->layout != SWIGLU_UNGATED;
    const struct swiglu_matrix *const up = swiglu_desc_half(desc, 1).matrix;
    const struct swiglu_matrix *const gate = gated ? swiglu_desc_half(desc, 0).matrix : up;
    const int compute_up = swiglu_compute_resolve(options->compute, gate->dtype, up->dtype);
    const int compute_down = swiglu_compute_resolve(options->compute, desc->down.dtype, desc->down.dtype);
    const struct swiglu_need needs[2] = {swiglu_kern_need(compute_up, gate->dtype, up->dtype),
                                         swiglu_kern_need(compute_down, desc->down.dtype, desc->down.dtype)};
    const struct swiglu_kern *kern = swiglu_kern_select(options->isa_mask, needs, 2);
    REQUIRE(kern, SWIGLU_E_HARDWARE, "no instruction-set level is left: mask 0x%llx",
            (unsigned long long)options->isa_mask);
    struct swiglu_block *b = swiglu_alloc(sizeof *b);
    REQUIRE(b, SWIGLU_E_MEMORY, "no memory for a block");
    b->kern = kern;
    b->d_in = desc->d_in, b->d_ff = desc->d_ff, b->d_out = desc->d_out;
    b->gated = gated;
    b->act = desc->act;
    b->compute_up = compute_up, b->compute_down = compute_down;
    b->up.path = kern->path[needs[0].form][needs[0].arith];
    b->down.path = kern->path[needs[1].form][needs[1].arith];
    b->up.k = desc->d_in, b->up.n_units = desc->d_ff;
    b->down.k = desc->d_ff, b->down.n_units = desc->d_out;
    b->why = swiglu_plan_why(gate->dtype == up->dtype ? gate->dtype : SWIGLU_F32, options->compute);
    b->file_bytes = matrix_bytes(gate) + (gate == up ? 0 : matrix_bytes(up)) + matrix_bytes(&desc->down);
    const enum swiglu_status status = pack_all(b, desc, options, error);
    if (status != SWIGLU_OK) {
        swiglu_block_destroy(b);
        return status;
    }
    b->expanded = is_expanded(&b->up, gate) || is_expanded(&b->up, up) || is_expanded(&b->down, &desc->down);
    *block = b;
    return SWIGLU_OK;
}

void swiglu_block_destroy(struct swiglu_block *block) {
    if (!block) return;
    swiglu_product_free(&block->up);
    swiglu_product_free(&block->down);
    swiglu_free(block);
}

/* Few rows: one panel at a time, the smallest tile that holds them. Many rows: the large tile, and as few rows without
 * data as the small one allows; 512 rows are 84 x 6 + 2 x 4. */
struct swiglu_row_plan swiglu_plan_rows(const struct swiglu_kern *kern, unsigned rows) {
    struct swiglu_row_plan p = {.a = {kern->rows_many[0], 0, 0}, .b = {kern->rows_many[1], 0, 1}};
    if (rows <= 8) {
        uint8_t i = 0;
        while (kern->rows_few[i] < rows && i + 1 < SWIGLU_N_FEW && kern->rows_few[i + 1]) i++;
        p.a = p.b = (struct swiglu_shape){kern->rows_few[i], 1, i};
        p.n_a = (rows + p.a.mr - 1) / p.a.mr;
        return p;
    }
    const unsigned a = p.a.mr, b = p.b.mr;
    unsigned best = UINT32_MAX;
    for (unsigned n_b = 0; n_b < a && n_b * b < rows + b; n_b++) { /* more than a - 1 small tiles never help */
        const unsigned left = n_b * b < rows ? rows - n_b * b : 0, n_a = (left + a - 1) / a;
        const unsigned padding = n_a * a + n_b * b - rows;
        if (padding < best) best = padding, p.n_a = n_a, p.n_b = n_b;
    }
    return p;
}
