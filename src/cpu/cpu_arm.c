/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/cpu_detect.h"

#if defined(__aarch64__)
/* Advanced SIMD is part of the AArch64 baseline of every Linux. */
uint64_t swiglu_cpu_features(void) { return HAS_ARCH_ARM; }
#elif !defined(__x86_64__)
uint64_t swiglu_cpu_features(void) { return 0; }
#endif
