/* SPDX-License-Identifier: Apache-2.0 */
/* What the CPU and its operating system can run. */
#ifndef SWIGLU_CPU_H
#define SWIGLU_CPU_H

#include <stdint.h>

/* Bits of enum swiglu_isa, generic always among them. Asked once, then cached; any thread. */
uint64_t swiglu_cpu_levels(void);

/* "yes", or what is missing, for one bit of enum swiglu_isa. A static string. */
const char *swiglu_cpu_why(uint64_t isa);

/* CPUs this process may use: affinity mask within the cgroup's quota, at least 1. */
unsigned swiglu_cpu_count(void);

/* The registers behind the x86 answer, so that a test can ask about CPUs that are not there. */
struct swiglu_cpuid {
    uint32_t max_leaf, leaf1_ecx, leaf7_ebx, leaf7_1_eax;
    uint64_t xcr0; /* 0 when OSXSAVE is clear */
};
uint64_t swiglu_cpu_x86_decode(const struct swiglu_cpuid *id, const char *why[5]);

#endif
