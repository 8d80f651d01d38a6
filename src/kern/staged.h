/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Staged rows: x and h in workspace of our own, as tiles of mr rows. A tile is a run of records of
 * [mr][SWIGLU_RECORD_BYTES]; each row of a record holds the same number of consecutive k and 64 bytes that keep rows off the
 * same cache sets. One pointer and literal displacements then reach every row. Rows without data are zero and cost only their
 * arithmetic.
 */
#ifndef SWIGLU_STAGED_H
#define SWIGLU_STAGED_H

#include <stddef.h>

enum {
    SWIGLU_RECORD = 512, /* elements of 4 bytes per row of a record */
    SWIGLU_RECORD_BYTES = SWIGLU_RECORD * 4 + 64
};

/* What a staged row holds per k. */
enum swiglu_x {
    SWIGLU_X_F32,        /* the value */
    SWIGLU_X_BF16_PAIR,  /* bf16; an odd depth is followed by +0 */
    SWIGLU_X_BF16_IN_F32, /* bf16 widened; likewise */
    SWIGLU_X_INT8        /* blocks of 32 k: int8 q[32], f32 d and e = d s, i32 s (the sum of q) and s1 (of the second 16) */
};

enum { SWIGLU_INT8_D = 32, SWIGLU_INT8_E = 36, SWIGLU_INT8_S = 40, SWIGLU_INT8_S1 = 44, SWIGLU_INT8_BYTES = 48 };

/* Not of int8. */
static inline size_t swiglu_staged_k_bytes(int x) { return x == SWIGLU_X_BF16_PAIR ? 2 : 4; }

/* Bytes of k consecutive values of a row (int8: a multiple of 32) within a record. */
static inline size_t swiglu_staged_span(int x, size_t k) {
    return x == SWIGLU_X_INT8 ? k / 32 * SWIGLU_INT8_BYTES : k * swiglu_staged_k_bytes(x);
}

/* k that a row of a record holds. */
static inline size_t swiglu_staged_record_k(int x) {
    return x == SWIGLU_X_INT8 ? 1024 : SWIGLU_RECORD * 4 / swiglu_staged_k_bytes(x);
}

/* Bytes of one row of depth k: whole records. Row r of any tile begins r times this after row 0 of the first one. */
static inline size_t swiglu_staged_bytes(int x, size_t k) {
    const size_t record = swiglu_staged_record_k(x);
    return (k / record + (k % record != 0)) * SWIGLU_RECORD_BYTES;
}

/* From row 0 of a tile of mr rows to its k; an odd k only where a lane is one k, of int8 multiples of
 * 32. Rows are SWIGLU_RECORD_BYTES apart. */
static inline size_t swiglu_staged_at(int x, unsigned mr, size_t k) {
    const size_t record = swiglu_staged_record_k(x);
    return k / record * mr * SWIGLU_RECORD_BYTES + swiglu_staged_span(x, k % record);
}

#endif
