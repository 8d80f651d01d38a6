/* SPDX-License-Identifier: Apache-2.0 */
/* Overflow-checked arithmetic for everything that comes from a file or a caller. True means it overflowed. */
#ifndef SWIGLU_CHECKED_H
#define SWIGLU_CHECKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"

#define SW_ADD(a, b, out) __builtin_add_overflow((a), (b), (out))
#define SW_MUL(a, b, out) __builtin_mul_overflow((a), (b), (out))

/* *out = a rounded up to a multiple of the power of two `to`. */
static inline bool swiglu_align_up(size_t a, size_t to, size_t *out) {
    size_t t;
    if (SW_ADD(a, to - 1, &t)) return true;
    *out = t & ~(to - 1);
    return false;
}

/* Reserves n * size bytes, aligned to 64, at the end of *total and tells where they start. Used to lay out workspaces. */
static inline bool swiglu_reserve(size_t *total, size_t n, size_t size, size_t *at) {
    size_t bytes, start;
    if (swiglu_align_up(*total, 64, &start) || SW_MUL(n, size, &bytes) || SW_ADD(start, bytes, total)) return true;
    *at = start;
    return false;
}

/* n bytes behind p; a matrix without values may have no memory, and then n is 0. */
static inline const char *swiglu_offset(const void *p, size_t n) { return n ? (const char *)p + n : p; }

static inline size_t swiglu_ceil_div(size_t a, size_t b) { return a / b + (a % b != 0); }
static inline size_t swiglu_min(size_t a, size_t b) { return a < b ? a : b; }
static inline size_t swiglu_max(size_t a, size_t b) { return a > b ? a : b; }

#endif
