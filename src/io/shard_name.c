/* SPDX-License-Identifier: Apache-2.0 */
#include "io/shard_name.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

#define OF "-of-"

/* The number in five digits, or UINT32_MAX. */
static unsigned shard_digits(const char *at) {
    unsigned n = 0;
    for (int i = 0; i < SWIGLU_SHARD_DIGITS; i++) {
        if (at[i] < '0' || at[i] > '9') return UINT32_MAX;
        n = 10 * n + (unsigned)(at[i] - '0');
    }
    return n;
}

bool swiglu_shard_name(const char *path, const char *end, struct swiglu_shard_name *name) {
    const size_t tail = 1 + SWIGLU_SHARD_DIGITS + strlen(OF) + SWIGLU_SHARD_DIGITS + strlen(end), n = strlen(path);
    if (n <= tail || strcmp(path + n - strlen(end), end)) return false;
    const char *at = path + n - tail, *of = at + 1 + SWIGLU_SHARD_DIGITS;
    if (*at != '-' || at[-1] == '/' || memcmp(of, OF, strlen(OF))) return false;
    *name = (struct swiglu_shard_name){.stem_bytes = n - tail, .number = shard_digits(at + 1),
                                       .count = shard_digits(of + strlen(OF))};
    return name->count != UINT32_MAX && name->number && name->number <= name->count;
}

char *swiglu_shard_path(const char *path, const char *end, const struct swiglu_shard_name *name, unsigned number) {
    const size_t bytes = name->stem_bytes + 2 * (SWIGLU_SHARD_DIGITS + 4) + strlen(end);
    char *made = swiglu_alloc(bytes);
    if (made)
        snprintf(made, bytes, "%.*s-%05u" OF "%05u%s", (int)name->stem_bytes, path, number, name->count, end);
    return made;
}
