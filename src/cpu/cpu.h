/* SPDX-License-Identifier: Apache-2.0 */
/* What the CPU and its operating system can run. */
#ifndef SWIGLU_CPU_H
#define SWIGLU_CPU_H

#include <stddef.h>
#include <stdint.h>

/* A row of level.def. */
struct swiglu_level_row {
    const char *name;
    uint64_t bit, parent; /* of enum swiglu_isa; the first level is its own parent */
    uint64_t needs;       /* enum swiglu_feature, the architecture among them */
    const char *lacks;
};

/* Row i, NULL after the last. */
const struct swiglu_level_row *swiglu_level_row(size_t i);

/* Mask of the level and all below it. */
uint64_t swiglu_level_limit(const struct swiglu_level_row *level);

/* Bits of enum swiglu_isa, generic always among them. Asked once, then cached; any thread. */
uint64_t swiglu_cpu_levels(void);

/* "yes", or what is missing, for one bit of enum swiglu_isa. A static string. */
const char *swiglu_cpu_why(uint64_t isa);

/* What this process may use: its affinity mask within the quotas of its control groups, each at least 1. */
struct swiglu_cpu_counts { unsigned n_cpus, n_cores; };
struct swiglu_cpu_counts swiglu_cpu_counts(void);

/* The same for CPUs and files of a test. CPUs of one core count once in n_cores: they share its arithmetic. */
enum { SWIGLU_CPU_SET_SIZE = 8192 }; /* as the kernel knows them at most */
struct swiglu_cpu_set { unsigned long word[SWIGLU_CPU_SET_SIZE / (8 * sizeof(unsigned long))]; }; /* as cpu_set_t */
struct swiglu_cpu_counts swiglu_cpu_counts_of(const char *root, const struct swiglu_cpu_set *allowed);

/* The levels of a CPU with these features, and why it has one or not, so that a test can ask about CPUs that are not there. */
uint64_t swiglu_levels_of(uint64_t features);
const char *swiglu_why_of(uint64_t features, uint64_t isa);

/* The registers behind the features of an x86 CPU. */
struct swiglu_cpuid {
    uint32_t max_leaf, leaf1_ecx, leaf7_ebx, leaf7_ecx, leaf7_1_eax;
    uint64_t xcr0; /* 0 when OSXSAVE is clear */
};
uint64_t swiglu_cpu_x86_features(const struct swiglu_cpuid *id);

#endif
