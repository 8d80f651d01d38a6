/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

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

int cli_level(unsigned i, struct swiglu_level_info *level) {
    *level = (struct swiglu_level_info){.struct_size = sizeof *level};
    return swiglu_level_query(i, level) == SWIGLU_OK;
}

uint64_t cli_level_mask(const char *source, const char *name) {
    struct swiglu_level_info level;
    const char *known[64] = {0};
    char names[256] = "";
    for (unsigned i = 0; i < 63 && cli_level(i, &level); i++) {
        known[i] = level.name;
        if (!strcmp(level.name, name) && !level.compiled)
            cli_fail(CLI_USAGE, "%s %s: %s; 'swiglu cpu' lists the levels", source, name, level.why);
        if (!strcmp(level.name, name)) return level.limit;
        append(names, sizeof names, "%s", level.name);
    }
    const char *near = *name ? cli_nearest(name, known) : NULL;
    if (near) cli_fail(CLI_USAGE, "%s %s: one of %s is expected; did you mean %s?", source, name, names, near);
    cli_fail(CLI_USAGE, "%s %s: one of %s is expected", source, *name ? name : "''", names);
}

uint64_t cli_level_limit(void) {
    const char *name = getenv("SWIGLU_ISA");
    return name ? cli_level_mask("SWIGLU_ISA", name) : UINT64_MAX;
}

const char *cli_isa_name(uint64_t isa) {
    struct swiglu_level_info level;
    for (unsigned i = 0; cli_level(i, &level); i++)
        if (isa == level.bit) return level.name;
    return "unknown";
}

const char *cli_compute_name(int compute) {
    if (compute == SWIGLU_COMPUTE_INT8) return "int8";
    return compute == SWIGLU_COMPUTE_F32 ? "f32" : compute == SWIGLU_COMPUTE_BF16 ? "bf16" : "auto";
}

const char *cli_dtype_name(int dtype) {
    struct swiglu_dtype_info info = {.struct_size = sizeof info};
    return swiglu_dtype_query(dtype, &info) ? "unknown" : info.name;
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
