/* SPDX-License-Identifier: Apache-2.0 */
/* The int8 tiles of many rows, over opened slices of the fmt_i8*.h included before; ends it. */
#if ROWS_FEW_D /* 32 registers */
#define MANY_GROUP(mr) (Q_KIND >= Q_HALVES ? (mr) / 2 : (mr))
#else
#define MANY_GROUP(mr) (Q_KIND >= Q_HALVES ? 1 : 2)
#endif

#define TILE_NAME KERN_TILE(Q_NAME, a)
#define TILE_MR ROWS_MANY_A
#define TILE_GROUP MANY_GROUP(ROWS_MANY_A)
#define TILE_VECTORS 2
#define TILE_PREFETCH 2
#include "kern/tile_int8.tmpl.h"

#define TILE_NAME KERN_TILE(Q_NAME, b)
#define TILE_MR ROWS_MANY_B
#define TILE_GROUP MANY_GROUP(ROWS_MANY_B)
#define TILE_VECTORS 2
#define TILE_PREFETCH 2
#include "kern/tile_int8.tmpl.h"

#undef MANY_GROUP
#include "kern/fmt_end.h"
