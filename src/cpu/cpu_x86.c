/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/cpu.h"
#include "cpu/cpu_detect.h"
#include "swiglu/swiglu.h"

/* Intel SDM volume 2, CPUID; volume 1, 13.3 (XCR0). A CPU that has AVX under an OS that does not save its registers dies
 * with SIGILL on first use, so CPUID alone decides nothing. */
enum {
    LEAF1_FMA = 1 << 12, LEAF1_OSXSAVE = 1 << 27, LEAF1_AVX = 1 << 28, LEAF1_F16C = 1 << 29,
    LEAF7_AVX2 = 1 << 5, LEAF7_AVX512F = 1 << 16, LEAF7_AVX512DQ = 1 << 17, LEAF7_AVX512BW = 1 << 30,
    LEAF7_1_AVX512BF16 = 1 << 5,
    XCR0_YMM = 0x06, XCR0_ZMM = 0xE6
};
#define LEAF7_AVX512VL (1u << 31)

static int has(uint32_t reg, uint32_t bits) { return (reg & bits) == bits; }

uint64_t swiglu_cpu_x86_decode(const struct swiglu_cpuid *id, const char *why[5]) {
    const uint32_t leaf1 = id->max_leaf >= 1 ? id->leaf1_ecx : 0;
    const uint32_t leaf7 = id->max_leaf >= 7 ? id->leaf7_ebx : 0;
    const uint32_t leaf7_1 = id->max_leaf >= 7 ? id->leaf7_1_eax : 0;
    uint64_t levels = SWIGLU_ISA_GENERIC;
    why[0] = "yes";
    if (!has(leaf1, LEAF1_OSXSAVE) || !has((uint32_t)id->xcr0, XCR0_YMM)) {
        why[1] = why[2] = why[3] = "the operating system does not save AVX registers";
        return levels;
    }
    if (!has(leaf1, LEAF1_AVX | LEAF1_FMA | LEAF1_F16C) || !has(leaf7, LEAF7_AVX2)) {
        why[1] = why[2] = why[3] = "the CPU lacks AVX2, FMA or F16C";
        return levels;
    }
    levels |= SWIGLU_ISA_AVX2;
    why[1] = "yes";
    if (!has((uint32_t)id->xcr0, XCR0_ZMM)) {
        why[2] = why[3] = "the operating system does not save AVX-512 registers";
        return levels;
    }
    if (!has(leaf7, LEAF7_AVX512F | LEAF7_AVX512BW | LEAF7_AVX512VL)) {
        why[2] = why[3] = "the CPU lacks AVX-512 F, BW or VL";
        return levels;
    }
    levels |= SWIGLU_ISA_AVX512;
    why[2] = "yes";
    if (has(leaf7_1, LEAF7_1_AVX512BF16) && has(leaf7, LEAF7_AVX512DQ)) {
        levels |= SWIGLU_ISA_AVX512BF16;
        why[3] = "yes";
    } else {
        why[3] = "the CPU lacks AVX512_BF16 or AVX-512 DQ";
    }
    return levels;
}

#if defined(__x86_64__)
#include <cpuid.h>

uint64_t swiglu_cpu_detect(const char *why[5]) {
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
        if (a >= 1) { /* sub-leaves of leaf 7 */
            __cpuid_count(7, 1, a, b, c, d);
            id.leaf7_1_eax = a;
        }
    }
    if (has(id.leaf1_ecx, LEAF1_OSXSAVE)) {
        uint32_t lo, hi;
        __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
        id.xcr0 = (uint64_t)hi << 32 | lo;
    }
    return swiglu_cpu_x86_decode(&id, why);
}
#endif
