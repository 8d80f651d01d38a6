/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/cpu_detect.h"

#if defined(__aarch64__)
#include <sys/auxv.h>

enum { HWCAP_DOT = 1 << 20 }; /* HWCAP_ASIMDDP */

/* Advanced SIMD is part of the AArch64 baseline of every Linux. */
uint64_t swiglu_cpu_features(void) { return HAS_ARCH_ARM | (getauxval(AT_HWCAP) & HWCAP_DOT ? HAS_DOTPROD : 0); }
#elif !defined(__x86_64__)
uint64_t swiglu_cpu_features(void) { return 0; }
#endif
