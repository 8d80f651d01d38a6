/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In place of base/alloc.c: every block ends exactly before a page that nothing may touch, so that an access past its end
 * is a fault without any sanitizer.
 */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "base/alloc.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "base/checked.h"

enum { PAGE = 4096 };

/* A mapping: one page for this, the pages of the block, which begins in the first of them, and the page without access. */
struct guarded { size_t bytes, map_bytes; };

static struct guarded *guarded_of(void *p) { return (struct guarded *)(((uintptr_t)p & -(uintptr_t)PAGE) - PAGE); }

void *swiglu_alloc(size_t bytes) {
    size_t pages, map_bytes;
    if (!bytes) bytes = 1;
    if (swiglu_align_up(bytes, PAGE, &pages) || SW_ADD(pages, (size_t)2 * PAGE, &map_bytes)) return NULL;
    char *map = mmap(NULL, map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) return NULL;
    if (mprotect(map + PAGE + pages, PAGE, PROT_NONE)) {
        munmap(map, map_bytes);
        return NULL;
    }
    *(struct guarded *)map = (struct guarded){bytes, map_bytes};
    return map + PAGE + pages - bytes;
}

void *swiglu_alloc_array(size_t n, size_t size) {
    size_t bytes;
    return SW_MUL(n, size, &bytes) ? NULL : swiglu_alloc(bytes);
}

void *swiglu_resize(void *p, size_t bytes) {
    void *q = swiglu_alloc(bytes);
    if (!p || !q) return q;
    const size_t kept = guarded_of(p)->bytes < bytes ? guarded_of(p)->bytes : bytes;
    memcpy(q, p, kept);
    swiglu_free(p);
    return q;
}

void swiglu_free(void *p) {
    if (p) munmap(guarded_of(p), guarded_of(p)->map_bytes);
}

void *swiglu_alloc_big(size_t bytes) {
    size_t aligned;
    return swiglu_align_up(bytes, 64, &aligned) ? NULL : swiglu_alloc(aligned);
}

void swiglu_free_big(void *p, size_t bytes) {
    (void)bytes;
    swiglu_free(p);
}
