/* SPDX-License-Identifier: Apache-2.0 */
/* A growing list of names from a file, kept escaped for printing (which keeps different names different). */
#ifndef SWIGLU_NAMES_H
#define SWIGLU_NAMES_H

#include <stdbool.h>

#include "base/status.h"

/* Makes room for `need` elements of elem_bytes; true when memory is short. The new part is not initialised. */
bool swiglu_grow(void *array_pointer, size_t *capacity, size_t need, size_t elem_bytes);

struct swiglu_names {
    char *text; /* NUL-terminated, one after the other */
    size_t text_bytes, text_capacity;
    size_t *start;
    size_t n, capacity;
    uint32_t *order; /* by name, once sorted; the list does not grow after that */
};

bool swiglu_names_push(struct swiglu_names *names, const void *name, size_t bytes); /* true when memory is short */
static inline const char *swiglu_names_at(const struct swiglu_names *names, size_t i) {
    return names->text + names->start[i];
}
bool swiglu_names_sort(struct swiglu_names *names); /* true when memory is short */
/* Of a sorted list: the place of a name, n when it is not there. */
size_t swiglu_names_find(const struct swiglu_names *names, const char *name);
/* Of a sorted list: the pair of equal names whose second comes first; *second = n when all differ. */
void swiglu_names_duplicate(const struct swiglu_names *names, size_t *first, size_t *second);
/* After a refusal: whether what was read so far holds a name twice, which is then what has to be said. Short of memory it is
 * not known. */
bool swiglu_names_repeated(struct swiglu_names *names, size_t *first, size_t *second);

void swiglu_names_free(struct swiglu_names *names);

#endif
