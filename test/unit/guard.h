/* SPDX-License-Identifier: Apache-2.0 */
/* Memory beside unmapped pages. Includers define _DEFAULT_SOURCE. */
#ifndef SWIGLU_TEST_GUARD_H
#define SWIGLU_TEST_GUARD_H

#include <sys/mman.h>
#include <unistd.h>

#include "support.h"

struct guarded { char *map, *data; size_t map_bytes; };

/* bytes next to an unmapped page: side 0 begins after one, side 1 ends before one. */
UNUSED_FN struct guarded guard(size_t bytes, int side) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), room = (bytes + page - 1) / page * page;
    struct guarded g = {.map_bytes = room + 2 * page};
    g.map = mmap(NULL, g.map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(g.map != MAP_FAILED);
    if (room) assert_int_equal(mprotect(g.map + page, room, PROT_READ | PROT_WRITE), 0);
    g.data = g.map + page + (side ? room - bytes : 0);
    return g;
}

UNUSED_FN struct guarded guarded_copy(const void *src, size_t bytes, int side) {
    struct guarded g = guard(bytes, side);
    memcpy(g.data, src, bytes);
    return g;
}

UNUSED_FN void unguard(struct guarded g) { munmap(g.map, g.map_bytes); }

/* From here on a write to it crashes. */
UNUSED_FN void guard_from_writes(struct guarded g) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    assert_int_equal(mprotect(g.map + page, g.map_bytes - 2 * page, PROT_READ), 0);
}

#endif
