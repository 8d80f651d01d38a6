/* SPDX-License-Identifier: Apache-2.0 */
/* P and B: what this machine reaches right now. */
#ifndef SWIGLU_MEASURE_H
#define SWIGLU_MEASURE_H

#include "kern/kern.h"

/* buffer: 4096-aligned within `bytes` >= 2 MiB. */
void swiglu_measure_run(const struct swiglu_kern *kern, double seconds, const void *buffer, size_t bytes,
                        const struct swiglu_runner *runner, struct swiglu_limits *limits);

#endif
