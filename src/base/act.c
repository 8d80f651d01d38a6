/* SPDX-License-Identifier: Apache-2.0 */
#include "base/act.h"

#include <math.h>
#include <string.h>

struct act_name {
    const char *name, *about;
    int kind;
    float alpha, up_offset, gate_lo, gate_hi, up_lo, up_hi;
    int clamp_after;
    float param[6];
};

#define NO_BOUNDS .gate_lo = -INFINITY, .gate_hi = INFINITY, .up_lo = -INFINITY, .up_hi = INFINITY
#define PLAIN(n, k, text) {.name = n, .about = text, .kind = SWIGLU_ACT_##k, .alpha = 1, NO_BOUNDS}

/* Where two names mean the same function both are listed; a checkpoint's string is looked up here as it stands. */
static const struct act_name names[] = {
    PLAIN("silu", SILU, "a / (1 + exp(-a))"),
    PLAIN("swish", SILU, "another name of silu"),
    PLAIN("gelu", GELU_ERF, "a (1 + erf(a / sqrt 2)) / 2"),
    PLAIN("gelu_erf", GELU_ERF, "another name of gelu"),
    PLAIN("gelu_tanh", GELU_TANH, "a (1 + tanh(sqrt(2/pi) (a + 0.044715 a^3))) / 2"),
    PLAIN("gelu_pytorch_tanh", GELU_TANH, "another name of gelu_tanh"),
    PLAIN("gelu_new", GELU_TANH, "another name of gelu_tanh"),
    PLAIN("gelu_fast", GELU_TANH, "another name of gelu_tanh"),
    {.name = "quick_gelu", .about = "a / (1 + exp(-1.702 a))", .kind = SWIGLU_ACT_SILU, .alpha = 1.702f, NO_BOUNDS},
    PLAIN("relu", RELU, "max(a, 0)"),
    PLAIN("relu2", RELU2, "max(a, 0)^2"),
    PLAIN("relu_squared", RELU2, "another name of relu2"),
    PLAIN("sigmoid", SIGMOID, "1 / (1 + exp(-a)), gated: GLU"),
    PLAIN("glu", SIGMOID, "another name of sigmoid"),
    PLAIN("identity", IDENTITY, "a, gated: bilinear"),
    PLAIN("linear", IDENTITY, "another name of identity"),
    {.name = "xielu", .about = "Apertus: a > 0: p a^2 + b a, else (expm1(min(a, e)) - a) n + b a; p, n set per layer",
     .kind = SWIGLU_ACT_XIELU, .alpha = 1, NO_BOUNDS, .param = {0.8f, 0.8f + 0.5f, 0.5f, -1e-6f}},
    {.name = "situ", .about = "Kimi K3: 4 tanh(g / 4) sigmoid(g) * 25 tanh(u / 25)",
     .kind = SWIGLU_ACT_SITU, .alpha = 1, NO_BOUNDS, .param = {4, 25}},
    {.name = "gpt_oss", .about = "g sigmoid(1.702 g) (u + 1), g <= 7, -7 <= u <= 7",
     .kind = SWIGLU_ACT_SILU, .alpha = 1.702f, .up_offset = 1, .gate_lo = -INFINITY, .gate_hi = 7, .up_lo = -7, .up_hi = 7},
    {.name = "minimax_m3", .about = "the maths of gpt_oss, for [gate|up] layouts",
     .kind = SWIGLU_ACT_SILU, .alpha = 1.702f, .up_offset = 1, .gate_lo = -INFINITY, .gate_hi = 7, .up_lo = -7, .up_hi = 7},
    {.name = "deepseek_v4", .about = "silu(min(g, 10)) clip(u, -10, 10)",
     .kind = SWIGLU_ACT_SILU, .alpha = 1, .gate_lo = -INFINITY, .gate_hi = 10, .up_lo = -10, .up_hi = 10},
    {.name = "step", .about = "min(silu(g), 7) clip(u, -7, 7), limit set per layer", .clamp_after = 1,
     .kind = SWIGLU_ACT_SILU, .alpha = 1, .gate_lo = -INFINITY, .gate_hi = 7, .up_lo = -7, .up_hi = 7},
};

enum { N_NAMES = sizeof names / sizeof names[0] };

struct swiglu_act swiglu_act_default(void) {
    return (struct swiglu_act){.struct_size = sizeof(struct swiglu_act), .kind = SWIGLU_ACT_SILU, .alpha = 1, NO_BOUNDS};
}

enum swiglu_status swiglu_act_init(struct swiglu_act *act, const char *name) {
    if (!act || !name) return SWIGLU_E_ARGUMENT;
    for (size_t i = 0; i < N_NAMES; i++) {
        const struct act_name *n = &names[i];
        if (strcmp(n->name, name)) continue;
        *act = (struct swiglu_act){.struct_size = sizeof *act, .kind = n->kind, .alpha = n->alpha,
                                   .up_offset = n->up_offset, .gate_lo = n->gate_lo, .gate_hi = n->gate_hi,
                                   .up_lo = n->up_lo, .up_hi = n->up_hi, .clamp_after = n->clamp_after};
        memcpy(act->param, n->param, sizeof act->param);
        return SWIGLU_OK;
    }
    return SWIGLU_E_ARGUMENT;
}

const char *swiglu_act_name(size_t i, const char **about) {
    if (i >= N_NAMES) return NULL;
    if (about) *about = names[i].about;
    return names[i].name;
}

static enum swiglu_status check_bounds(const struct swiglu_act *act, struct swiglu_error *error) {
    const struct { const char *name; float lo, hi; } side[] = {{"gate", act->gate_lo, act->gate_hi},
                                                               {"up", act->up_lo, act->up_hi}};
    for (int i = 0; i < 2; i++) {
        REQUIRE(!isnan(side[i].lo) && !isnan(side[i].hi), SWIGLU_E_ARGUMENT, "act.%s bound is NaN", side[i].name);
        REQUIRE(side[i].lo <= side[i].hi, SWIGLU_E_ARGUMENT, "act.%s_lo %g > act.%s_hi %g", side[i].name,
                (double)side[i].lo, side[i].name, (double)side[i].hi);
        REQUIRE(side[i].hi != 0, SWIGLU_E_ARGUMENT, "act.%s_hi is 0, which would clamp everything; infinite = no bound",
                side[i].name);
    }
    return SWIGLU_OK;
}

enum swiglu_status swiglu_act_check(const struct swiglu_act *act, int gated, struct swiglu_error *error) {
    const float *p = act->param;
    REQUIRE(act->kind >= 0 && act->kind <= SWIGLU_ACT_SITU, SWIGLU_E_ARGUMENT, "act.kind %d is unknown", act->kind);
    REQUIRE(act->clamp_after == 0 || act->clamp_after == 1, SWIGLU_E_ARGUMENT, "act.clamp_after %d is not 0 or 1",
            act->clamp_after);
    TRY(check_bounds(act, error));
    REQUIRE(isfinite(act->up_offset), SWIGLU_E_ARGUMENT, "act.up_offset is not finite");
    if (act->kind == SWIGLU_ACT_SILU)
        REQUIRE(fabsf(act->alpha) >= 0x1p-20f && fabsf(act->alpha) <= 0x1p20f, SWIGLU_E_ARGUMENT,
                "act.alpha %g is outside 2^-20..2^20", (double)act->alpha);
    for (int i = 0; i < 6; i++)
        REQUIRE(isfinite(p[i]), SWIGLU_E_ARGUMENT, "act.param[%d] is not finite", i);
    if (act->kind == SWIGLU_ACT_XIELU)
        REQUIRE(p[3] <= 0, SWIGLU_E_ARGUMENT, "act.param[3] (xielu e) %g is above 0", (double)p[3]);
    if (act->kind == SWIGLU_ACT_SITU)
        REQUIRE(p[0] > 0 && p[1] > 0, SWIGLU_E_ARGUMENT, "act.param (situ b1, b2) %g, %g must be above 0", (double)p[0],
                (double)p[1]);
    REQUIRE(gated || (act->up_offset == 0 && act->up_lo == -INFINITY && act->up_hi == INFINITY), SWIGLU_E_ARGUMENT,
            "an ungated block has no up side: act.up_offset and up bounds must be at their defaults");
    return SWIGLU_OK;
}
