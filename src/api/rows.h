/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that the public entries share. */
#ifndef SWIGLU_ROWS_H
#define SWIGLU_ROWS_H

#include <stdbool.h>

#include "base/status.h"

struct swiglu_span { const void *data; size_t bytes; };

/* Fills in the stride, checks dtype, stride and pointer of m rows of n elements, and tells the bytes they span. */
enum swiglu_status swiglu_rows_check(struct swiglu_crows *rows, size_t m, size_t n, struct swiglu_span *span);

bool swiglu_spans_meet(struct swiglu_span a, struct swiglu_span b);

#endif
