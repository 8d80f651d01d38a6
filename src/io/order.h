/* SPDX-License-Identifier: Apache-2.0 */
/* Sorting what a file lists. */
#ifndef SWIGLU_ORDER_H
#define SWIGLU_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The numbers 0 to n - 1, sorted; after(ctx, a, b): a belongs behind b. Stable. To be freed; NULL when memory is short. */
uint32_t *swiglu_order_make(size_t n, bool (*after)(const void *ctx, uint32_t a, uint32_t b), const void *ctx);

#endif
