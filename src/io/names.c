/* SPDX-License-Identifier: Apache-2.0 */
#include "io/names.h"

#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "io/order.h"

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

static bool names_after(const void *ctx, uint32_t a, uint32_t b) {
    const struct swiglu_names *names = ctx;
    return strcmp(swiglu_names_at(names, a), swiglu_names_at(names, b)) > 0;
}

bool swiglu_names_sort(struct swiglu_names *names) {
    swiglu_free(names->order);
    names->order = swiglu_order_make(names->n, names_after, names);
    return !names->order;
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

bool swiglu_names_repeated(struct swiglu_names *names, size_t *first, size_t *second) {
    if (swiglu_names_sort(names)) return false;
    swiglu_names_duplicate(names, first, second);
    return *second < names->n;
}

void swiglu_names_free(struct swiglu_names *names) {
    swiglu_free(names->text);
    swiglu_free(names->start);
    swiglu_free(names->order);
    *names = (struct swiglu_names){0};
}
