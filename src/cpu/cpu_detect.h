/* SPDX-License-Identifier: Apache-2.0 */
/* Implemented once per architecture: cpu_x86.c, cpu_arm.c. */
#ifndef SWIGLU_CPU_DETECT_H
#define SWIGLU_CPU_DETECT_H

#include <stdint.h>

/* Bits of enum swiglu_isa; writes why[i] for the levels that the architecture has, leaves the others. */
uint64_t swiglu_cpu_detect(const char *why[5]);

#endif
