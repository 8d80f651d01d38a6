/* SPDX-License-Identifier: Apache-2.0 */
#include "dtype/dtype.h"

#include "base/half.h"
#include "dtype/encode.h"
#include "dtype/part.h"
#include "dtype/quant.h"

static const struct swiglu_dtype_row rows[] = {
#define NO_SCALES {0}
#define F16_AT(byte) {.n_f16 = 1, .at = {byte}}
#define F16S_AT(byte, byte2) {.n_f16 = 2, .at = {byte, byte2}}
#define E8M0_AT(byte) {.n_e8m0 = 1, .at = {byte}}
#define swiglu_part_f32 NULL
#define swiglu_part_f16 NULL
#define swiglu_part_bf16 NULL
#define DTYPE(NAME, text, elems, bytes, file_type, scales, name) \
    {SWIGLU_##NAME, text, elems, bytes, file_type, scales, swiglu_decode_##name, swiglu_encode_##name, swiglu_part_##name},
#include "dtype/dtype.def"
#undef DTYPE
};
enum { N_ROWS = sizeof rows / sizeof rows[0] };

const struct swiglu_dtype_row *swiglu_dtype_find(int dtype) {
    for (size_t i = 0; i < N_ROWS; i++)
        if (rows[i].dtype == dtype) return &rows[i];
    return NULL;
}

int swiglu_dtype_at(size_t i) { return i < N_ROWS ? rows[i].dtype : -1; }

int swiglu_compute_resolve(int compute, int dtype_a, int dtype_b) {
    if (compute != SWIGLU_COMPUTE_AUTO) return compute;
    return dtype_a == SWIGLU_BF16 && dtype_b == SWIGLU_BF16 ? SWIGLU_COMPUTE_BF16 : SWIGLU_COMPUTE_F32;
}

enum swiglu_status swiglu_compute_check(int compute, int dtype, const char *name, struct swiglu_error *error) {
    const struct swiglu_dtype_row *t = swiglu_dtype_find(dtype);
    REQUIRE(compute != SWIGLU_COMPUTE_INT8 || t->part, SWIGLU_E_UNSUPPORTED,
            "%s: int8 compute takes block formats only, not %s; auto chooses for each product", name, t->name);
    return SWIGLU_OK;
}

static size_t bytes_of(const struct swiglu_matrix *m, size_t elems) {
    const struct swiglu_dtype_row *t = swiglu_dtype_find(m->dtype);
    return elems / t->block_elems * t->block_bytes;
}

size_t swiglu_matrix_row_bytes(const struct swiglu_matrix *m) { return bytes_of(m, swiglu_matrix_stored_cols(m)); }

size_t swiglu_matrix_ld_bytes(const struct swiglu_matrix *m) { return bytes_of(m, m->ld_elems); }

enum swiglu_status swiglu_matrix_row(const struct swiglu_matrix *m, size_t row, float *dst, void *scratch,
                                     struct swiglu_error *error) {
    const struct swiglu_dtype_row *t = swiglu_dtype_find(m->dtype);
    const uint64_t at = m->start + (uint64_t)row * swiglu_matrix_ld_bytes(m);
    const void *src = (const char *)m->data + at;
    if (!m->data) {
        TRY(m->read(m->ctx, at, scratch, swiglu_matrix_row_bytes(m), error));
        src = scratch;
    }
    t->decode(src, swiglu_matrix_stored_cols(m) / t->block_elems, dst);
    return SWIGLU_OK;
}

float swiglu_vector_at(const struct swiglu_vector *v, size_t i) {
    float f;
    const size_t size = swiglu_float_bytes(v->dtype);
    swiglu_dtype_find(v->dtype)->decode((const char *)v->data + i * size, 1, &f);
    return f;
}
