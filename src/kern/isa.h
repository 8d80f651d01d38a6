/* SPDX-License-Identifier: Apache-2.0 */
/* Which levels this build has: one table each, declared here. */
#ifndef SWIGLU_ISA_H
#define SWIGLU_ISA_H

#include "kern/kern.h"

#if defined(__x86_64__)
#define SWIGLU_HAVE_X86 1
#else
#define SWIGLU_HAVE_X86 0
#endif
#if defined(__aarch64__)
#define SWIGLU_HAVE_NEON 1
#else
#define SWIGLU_HAVE_NEON 0
#endif

extern const struct swiglu_kern swiglu_kern_table_generic;
extern const struct swiglu_kern swiglu_kern_table_avx2;
extern const struct swiglu_kern swiglu_kern_table_avx512;
extern const struct swiglu_kern swiglu_kern_table_avx512bf16;
extern const struct swiglu_kern swiglu_kern_table_neon;

#endif
