/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/cpu.h"

#include <stdatomic.h>

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
