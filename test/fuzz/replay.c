/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NAME [-m N] FOLDER...: a fuzz target without a fuzzer. Runs it on every file of the folders; with -m also on every
 * prefix and on at least N single-byte mutants of each folder's files of at most 4 KiB. Says how many inputs there were.
 */
#define _XOPEN_SOURCE 700 /* getopt, scandir */
#include "fuzz/fuzz.h"

#include <dirent.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

enum { FILES = 512, MUTATED_BYTES = 4096 };

struct seed { uint8_t *data; size_t n; char name[64]; };

static struct seed seeds[FILES];
static size_t n_seeds;
static const char *current = "";

/* An input that ends the process is named first. */
static void say_current(int number) {
    if (write(STDERR_FILENO, current, strlen(current)) < 0 || write(STDERR_FILENO, "\n", 1) < 0) _exit(1);
    signal(number, SIG_DFL);
    raise(number);
}

static void run(const struct seed *seed, size_t n) {
    current = seed->name;
    LLVMFuzzerTestOneInput(seed->data, n);
}

static void read_file(const char *folder, const char *name) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *in = fopen(path, "rb");
    MUST(in && n_seeds < FILES && !fseek(in, 0, SEEK_END));
    const long n = ftell(in);
    MUST(n >= 0 && !fseek(in, 0, SEEK_SET));
    struct seed *seed = &seeds[n_seeds++];
    *seed = (struct seed){.data = malloc((size_t)n + 1), .n = (size_t)n};
    snprintf(seed->name, sizeof seed->name, "%s", name);
    MUST(seed->data && fread(seed->data, 1, seed->n, in) == seed->n);
    fclose(in);
    run(seed, seed->n);
}

static void read_folder(const char *folder) {
    struct dirent **entries;
    const int n = scandir(folder, &entries, NULL, alphasort);
    if (n < 0) {
        perror(folder);
        exit(2);
    }
    for (int i = 0; i < n; i++) {
        if (entries[i]->d_name[0] != '.') read_file(folder, entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
}

static size_t run_prefixes(void) {
    size_t n = 0;
    for (size_t i = 0; i < n_seeds; i++)
        for (size_t end = 0; seeds[i].n <= MUTATED_BYTES && end < seeds[i].n; end++, n++)
            run(&seeds[i], end);
    return n;
}

/* Round r changes each byte of each file in one way; 255 rounds are all ways. */
static size_t run_mutants(size_t wanted) {
    size_t n = 0;
    for (unsigned r = 0; r < 255 && n < wanted; r++)
        for (size_t i = 0; i < n_seeds; i++)
            for (size_t at = 0; seeds[i].n <= MUTATED_BYTES && at < seeds[i].n; at++, n++) {
                const uint8_t change = (uint8_t)(1 + (r * 32 + r / 8) % 255);
                seeds[i].data[at] ^= change;
                run(&seeds[i], seeds[i].n);
                seeds[i].data[at] ^= change;
            }
    return n;
}

int main(int argc, char **argv) {
    size_t wanted = 0, prefixes = 0, mutants = 0;
    for (int option; (option = getopt(argc, argv, "m:")) != -1;) {
        if (option != 'm') return 2;
        wanted = strtoul(optarg, NULL, 10);
    }
    signal(SIGSEGV, say_current);
    signal(SIGABRT, say_current);
    while (optind < argc) read_folder(argv[optind++]);
    if (wanted) {
        prefixes = run_prefixes();
        mutants = run_mutants(wanted);
    }
    printf("%zu files, %zu prefixes, %zu mutants\n", n_seeds, prefixes, mutants);
    for (size_t i = 0; i < n_seeds; i++) free(seeds[i].data);
    return n_seeds && mutants >= wanted ? 0 : 1;
}
