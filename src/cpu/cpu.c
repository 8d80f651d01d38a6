/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* sched_getaffinity, CPU_COUNT */
#include "cpu/cpu.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cpu/cpu_detect.h"
#include "swiglu/swiglu.h"

static const char missing[] = "not an instruction set of this architecture";

uint64_t swiglu_cpu_levels(void) {
    static _Atomic uint64_t cached; /* 0 = not asked yet; asking twice gives the same answer */
    uint64_t levels = atomic_load_explicit(&cached, memory_order_relaxed);
    if (!levels) {
        const char *why[5];
        levels = swiglu_cpu_detect(why);
        atomic_store_explicit(&cached, levels, memory_order_relaxed);
    }
    return levels;
}

const char *swiglu_cpu_why(uint64_t isa) {
    const char *why[5] = {missing, missing, missing, missing, missing};
    (void)swiglu_cpu_detect(why);
    for (int i = 0; i < 5; i++)
        if (isa == (uint64_t)1 << i) return why[i];
    return "unknown level";
}

/* The cgroup's CPU quota in whole CPUs, rounded up; 0 = none. Version 2 first, then version 1. */
static unsigned cgroup_quota(void) {
    long long quota = 0, period = 0;
    FILE *f = fopen("/sys/fs/cgroup/cpu.max", "re");
    if (f) {
        const int n = fscanf(f, "%lld %lld", &quota, &period); /* "max 100000" reads nothing */
        fclose(f);
        if (n != 2) return 0;
    } else {
        static const char *const paths[2] = {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "/sys/fs/cgroup/cpu/cpu.cfs_period_us"};
        long long *const out[2] = {&quota, &period};
        for (int i = 0; i < 2; i++) {
            if (!(f = fopen(paths[i], "re"))) return 0;
            const int n = fscanf(f, "%lld", out[i]);
            fclose(f);
            if (n != 1) return 0;
        }
    }
    if (quota <= 0 || period <= 0) return 0;
    return (unsigned)((quota + period - 1) / period);
}

unsigned swiglu_cpu_count(void) {
    unsigned n = 1;
#if defined(CPU_COUNT)
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0) n = (unsigned)CPU_COUNT(&set);
    else
#endif
    {
        const long online = sysconf(_SC_NPROCESSORS_ONLN);
        if (online > 0) n = (unsigned)online;
    }
    const unsigned quota = cgroup_quota();
    if (quota && quota < n) n = quota;
    return n ? n : 1;
}
