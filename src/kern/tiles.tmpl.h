/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every tile shape of a level, for the weight form whose wt_*.h was included before; ends that form.
 * Parameters: WT (the form's name in function names), ISA_* of the level: LEVEL, PREFILL_PANELS, PREFILL_A and _B (rows).
 * Shapes are data beside the functions: inst.tmpl.h names them again in the table.
 */
#define TILE_NAME KERN_TILE(WT, a)
#define TILE_MR PREFILL_A
#define TILE_PANELS PREFILL_PANELS
#define TILE_PREFETCH 2
#include "kern/tile.tmpl.h"

#define TILE_NAME KERN_TILE(WT, b)
#define TILE_MR PREFILL_B
#define TILE_PANELS PREFILL_PANELS
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
#define TILE_PREFETCH 1
#include "kern/tile.tmpl.h"

#define TILE_NAME KERN_TILE(WT, 4)
#define TILE_MR 4
#define TILE_PANELS 1
#define TILE_PREFETCH 1
#include "kern/tile.tmpl.h"

#if DECODE_8
#define TILE_NAME KERN_TILE(WT, 8)
#define TILE_MR 8
#define TILE_PANELS 1
#define TILE_PREFETCH 1
#include "kern/tile.tmpl.h"
#endif

#include "kern/wt_end.h"
#undef WT
