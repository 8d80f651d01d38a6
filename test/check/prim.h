/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of primitives, one per vec_*.h. */
#ifndef SWIGLU_CHECK_PRIM_H
#define SWIGLU_CHECK_PRIM_H

#include <stddef.h>

enum {
#define PRIM(name, ...) PRIM_##name,
#include "check/prim.def"
#undef PRIM
    N_PRIMS
};

/* one: a value for all lanes; n: lanes that count, where the primitive takes a count. */
struct check_prims {
    unsigned vl;
    void (*run[N_PRIMS])(const float *a, const float *b, const float *c, const float *one, size_t n, float *out);
};

extern const struct check_prims check_prims_generic, check_prims_avx2, check_prims_avx512, check_prims_avx512vnni,
    check_prims_neon, check_prims_neondot;

#endif
