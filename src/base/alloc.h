/* SPDX-License-Identifier: Apache-2.0 */
/* The only caller of malloc and mmap. Everything returns NULL on failure; free accepts NULL. */
#ifndef SWIGLU_ALLOC_H
#define SWIGLU_ALLOC_H

#include <stddef.h>

void *swiglu_alloc(size_t bytes);                  /* zeroed */
void *swiglu_alloc_array(size_t n, size_t size);   /* zeroed, product checked */
void *swiglu_resize(void *p, size_t bytes);        /* as realloc; the old block stays on failure; bytes > 0 */
void swiglu_free(void *p);

/* Memory for packed weights: 64-aligned, from 4 MiB on 2 MiB-aligned with huge pages advised; zeroed. bytes > 0. */
void *swiglu_alloc_big(size_t bytes);
void swiglu_free_big(void *p, size_t bytes);

#endif
