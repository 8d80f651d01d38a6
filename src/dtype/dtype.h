/* SPDX-License-Identifier: Apache-2.0 */
/* The list of weight formats, the rule of `auto`, and reading a caller's matrix as f32. */
#ifndef SWIGLU_DTYPE_H
#define SWIGLU_DTYPE_H

#include "base/status.h"
#include "dtype/part.h"

struct swiglu_dtype_row {
    int dtype;
    const char *name;
    size_t block_elems, block_bytes;
    uint32_t file_type; /* general.file_type of GGUF */
    struct swiglu_scales scales;
    void (*decode)(const void *src, size_t n_blocks, float *dst);
    void (*encode)(const float *src, size_t n_blocks, void *dst);
    swiglu_part_fn *part; /* NULL for floats */
};

const struct swiglu_dtype_row *swiglu_dtype_find(int dtype); /* NULL: none that can be evaluated */

/* f32, f16 and bf16: what x, y and biases may be. */
static inline int swiglu_dtype_is_float(int dtype) {
    return dtype == SWIGLU_F32 || dtype == SWIGLU_F16 || dtype == SWIGLU_BF16;
}
static inline size_t swiglu_float_bytes(int dtype) { return dtype == SWIGLU_F32 ? 4 : 2; }

/* SWIGLU_COMPUTE_F32 or _BF16 for a product whose weights have these dtypes (gate and up; down passes its own twice).
 * Two different dtypes in one packed pair compute in f32 under auto. */
int swiglu_compute_resolve(int compute, int dtype_a, int dtype_b);

static inline int swiglu_compute_known(int compute) {
    return compute >= SWIGLU_COMPUTE_AUTO && compute <= SWIGLU_COMPUTE_INT8;
}

/* E_UNSUPPORTED where nothing computes so with weights of this dtype; name says in the error which they are. */
enum swiglu_status swiglu_compute_check(int compute, int dtype, const char *name, struct swiglu_error *error);

/* Bytes of one stored row of a matrix, and from one stored row to the next (ld_elems already filled in). */
size_t swiglu_matrix_row_bytes(const struct swiglu_matrix *m);
size_t swiglu_matrix_ld_bytes(const struct swiglu_matrix *m);
/* Stored rows and their length: rows, cols, or with in_out the other way round. */
static inline size_t swiglu_matrix_stored_rows(const struct swiglu_matrix *m) { return m->in_out ? m->cols : m->rows; }
static inline size_t swiglu_matrix_stored_cols(const struct swiglu_matrix *m) { return m->in_out ? m->rows : m->cols; }

/* Stored row `row` as f32 into dst (stored_cols values). scratch has swiglu_matrix_row_bytes bytes; it is used when the
 * matrix is behind a read callback. The matrix was validated. */
enum swiglu_status swiglu_matrix_row(const struct swiglu_matrix *m, size_t row, float *dst, void *scratch,
                                     struct swiglu_error *error);

/* Element i of a bias of float dtype. */
float swiglu_vector_at(const struct swiglu_vector *v, size_t i);

#endif
