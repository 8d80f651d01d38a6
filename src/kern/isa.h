/* SPDX-License-Identifier: Apache-2.0 */
/* Which levels this build has: one table each, declared here. */
#ifndef SWIGLU_ISA_H
#define SWIGLU_ISA_H

#include "base/bytes.h"
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

/* What a level of another architecture has no table for. */
#define SWIGLU_IF_ANY(...) __VA_ARGS__
#if SWIGLU_HAVE_X86
#define SWIGLU_IF_X86(...) __VA_ARGS__
#else
#define SWIGLU_IF_X86(...)
#endif
#if SWIGLU_HAVE_NEON
#define SWIGLU_IF_ARM(...) __VA_ARGS__
#else
#define SWIGLU_IF_ARM(...)
#endif

#define LEVEL(NAME, name, ...) extern const struct swiglu_kern swiglu_kern_table_##name;
#include "cpu/level.def"
#undef LEVEL

#endif
