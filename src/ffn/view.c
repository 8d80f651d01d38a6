/* SPDX-License-Identifier: Apache-2.0 */
#include "ffn/view.h"

#include <string.h>

#include "base/checked.h"
#include "dtype/dtype.h"

static struct swiglu_grid grid_of(const struct swiglu_matrix *m, size_t first, size_t stride) {
    const size_t ld = m->ld_elems, at = first * (m->in_out ? 1 : ld);
    return (struct swiglu_grid){.data = swiglu_offset(m->data, m->start + at * swiglu_float_bytes(m->dtype)),
                                .dtype = m->dtype,
                                .row = stride * (m->in_out ? 1 : ld),
                                .col = m->in_out ? ld : 1};
}

struct swiglu_view swiglu_view_half(const struct swiglu_half *half) {
    struct swiglu_view v = {.main = grid_of(half->matrix, half->first, half->stride)};
    if (!half->head->data) return v;
    v.head = grid_of(half->head, half->first, half->stride);
    *(half->head_rows ? &v.head_rows : &v.head_cols) = half->head_rows ? half->head->rows : half->head->cols;
    return v;
}

struct swiglu_view swiglu_view_turn(struct swiglu_view v) {
    const struct swiglu_view t = {{v.main.data, v.main.dtype, v.main.col, v.main.row},
                                  {v.head.data, v.head.dtype, v.head.col, v.head.row}, v.head_cols, v.head_rows};
    return t;
}

/* Neither side contiguous (an interleaved [in, out] matrix): a few depths at a time through a local. */
static void pack_gathered(const struct swiglu_kern *kern, struct swiglu_grid v, struct swiglu_pack_args a) {
    enum { DEPTHS = 16, LANES = 32 };
    char local[DEPTHS][LANES * sizeof(float)];
    const size_t bytes = swiglu_float_bytes(v.dtype), n_k = a.n_k;
    char *const dst = a.dst;
    a.src = local;
    a.ld_bytes = sizeof local[0];
    for (size_t k = 0; k < n_k; k += DEPTHS) {
        a.n_k = swiglu_min(n_k - k, DEPTHS);
        for (size_t i = 0; i < a.n_k; i++)
            for (size_t l = 0; l < a.n_lanes; l++)
                memcpy(local[i] + l * bytes, v.data + (l * v.row + (k + i) * v.col) * bytes, bytes);
        a.dst = dst + swiglu_form_bytes(a.form, 2 * (size_t)kern->vl, k);
        kern->pack_rows(&a);
    }
}

static void pack_grid(const struct swiglu_kern *kern, struct swiglu_grid v, size_t lane, size_t n_lanes, size_t k, size_t n_k,
                      int form, char *dst) {
    const size_t bytes = swiglu_float_bytes(v.dtype);
    v.data = swiglu_offset(v.data, (lane * v.row + k * v.col) * bytes);
    struct swiglu_pack_args a = {.src = v.data, .dtype = v.dtype, .n_k = n_k, .n_lanes = n_lanes, .form = form, .dst = dst};
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

void swiglu_view_pack(const struct swiglu_kern *kern, struct swiglu_view v, size_t lane, size_t n_lanes, size_t k, size_t n_k,
                      int form, char *dst) {
    if (lane < v.head_rows) { /* and so are all of the panel's lanes */
        pack_grid(kern, v.head, lane, n_lanes, k, n_k, form, dst);
        return;
    }
    if (k < v.head_cols) {
        const size_t n = swiglu_min(n_k, v.head_cols - k);
        pack_grid(kern, v.head, lane, n_lanes, k, n, form, dst);
        if (n == n_k) return;
        dst += swiglu_form_bytes(form, 2 * (size_t)kern->vl, n);
        k += n;
        n_k -= n;
    }
    pack_grid(kern, v.main, lane - v.head_rows, n_lanes, k - v.head_cols, n_k, form, dst);
}
