/* SPDX-License-Identifier: Apache-2.0 */
/* All of the block format whose fmt_*.h was included before: slices opened, the int8 tiles of few rows, its paths; ends it. */
#define OPEN_NAME(to) KERN_EXPAND(swiglu_open_, Q_NAME, to, LEVEL)
#include "kern/open.tmpl.h"

#define TILE_NAME KERN_TILE(Q_NAME, 1)
#define TILE_MR 1
#define TILE_GROUP 1
#define TILE_VECTORS 2
#define TILE_PREFETCH 0
#define TILE_AHEAD 0
#include "kern/tile_int8.tmpl.h"

#define TILE_NAME KERN_TILE(Q_NAME, 2)
#define TILE_MR 2
#define TILE_GROUP 2
#define TILE_VECTORS (ROWS_FEW_D || Q_KIND < Q_HALVES ? 2 : 1) /* ROWS_FEW_D: 32 registers */
#define TILE_PREFETCH 0
#define TILE_AHEAD 0
#include "kern/tile_int8.tmpl.h"

#define TILE_NAME KERN_TILE(Q_NAME, c)
#define TILE_MR ROWS_FEW_C
#define TILE_GROUP (ROWS_FEW_D ? ROWS_FEW_C : 2)
#define TILE_VECTORS (ROWS_FEW_D ? 2 : 1)
#define TILE_PREFETCH 1
#define TILE_AHEAD 8192
#include "kern/tile_int8.tmpl.h"

#if ROWS_FEW_D
#define TILE_NAME KERN_TILE(Q_NAME, d)
#define TILE_MR ROWS_FEW_D
#define TILE_GROUP ROWS_FEW_D
#define TILE_VECTORS 1
#define TILE_PREFETCH 1
#define TILE_AHEAD 0
#include "kern/tile_int8.tmpl.h"
#endif

#if ROWS_FEW_E
#define TILE_NAME KERN_TILE(Q_NAME, e)
#define TILE_MR ROWS_FEW_E
#define TILE_GROUP (Q_KIND < Q_HALVES ? ROWS_FEW_E : ROWS_FEW_E / 2)
#define TILE_VECTORS 1
#define TILE_PREFETCH 1
#define TILE_AHEAD 0
#include "kern/tile_int8.tmpl.h"
#endif

#if Q_KIND == Q_SYMMETRIC
#define QUANT_MANY {KERN_TILE(i8, a), KERN_TILE(i8, b)}
#elif Q_KIND == Q_MINIMUM
#define QUANT_MANY {KERN_TILE(i8_min, a), KERN_TILE(i8_min, b)}
#elif Q_KIND == Q_HALVES
#define QUANT_MANY {KERN_TILE(i8_halves, a), KERN_TILE(i8_halves, b)}
#else
#define QUANT_MANY {KERN_TILE(i8_halves_min, a), KERN_TILE(i8_halves_min, b)}
#endif

static const struct swiglu_path KERN_EXPAND(swiglu_path_, Q_NAME, int8, LEVEL) = {
    .kernel = KERN_TEXT(Q_NAME) "_int8_" KERN_TEXT(LEVEL),
    .form = Q_FORM,
    .slice_form = OPEN_FORM,
    .few_form = Q_FORM,
    .x = SWIGLU_X_INT8,
    .panels = 1,
    .fetch_k = ROWS_FEW_D && Q_KIND < Q_HALVES ? 4 : 8, /* a fetch a dword of a group of rows */
    .open = OPEN_NAME(int8),
    .many = QUANT_MANY,
    .few = KERN_FEW(Q_NAME),
};
static const struct swiglu_path KERN_EXPAND(swiglu_path_, Q_NAME, f32, LEVEL) = {
    .kernel = KERN_TEXT(Q_NAME) "_f32_" KERN_TEXT(LEVEL),
    .form = Q_FORM,
    .slice_form = SWIGLU_FORM_F32,
    .few_form = SWIGLU_FORM_F32,
    .x = SWIGLU_X_F32,
    .panels = MANY_PANELS,
    .fetch_k = 2,
    .open = OPEN_NAME(f32),
    .many = {KERN_TILE(f32, a), KERN_TILE(f32, b)},
    .few = KERN_FEW(f32),
};
static const struct swiglu_path KERN_EXPAND(swiglu_path_, Q_NAME, bf16, LEVEL) = {
    .kernel = KERN_TEXT(Q_NAME) "_bf16dot_" KERN_TEXT(LEVEL),
    .form = Q_FORM,
    .slice_form = SWIGLU_FORM_BF16_PAIR,
    .few_form = SWIGLU_FORM_BF16_PAIR,
    .x = KERN_X_BF16,
    .panels = MANY_PANELS,
    .fetch_k = 4,
    .open = OPEN_NAME(bf16),
    .many = {KERN_TILE(bf16_dot, a), KERN_TILE(bf16_dot, b)},
    .few = KERN_FEW(bf16_dot),
};
#undef QUANT_MANY
#undef OPEN_NAME
#undef OPEN_FORM
#include "kern/fmt_end.h"
