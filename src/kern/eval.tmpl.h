/* SPDX-License-Identifier: Apache-2.0 */
/* An activation or its derivative over an array. Parameters: EVAL_NAME, EVAL_FN(name) the function of a row of act.def. */
SW_KERNEL void EVAL_NAME(const struct swiglu_act *act, size_t n, const float *x, float *y) {
    for (size_t i = 0; i < n; i += VL) {
        V a = v_load_first(x + i, n - i);
        switch (act->kind) {
#define ACT(KIND, name) \
    case SWIGLU_ACT_##KIND: a = EVAL_FN(name)(a, act); break;
#include "kern/act.def"
#undef ACT
        }
        v_store_first(y + i, epi_canonical(a), n - i);
    }
}
#undef EVAL_NAME
#undef EVAL_FN
