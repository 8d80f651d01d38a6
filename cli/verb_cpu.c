/* SPDX-License-Identifier: Apache-2.0 */
#include <getopt.h>
#include <stdio.h>

#include "cli.h"
#include "json.h"

static const struct cli_option options[] = {
    {'j', "json", NULL, "one JSON object a level, then one a weight format, then one an activation"},
    {0, NULL, NULL, NULL},
};

static void print_levels(const struct swiglu_cpu_info *cpu, uint64_t mask, int json) {
    if (!json)
        printf("%u CPUs on %u cores usable by this process\n\nlevel       runs here  in this build  allowed  why\n",
               cpu->n_cpus, cpu->n_cores);
    struct swiglu_level_info level;
    for (unsigned i = 0; cli_level(i, &level); i++) {
        const int allowed = (mask & level.bit) != 0;
        if (!json) {
            printf("%-10s  %-9s  %-13s  %-7s  %s\n", level.name, level.can ? "yes" : "no", level.compiled ? "yes" : "no",
                   allowed ? "yes" : "no", level.why);
            continue;
        }
        cli_json_open("level");
        cli_json_string("level", level.name);
        cli_json_flag("can", level.can);
        cli_json_flag("compiled", level.compiled);
        cli_json_flag("allowed", allowed);
        cli_json_string("why", level.why);
        cli_json_close();
    }
}

static void print_formats(uint64_t mask, int json) {
    static const int computes[] = {SWIGLU_COMPUTE_AUTO, SWIGLU_COMPUTE_F32, SWIGLU_COMPUTE_BF16};
    if (!json) printf("\nweights  %-18s  %-18s  %-18s  why (auto)\n", "compute auto", "compute f32", "compute bf16");
    for (size_t i = 0; swiglu_dtype_at(i) >= 0; i++) {
        const int dtype = swiglu_dtype_at(i);
        const char *kernel[3], *why[3];
        for (int c = 0; c < 3; c++)
            cli_require(swiglu_kernel_query(dtype, computes[c], mask, &kernel[c], &why[c]), NULL,
                        cli_dtype_name(dtype));
        if (!json) {
            printf("%-7s  %-18s  %-18s  %-18s  %s\n", cli_dtype_name(dtype), kernel[0], kernel[1], kernel[2],
                   why[0]);
            continue;
        }
        cli_json_open("weights");
        cli_json_string("weights", cli_dtype_name(dtype));
        cli_json_string("kernel_auto", kernel[0]);
        cli_json_string("kernel_f32", kernel[1]);
        cli_json_string("kernel_bf16", kernel[2]);
        cli_json_string("why", why[0]);
        cli_json_close();
    }
}

static void print_activations(int json) {
    const char *name, *about;
    if (!json) printf("\nactivation         what it is\n");
    for (size_t i = 0; (name = swiglu_act_name(i, &about)); i++) {
        if (!json) {
            printf("%-17s  %s\n", name, about);
            continue;
        }
        cli_json_open("activation");
        cli_json_string("activation", name);
        cli_json_string("about", about);
        cli_json_close();
    }
}

static int act_cpu(const struct cli_verb *verb, int argc, char **argv) {
    const char *value;
    int json = 0;
    while (cli_option_next(verb, argc, argv, &value) != -1) json = 1;
    cli_operands_max(verb, argc, argv, 0);
    struct swiglu_cpu_info cpu = {.struct_size = sizeof cpu};
    cli_require(swiglu_cpu_query(&cpu), NULL, "cpu");
    uint64_t mask = cli_level_limit();
    print_levels(&cpu, mask, json);
    print_formats(mask, json);
    print_activations(json);
    return CLI_OK;
}

const struct cli_verb cli_verb_cpu = {
    "cpu",
    "cpu [options]",
    "Shows which instruction-set levels run here, which kernel each weight format runs on and why, and all\n"
    "activations.",
    "SWIGLU_ISA=LEVEL limits the levels.",
    options,
    act_cpu,
};
