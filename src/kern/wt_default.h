/* SPDX-License-Identifier: Apache-2.0 */
/* Completes a wt_*.h: what it leaves out is as for f32. */
#if !defined(W_K_STEP)
#define W_K_STEP 1
#endif
#if !defined(W_SUBSTEPS)
#define W_SUBSTEPS 1
#endif
#if !defined(W_DOT)
#define W_DOT(acc, w, x) v_fma(w, x, acc)
#endif
#if !defined(W_ENTER)
#define W_ENTER() ((void)0)
#define W_LEAVE() ((void)0)
#define W_PIN2(a, b) ((void)0)
#define W_PIN4(a, b, c, d) ((void)0)
#endif
