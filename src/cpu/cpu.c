/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* sched_getaffinity, CPU_COUNT */
#include "cpu/cpu.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "cpu/cpu_detect.h"
#include "swiglu/swiglu.h"

static const struct swiglu_level_row rows[] = {
#define LEVEL(NAME, name, ARCH, PARENT, needs, lacks) \
    {#name, SWIGLU_ISA_##NAME, SWIGLU_ISA_##PARENT, HAS_ARCH_##ARCH | (needs), lacks},
#include "cpu/level.def"
#undef LEVEL
};
enum { N_ROWS = sizeof rows / sizeof rows[0] };

const struct swiglu_level_row *swiglu_level_row(size_t i) { return i < N_ROWS ? &rows[i] : NULL; }

static const struct swiglu_level_row *row_of(uint64_t isa) {
    for (size_t i = 0; i < N_ROWS; i++)
        if (rows[i].bit == isa) return &rows[i];
    return NULL;
}

uint64_t swiglu_level_limit(const struct swiglu_level_row *level) {
    uint64_t mask = level->bit;
    for (; level->parent != level->bit; level = row_of(level->parent)) mask |= level->parent;
    return mask;
}

uint64_t swiglu_levels_of(uint64_t features) {
    uint64_t levels = SWIGLU_ISA_GENERIC;
    for (size_t i = 0; i < N_ROWS; i++) /* parents come first */
        if (levels & rows[i].parent && !(rows[i].needs & ~features)) levels |= rows[i].bit;
    return levels;
}

const char *swiglu_why_of(uint64_t features, uint64_t isa) {
    const struct swiglu_level_row *level = row_of(isa);
    if (!level) return "unknown level";
    const uint64_t levels = swiglu_levels_of(features);
    if (level->bit & levels) return "yes";
    if (level->needs & ~features & (HAS_ARCH_X86 | HAS_ARCH_ARM)) return "not an instruction set of this architecture";
    while (!(level->parent & levels)) level = row_of(level->parent); /* what the lowest missing one lacks */
    const uint64_t missing = level->needs & ~features;
    if (missing & HAS_YMM) return "the operating system does not save AVX registers";
    if (missing & HAS_ZMM) return "the operating system does not save AVX-512 registers";
    return level->lacks;
}

uint64_t swiglu_cpu_levels(void) {
    static _Atomic uint64_t cached; /* 0 = not asked yet; asking twice gives the same answer */
    uint64_t levels = atomic_load_explicit(&cached, memory_order_relaxed);
    if (!levels) {
        levels = swiglu_levels_of(swiglu_cpu_features());
        atomic_store_explicit(&cached, levels, memory_order_relaxed);
    }
    return levels;
}

const char *swiglu_cpu_why(uint64_t isa) { return swiglu_why_of(swiglu_cpu_features(), isa); }

/* The cgroup's CPU quota in whole CPUs, rounded up; 0 = none. Version 2 first, then version 1. */
static unsigned cgroup_quota(void) {
    long long quota = 0, period = 0;
    FILE *f = fopen("/sys/fs/cgroup/cpu.max", "re");
    if (f) {
        const int n = fscanf(f, "%lld %lld", &quota, &period); /* "max 100000" reads nothing */
        fclose(f);
        if (n != 2) return 0;
    } else {
        static const char *const paths[2] = {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "/sys/fs/cgroup/cpu/cpu.cfs_period_us"};
        long long *const out[2] = {&quota, &period};
        for (int i = 0; i < 2; i++) {
            if (!(f = fopen(paths[i], "re"))) return 0;
            const int n = fscanf(f, "%lld", out[i]);
            fclose(f);
            if (n != 1) return 0;
        }
    }
    if (quota <= 0 || period <= 0) return 0;
    return (unsigned)((quota + period - 1) / period);
}

unsigned swiglu_cpu_count(void) {
    unsigned n = 1;
#if defined(CPU_COUNT)
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0) n = (unsigned)CPU_COUNT(&set);
    else
#endif
    {
        const long online = sysconf(_SC_NPROCESSORS_ONLN);
        if (online > 0) n = (unsigned)online;
    }
    const unsigned quota = cgroup_quota();
    if (quota && quota < n) n = quota;
    return n ? n : 1;
}
