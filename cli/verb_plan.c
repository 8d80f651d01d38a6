/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "json.h"

static const struct cli_option options[] = {
    {'d', "d-model", "N", "model width"},
    {'f', "d-ff", "N", "hidden width: of gate and of up, each; instead of a rule"},
    {'r', "rule", "up|nearest|none", "how int(8 d_model / 3) is rounded in a gated block; default up"},
    {'m', "multiple-of", "N", "what it is rounded to; default 256"},
    {'x', "multiplier", "X", "factor before rounding, such as 1.3; the product is cut to an integer"},
    {'a', "activation", "NAME", "the block, such as swiglu, geglu or relu; default swiglu"},
    {'c', "compare", NULL, "relu, gelu, swiglu and geglu side by side"},
    {'l', "layers", "N", "blocks in the model; adds totals"},
    {'j', "json", NULL, "one JSON object a block"},
    {0, NULL, NULL, NULL},
};

/* Names of blocks, not of functions: swiglu has three matrices, a plain block with SiLU would have two. */
static const struct block { const char *name, *act; int gated; } blocks[] = {
    {"swiglu", "silu", 1},           {"geglu", "gelu", 1},           {"geglu_tanh", "gelu_tanh", 1},
    {"reglu", "relu", 1},            {"glu", "sigmoid", 1},          {"bilinear", "identity", 1},
    {"gpt_oss", "gpt_oss", 1},       {"minimax_m3", "minimax_m3", 1}, {"deepseek_v4", "deepseek_v4", 1},
    {"step", "step", 1},             {"situ", "situ", 1},            {"relu", "relu", 0},
    {"gelu", "gelu", 0},             {"gelu_tanh", "gelu_tanh", 0},  {"relu2", "relu2", 0},
    {"xielu", "xielu", 0},
};
enum { N_BLOCKS = sizeof blocks / sizeof blocks[0] };

static const int dtypes[] = {SWIGLU_F32, SWIGLU_BF16, SWIGLU_F16, SWIGLU_Q8_0, SWIGLU_Q4_K};
enum { N_DTYPES = sizeof dtypes / sizeof dtypes[0] };
#define MAX_WIDTH ((uint64_t)1 << 40)

struct plan {
    size_t d_model, d_ff; /* d_ff 0: by the rule */
    int rule;
    size_t multiple_of, layers;
    double multiplier; /* 0: none */
    int rule_given, json, layers_given;
};

struct figures {
    const struct block *block;
    size_t d_model, d_ff, base; /* base: int(8 d_model / 3) */
    uint64_t parameters, flops, bytes[N_DTYPES]; /* bytes 0: the widths are no multiple of the type's block */
};

/* A name such as silu says nothing about the number of matrices. */
static void fail_function(const char *name) {
    struct swiglu_act named, act;
    for (int i = 0; i < N_BLOCKS && !swiglu_act_init(&named, name); i++)
        if (!swiglu_act_init(&act, blocks[i].act) && act.kind == named.kind && act.alpha == named.alpha &&
            act.gate_hi == named.gate_hi)
            cli_fail(CLI_USAGE, "--activation %s: a function, not a block; the %s block with it is %s", name,
                     blocks[i].gated ? "gated" : "plain", blocks[i].name);
}

static const struct block *find_block(const char *name) {
    const char *names[N_BLOCKS + 1] = {0};
    for (int i = 0; i < N_BLOCKS; i++) {
        if (!strcmp(blocks[i].name, name)) return &blocks[i];
        names[i] = blocks[i].name;
    }
    fail_function(name);
    char list[256] = "";
    for (int i = 0; i < N_BLOCKS; i++)
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i ? ", " : "", names[i]);
    const char *near = cli_nearest(name, names);
    if (near) cli_fail(CLI_USAGE, "--activation %s: unknown; did you mean %s? (one of %s)", name, near, list);
    cli_fail(CLI_USAGE, "--activation %s: unknown; one of %s is expected", *name ? name : "''", list);
}

static double parse_multiplier(const char *text) {
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    /* digits, point and exponent: strtod takes spaces, signs and hexadecimal, too */
    if (end == text || *end || text[strspn(text, "0123456789.eE+-")] || !strchr("0123456789.", *text) || errno ||
        !isfinite(value) || value <= 0)
        cli_fail(CLI_USAGE, "--multiplier %s: a number above 0 is expected", *text ? text : "''");
    return value;
}

static size_t width(const struct plan *plan, int rule, double multiplier) {
    size_t d_ff;
    if (swiglu_width(rule, plan->d_model, plan->multiple_of, multiplier, &d_ff) || d_ff > MAX_WIDTH)
        cli_fail(CLI_USAGE, "plan: the width of --d-model %zu exceeds 2^40", plan->d_model);
    if (!d_ff) cli_fail(CLI_USAGE, "plan: the rule makes a width of 0; another --rule or --multiple-of is needed");
    return d_ff;
}

static void count(struct figures *f) {
    struct swiglu_desc desc = {.struct_size = sizeof desc};
    swiglu_desc_init(&desc);
    desc.d_in = desc.d_out = f->d_model, desc.d_ff = f->d_ff;
    desc.layout = f->block->gated ? SWIGLU_SEPARATE : SWIGLU_UNGATED;
    for (int i = 0; i < N_DTYPES; i++) {
        struct swiglu_dtype_info info = {.struct_size = sizeof info};
        struct swiglu_counts counts = {.struct_size = sizeof counts};
        cli_require(swiglu_dtype_query(dtypes[i], &info), NULL, "type");
        desc.gate.dtype = desc.up.dtype = desc.down.dtype = dtypes[i];
        if (swiglu_count(&desc, &counts))
            cli_fail(CLI_USAGE, "plan: widths %zu and %zu: the counts exceed 2^64", f->d_model, f->d_ff);
        f->parameters = counts.parameters, f->flops = counts.flops_per_token;
        f->bytes[i] = f->d_model % info.block_elems || f->d_ff % info.block_elems ? 0 : counts.weight_bytes;
    }
}

static struct figures evaluate(const struct plan *plan, const struct block *block) {
    struct figures f = {.block = block, .d_model = plan->d_model, .d_ff = plan->d_ff};
    if (!f.d_ff) {
        f.base = width(plan, SWIGLU_WIDTH_NONE, 0);
        f.d_ff = block->gated ? width(plan, plan->rule, plan->multiplier) : 4 * plan->d_model;
    }
    if (f.d_ff > MAX_WIDTH) cli_fail(CLI_USAGE, "plan: d_ff 4 x %zu exceeds 2^40", plan->d_model);
    count(&f);
    if (plan->layers > UINT64_MAX / f.parameters || plan->layers > UINT64_MAX / f.flops)
        cli_fail(CLI_USAGE, "plan: --layers %zu: the totals exceed 2^64", plan->layers);
    return f;
}

/* ---- what a backward pass needs kept, in values a token ---- */

enum { N_KEPT = 3 };
static const struct kept { const char *key, *gated, *plain; int d, f_gated, f_plain; } kept[N_KEPT] = {
    {"kept_recompute", "x: gate and up again", "x: first product again", 1, 0, 0},
    {"kept_products", "x, gate, up", "x, first product", 1, 2, 1},
    {"kept_eager", "x, gate, act(gate), up, h", "x, first product, h", 1, 4, 2},
};

static uint64_t kept_values(const struct figures *f, int i) {
    return (uint64_t)f->d_model + (uint64_t)(f->block->gated ? kept[i].f_gated : kept[i].f_plain) * f->d_ff;
}

/* ---- output ---- */

static const char *rule_words(const struct plan *plan, const struct figures *f, char *text, size_t size) {
    static const char *const how[] = {"as it is", "rounded up to a multiple of", "rounded to the nearest multiple of"};
    if (plan->d_ff) return "as given";
    if (!f->block->gated) return "4 d_model";
    int n = snprintf(text, size, "int(8 d_model / 3) = %zu", f->base);
    if (plan->multiplier > 0) n += snprintf(text + n, size - (size_t)n, " times %.9g", plan->multiplier);
    n += snprintf(text + n, size - (size_t)n, ", %s", how[plan->rule]);
    if (plan->rule != SWIGLU_WIDTH_NONE) snprintf(text + n, size - (size_t)n, " %zu", plan->multiple_of);
    return text;
}

static void print_json(const struct plan *plan, const struct figures *f) {
    char key[32], rule[128];
    cli_json_open("plan");
    cli_json_string("activation", f->block->name);
    cli_json_string("function", f->block->act);
    cli_json_flag("gated", f->block->gated);
    cli_json_count("matrices", f->block->gated ? 3 : 2);
    cli_json_count("d_model", f->d_model);
    cli_json_count("d_ff", f->d_ff);
    cli_json_string("rule", rule_words(plan, f, rule, sizeof rule));
    if (f->block->gated) cli_json_count("packed_rows", 2 * (uint64_t)f->d_ff);
    cli_json_count("parameters", f->parameters);
    cli_json_count("flops_per_token", f->flops);
    for (int i = 0; i < N_DTYPES; i++) {
        if (!f->bytes[i]) continue;
        snprintf(key, sizeof key, "bytes_%s", cli_dtype_name(dtypes[i]));
        cli_json_count(key, f->bytes[i]);
    }
    for (int i = 0; i < N_KEPT; i++) cli_json_count(kept[i].key, kept_values(f, i));
    cli_json_count("layers", plan->layers);
    cli_json_count("total_parameters", plan->layers * f->parameters);
    cli_json_count("total_flops_per_token", plan->layers * f->flops);
    cli_json_close();
}

static void print_widths(const struct plan *plan, const struct figures *f, size_t n) {
    char rule[128];
    printf("d_model %zu, no biases\n\n", plan->d_model);
    printf("%-11s  %-9s  %8s  %14s  %9s  %18s  width\n", "block", "kind", "d_ff", "parameters", "millions",
           "operations a token");
    for (size_t i = 0; i < n; i++)
        printf("%-11s  %-9s  %8zu  %14" PRIu64 "  %9.2f  %18" PRIu64 "  %s\n", f[i].block->name,
               f[i].block->gated ? "3, gated" : "2, plain", f[i].d_ff, f[i].parameters, (double)f[i].parameters / 1e6,
               f[i].flops, rule_words(plan, &f[i], rule, sizeof rule));
    if (!plan->layers_given) return;
    printf("\n%-11s  %26s  %20s\n", "block", "parameters of all layers", "operations a token");
    for (size_t i = 0; i < n; i++)
        printf("%-11s  %26" PRIu64 "  %20" PRIu64 "\n", f[i].block->name, plan->layers * f[i].parameters,
               plan->layers * f[i].flops);
}

static void print_bytes(const struct figures *f, size_t n) {
    printf("\nbytes of weights, which one token alone must read\n%-11s", "block");
    for (int i = 0; i < N_DTYPES; i++) printf("  %13s", cli_dtype_name(dtypes[i]));
    for (size_t i = 0; i < n; i++) {
        printf("\n%-11s", f[i].block->name);
        for (int k = 0; k < N_DTYPES; k++)
            f[i].bytes[k] ? printf("  %13" PRIu64, f[i].bytes[k]) : printf("  %13s", "-");
    }
    printf("\n\nkept for the backward pass, a token\n%-11s  %-26s  %10s  %10s  %10s\n", "block", "what", "values",
           "f32 bytes", "bf16 bytes");
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < N_KEPT; k++) {
            uint64_t values = kept_values(&f[i], k);
            printf("%-11s  %-26s  %10" PRIu64 "  %10" PRIu64 "  %10" PRIu64 "\n", f[i].block->name,
                   f[i].block->gated ? kept[k].gated : kept[k].plain, values, 4 * values, 2 * values);
        }
    printf("\nWhat a program keeps that stores all of it in one type; libswiglu keeps gate and up in f32.\n");
}

static void print_text(const struct plan *plan, const struct figures *f, size_t n) {
    print_widths(plan, f, n);
    for (size_t i = 0; i < n; i++) {
        if (!f[i].block->gated) continue;
        printf("\nd_ff is the width of gate and of up, each on its own: a packed gate|up weight has 2 x %zu = %zu "
               "rows.\n", f[i].d_ff, 2 * f[i].d_ff);
        break;
    }
    print_bytes(f, n);
}

static int act_plan(const struct cli_verb *verb, int argc, char **argv) {
    static const char *const rules[] = {"none", "up", "nearest", NULL}; /* by enum swiglu_width_rule */
    static const char *const compared[] = {"relu", "gelu", "swiglu", "geglu"};
    enum { N_COMPARED = sizeof compared / sizeof compared[0] };
    struct plan plan = {.rule = SWIGLU_WIDTH_UP, .multiple_of = 256, .layers = 1};
    const char *value, *activation = NULL;
    int compare = 0;
    for (int key; (key = cli_option_next(verb, argc, argv, &value)) != -1;) switch (key) {
        case 'd': plan.d_model = (size_t)cli_parse_count("d-model", value, 1, MAX_WIDTH); break;
        case 'f': plan.d_ff = (size_t)cli_parse_count("d-ff", value, 1, MAX_WIDTH); break;
        case 'r': plan.rule = (int)cli_parse_name("rule", value, rules), plan.rule_given = 1; break;
        case 'm':
            plan.multiple_of = (size_t)cli_parse_count("multiple-of", value, 1, MAX_WIDTH), plan.rule_given = 1;
            break;
        case 'x': plan.multiplier = parse_multiplier(value), plan.rule_given = 1; break;
        case 'a': activation = value; break;
        case 'c': compare = 1; break;
        case 'l': plan.layers = (size_t)cli_parse_count("layers", value, 1, 1000000), plan.layers_given = 1; break;
        case 'j': plan.json = 1; break;
        }
    cli_operands_max(verb, argc, argv, 0);
    if (!plan.d_model) cli_fail(CLI_USAGE, "plan: --d-model is expected; try 'swiglu plan --help'");
    if (plan.d_ff && plan.rule_given) cli_fail(CLI_USAGE, "plan: --d-ff is a width, so no rule applies");
    if (activation && compare) cli_fail(CLI_USAGE, "plan: --compare chooses the blocks, so --activation is not used");
    struct figures figures[N_COMPARED];
    size_t n = compare ? N_COMPARED : 1;
    for (size_t i = 0; i < n; i++) {
        const struct block *block = find_block(compare ? compared[i] : activation ? activation : "swiglu");
        if (!compare && !block->gated && plan.rule_given)
            cli_fail(CLI_USAGE, "plan: the rules are for gated blocks; %s has two matrices of 4 d_model", block->name);
        figures[i] = evaluate(&plan, block);
    }
    for (size_t i = 0; i < n && plan.json; i++) print_json(&plan, &figures[i]);
    if (!plan.json) print_text(&plan, figures, n);
    return CLI_OK;
}

const struct cli_verb cli_verb_plan = {
    "plan",
    "plan --d-model N [options]",
    "Sizes a feed-forward block: the hidden width by a rule, parameters, operations and bytes a token.",
    "A gated block has three matrices, gate and up [d_ff, d_model] and down [d_model, d_ff]; a plain one has two and\n"
    "is 4 d_model wide. int(8 d_model / 3) gives both the same number of parameters. d_ff is never the packed 2 d_ff.\n"
    "Operations are those of a forward pass: 6 d_model d_ff gated, 4 plain.",
    options,
    act_plan,
};
