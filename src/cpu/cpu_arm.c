/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/cpu_detect.h"
#include "swiglu/swiglu.h"

#if defined(__aarch64__)
/* Advanced SIMD is part of the AArch64 baseline of every Linux. */
uint64_t swiglu_cpu_detect(const char *why[5]) {
    why[0] = why[4] = "yes";
    return SWIGLU_ISA_GENERIC | SWIGLU_ISA_NEON;
}
#elif !defined(__x86_64__)
uint64_t swiglu_cpu_detect(const char *why[5]) {
    why[0] = "yes";
    return SWIGLU_ISA_GENERIC;
}
#endif
