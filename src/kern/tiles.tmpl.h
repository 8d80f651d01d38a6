/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every tile of a level for the path whose wt_*.h was included before, and the path; ends it.
 * Parameters: WT (the path's name in function names), WT_TEXT (in kernel names), WT_FORM, WT_X; those of the level.
 */
#include "kern/wt_default.h"

#define TILE_NAME KERN_TILE(WT, a)
#define TILE_MR ROWS_MANY_A
#define TILE_PANELS MANY_PANELS
#define TILE_PREFETCH 2
#include "kern/tile.tmpl.h"

#define TILE_NAME KERN_TILE(WT, b)
#define TILE_MR ROWS_MANY_B
#define TILE_PANELS MANY_PANELS
#define TILE_PREFETCH 2
#include "kern/tile.tmpl.h"

#define TILE_NAME KERN_TILE(WT, 1)
#define TILE_MR 1
#define TILE_PANELS 1
#define TILE_PREFETCH 0
#include "kern/tile.tmpl.h"

#define TILE_NAME KERN_TILE(WT, 2)
#define TILE_MR 2
#define TILE_PANELS 1
#define TILE_PREFETCH 0
#include "kern/tile.tmpl.h"

#define TILE_NAME KERN_TILE(WT, c)
#define TILE_MR ROWS_FEW_C
#define TILE_PANELS 1
#define TILE_PREFETCH (ROWS_FEW_C > 4)
#include "kern/tile.tmpl.h"

#if ROWS_FEW_D
#define TILE_NAME KERN_TILE(WT, d)
#define TILE_MR ROWS_FEW_D
#define TILE_PANELS 1
#define TILE_PREFETCH 1
#include "kern/tile.tmpl.h"
#endif

#if ROWS_FEW_E
#define TILE_NAME KERN_TILE(WT, e)
#define TILE_MR ROWS_FEW_E
#define TILE_PANELS 1
#define TILE_PREFETCH 1
#include "kern/tile.tmpl.h"
#endif

static const struct swiglu_path KERN_PATH(WT) = {
    .kernel = WT_TEXT "_" KERN_TEXT(LEVEL),
    .form = WT_FORM,
    .slice_form = WT_FORM,
    .few_form = WT_FORM,
    .x = WT_X,
    .panels = MANY_PANELS,
    .fetch_k = 2 * W_K_STEP, /* every two steps */
    .many = {KERN_TILE(WT, a), KERN_TILE(WT, b)},
    .few = KERN_FEW(WT),
};

#include "kern/wt_end.h"
#undef WT
#undef WT_TEXT
#undef WT_FORM
#undef WT_X
