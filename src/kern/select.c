/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/cpu.h"
#include "kern/isa.h"
#include "kern/lane.h"

static const struct swiglu_kern *const tables[] = { /* best last */
#define LEVEL(NAME, name, ARCH, ...) SWIGLU_IF_##ARCH(&swiglu_kern_table_##name,)
#include "cpu/level.def"
#undef LEVEL
};
enum { N_TABLES = sizeof tables / sizeof tables[0] };

const struct swiglu_kern *swiglu_kern_table(size_t i) { return i < N_TABLES ? tables[N_TABLES - 1 - i] : NULL; }

const struct swiglu_form_info swiglu_forms[SWIGLU_N_FORMS] = {
#define FORM(NAME, text, k_block, lane_bytes) {text, k_block, lane_bytes},
#include "kern/form.def"
#undef FORM
};

const struct swiglu_kern *swiglu_kern_select(uint64_t isa_mask, const struct swiglu_need *needs, size_t n_needs) {
    const uint64_t allowed = swiglu_cpu_levels() & (isa_mask ? isa_mask : UINT64_MAX);
    const struct swiglu_kern *kern;
    for (size_t i = 0; (kern = swiglu_kern_table(i)); i++) {
        size_t n = 0;
        if (!(kern->isa & allowed)) continue;
        while (n < n_needs && kern->path[needs[n].form][needs[n].arith]) n++;
        if (n == n_needs) return kern;
    }
    return NULL;
}

struct swiglu_need swiglu_kern_need(int compute, int dtype_a, int dtype_b) {
    if (compute == SWIGLU_COMPUTE_INT8) return (struct swiglu_need){swiglu_lane_form(dtype_a), SWIGLU_ARITH_INT8};
    if (compute == SWIGLU_COMPUTE_BF16) return (struct swiglu_need){SWIGLU_FORM_BF16_PAIR, SWIGLU_ARITH_BF16};
    if (dtype_a == SWIGLU_F16 && dtype_b == SWIGLU_F16) return (struct swiglu_need){SWIGLU_FORM_F16, SWIGLU_ARITH_F32};
    if (dtype_a == SWIGLU_BF16 && dtype_b == SWIGLU_BF16) return (struct swiglu_need){SWIGLU_FORM_BF16, SWIGLU_ARITH_F32};
    return (struct swiglu_need){SWIGLU_FORM_F32, SWIGLU_ARITH_F32};
}
