/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <ctype.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

enum { MAX_OPTIONS = 24 };

static size_t count_options(const struct cli_verb *verb) {
    size_t n = 0;
    while (verb->options[n].name) n++;
    return n;
}

void cli_help(const struct cli_verb *verb) {
    printf("usage: swiglu %s\n\n%s\n\noptions:\n", verb->usage, verb->about);
    for (const struct cli_option *o = verb->options; o->name; o++) {
        char left[64];
        snprintf(left, sizeof left, "--%s%s%s", o->name, o->arg ? " " : "", o->arg ? o->arg : "");
        printf("  %-22s  ", left);
        for (const char *p = o->help; *p; p++) { /* further lines of a help text stand under the first */
            putchar(*p);
            if (*p == '\n') printf("%26s", "");
        }
        putchar('\n');
    }
    printf("  %-22s  this text\n", "--help");
    if (verb->notes) printf("\n%s\n", verb->notes);
}

/* Letters to change, add, drop or swap with their neighbour; capitals are as good as small ones. */
static size_t edit_distance(const char *a, const char *b) {
    enum { LONGEST = 32 };
    size_t na = strlen(a), nb = strlen(b), rows[3][LONGEST + 1];
    if (na > LONGEST || nb > LONGEST) return LONGEST;
    for (size_t i = 0; i <= na; i++) {
        size_t *row = rows[i % 3], *above = rows[(i + 2) % 3], *two_above = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            if (i == 0) {
                row[j] = j;
                continue;
            }
            const int c = tolower((unsigned char)a[i - 1]), d = tolower((unsigned char)b[j - 1]);
            size_t least = above[j - 1] + (c != d);
            if (above[j] + 1 < least) least = above[j] + 1;
            if (row[j - 1] + 1 < least) least = row[j - 1] + 1;
            if (i > 1 && j > 1 && c == tolower((unsigned char)b[j - 2]) && d == tolower((unsigned char)a[i - 2]) &&
                two_above[j - 2] + 1 < least)
                least = two_above[j - 2] + 1;
            row[j] = least;
        }
    }
    return rows[na % 3][nb];
}

const char *cli_nearest(const char *word, const char *const *names) {
    const char *best = NULL;
    size_t least = strlen(word) / 2 + 1; /* farther than this it is another word */
    for (; *names; names++) {
        size_t distance = edit_distance(word, *names);
        if (distance < least) least = distance, best = *names;
    }
    return best;
}

static noreturn void fail_unknown(const struct cli_verb *verb, const char *given) {
    const char *names[MAX_OPTIONS + 2] = {0};
    size_t n = count_options(verb);
    for (size_t i = 0; i < n; i++) names[i] = verb->options[i].name;
    names[n] = "help";
    char word[64];
    snprintf(word, sizeof word, "%s", given + strspn(given, "-"));
    word[strcspn(word, "=")] = 0;
    const char *near = cli_nearest(word, names);
    if (near) cli_fail(CLI_USAGE, "%s: unknown option %s; did you mean --%s?", verb->name, given, near);
    cli_fail(CLI_USAGE, "%s: unknown option %s; try 'swiglu %s --help'", verb->name, given, verb->name);
}

int cli_option_next(const struct cli_verb *verb, int argc, char **argv, const char **value) {
    struct option table[MAX_OPTIONS + 2] = {{0}};
    size_t n = count_options(verb);
    for (size_t i = 0; i < n; i++) {
        const struct cli_option *o = &verb->options[i];
        table[i] = (struct option){o->name, o->arg ? required_argument : no_argument, NULL, o->key};
    }
    table[n] = (struct option){"help", no_argument, NULL, 'h'};
    opterr = 0;
    int at = optind, key = getopt_long(argc, argv, ":h", table, NULL);
    if (key == 'h') {
        cli_help(verb);
        cli_stdout_finish();
        exit(CLI_OK);
    }
    /* getopt_long may have moved operands behind the option, so the option stands just before optind. */
    const char *given = optind > 1 && optind > at ? argv[optind - 1] : argv[at];
    if (key == ':') cli_fail(CLI_USAGE, "%s: option %s needs a value", verb->name, given);
    if (key == '?') fail_unknown(verb, given);
    *value = optarg;
    return key;
}

void cli_operands_max(const struct cli_verb *verb, int argc, char **argv, int max) {
    if (argc - optind > max)
        cli_fail(CLI_USAGE, "%s: unexpected operand %s; try 'swiglu %s --help'", verb->name, argv[optind + max],
                 verb->name);
}

/* Digits only: strtoull alone would take " -1" for 2^64 - 1. The text may end at *end. */
static uint64_t parse_digits(const char *option, const char *text, const char **end, uint64_t min, uint64_t max) {
    uint64_t value = 0;
    const char *p = text;
    for (; isdigit((unsigned char)*p); p++) {
        unsigned digit = (unsigned)(*p - '0');
        if (value > (UINT64_MAX - digit) / 10) cli_fail(CLI_USAGE, "--%s %s: a number above 2^64 - 1", option, text);
        value = value * 10 + digit;
    }
    if (p == text) cli_fail(CLI_USAGE, "--%s %s: a decimal number is expected", option, *text ? text : "''");
    if (value < min || value > max)
        cli_fail(CLI_USAGE, "--%s %s: outside %llu to %llu", option, text, (unsigned long long)min,
                 (unsigned long long)max);
    *end = p;
    return value;
}

uint64_t cli_parse_count(const char *option, const char *text, uint64_t min, uint64_t max) {
    const char *end;
    uint64_t value = parse_digits(option, text, &end, min, max);
    if (*end) cli_fail(CLI_USAGE, "--%s %s: '%c' is not part of a number", option, text, *end);
    return value;
}

size_t cli_parse_counts(const char *option, const char *text, uint64_t min, uint64_t limit, size_t *values,
                        size_t max) {
    const char *end = text;
    for (size_t n = 0;; end++) {
        const uint64_t first = parse_digits(option, end, &end, min, limit);
        const uint64_t last = *end == '-' ? parse_digits(option, end + 1, &end, min, limit) : first;
        if (last < first) cli_fail(CLI_USAGE, "--%s %s: the range runs backwards", option, text);
        if (last - first >= max - n) cli_fail(CLI_USAGE, "--%s %s: more than %zu values", option, text, max);
        for (uint64_t value = first; value <= last; value++) values[n++] = (size_t)value;
        if (!*end) return n;
        if (*end != ',')
            cli_fail(CLI_USAGE, "--%s %s: '%c' where a comma or a range is expected", option, text, *end);
    }
}

void cli_parse_shape(const char *text, size_t *d, size_t *f) {
    size_t width[2];
    if (strchr(text, '-') || cli_parse_counts("shape", text, 0, UINT32_MAX, width, 2) != 2)
        cli_fail(CLI_USAGE, "--shape %s: two widths are expected, such as 576,1536", text);
    *d = width[0];
    *f = width[1];
}

size_t cli_parse_name(const char *option, const char *text, const char *const *names) {
    char list[256] = "";
    for (size_t i = 0; names[i]; i++) {
        if (!strcmp(text, names[i])) return i;
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i ? ", " : "", names[i]);
    }
    const char *near = *text ? cli_nearest(text, names) : NULL;
    if (near) cli_fail(CLI_USAGE, "--%s %s: one of %s is expected; did you mean %s?", option, text, list, near);
    cli_fail(CLI_USAGE, "--%s %s: one of %s is expected", option, *text ? text : "''", list);
}

int cli_parse_dtype(const char *option, const char *text) {
    const char *names[64] = {0};
    for (size_t i = 0; i < 63 && swiglu_dtype_at(i) >= 0; i++) names[i] = cli_dtype_name(swiglu_dtype_at(i));
    return swiglu_dtype_at(cli_parse_name(option, text, names));
}

int cli_parse_compute(const char *text) {
    static const int computes[] = {SWIGLU_COMPUTE_AUTO, SWIGLU_COMPUTE_F32, SWIGLU_COMPUTE_BF16, SWIGLU_COMPUTE_INT8};
    return computes[cli_parse_name("compute", text, (const char *const[]){"auto", "f32", "bf16", "int8", NULL})];
}

void cli_parse_activation(const char *text, struct swiglu_act *act) {
    if (!swiglu_act_init(act, text)) return;
    const char *names[64] = {0};
    for (size_t i = 0; i < 63 && (names[i] = swiglu_act_name(i, NULL)); i++) continue;
    const char *near = cli_nearest(text, names);
    if (near) cli_fail(CLI_USAGE, "--activation %s: unknown; did you mean %s? ('swiglu cpu' lists all)", text, near);
    cli_fail(CLI_USAGE, "--activation %s: unknown; 'swiglu cpu' lists all", *text ? text : "''");
}
