/* SPDX-License-Identifier: Apache-2.0 */
/* The machine that work runs on: its threads, what it reaches at best, and its caches. */
#ifndef CLI_MACHINE_H
#define CLI_MACHINE_H

#include <stddef.h>
#include <stdint.h>

#include <swiglu/swiglu.h>

/* From here on weights exceed what caches keep. */
#define CLI_COLD_BYTES 256000000.0
/* The least buffer that tells memory from caches. */
#define CLI_BUFFER_BYTES ((size_t)256 << 20)

struct cli_machine {
    uint64_t isa_mask;
    unsigned n_threads;
    struct swiglu_pool *pool;
    struct swiglu_runner runner;
    void *buffer;
    size_t buffer_bytes;
};

void cli_machine_open(struct cli_machine *machine, unsigned n_threads, uint64_t isa_mask); /* n_threads 0: all usable */
void cli_machine_close(struct cli_machine *machine);
/* The buffer for probing and evicting, once; 0 where there is no memory for it. They take one themselves, or fail. */
int cli_machine_try_reserve(struct cli_machine *machine, size_t most_bytes);
void cli_machine_probe(struct cli_machine *machine, double seconds, struct swiglu_limits *limits);
/* The limits of what ran between two probes: the better of both, since a weak probe must not flatter. */
struct swiglu_limits cli_machine_limits(const struct swiglu_limits *before, const struct swiglu_limits *after);
void cli_machine_evict(struct cli_machine *machine); /* reads the buffer on every thread: caches hold nothing else */

double cli_now(void); /* seconds of a clock that never steps */

#endif
