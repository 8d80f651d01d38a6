/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* sched_getaffinity */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cpu/cgroup.h"
#include "cpu/cpu.h"

enum { WORD = 8 * sizeof(unsigned long) };

static int has(const struct swiglu_cpu_set *set, size_t cpu) { return set->word[cpu / WORD] >> cpu % WORD & 1; }
static void add(struct swiglu_cpu_set *set, size_t cpu) { set->word[cpu / WORD] |= 1ul << cpu % WORD; }

/* The CPUs that share a core with this one, from a list such as "0-1,64"; those that cannot be read are none. */
static void add_siblings(const char *root, size_t cpu, struct swiglu_cpu_set *seen) {
    char path[1024], list[1024];
    const int n = snprintf(path, sizeof path, "%s/sys/devices/system/cpu/cpu%zu/topology/thread_siblings_list", root, cpu);
    FILE *f = n > 0 && n < (int)sizeof path ? fopen(path, "re") : NULL;
    char *at = f ? fgets(list, sizeof list, f) : NULL;
    if (f) fclose(f);
    while (at && *at >= '0' && *at <= '9') {
        const unsigned long first = strtoul(at, &at, 10), last = *at == '-' ? strtoul(at + 1, &at, 10) : first;
        for (unsigned long i = first; i <= last && i < SWIGLU_CPU_SET_SIZE; i++) add(seen, i);
        at += *at == ',';
    }
}

struct swiglu_cpu_counts swiglu_cpu_counts_of(const char *root, const struct swiglu_cpu_set *allowed) {
    struct swiglu_cpu_counts counts = {0, 0};
    struct swiglu_cpu_set seen = {{0}}; /* CPUs whose core is counted */
    for (size_t cpu = 0; cpu < SWIGLU_CPU_SET_SIZE; cpu++) {
        if (!has(allowed, cpu)) continue;
        counts.n_cpus++;
        if (has(&seen, cpu)) continue;
        counts.n_cores++;
        add_siblings(root, cpu, &seen);
    }
    const unsigned quota = swiglu_cgroup_cpus(root);
    if (quota && quota < counts.n_cpus) counts.n_cpus = quota;
    if (quota && quota < counts.n_cores) counts.n_cores = quota;
    return counts;
}

struct swiglu_cpu_counts swiglu_cpu_counts(void) {
    struct swiglu_cpu_set allowed = {{0}};
#if defined(__linux__)
    if (sched_getaffinity(0, sizeof allowed, (cpu_set_t *)&allowed) == 0) return swiglu_cpu_counts_of("", &allowed);
#endif
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    const size_t n = online > 0 ? (size_t)online : 1;
    for (size_t cpu = 0; cpu < SWIGLU_CPU_SET_SIZE && cpu < n; cpu++) add(&allowed, cpu);
    return swiglu_cpu_counts_of("", &allowed);
}
