/* SPDX-License-Identifier: Apache-2.0 */
/* NAME-00002-of-00003.END: how a checkpoint of several files calls each of them. */
#ifndef SWIGLU_SHARD_NAME_H
#define SWIGLU_SHARD_NAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SWIGLU_SHARD_DIGITS = 5 };

struct swiglu_shard_name {
    size_t stem_bytes; /* of the path, up to the dash before the number */
    unsigned number, count; /* number: from 1 */
};

/* Whether the path is such a name; end: ".gguf". What is no shard of a set (number above count, 0) is none. */
bool swiglu_shard_name(const char *path, const char *end, struct swiglu_shard_name *name);

/* The path of shard `number` of the set, whose stem path begins with; to be freed, NULL when memory is short. */
char *swiglu_shard_path(const char *path, const char *end, const struct swiglu_shard_name *name, unsigned number);

#endif
