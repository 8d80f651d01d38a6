/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/cpu.h"
#include "cpu/cpu_detect.h"

/* Intel SDM volume 2, CPUID; volume 1, 13.3 (XCR0). A CPU that has AVX under an OS that does not save its registers dies
 * with SIGILL on first use, so CPUID alone decides nothing. */
enum { LEAF1_OSXSAVE = 1 << 27, XCR0_YMM = 0x06, XCR0_ZMM = 0xE6 };

static uint64_t bit(uint32_t reg, unsigned number, uint64_t feature) { return reg >> number & 1 ? feature : 0; }

uint64_t swiglu_cpu_x86_features(const struct swiglu_cpuid *id) {
    const uint32_t leaf1 = id->max_leaf >= 1 ? id->leaf1_ecx : 0;
    const uint32_t leaf7 = id->max_leaf >= 7 ? id->leaf7_ebx : 0;
    const uint32_t leaf7_c = id->max_leaf >= 7 ? id->leaf7_ecx : 0;
    const uint32_t leaf7_1 = id->max_leaf >= 7 ? id->leaf7_1_eax : 0;
    const uint64_t saved = leaf1 & LEAF1_OSXSAVE ? id->xcr0 : 0;
    return HAS_ARCH_X86 | ((saved & XCR0_YMM) == XCR0_YMM ? HAS_YMM : 0) | ((saved & XCR0_ZMM) == XCR0_ZMM ? HAS_ZMM : 0) |
           bit(leaf1, 12, HAS_FMA) | bit(leaf1, 28, HAS_AVX) | bit(leaf1, 29, HAS_F16C) | bit(leaf7, 5, HAS_AVX2) |
           bit(leaf7, 16, HAS_AVX512F) | bit(leaf7, 17, HAS_AVX512DQ) | bit(leaf7, 30, HAS_AVX512BW) |
           bit(leaf7, 31, HAS_AVX512VL) | bit(leaf7_c, 11, HAS_AVX512VNNI) |
           bit(leaf7_1, 5, HAS_AVX512BF16);
}

#if defined(__x86_64__)
#include <cpuid.h>

uint64_t swiglu_cpu_features(void) {
    struct swiglu_cpuid id = {0};
    uint32_t a, b, c, d;
    id.max_leaf = __get_cpuid_max(0, 0);
    if (id.max_leaf >= 1) {
        __cpuid(1, a, b, c, d);
        id.leaf1_ecx = c;
    }
    if (id.max_leaf >= 7) {
        __cpuid_count(7, 0, a, b, c, d);
        id.leaf7_ebx = b;
        id.leaf7_ecx = c;
        if (a >= 1) { /* sub-leaves of leaf 7 */
            __cpuid_count(7, 1, a, b, c, d);
            id.leaf7_1_eax = a;
        }
    }
    if (id.leaf1_ecx & LEAF1_OSXSAVE) {
        uint32_t lo, hi;
        __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
        id.xcr0 = (uint64_t)hi << 32 | lo;
    }
    return swiglu_cpu_x86_features(&id);
}
#endif
