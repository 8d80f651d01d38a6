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
#define SW_KERNEL static __attribute__((noinline))
#define SW_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define SW_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define SW_PREFETCH_L2(p) __builtin_prefetch((p), 0, 2) /* x86: prefetcht1 */

#endif
