/* SPDX-License-Identifier: Apache-2.0 */
#include "io/order.h"

#include "base/alloc.h"
#include "base/checked.h"

/* By merge sort: hash tables can be flooded by chosen names, and qsort may allocate or be quadratic. */
uint32_t *swiglu_order_make(size_t n, bool (*after)(const void *ctx, uint32_t a, uint32_t b), const void *ctx) {
    uint32_t *order = swiglu_alloc_array(n, sizeof *order), *other = swiglu_alloc_array(n, sizeof *other);
    for (size_t i = 0; order && i < n; i++) order[i] = (uint32_t)i;
    for (size_t run = 1; order && other && run < n; run *= 2) {
        for (size_t at = 0; at < n; at += 2 * run) {
            const size_t middle = swiglu_min(at + run, n), end = swiglu_min(at + 2 * run, n);
            size_t left = at, right = middle;
            for (size_t i = at; i < end; i++) {
                const bool take_right = left == middle || (right < end && after(ctx, order[left], order[right]));
                other[i] = take_right ? order[right++] : order[left++];
            }
        }
        uint32_t *swap = order;
        order = other, other = swap;
    }
    if (!other) {
        swiglu_free(order);
        return NULL;
    }
    swiglu_free(other);
    return order;
}
