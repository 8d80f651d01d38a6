/* SPDX-License-Identifier: Apache-2.0 */
/* The only place that asks which compiler this is. */
#ifndef SWIGLU_ATTR_H
#define SWIGLU_ATTR_H

#if defined(__FAST_MATH__)
#error "swiglu: -ffast-math breaks the numeric contract (docs/numerics.md); build without it"
#endif
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "swiglu: little-endian machines only"
#endif
#if !defined(__GNUC__)
#error "swiglu: needs GCC or Clang"
#endif

#define SW_ALWAYS_INLINE static inline __attribute__((always_inline, unused))
/* Kernels are reached through tables; noinline keeps their register allocation their own. */
#define SW_KERNEL static __attribute__((noinline, aligned(64)))
#define SW_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define SW_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define SW_PREFETCH_L2(p) __builtin_prefetch((p), 0, 2) /* x86: prefetcht1 */
#define SW_PREFETCH_L1(p) __builtin_prefetch((p), 0, 3) /* for writing, too: on Zen 4 prefetchw costs a tile 1 % */

/* In a loop that waits for another thread. */
#if defined(__x86_64__)
#define SW_RELAX() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define SW_RELAX() __asm__ volatile("yield")
#else
#define SW_RELAX() ((void)0)
#endif

/* Functions between the two are compiled for an instruction set that the build as a whole does not assume. Clang's region
 * defines no feature macros, so code inside tests none. */
#define SW_PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#define SW_TARGET_BEGIN(list) SW_PRAGMA(clang attribute push(__attribute__((target(list))), apply_to = function))
#define SW_TARGET_END SW_PRAGMA(clang attribute pop)
#else
#define SW_TARGET_BEGIN(list) SW_PRAGMA(GCC push_options) SW_PRAGMA(GCC target(list))
#define SW_TARGET_END SW_PRAGMA(GCC pop_options)
#endif

/* Full unrolling of short loops with literal bounds; accumulator arrays land in registers only after it. */
#if defined(__clang__)
#define SW_UNROLL _Pragma("unroll")
#else
#define SW_UNROLL _Pragma("GCC unroll 16")
#endif

#endif
