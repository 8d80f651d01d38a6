/* SPDX-License-Identifier: Apache-2.0 */
/* Each primitive of a level, lane by lane, against the plain C expression. */
#include <string.h>

#include "base/half.h"
#include "check/check.h"
#include "check/prim.h"
#include "kern/isa.h"

enum { MOST_LANES = 16 };

static const char *const names[] = {
#define PRIM(name, ...) #name,
#include "check/prim.def"
#undef PRIM
};

static const struct check_prims *prims_of(const struct swiglu_kern *kern) {
    switch (kern->isa) {
#if SWIGLU_HAVE_X86
    case SWIGLU_ISA_AVX2: return &check_prims_avx2;
    case SWIGLU_ISA_AVX512: return &check_prims_avx512;
    case SWIGLU_ISA_AVX512VNNI:
    case SWIGLU_ISA_AVX512BF16: return &check_prims_avx512vnni;
#endif
#if SWIGLU_HAVE_NEON
    case SWIGLU_ISA_NEON: return &check_prims_neon;
    case SWIGLU_ISA_NEONDOT: return &check_prims_neondot;
#endif
    default: return &check_prims_generic;
    }
}

struct prim_call {
    const struct check_prims *prims;
    size_t which, n;
    float a[MOST_LANES], b[MOST_LANES], c[MOST_LANES], one, out[MOST_LANES];
};

static void run_prim(void *arg) {
    struct prim_call *t = arg;
    t->prims->run[t->which](t->a, t->b, t->c, &t->one, t->n, t->out);
}

/* A third arbitrary bits, a third special values, a third ordinary ones. */
static float any_float(void) {
    const uint64_t r = check_random();
    return r % 3 ? check_value(r % 3 == 1 ? CHECK_SPECIAL : CHECK_NORMAL) : swiglu_f32_from_bits((uint32_t)(r >> 20));
}

static int judge_prim(const struct prim_call *t) {
    for (unsigned i = 0; i < t->prims->vl; i++) {
        float want = 0;
        check_prims_generic.run[t->which](&t->a[i], &t->b[i], &t->c[i], &t->one, t->n > i ? t->n - i : 0, &want);
        if (!check_same(t->out[i], want))
            return check_differs("%s(%a, %a, %a) lane %u of %zu: %a instead of %a", names[t->which], (double)t->a[i],
                                 (double)t->b[i], (double)t->c[i], i, t->n, (double)t->out[i], (double)want);
    }
    return 1;
}

const char *check_prim_name(size_t which) { return which < N_PRIMS ? names[which] : NULL; }

int check_prim(const struct swiglu_kern *kern, size_t which) {
    struct prim_call t = {.prims = prims_of(kern), .which = which};
    for (int repeat = 0; repeat < 4000; repeat++) {
        for (unsigned i = 0; i < MOST_LANES; i++) t.a[i] = any_float(), t.b[i] = any_float(), t.c[i] = any_float();
        t.one = any_float();
        t.n = check_random() % (t.prims->vl + 3);
        memset(t.out, 0xFF, sizeof t.out);
        if (!check_survives(run_prim, &t) || !judge_prim(&t)) return 0;
    }
    return 1;
}
