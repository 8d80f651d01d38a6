/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contract between the kernels and everything above them.
 *
 * Packed weights. A panel holds two vectors of outputs (vl lanes each), step by step along k: for a gated first product
 * vector 0 is gate and vector 1 is up of the same vl hidden units, otherwise they are 2 vl consecutive outputs. A step
 * eats k_step values of k; a lane takes lane_bytes a step. Panels are padded with zero lanes, k is not padded (bf16 dot:
 * to even, with +0). One packed form serves every number of rows.
 *
 * Staged rows. x and h live in workspace of our own as tiles of mr rows: records of [mr][SWIGLU_RECORD_BYTES], each row
 * of a record holding SWIGLU_RECORD elements of 4 bytes and 64 bytes that keep rows off the same cache sets. One pointer
 * and literal displacements then reach every row. Rows without data are zero and cost only their arithmetic.
 *
 * Bits. A tile adds, per output, whole chunks of SWIGLU_CHUNK k to a total; nothing is split within a chunk
 * (docs/numerics.md). Callers may cut the k range between chunks, never inside one.
 */
#ifndef SWIGLU_KERN_H
#define SWIGLU_KERN_H

#include "base/attr.h"
#include "swiglu/swiglu.h"

enum {
    SWIGLU_CHUNK = 1024,                           /* k values per chain of fused multiply-adds: decides bits */
    SWIGLU_RECORD = 512,                           /* staged 4-byte elements per row of a record */
    SWIGLU_RECORD_BYTES = SWIGLU_RECORD * 4 + 64
};

/* How packed weights become terms of a chain. */
enum swiglu_wt {
    SWIGLU_WT_F32,      /* f32 weights, f32 compute */
    SWIGLU_WT_F16,      /* f16 weights widened in registers, f32 compute */
    SWIGLU_WT_BF16,     /* bf16 weights widened in registers, f32 compute */
    SWIGLU_WT_BF16_DOT, /* bf16 compute: pairs, odd k first, results below 2^-126 flushed */
    SWIGLU_N_WT
};

/* What a staged element holds. */
enum swiglu_x {
    SWIGLU_X_F32,          /* the value */
    SWIGLU_X_BF16_PAIR,    /* two bf16, the even k in the low half */
    SWIGLU_X_BF16_IN_F32   /* one bf16 value widened; an even number of them */
};

struct swiglu_wt_info {
    const char *kernel;      /* "f32_avx512" */
    unsigned k_step, lane_bytes;
    unsigned elems_per_step; /* staged elements a step reads */
    int x;                   /* enum swiglu_x */
};

/* Rows of at least one byte each. */
struct swiglu_run {
    const char *at;
    size_t bytes, rows, stride;
};

/* From the totals of a down tile to y. */
struct swiglu_store_args {
    const float *c;
    const float *bias; /* [vectors][vl] or NULL */
    unsigned rows, vectors;
    size_t valid; /* columns from the tile's first on that exist in y; nothing beyond them is read or written */
    void *y;      /* row 0, at the tile's first column */
    int dtype;
    size_t ld_bytes;
    const float *sum; /* NULL, or row 0 of what the totals are added to; may be y */
    size_t sum_bytes; /* from row to row of it */
};

struct swiglu_tile_args {
    const char *x;       /* the tile's records, from the first step on */
    const char *w0, *w1; /* panels, from the first step on; w1 only where the tile spans two */
    size_t n_steps;      /* whole chunks, except at the end of k */
    float *c;            /* [mr][vectors][vl] totals */
    int add;             /* c holds a total of earlier chunks; otherwise it is undefined */
    const char *next_x;  /* prefetched to L2 meanwhile, a line per two steps (prefill tiles) */
    const char *next_w;  /* likewise, advancing by next_w_stride; any address is allowed */
    size_t next_w_stride;
    const struct swiglu_store_args *store; /* NULL, or where complete totals go; its c is this one, then undefined */
    const struct swiglu_run *out, *out_last; /* first and last of a list of what is fetched into L1 meanwhile, likewise */
};
typedef void swiglu_tile_fn(const struct swiglu_tile_args *args);

struct swiglu_tile {
    unsigned mr, panels; /* rows, and adjacent panels read at once */
    swiglu_tile_fn *run[SWIGLU_N_WT];
};

/* Converts rows of x into one staged tile. */
struct swiglu_stage_args {
    const void *src; /* first row */
    int dtype;       /* f32, f16, bf16 */
    size_t ld_bytes;
    unsigned rows, mr; /* rows with data <= mr; the others become zero */
    size_t k;
    int x; /* enum swiglu_x */
    char *dst;
};

/* From the totals of a gate|up tile (or a plain first product) to staged h. */
struct swiglu_hidden_args {
    const float *c;    /* [mr][vectors][vl] */
    const float *bias; /* [vectors][vl] or NULL */
    const struct swiglu_act *act;
    unsigned mr, vectors;
    int gated;
    size_t valid; /* hidden units from this tile's first on; lanes beyond it become +0 */
    int x;        /* form of h */
    char *h;      /* row 0, at the tile's first hidden unit */
};

/* From the totals of dh to h, dg and du (training). Each goes to a panel whose k are the rows, and dg and du also to staged
 * rows, as the product for dx reads them. */
struct swiglu_grad_args {
    const float *c;         /* dh, [mr][vectors][vl] */
    const float *gate, *up; /* row 0 at the tile's first hidden unit, before clamps; ungated: gate holds the only product */
    size_t row_elems;       /* of both: from row to row, */
    size_t vector_elems;    /* from one vector of units to the next within a group of per_group, */
    size_t group_elems;     /* and from group to group: rows as they are kept, or totals as tiles leave them */
    unsigned per_group;
    const float *bias;      /* NULL, or still to be added: [panels][2][vl] of the first product, at the tile's first unit */
    const struct swiglu_act *act;
    unsigned mr, rows, vectors; /* rows with data; the others become +0 */
    int gated;
    size_t valid;           /* hidden units from the tile's first on */
    int wt_h, wt_d;         /* SWIGLU_WT_F32 or _BF16_DOT: form of the panels of h, and of dg and du */
    char *h, *dg, *du;      /* panels at row 0's step; row 0 is even, and there is room for an even number of rows */
    size_t panel_h_bytes, panel_d_bytes; /* to the next panel */
    int x;                  /* form of the staged rows */
    char *row_dg, *row_du;  /* row 0 at the tile's first hidden unit; rows are SWIGLU_RECORD_BYTES apart */
};

/* Weights or activations as they lie in memory, into at most two vectors of lanes of one panel. */
struct swiglu_pack_args {
    const void *src; /* pack_rows: row k holds the lanes of depth k. pack_cols: row l holds all k of lane l */
    int dtype;       /* f32, f16, bf16 */
    size_t ld_bytes;
    size_t n_k, n_lanes;
    int wt;          /* SWIGLU_WT_F32 or _BF16_DOT (staging rounding; an odd depth pairs with +0) */
    char *dst;       /* the panel at the first k (even for pairs) and the first lane's vector */
};

/* A vector of lanes of a panel whose k are tokens becomes staged rows of one record each: lane l -> rows[l]. */
struct swiglu_turn_args {
    const char *src; /* panel, at its first step and the vector's first lane */
    size_t n_steps, n_lanes;
    int x;
    char *rows[16];
};

enum { SWIGLU_N_PREFILL = 2, SWIGLU_N_DECODE = 4, SWIGLU_N_READERS = 3 };

struct swiglu_kern {
    const char *name;
    uint64_t isa; /* one bit of enum swiglu_isa: what the CPU must be able to run */
    unsigned vl;
    struct swiglu_wt_info wt[SWIGLU_N_WT];
    struct swiglu_tile prefill[SWIGLU_N_PREFILL]; /* the larger first */
    struct swiglu_tile decode[SWIGLU_N_DECODE];   /* fewest rows first; one panel each; mr 0 = none */
    void (*stage)(const struct swiglu_stage_args *args);
    void (*hidden)(const struct swiglu_hidden_args *args);
    void (*store)(const struct swiglu_store_args *args);
    void (*act)(const struct swiglu_act *act, size_t n, const float *x, float *y);
    void (*act_grad)(const struct swiglu_act *act, size_t n, const float *x, float *y);
    void (*grad)(const struct swiglu_grad_args *args);
    void (*pack_rows)(const struct swiglu_pack_args *args);
    void (*pack_cols)(const struct swiglu_pack_args *args);
    void (*turn)(const struct swiglu_turn_args *args);
    /* rounds of peak_ops multiply-adds on registers, for measuring P; bf16 with the level's bf16 dot */
    float (*peak_f32)(size_t rounds), (*peak_bf16)(size_t rounds);
    unsigned peak_ops_f32, peak_ops_bf16; /* operations a round */
    unsigned (*read_sum[SWIGLU_N_READERS])(const void *p, size_t bytes); /* bytes: a multiple of 4096; p 64-aligned */
};

/* Tables of this build, best first; generic is last and always there. NULL after the last. */
const struct swiglu_kern *swiglu_kern_table(size_t i);

/* The best table within the mask (0 = all) that this CPU runs, or NULL. */
const struct swiglu_kern *swiglu_kern_select(uint64_t isa_mask);

/* The weight form of a product whose weights have these dtypes, in a resolved compute. */
int swiglu_kern_wt(int compute, int dtype_a, int dtype_b);

/* Steps, and staged elements of a row, for depth k. */
static inline size_t swiglu_kern_steps(const struct swiglu_wt_info *wt, size_t k) {
    return (k + wt->k_step - 1) / wt->k_step;
}
/* Bytes of a staged row of depth k: whole records. */
static inline size_t swiglu_kern_row_bytes(const struct swiglu_wt_info *wt, size_t k) {
    const size_t elems = swiglu_kern_steps(wt, k) * wt->elems_per_step;
    return (elems + SWIGLU_RECORD - 1) / SWIGLU_RECORD * SWIGLU_RECORD_BYTES;
}

#endif
