/* SPDX-License-Identifier: Apache-2.0 */
/* bf16 compute: a lane holds a pair of k, the odd one is eaten first, and a result below 2^-126 becomes a signed zero
 * after each fused multiply-add. Levels with the instruction do both in one; the others widen: the odd k sits in the high
 * half of a lane, the even one in the low half, and x86 sets FTZ and DAZ for the length of a chain (V_FLUSH_ENTER). */
#define W_K_STEP 2
#define W_LANE_BYTES 4
#if defined(V_DOT_PAIR)
#define W_LOAD(p, s) v_load(p)
#define W_DOT(acc, w, x) V_DOT_PAIR(acc, w, x)
#else
#define W_SUBSTEPS 2
#define W_LOAD(p, s) ((s) == 0 ? v_pair_odd(p) : v_pair_even(p))
#define W_DOT(acc, w, x) v_fma_flush(w, x, acc)
#define W_ENTER() V_FLUSH_ENTER()
#define W_LEAVE() V_FLUSH_LEAVE()
#define W_PIN2(a, b) V_PIN2(a, b)
#define W_PIN4(a, b, c, d) V_PIN4(a, b, c, d)
#endif
