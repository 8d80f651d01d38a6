/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the commands of the tool share: exit codes, error lines, options, names.
 *
 * The tool is one short-lived process, so a failure ends it where it is found: cli_fail prints one line on stderr,
 * removes an unfinished output file and exits. Nothing here is part of the library.
 */
#ifndef CLI_H
#define CLI_H

#include <stddef.h>
#include <stdint.h>
#include <stdnoreturn.h>

#include <swiglu/model.h>
#include <swiglu/swiglu.h>

enum cli_exit {
    CLI_OK = 0,
    CLI_FAILED = 1, /* a check failed */
    CLI_USAGE = 2,  /* wrong usage, or a file that cannot be opened or is invalid */
    CLI_IO = 3      /* a read, write or memory failure after a good open */
};

#if defined(__GNUC__)
#define CLI_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define CLI_PRINTF(text, first)
#endif

/* ---- report.c: lines on stderr, the end of stdout, memory ------------------------------------------------------- */

noreturn void cli_fail(int code, const char *format, ...) CLI_PRINTF(2, 3);
/* Ends the process with the exit code that belongs to the status. error may be NULL. */
noreturn void cli_fail_status(enum swiglu_status status, const struct swiglu_error *error, const char *what);
void cli_require(enum swiglu_status status, const struct swiglu_error *error, const char *what); /* fails unless OK */
void cli_note(const char *format, ...) CLI_PRINTF(1, 2); /* "swiglu: ..." on stderr, control bytes escaped */
/* A line that is overwritten by the next, only where stderr is a terminal; NULL wipes it. */
void cli_progress(const char *format, ...) CLI_PRINTF(1, 2);
void cli_stdout_finish(void); /* flushes; a reader that went away is a quiet end, any other failure is an error */
void *cli_alloc(size_t n, size_t size); /* n * size zeroed bytes; fails with CLI_IO */
/* Memory that nothing has touched, on huge pages, as programs that care for speed take it: with small ones a training step is
 * 1 to 6 % slower. NULL where there is none; for free(). */
void *cli_alloc_huge(size_t bytes);
/* A file name for a line of text, control bytes as \xNN; the result lives until exit. */
const char *cli_printable(const char *s);
/* Fails where path is "-", which elsewhere means standard input or output; why: what it cannot be here. */
void cli_refuse_dash(const char *path, const char *why);
/* A file name or value as it can be pasted into a shell; the result lives until exit. */
const char *cli_quote(const char *s);

/* ---- options.c: the command line -------------------------------------------------------------------------------- */

struct cli_option {
    int key;
    const char *name, *arg, *help; /* arg NULL: a flag */
};

struct cli_verb {
    const char *name, *usage, *about, *notes;
    const struct cli_option *options; /* ends with name NULL; --help is added to every verb */
    int (*act)(const struct cli_verb *verb, int argc, char **argv);
};

extern const struct cli_verb cli_verb_run, cli_verb_info, cli_verb_check, cli_verb_convert, cli_verb_plan, cli_verb_bench,
    cli_verb_cpu;

/* The next option's key with its value, or -1 after the last: then optind is the first operand. */
int cli_option_next(const struct cli_verb *verb, int argc, char **argv, const char **value);
void cli_operands_max(const struct cli_verb *verb, int argc, char **argv, int max); /* fails when there are more */
void cli_help(const struct cli_verb *verb);
/* The entry of names (ends with NULL) that resembles word most, or NULL when none does. */
const char *cli_nearest(const char *word, const char *const *names);

uint64_t cli_parse_count(const char *option, const char *text, uint64_t min, uint64_t max);
/* "1,8,512", "1-32,64": at most max values; the number of them. */
size_t cli_parse_counts(const char *option, const char *text, uint64_t min, uint64_t limit, size_t *values, size_t max);
void cli_parse_shape(const char *text, size_t *d, size_t *f); /* "d,f" */
/* The place of text in names (ends with NULL). */
size_t cli_parse_name(const char *option, const char *text, const char *const *names);
int cli_parse_dtype(const char *option, const char *text); /* of the library's list */
int cli_parse_compute(const char *text);
void cli_parse_activation(const char *text, struct swiglu_act *act);

/* ---- names.c: names of levels, formats, computes and activations ------------------------------------------------ */

enum { CLI_MOST_LEVELS = 64 }; /* a bit each */
int cli_level(unsigned i, struct swiglu_level_info *level); /* the library's level i; 0 after the last */
/* The level and all below it; fails if it is unknown or not in this build. */
uint64_t cli_level_mask(const char *source, const char *name);
uint64_t cli_level_limit(void);                                /* the mask of SWIGLU_ISA; all bits when not set */
const char *cli_isa_name(uint64_t isa);                        /* of one bit */
const char *cli_compute_name(int compute);
const char *cli_dtype_name(int dtype);
/* The parameters that differ from the plain function, in words: "alpha 1.702, up + 1, gate <= 7"; "" when none does. */
void cli_act_words(const struct swiglu_act *act, char *text, size_t size);

#endif
