/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

/* The position is the bit number in enum swiglu_isa; limit is the level with every level below it. */
static const struct { const char *name; uint64_t limit; } levels[CLI_N_LEVELS] = {
    {"generic", SWIGLU_ISA_GENERIC},
    {"avx2", SWIGLU_ISA_GENERIC | SWIGLU_ISA_AVX2},
    {"avx512", SWIGLU_ISA_GENERIC | SWIGLU_ISA_AVX2 | SWIGLU_ISA_AVX512},
    {"avx512bf16", SWIGLU_ISA_GENERIC | SWIGLU_ISA_AVX2 | SWIGLU_ISA_AVX512 | SWIGLU_ISA_AVX512BF16},
    {"neon", SWIGLU_ISA_GENERIC | SWIGLU_ISA_NEON},
};

const char *cli_level_name(unsigned bit_number) { return levels[bit_number].name; }

uint64_t cli_level_mask(const char *source, const char *name) {
    for (unsigned i = 0; i < CLI_N_LEVELS; i++)
        if (!strcmp(levels[i].name, name)) return levels[i].limit;
    cli_fail(CLI_USAGE, "%s %s: one of generic, avx2, avx512, avx512bf16, neon is expected", source,
             *name ? name : "''");
}

uint64_t cli_level_limit(void) {
    const char *name = getenv("SWIGLU_ISA");
    return name ? cli_level_mask("SWIGLU_ISA", name) : UINT64_MAX;
}

const char *cli_isa_name(uint64_t isa) {
    for (unsigned i = 0; i < CLI_N_LEVELS; i++)
        if (isa == (uint64_t)1 << i) return levels[i].name;
    return "unknown";
}

const char *cli_compute_name(int compute) {
    return compute == SWIGLU_COMPUTE_F32 ? "f32" : compute == SWIGLU_COMPUTE_BF16 ? "bf16" : "auto";
}

const char *cli_dtype_name(int dtype) {
    struct swiglu_dtype_info info = {.struct_size = sizeof info};
    return swiglu_dtype_query(dtype, &info) ? "unknown" : info.name;
}

static void append(char *text, size_t size, const char *format, ...) CLI_PRINTF(3, 4);
static void append(char *text, size_t size, const char *format, ...) {
    size_t used = strlen(text);
    if (used) used += (size_t)snprintf(text + used, size - used, ", ");
    if (used >= size) return;
    va_list args;
    va_start(args, format);
    vsnprintf(text + used, size - used, format, args);
    va_end(args);
}

static void append_bounds(char *text, size_t size, const char *side, float lo, float hi) {
    if (isfinite(lo) && isfinite(hi))
        append(text, size, "%g <= %s <= %g", (double)lo, side, (double)hi);
    else if (isfinite(hi))
        append(text, size, "%s <= %g", side, (double)hi);
    else if (isfinite(lo))
        append(text, size, "%s >= %g", side, (double)lo);
}

void cli_act_words(const struct swiglu_act *act, char *text, size_t size) {
    const float *p = act->param;
    text[0] = 0;
    if (act->kind == SWIGLU_ACT_SILU && act->alpha != 1) append(text, size, "alpha %g", (double)act->alpha);
    if (act->kind == SWIGLU_ACT_XIELU)
        append(text, size, "p %g, n %g, b %g, e %g", (double)p[0], (double)p[1], (double)p[2], (double)p[3]);
    if (act->kind == SWIGLU_ACT_SITU) append(text, size, "b1 %g, b2 %g", (double)p[0], (double)p[1]);
    append_bounds(text, size, act->clamp_after ? "act(gate)" : "gate", act->gate_lo, act->gate_hi);
    append_bounds(text, size, "up", act->up_lo, act->up_hi);
    if (act->up_offset != 0) append(text, size, "up + %g", (double)act->up_offset);
}
