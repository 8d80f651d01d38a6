/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/cpu.h"
#include "kern/isa.h"

static const struct swiglu_kern *const tables[] = {
#if SWIGLU_HAVE_X86
    &swiglu_kern_table_avx512bf16, &swiglu_kern_table_avx512, &swiglu_kern_table_avx2,
#endif
#if SWIGLU_HAVE_NEON
    &swiglu_kern_table_neon,
#endif
    &swiglu_kern_table_generic,
};

const struct swiglu_kern *swiglu_kern_table(size_t i) {
    return i < sizeof tables / sizeof tables[0] ? tables[i] : NULL;
}

const struct swiglu_kern *swiglu_kern_select(uint64_t isa_mask) {
    const uint64_t allowed = swiglu_cpu_levels() & (isa_mask ? isa_mask : UINT64_MAX);
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
        if (tables[i]->isa & allowed) return tables[i];
    return NULL;
}

int swiglu_kern_wt(int compute, int dtype_a, int dtype_b) {
    if (compute == SWIGLU_COMPUTE_BF16) return SWIGLU_WT_BF16_DOT;
    if (dtype_a == SWIGLU_F16 && dtype_b == SWIGLU_F16) return SWIGLU_WT_F16;
    if (dtype_a == SWIGLU_BF16 && dtype_b == SWIGLU_BF16) return SWIGLU_WT_BF16;
    return SWIGLU_WT_F32;
}
