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
    SWIGLU_X_BF16_IN_F32 /* bf16 widened; likewise */
};

static inline size_t swiglu_staged_k_bytes(int x) { return x == SWIGLU_X_BF16_PAIR ? 2 : 4; }

/* k that a row of a record holds. */
static inline size_t swiglu_staged_record_k(int x) { return SWIGLU_RECORD * 4 / swiglu_staged_k_bytes(x); }

/* Bytes of one row of depth k: whole records. Row r of any tile begins r times this after row 0 of the first one. */
static inline size_t swiglu_staged_bytes(int x, size_t k) {
    const size_t record = swiglu_staged_record_k(x);
    return (k / record + (k % record != 0)) * SWIGLU_RECORD_BYTES;
}

/* From row 0 of a tile of mr rows to its k; an odd k only where a lane is one k. Rows are SWIGLU_RECORD_BYTES apart. */
static inline size_t swiglu_staged_at(int x, unsigned mr, size_t k) {
    const size_t record = swiglu_staged_record_k(x);
    return k / record * mr * SWIGLU_RECORD_BYTES + k % record * swiglu_staged_k_bytes(x);
}

#endif
