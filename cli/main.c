/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "json.h"

static const struct cli_verb *const verbs[] = {&cli_verb_run,     &cli_verb_info, &cli_verb_check,
                                               &cli_verb_convert, &cli_verb_plan, &cli_verb_bench,
                                               &cli_verb_cpu};
enum { N_VERBS = sizeof verbs / sizeof verbs[0] };

static void print_help(void) {
    printf("swiglu: feed-forward blocks of language models, bit-reproducible and near the machine's limit\n\nusage:\n");
    printf("  swiglu run [FILE] [options]    evaluate the blocks of a checkpoint; --check proves them\n"
           "  swiglu info FILE [options]     list a checkpoint's blocks and what is left out\n"
           "  swiglu check [FILE] [options]  compare all kernels with each other, or a checkpoint with the reference\n"
           "  swiglu convert IN OUT [options]\n"
           "                                 write a checkpoint with its weights in another type or layout\n"
           "  swiglu plan --d-model N [options]\n"
           "                                 widths, parameters, operations and bytes of a block\n"
           "  swiglu bench [options]         measure time and share of the machine's limit\n"
           "  swiglu cpu [options]           show instruction-set levels, kernels and activations\n"
           "  swiglu help COMMAND            the options of a command; also swiglu COMMAND --help\n"
           "  swiglu version                 versions and levels; also --version and -V\n\n"
           "SWIGLU_ISA=LEVEL is an upper limit on the instruction set; 'swiglu cpu' lists the levels.\n"
           "exit status: 0 success; 1 a check failed; 2 wrong usage, or a file that cannot be opened or is invalid;\n"
           "3 a read, write or memory failure.\n");
}

static void print_version(int json) {
    struct swiglu_build build = {.struct_size = sizeof build};
    struct swiglu_level_info level;
    cli_require(swiglu_version(&build), NULL, "version");
    char levels[256] = "";
    for (unsigned i = 0; cli_level(i, &level); i++)
        if (level.can && level.compiled && cli_level_limit() & level.bit)
            snprintf(levels + strlen(levels), sizeof levels - strlen(levels), "%s%s", *levels ? " " : "", level.name);
    if (json) {
        cli_json_open("version");
        cli_json_string("version", SWIGLU_VERSION_STRING);
        cli_json_string("library", build.version);
        cli_json_count("abi", (uint64_t)build.abi);
        cli_json_string("compiler", build.compiler);
        cli_json_string("levels", levels);
        cli_json_close();
        return;
    }
    printf("swiglu %s\nlibrary %s, ABI %d\ncompiler %s\nlevels %s\n", SWIGLU_VERSION_STRING, build.version, build.abi,
           build.compiler, levels);
}

static const struct cli_verb *find_verb(const char *word) {
    const char *names[N_VERBS + 3] = {"help", "version"};
    if (!strcmp(word, "quantize")) word = "convert"; /* what other tools call it */
    for (int i = 0; i < N_VERBS; i++) {
        if (!strcmp(verbs[i]->name, word)) return verbs[i];
        names[i + 2] = verbs[i]->name;
    }
    const char *near = cli_nearest(word + strspn(word, "-"), names), *kind = *word == '-' ? "option" : "command";
    if (near) cli_fail(CLI_USAGE, "unknown %s %s; did you mean '%s'?", kind, word, near);
    cli_fail(CLI_USAGE, "unknown %s %s; try 'swiglu --help'", kind, *word ? word : "''");
}

static int is(const char *word, const char *a, const char *b, const char *c) {
    return !strcmp(word, a) || !strcmp(word, b) || !strcmp(word, c);
}

int main(int argc, char **argv) {
    int code = CLI_OK;
    if (argc < 2) cli_fail(CLI_USAGE, "a command is expected; try 'swiglu --help'");
    if (is(argv[1], "help", "--help", "-h")) {
        if (argc > 2 && *argv[2] != '-') cli_help(find_verb(argv[2]));
        else print_help();
    } else if (is(argv[1], "version", "--version", "-V")) {
        int json = argc > 2 && !strcmp(argv[2], "--json");
        if (argc > 2 + json) cli_fail(CLI_USAGE, "%s: unexpected argument %s", argv[1], argv[2 + json]);
        print_version(json);
    } else {
        const struct cli_verb *verb = find_verb(argv[1]);
        (void)cli_level_limit(); /* a wrong SWIGLU_ISA is an error even where no level is chosen */
        code = verb->act(verb, argc - 1, argv + 1);
    }
    cli_stdout_finish();
    return code;
}
