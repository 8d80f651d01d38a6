/* SPDX-License-Identifier: Apache-2.0 */
/* The primitives of the vec_*.h included before as functions of memory, and their table. Parameter: PRIMS, its name. */
#include "check/prim.h"

static const unsigned char table_16[16] = {0, 1, 2, 3, 4, 6, 8, 12, 255, 200, 100, 50, 25, 128, 127, 9};

#define PRIM(name, ...)                                                                                 \
    static void prim_##name(const float *pa, const float *pb, const float *pc, const float *one, size_t n, \
                            float *out) {                                                               \
        const V a = v_load(pa), b = v_load(pb), c = v_load(pc);                                         \
        (void)a, (void)b, (void)c, (void)one, (void)n;                                                  \
        __VA_ARGS__;                                                                                    \
    }
#include "check/prim.def"
#undef PRIM

const struct check_prims PRIMS = {VL, {
#define PRIM(name, ...) prim_##name,
#include "check/prim.def"
#undef PRIM
}};
#undef PRIMS
