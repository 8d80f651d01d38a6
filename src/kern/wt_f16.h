/* SPDX-License-Identifier: Apache-2.0 */
/* f16 weights in f32 compute: widened exactly in registers, then as f32. */
#define W_K_STEP 1
#define W_SUBSTEPS 1
#define W_LANE_BYTES 2
#define W_LOAD(p, s) v_load_f16(p)
#define W_DOT(acc, w, x) v_fma(w, x, acc)
#define W_ENTER() ((void)0)
#define W_LEAVE() ((void)0)
#define W_PIN2(a, b) ((void)0)
#define W_PIN4(a, b, c, d) ((void)0)
#define W_BLOCK (SWIGLU_RECORD / W_SUBSTEPS) /* no blocks: nothing to fold */
#define W_FOLD(acc) ((void)0)
