/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contract between the kernels and everything above them.
 *
 * Packed weights. A panel holds two vectors of outputs (vl lanes each) along k: for a gated first product vector 0 is gate
 * and vector 1 is up of the same vl hidden units, otherwise they are 2 vl consecutive outputs. How a lane holds k is the
 * panel's form (form.def): block after block of k_block, in each all lanes of vector 0, then of vector 1. Panels are padded
 * with zero lanes, k is not padded (pairs: to even, with +0). One packed form serves every number of rows.
 *
 * A form says how weights lie, an arithmetic how they become terms of a sum. A path is a form in an arithmetic: what a table
 * has kernels for. Staged rows are described in staged.h.
 *
 * Bits. A tile adds, per output, whole chunks of SWIGLU_CHUNK k to a total; nothing is split within a chunk
 * (docs/numerics.md). Callers may cut the k range between chunks, never inside one.
 */
#ifndef SWIGLU_KERN_H
#define SWIGLU_KERN_H

#include "base/attr.h"
#include "kern/staged.h"
#include "swiglu/swiglu.h"

enum { SWIGLU_CHUNK = 1024 }; /* k values per chain of fused multiply-adds: decides bits */

enum swiglu_panel_form {
#define FORM(NAME, text, k_block, lane_bytes) SWIGLU_FORM_##NAME,
#include "kern/form.def"
#undef FORM
    SWIGLU_N_FORMS
};

struct swiglu_form_info {
    const char *name;
    unsigned k_block, lane_bytes; /* a lane holds k_block consecutive k in lane_bytes */
};
extern const struct swiglu_form_info swiglu_forms[SWIGLU_N_FORMS];

/* Bytes of depth k of a panel of `lanes` lanes. */
static inline size_t swiglu_form_bytes(int form, size_t lanes, size_t k) {
    const struct swiglu_form_info *f = &swiglu_forms[form];
    return (k / f->k_block + (k % f->k_block != 0)) * lanes * f->lane_bytes;
}

enum swiglu_arith {
    SWIGLU_ARITH_F32,  /* weights widened exactly, one fused multiply-add per k */
    SWIGLU_ARITH_BF16, /* pairs, odd k first, results below 2^-126 flushed */
    SWIGLU_ARITH_INT8, /* integers of a block format times rows with a scale per 32 k, one fold for these 32 */
    SWIGLU_N_ARITH
};

/* Rows of at least one byte each. */
struct swiglu_fetch {
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
    const char *x;       /* the tile's records, from the first k on */
    const char *w0, *w1; /* panels, from the first k on; w1 only where the tile spans two */
    size_t n_k;          /* whole chunks, except at the end of k */
    float *c;            /* [mr][vectors][vl] totals */
    int add;             /* c holds a total of earlier chunks; otherwise it is undefined */
    const char *next_x;  /* fetched into L2 meanwhile, a line per fetch_k of its path (tiles of many rows) */
    const char *next_w;  /* likewise, advancing by next_w_stride; any address is allowed */
    size_t next_w_stride;
    const struct swiglu_store_args *store; /* NULL, or where complete totals go; its c is this one, then undefined */
    const struct swiglu_fetch *out, *out_last; /* first and last of what is fetched into L1 meanwhile, as next_w */
};
typedef void swiglu_tile_fn(const struct swiglu_tile_args *args);

enum { SWIGLU_N_MANY = 2, SWIGLU_N_FEW = 5, SWIGLU_N_READERS = 3 };

/* A slice of a panel into the form that tiles read: whole blocks of its own form. */
struct swiglu_open_args {
    const char *src; /* the panel at the first k */
    size_t n_k;
    char *dst;
};

/* How a product whose panels have one form runs in one arithmetic. */
struct swiglu_path {
    const char *kernel;         /* "f32_avx512", "q4_k_int8_avx512vnni" */
    uint8_t form;               /* enum swiglu_panel_form, of its panels */
    uint8_t slice_form, few_form; /* of what tiles of many and of few rows read: form, or what open makes of it */
    void (*open)(const struct swiglu_open_args *args); /* to whichever of them is not form; NULL where both are */
    uint8_t x;                  /* enum swiglu_x, of its rows */
    uint8_t panels;             /* adjacent panels that a tile of many rows reads; one of few rows reads one */
    uint8_t fetch_k;            /* k per line that a tile of many rows fetches */
    swiglu_tile_fn *many[SWIGLU_N_MANY], *few[SWIGLU_N_FEW]; /* of the table's rows_many and rows_few */
};

/* The rows of a tile: rows_few[i] or rows_many[i] of a table. */
struct swiglu_shape {
    unsigned mr;
    uint8_t few, i;
};
static inline swiglu_tile_fn *swiglu_path_tile(const struct swiglu_path *p, const struct swiglu_shape *s) {
    return s->few ? p->few[s->i] : p->many[s->i];
}
static inline unsigned swiglu_path_panels(const struct swiglu_path *p, const struct swiglu_shape *s) {
    return s->few ? 1 : p->panels;
}

/* Converts rows of x into one staged tile. */
struct swiglu_stage_args {
    const void *src; /* first row */
    int dtype;       /* f32, f16, bf16 */
    size_t ld_bytes;
    unsigned rows, mr; /* rows with data <= mr; the others become zero */
    size_t k;
    int x; /* enum swiglu_x */
    char *dst; /* the tile at the first k; int8: any whole number of blocks */
};

/* From the totals of a gate|up tile (or a plain first product) to staged h. */
struct swiglu_hidden_args {
    const float *c;    /* [mr][vectors][vl] */
    const float *bias; /* [vectors][vl] or NULL */
    const struct swiglu_act *act;
    unsigned mr, vectors;
    int gated;
    size_t valid; /* hidden units from this tile's first on; lanes beyond it become +0, and with one lane the next unit */
    int x;        /* form of h, not int8 */
    char *h;      /* row 0, at the tile's first hidden unit */
    size_t row_bytes; /* from row to row of h */
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
    int form_h, form_d;     /* SWIGLU_FORM_F32 or _BF16_PAIR, of the panels of h, and of dg and du */
    char *h, *dg, *du;      /* panels at row 0's k; row 0 is even, and there is room for an even number of rows */
    size_t panel_h_bytes, panel_d_bytes; /* to the next panel */
    int x;                  /* form of the staged rows */
    char *row_dg, *row_du;  /* row 0 at the tile's first hidden unit; rows are SWIGLU_RECORD_BYTES apart */
};

/* Weights or activations as they lie in memory, into at most two vectors of lanes of one panel: the only writers of panels
 * beside the epilogue of dh. */
struct swiglu_pack_args {
    const void *src; /* pack_rows: row k holds the lanes of depth k. pack_cols: row l holds all k of lane l */
    int dtype;       /* f32, f16, bf16 */
    size_t ld_bytes;
    size_t n_k, n_lanes;
    int form;        /* F32 of any; F16 of f16 and BF16 of bf16 as they are; BF16_PAIR of any (staging rounding; an odd depth
                        pairs with +0) */
    char *dst;       /* the panel at the first k (even for pairs) and the first lane's vector */
};

/* A vector of lanes of a panel whose k are tokens becomes staged rows of one record each: lane l -> rows[l]. */
struct swiglu_turn_args {
    const char *src; /* panel, at its first k and the vector's first lane */
    size_t n_blocks, n_lanes; /* blocks of k of the form that x stands for: values, or pairs */
    int x;
    char *rows[16];
};

struct swiglu_kern {
    const char *name;
    uint64_t isa; /* one bit of enum swiglu_isa: what the CPU must be able to run */
    unsigned vl;
    uint8_t dot4_bias; /* what packed signed bytes carry: 128 where the dot product takes them unsigned */
    unsigned rows_many[SWIGLU_N_MANY]; /* the larger first */
    unsigned rows_few[SWIGLU_N_FEW];   /* the smallest first; 0 = none */
    unsigned few;                      /* rows up to which they win */
    const struct swiglu_path *path[SWIGLU_N_FORMS][SWIGLU_N_ARITH]; /* NULL where there is none */
    void (*stage)(const struct swiglu_stage_args *args);
    void (*hidden)(const struct swiglu_hidden_args *args);
    void (*store)(const struct swiglu_store_args *args);
    void (*act)(const struct swiglu_act *act, size_t n, const float *x, float *y);
    void (*act_grad)(const struct swiglu_act *act, size_t n, const float *x, float *y);
    void (*grad)(const struct swiglu_grad_args *args);
    void (*pack_rows)(const struct swiglu_pack_args *args);
    void (*pack_cols)(const struct swiglu_pack_args *args);
    void (*turn)(const struct swiglu_turn_args *args);
    /* rounds of peak_ops operations on registers, for measuring P; bf16 with the level's bf16 dot, int8 with its dot of bytes.
     * Returns the sum of all products, each of which is 1: half the operations. */
    float (*peak_f32)(size_t rounds), (*peak_bf16)(size_t rounds), (*peak_int8)(size_t rounds);
    unsigned peak_ops_f32, peak_ops_bf16, peak_ops_int8; /* operations a round */
    unsigned (*read_sum[SWIGLU_N_READERS])(const void *p, size_t bytes); /* bytes: a multiple of 4096; p 64-aligned */
};

/* Tables of this build, best first; generic is last and always there. NULL after the last. */
const struct swiglu_kern *swiglu_kern_table(size_t i);

struct swiglu_need {
    int form, arith;
};

/* The best table within the mask (0 = all) that this CPU runs and that has all paths needed, or NULL. */
const struct swiglu_kern *swiglu_kern_select(uint64_t isa_mask, const struct swiglu_need *needs, size_t n_needs);

/* What a product needs whose weights have these dtypes, in a resolved compute. */
struct swiglu_need swiglu_kern_need(int compute, int dtype_a, int dtype_b);

#endif
