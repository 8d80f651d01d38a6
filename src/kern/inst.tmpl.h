/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything of one level: included once by each isa_*.c after its vec_*.h, ends in the level's table.
 *
 * Parameters: LEVEL (name in function names), LEVEL_ISA (enum swiglu_isa); PREFILL_A, PREFILL_B rows of the two prefill
 * tiles and PREFILL_PANELS that they span, chosen so that accumulators and operands just fit the registers; DECODE_8 where
 * 8 rows of one panel fit, too.
 */
#define KERN_PASTE(a, b, c, d) a##b##_##c##_##d
#define KERN_EXPAND(a, b, c, d) KERN_PASTE(a, b, c, d)
#define KERN_TILE(wt, shape) KERN_EXPAND(swiglu_tile_, wt, shape, LEVEL)
#define KERN_FN(op) KERN_EXPAND(swiglu_, op, kern, LEVEL)
#define KERN_TEXT_(a) #a
#define KERN_TEXT(a) KERN_TEXT_(a)

#include "kern/act.tmpl.h"

#define HIDDEN_NAME KERN_FN(hidden)
#define STORE_NAME KERN_FN(store)
#include "kern/epilogue.tmpl.h"

#define EVAL_NAME KERN_FN(act)
#define EVAL_FN(name) act_##name
#include "kern/eval.tmpl.h"
#define EVAL_NAME KERN_FN(act_grad)
#define EVAL_FN(name) act_grad_##name
#include "kern/eval.tmpl.h"

#define STAGE_NAME KERN_FN(stage)
#include "kern/rows.tmpl.h"

#define GRAD_NAME KERN_FN(grad)
#include "kern/grad.tmpl.h"

#define PACK_ROWS_NAME KERN_FN(pack_rows)
#define PACK_COLS_NAME KERN_FN(pack_cols)
#define TURN_NAME KERN_FN(turn)
#include "kern/pack.tmpl.h"

#define PEAK_ACCS 12
#define PEAK_NAME KERN_FN(peak)
#define PEAK_DOT(acc, a, b) v_fma(a, b, acc)
#include "kern/peak.tmpl.h"
#if defined(V_DOT_PAIR)
#define PEAK_NAME KERN_FN(peak_bf16)
#define PEAK_DOT(acc, a, b) V_DOT_PAIR(acc, a, b)
#include "kern/peak.tmpl.h"
#endif

#define READ_NAME KERN_FN(read_2)
#define READ_VECTORS 2
#include "kern/read.tmpl.h"
#define READ_NAME KERN_FN(read_4)
#define READ_VECTORS 4
#include "kern/read.tmpl.h"
#define READ_NAME KERN_FN(read_8)
#define READ_VECTORS 8
#include "kern/read.tmpl.h"

#define WT f32
#include "kern/wt_f32.h"
#include "kern/tiles.tmpl.h"
#define WT f16
#include "kern/wt_f16.h"
#include "kern/tiles.tmpl.h"
#define WT bf16
#include "kern/wt_bf16.h"
#include "kern/tiles.tmpl.h"
#define WT bf16_dot
#include "kern/wt_bf16_dot.h"
#include "kern/tiles.tmpl.h"

#define KERN_RUN(shape) \
    {KERN_TILE(f32, shape), KERN_TILE(f16, shape), KERN_TILE(bf16, shape), KERN_TILE(bf16_dot, shape)}

const struct swiglu_kern KERN_EXPAND(swiglu_, kern, table, LEVEL) = {
    .name = KERN_TEXT(LEVEL),
    .isa = LEVEL_ISA,
    .vl = VL,
    .wt = {{"f32_" KERN_TEXT(LEVEL), 1, 4, 1, SWIGLU_X_F32},
           {"f16_" KERN_TEXT(LEVEL), 1, 2, 1, SWIGLU_X_F32},
           {"bf16_" KERN_TEXT(LEVEL), 1, 2, 1, SWIGLU_X_F32},
#if defined(V_DOT_PAIR)
           {"bf16dot_" KERN_TEXT(LEVEL), 2, 4, 1, SWIGLU_X_BF16_PAIR}},
    .peak_bf16 = KERN_FN(peak_bf16),
    .peak_ops_bf16 = PEAK_ACCS * VL * 4,
#else
           {"bf16dot_" KERN_TEXT(LEVEL), 2, 4, 2, SWIGLU_X_BF16_IN_F32}},
    .peak_bf16 = KERN_FN(peak),
    .peak_ops_bf16 = PEAK_ACCS * VL * 2,
#endif
    .prefill = {{PREFILL_A, PREFILL_PANELS, KERN_RUN(a)}, {PREFILL_B, PREFILL_PANELS, KERN_RUN(b)}},
    .decode = {{1, 1, KERN_RUN(1)},
               {2, 1, KERN_RUN(2)},
               {4, 1, KERN_RUN(4)},
#if DECODE_8
               {8, 1, KERN_RUN(8)}
#endif
    },
    .stage = KERN_FN(stage),
    .hidden = KERN_FN(hidden),
    .store = KERN_FN(store),
    .act = KERN_FN(act),
    .act_grad = KERN_FN(act_grad),
    .grad = KERN_FN(grad),
    .pack_rows = KERN_FN(pack_rows),
    .pack_cols = KERN_FN(pack_cols),
    .turn = KERN_FN(turn),
    .peak_f32 = KERN_FN(peak),
    .peak_ops_f32 = PEAK_ACCS * VL * 2,
    .read_sum = {KERN_FN(read_2), KERN_FN(read_4), KERN_FN(read_8)},
};
