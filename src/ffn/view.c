/* SPDX-License-Identifier: Apache-2.0 */
#include "ffn/view.h"

#include "base/checked.h"
#include "dtype/dtype.h"

struct swiglu_view swiglu_view_half(const struct swiglu_half *half) {
    const struct swiglu_matrix *m = half->matrix;
    const size_t ld = m->ld_elems, at = half->first * (m->in_out ? 1 : ld);
    return (struct swiglu_view){.data = (const char *)m->data + at * swiglu_float_bytes(m->dtype),
                                .dtype = m->dtype,
                                .row = half->stride * (m->in_out ? 1 : ld),
                                .col = m->in_out ? ld : 1};
}

struct swiglu_view swiglu_view_turn(struct swiglu_view v) {
    return (struct swiglu_view){v.data, v.dtype, v.col, v.row};
}

/* Neither side contiguous (an interleaved [in, out] matrix): a few depths at a time through a local of f32. */
static void pack_gathered(const struct swiglu_kern *kern, struct swiglu_view v, struct swiglu_pack_args a) {
    enum { DEPTHS = 16, LANES = 32 };
    float local[DEPTHS][LANES];
    const size_t bytes = swiglu_float_bytes(v.dtype), n_k = a.n_k, k_step = a.wt == SWIGLU_WT_BF16_DOT ? 2 : 1;
    const struct swiglu_dtype_row *type = swiglu_dtype_find(v.dtype);
    char *const dst = a.dst;
    a.src = local;
    a.dtype = SWIGLU_F32;
    a.ld_bytes = sizeof local[0];
    for (size_t k = 0; k < n_k; k += DEPTHS) {
        a.n_k = swiglu_min(n_k - k, DEPTHS);
        for (size_t i = 0; i < a.n_k; i++)
            for (size_t l = 0; l < a.n_lanes; l++)
                type->decode(v.data + (l * v.row + (k + i) * v.col) * bytes, 1, &local[i][l]);
        a.dst = dst + k / k_step * 2 * kern->vl * 4;
        kern->pack_rows(&a);
    }
}

void swiglu_view_pack(const struct swiglu_kern *kern, struct swiglu_view v, size_t lane, size_t n_lanes, size_t k, size_t n_k,
                      int wt, char *dst) {
    const size_t bytes = swiglu_float_bytes(v.dtype);
    v.data += (lane * v.row + k * v.col) * bytes;
    struct swiglu_pack_args a = {.src = v.data, .dtype = v.dtype, .n_k = n_k, .n_lanes = n_lanes, .wt = wt, .dst = dst};
    if (v.row == 1) { /* the lanes of one depth lie side by side */
        a.ld_bytes = v.col * bytes;
        kern->pack_rows(&a);
    } else if (v.col == 1) { /* the depths of one lane lie side by side */
        a.ld_bytes = v.row * bytes;
        kern->pack_cols(&a);
    } else {
        pack_gathered(kern, v, a);
    }
}
