/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything of one level: included once by each isa_*.c after its vec_*.h, ends in the level's table.
 *
 * Parameters: LEVEL (name in function names), LEVEL_ISA (enum swiglu_isa); ROWS_MANY_A, ROWS_MANY_B rows of the two tiles
 * of many rows and MANY_PANELS that they span, chosen so that accumulators and operands just fit the registers; ROWS_FEW_C,
 * _D and _E rows of those of few rows, beside 1 and 2 (0 = none), and FEW_ROWS, up to which they win.
 */
#if !defined(ROWS_FEW_C) /* 32 vector registers of 16 lanes */
#define ROWS_FEW_C 4
#define ROWS_FEW_D 8
#define ROWS_FEW_E 10
#define FEW_ROWS 44
#endif

#define KERN_PASTE(a, b, c, d) a##b##_##c##_##d
#define KERN_EXPAND(a, b, c, d) KERN_PASTE(a, b, c, d)
#define KERN_TILE(wt, shape) KERN_EXPAND(swiglu_tile_, wt, shape, LEVEL)
#define KERN_PATH(wt) KERN_EXPAND(swiglu_, path, wt, LEVEL)
#if ROWS_FEW_E
#define KERN_FEW(wt) {KERN_TILE(wt, 1), KERN_TILE(wt, 2), KERN_TILE(wt, c), KERN_TILE(wt, d), KERN_TILE(wt, e)}
#elif ROWS_FEW_D
#define KERN_FEW(wt) {KERN_TILE(wt, 1), KERN_TILE(wt, 2), KERN_TILE(wt, c), KERN_TILE(wt, d)}
#else
#define KERN_FEW(wt) {KERN_TILE(wt, 1), KERN_TILE(wt, 2), KERN_TILE(wt, c)}
#endif
#define KERN_FN(op) KERN_EXPAND(swiglu_, op, kern, LEVEL)
#define KERN_TEXT_(a) #a
#define KERN_TEXT(a) KERN_TEXT_(a)

#if defined(V_DOT_PAIR)
#define KERN_X_BF16 SWIGLU_X_BF16_PAIR
#else
#define KERN_X_BF16 SWIGLU_X_BF16_IN_F32
#endif

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
#define PEAK_ONE 0x3F800000
#define PEAK_DOT(acc, a, b) v_fma(a, b, acc)
#define PEAK_VALUE(acc) acc
#include "kern/peak.tmpl.h"
#if defined(V_DOT_PAIR)
#define PEAK_NAME KERN_FN(peak_bf16)
#define PEAK_ONE 0x3F803F80 /* a pair */
#define PEAK_DOT(acc, a, b) V_DOT_PAIR(acc, a, b)
#define PEAK_VALUE(acc) acc
#include "kern/peak.tmpl.h"
#endif

#define PEAK_NAME KERN_FN(peak_int8)
#define PEAK_ONE 0x01010101
#define PEAK_DOT(acc, a, b) v_from_bits(v_dot4_any(v_bits(acc), v_bits(a), v_bits(b)))
#define PEAK_VALUE(acc) vi_to_f32(v_bits(acc))
#include "kern/peak.tmpl.h"

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
#define WT_TEXT "f32"
#define WT_FORM SWIGLU_FORM_F32
#define WT_X SWIGLU_X_F32
#include "kern/wt_f32.h"
#include "kern/tiles.tmpl.h"
#define WT f16
#define WT_TEXT "f16"
#define WT_FORM SWIGLU_FORM_F16
#define WT_X SWIGLU_X_F32
#include "kern/wt_f16.h"
#include "kern/tiles.tmpl.h"
#define WT bf16
#define WT_TEXT "bf16"
#define WT_FORM SWIGLU_FORM_BF16
#define WT_X SWIGLU_X_F32
#include "kern/wt_bf16.h"
#include "kern/tiles.tmpl.h"
#define WT bf16_dot
#define WT_TEXT "bf16dot"
#define WT_FORM SWIGLU_FORM_BF16_PAIR
#define WT_X KERN_X_BF16
#include "kern/wt_bf16_dot.h"
#include "kern/tiles.tmpl.h"

#include "kern/quant.tmpl.h"
#include "kern/fmt_i8.h"
#include "kern/quant_many.tmpl.h"
#include "kern/fmt_i8_min.h"
#include "kern/quant_many.tmpl.h"
#include "kern/fmt_i8_halves.h"
#include "kern/quant_many.tmpl.h"
#include "kern/fmt_i8_halves_min.h"
#include "kern/quant_many.tmpl.h"
#include "kern/fmt_q8_0.h"
#include "kern/quant_paths.tmpl.h"
#include "kern/fmt_q4_0.h"
#include "kern/quant_paths.tmpl.h"
#include "kern/fmt_q4_1.h"
#include "kern/quant_paths.tmpl.h"
#include "kern/fmt_q5_0.h"
#include "kern/quant_paths.tmpl.h"
#include "kern/fmt_q5_1.h"
#include "kern/quant_paths.tmpl.h"
#include "kern/fmt_mxfp4.h"
#include "kern/quant_paths.tmpl.h"
#include "kern/fmt_q2_k.h"
#include "kern/quant_paths.tmpl.h"
#include "kern/fmt_q3_k.h"
#include "kern/quant_paths.tmpl.h"
#include "kern/fmt_q4_k.h"
#include "kern/quant_paths.tmpl.h"
#include "kern/fmt_q5_k.h"
#include "kern/quant_paths.tmpl.h"
#include "kern/fmt_q6_k.h"
#include "kern/quant_paths.tmpl.h"

#define KERN_PATHS(FORM, name)                                                         \
    [SWIGLU_FORM_##FORM] = {&KERN_EXPAND(swiglu_path_, name, f32, LEVEL), &KERN_EXPAND(swiglu_path_, name, bf16, LEVEL), \
                            &KERN_EXPAND(swiglu_path_, name, int8, LEVEL)}

const struct swiglu_kern KERN_EXPAND(swiglu_, kern, table, LEVEL) = {
    .name = KERN_TEXT(LEVEL),
    .isa = LEVEL_ISA,
    .vl = VL,
    .dot4_bias = V_DOT4_BIAS,
    .rows_many = {ROWS_MANY_A, ROWS_MANY_B},
    .rows_few = {1, 2, ROWS_FEW_C, ROWS_FEW_D, ROWS_FEW_E},
    .few = FEW_ROWS,
    .path = {[SWIGLU_FORM_F32][SWIGLU_ARITH_F32] = &KERN_PATH(f32),
             [SWIGLU_FORM_F16][SWIGLU_ARITH_F32] = &KERN_PATH(f16),
             [SWIGLU_FORM_BF16][SWIGLU_ARITH_F32] = &KERN_PATH(bf16),
             [SWIGLU_FORM_BF16_PAIR][SWIGLU_ARITH_BF16] = &KERN_PATH(bf16_dot),
             KERN_PATHS(Q8_0, q8_0),
             KERN_PATHS(Q4_0, q4_0),
             KERN_PATHS(Q4_1, q4_1),
             KERN_PATHS(Q5_0, q5_0),
             KERN_PATHS(Q5_1, q5_1),
             KERN_PATHS(MXFP4, mxfp4),
             KERN_PATHS(Q2_K, q2_k),
             KERN_PATHS(Q3_K, q3_k),
             KERN_PATHS(Q4_K, q4_k),
             KERN_PATHS(Q5_K, q5_k),
             KERN_PATHS(Q6_K, q6_k)},
    .peak_int8 = KERN_FN(peak_int8),
    .peak_ops_int8 = PEAK_ACCS * VL * 8,
#if defined(V_DOT_PAIR)
    .peak_bf16 = KERN_FN(peak_bf16),
    .peak_ops_bf16 = PEAK_ACCS * VL * 4,
#else
    .peak_bf16 = KERN_FN(peak),
    .peak_ops_bf16 = PEAK_ACCS * VL * 2,
#endif
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
