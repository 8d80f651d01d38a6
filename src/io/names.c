/* SPDX-License-Identifier: Apache-2.0 */
#include "io/names.h"

#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"

bool swiglu_grow(void *array_pointer, size_t *capacity, size_t need, size_t elem_bytes) {
    size_t want, bytes;
    void *old;
    if (need <= *capacity) return false;
    if (SW_ADD(*capacity, *capacity / 2 + 16, &want)) return true;
    want = swiglu_max(want, need);
    if (SW_MUL(want, elem_bytes, &bytes)) return true;
    memcpy(&old, array_pointer, sizeof old);
    void *grown = swiglu_resize(old, bytes);
    if (!grown) return true;
    memcpy(array_pointer, &grown, sizeof grown);
    *capacity = want;
    return false;
}

bool swiglu_names_push(struct swiglu_names *names, const void *name, size_t bytes) {
    const size_t room = 4 * bytes + 5; /* every byte escaped, and what swiglu_escape keeps free; bytes is limited */
    if (swiglu_grow(&names->text, &names->text_capacity, names->text_bytes + room, 1) ||
        swiglu_grow(&names->start, &names->capacity, names->n + 1, sizeof *names->start))
        return true;
    char *at = names->text + names->text_bytes;
    names->start[names->n++] = names->text_bytes;
    names->text_bytes += strlen(swiglu_escape(at, room, name, bytes)) + 1;
    return false;
}

static bool names_after(const struct swiglu_names *names, uint32_t a, uint32_t b) {
    return strcmp(swiglu_names_at(names, a), swiglu_names_at(names, b)) > 0;
}

/* Stable merge of two neighbouring runs of at most `run` indices. */
static void names_merge(const struct swiglu_names *names, const uint32_t *from, uint32_t *to, size_t at, size_t run) {
    size_t left = at, right = swiglu_min(at + run, names->n);
    const size_t middle = right, end = swiglu_min(at + 2 * run, names->n);
    for (size_t i = at; i < end; i++) {
        const bool take_right = left == middle || (right < end && names_after(names, from[left], from[right]));
        to[i] = take_right ? from[right++] : from[left++];
    }
}

/* By merge sort: hash tables can be flooded by chosen names, and qsort may allocate or be quadratic. */
bool swiglu_names_sort(struct swiglu_names *names) {
    const size_t n = names->n;
    uint32_t *order = swiglu_alloc_array(n, sizeof *order), *other = swiglu_alloc_array(n, sizeof *other);
    for (size_t i = 0; order && i < n; i++) order[i] = (uint32_t)i;
    for (size_t run = 1; order && other && run < n; run *= 2) {
        for (size_t at = 0; at < n; at += 2 * run) names_merge(names, order, other, at, run);
        uint32_t *swap = order;
        order = other, other = swap;
    }
    const bool short_of_memory = !order || !other;
    swiglu_free(other);
    names->order = order;
    return short_of_memory;
}

size_t swiglu_names_find(const struct swiglu_names *names, const char *name) {
    size_t lo = 0, hi = names->n;
    while (lo < hi) {
        const size_t middle = lo + (hi - lo) / 2;
        const int c = strcmp(swiglu_names_at(names, names->order[middle]), name);
        if (c == 0) return names->order[middle];
        if (c < 0) {
            lo = middle + 1;
        } else {
            hi = middle;
        }
    }
    return names->n;
}

void swiglu_names_duplicate(const struct swiglu_names *names, size_t *first, size_t *second) {
    const uint32_t *order = names->order;
    *first = 0, *second = names->n;
    for (size_t i = 1; i < names->n; i++) {
        if (order[i] >= *second || strcmp(swiglu_names_at(names, order[i - 1]), swiglu_names_at(names, order[i])))
            continue;
        *first = order[i - 1], *second = order[i];
    }
}

void swiglu_names_free(struct swiglu_names *names) {
    swiglu_free(names->text);
    swiglu_free(names->start);
    swiglu_free(names->order);
    *names = (struct swiglu_names){0};
}
