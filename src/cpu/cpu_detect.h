/* SPDX-License-Identifier: Apache-2.0 */
/* Implemented once per architecture: cpu_x86.c, cpu_arm.c. */
#ifndef SWIGLU_CPU_DETECT_H
#define SWIGLU_CPU_DETECT_H

#include <stdint.h>

/* What level.def asks for. YMM and ZMM are registers that the operating system saves. */
enum swiglu_feature {
    HAS_ARCH_X86 = 1 << 0, HAS_ARCH_ARM = 1 << 1, HAS_ARCH_ANY = 0,
    HAS_YMM = 1 << 2, HAS_ZMM = 1 << 3,
    HAS_AVX = 1 << 4, HAS_FMA = 1 << 5, HAS_F16C = 1 << 6, HAS_AVX2 = 1 << 7,
    HAS_AVX512F = 1 << 8, HAS_AVX512BW = 1 << 9, HAS_AVX512VL = 1 << 10, HAS_AVX512DQ = 1 << 11, HAS_AVX512BF16 = 1 << 12,
    HAS_AVX512VNNI = 1 << 13,
    HAS_DOTPROD = 1 << 14
};

/* Features of this CPU, its architecture among them. */
uint64_t swiglu_cpu_features(void);

#endif
