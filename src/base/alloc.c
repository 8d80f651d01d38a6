/* SPDX-License-Identifier: Apache-2.0 */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS, madvise */
#include "base/alloc.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/checked.h"

enum { HUGE_PAGE = 2 << 20, BIG_FROM = 4 << 20 };

void *swiglu_alloc(size_t bytes) { return calloc(1, bytes ? bytes : 1); }

void *swiglu_alloc_array(size_t n, size_t size) { return calloc(n ? n : 1, size ? size : 1); }

void *swiglu_resize(void *p, size_t bytes) { return realloc(p, bytes); }

void swiglu_free(void *p) { free(p); }

/* Decode reads all packed weights once per token: on 4 KiB pages that costs about a tenth in TLB misses (Zen 4), so
 * large blocks are mapped 2 MiB-aligned and huge pages advised. The unaligned rest of the mapping is given back. */
void *swiglu_alloc_big(size_t bytes) {
    size_t room, want;
    if (bytes < BIG_FROM) {
        if (swiglu_align_up(bytes, 64, &want)) return NULL;
        void *p = aligned_alloc(64, want);
        if (p) __builtin_memset(p, 0, want);
        return p;
    }
    if (swiglu_align_up(bytes, HUGE_PAGE, &want) || SW_ADD(want, (size_t)HUGE_PAGE, &room)) return NULL;
    char *base = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) return NULL;
    const size_t head = (size_t)(-(uintptr_t)base & (HUGE_PAGE - 1));
    if (head) munmap(base, head);
    if (room - head - want) munmap(base + head + want, room - head - want);
    (void)madvise(base + head, want, MADV_HUGEPAGE); /* advice: a kernel without huge pages still works */
    return base + head;
}

void swiglu_free_big(void *p, size_t bytes) {
    size_t want;
    if (!p) return;
    if (bytes < BIG_FROM) {
        free(p);
    } else if (!swiglu_align_up(bytes, HUGE_PAGE, &want)) {
        munmap(p, want);
    }
}
