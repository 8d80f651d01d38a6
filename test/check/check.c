/* SPDX-License-Identifier: Apache-2.0 */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "check/check.h"

#include <fenv.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/half.h"
#include "cpu/cpu.h"
#include "dtype/dtype.h"
#include "kern/isa.h"

static uint64_t seed = 1; /* the same numbers every time, unless others are asked for */
static int quiet; /* a wrong kernel is being tried */

/* ---- crashes ---- */

static sigjmp_buf escape;
static volatile sig_atomic_t crashed_with;

static void on_crash(int signal_number) {
    crashed_with = signal_number;
    siglongjmp(escape, 1);
}

int check_survives(void (*fn)(void *), void *arg) {
    static const int caught[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};
    struct sigaction action = {.sa_handler = on_crash}, before[COUNT(caught)];
    for (size_t i = 0; i < COUNT(caught); i++) sigaction(caught[i], &action, &before[i]);
    crashed_with = 0;
    if (sigsetjmp(escape, 1) == 0) fn(arg);
    for (size_t i = 0; i < COUNT(caught); i++) sigaction(caught[i], &before[i], NULL);
    if (!crashed_with) return 1;
    fesetenv(FE_DFL_ENV); /* it may have crashed with denormals flushed */
    return check_differs("crashed with signal %d", (int)crashed_with);
}

int check_differs(const char *format, ...) {
    va_list args;
    if (quiet) return 0;
    va_start(args, format);
    fputs("    ", stdout);
    vprintf(format, args);
    putchar('\n');
    va_end(args);
    return 0;
}

/* ---- numbers ---- */

uint64_t check_random(void) { /* SplitMix64 */
    uint64_t z = seed += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

float check_normal(void) {
    const uint64_t r = check_random();
    float sum = -2;
    for (int i = 0; i < 4; i++) sum += (float)(r >> 16 * i & 0xFFFF) * 0x1p-16f;
    return sum * 1.7f;
}

static const float special[] = {
    NAN, -NAN, INFINITY, -INFINITY, 3.4e38f, -3.4e38f, 1e30f,   -1e30f, 0x1p-126f, -0x1p-126f, 0x1p-149f, 0x1.8p-140f,
    -0x1p-130f, 0.0f, -0.0f, 88.5f, -88.5f, -104.0f, 1e-20f, -1e-20f, 7.0f, -7.0f, 3e-6f, -6e-8f /* subnormal f16 */
};

int check_special(size_t i, float *value) {
    if (i < COUNT(special)) *value = special[i];
    return i < COUNT(special);
}

float check_value(enum check_data kind) {
    const uint64_t r = check_random();
    if (kind == CHECK_SPECIAL && r % 4 == 0) return special[(r >> 8) % COUNT(special)];
    if (kind == CHECK_ZERO && r % 8) return r >> 8 & 1 ? 0.0f : -0.0f;
    if (kind == CHECK_TINY) return ldexpf(check_normal(), -60 - (int)(r % 8));
    return check_normal();
}

unsigned check_repeats(const struct swiglu_kern *kern) { return 3 + 32 / kern->vl; }

int check_same(float a, float b) { return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b)); }

int check_stored(const char *at, int dtype, float f) {
    const uint32_t f32 = isnan(f) ? 0x7FC00000 : swiglu_f32_bits(f); /* every stored NaN is the canonical one */
    switch (dtype) {
    case SWIGLU_F16: return swiglu_le16(at) == swiglu_f16_store(f);
    case SWIGLU_BF16: return swiglu_le16(at) == swiglu_bf16_store(f);
    default: return swiglu_le32(at) == f32;
    }
}

/* ---- memory ---- */

void *check_memory(int slot, int side, size_t bytes) {
    static char *slots[CHECK_SLOTS];
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (!slots[slot]) {
        char *map = mmap(NULL, CHECK_SLOT_BYTES + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (map == MAP_FAILED || mprotect(map + page, CHECK_SLOT_BYTES, PROT_READ | PROT_WRITE)) abort();
        slots[slot] = map + page;
    }
    if (bytes > CHECK_SLOT_BYTES) abort();
    char *p = side ? slots[slot] + CHECK_SLOT_BYTES - bytes : slots[slot];
    memset(p, 0xA5, bytes);
    return p;
}

/* ---- the run ---- */

static size_t n_passed, n_failed;

static void verdict(int right, const char *level, const char *what, const char *which) {
    if (right) n_passed++;
    else n_failed++, printf("FAILED %s: %s %s\n", level, what, which);
}

static void check_tiles(const struct swiglu_kern *kern) {
    for (int i = 0; i < SWIGLU_N_FORMS * SWIGLU_N_ARITH; i++) {
        const int form = i / SWIGLU_N_ARITH, arith = i % SWIGLU_N_ARITH;
        const struct swiglu_path *path = kern->path[form][arith];
        for (uint8_t j = 0; path && !path->open && j < SWIGLU_N_MANY + SWIGLU_N_FEW; j++) {
            const uint8_t few = j >= SWIGLU_N_MANY, n = few ? j - SWIGLU_N_MANY : j;
            const struct swiglu_shape shape = {few ? kern->rows_few[n] : kern->rows_many[n], few, n};
            char name[32];
            if (!shape.mr) continue;
            snprintf(name, sizeof name, "%u rows %u panels", shape.mr, swiglu_path_panels(path, &shape));
            verdict(path->form == form && check_tile(kern, path, arith, shape), path->kernel, "tile", name);
        }
    }
}

static void check_level(const struct swiglu_kern *kern) {
    static const char *const kinds[] = {
#define ACT(KIND, name) [SWIGLU_ACT_##KIND] = #name,
#include "kern/act.def"
#undef ACT
    };
    static const int dtypes[] = {SWIGLU_F32, SWIGLU_F16, SWIGLU_BF16};
    static const char *const dtype_names[] = {"f32", "f16", "bf16"};
    const int forms[] = {SWIGLU_X_F32, kern->path[SWIGLU_FORM_BF16_PAIR][SWIGLU_ARITH_BF16]->x};
    const size_t before = n_passed, failed_before = n_failed;
    for (size_t i = 0; check_prim_name(i); i++)
        verdict(check_prim(kern, i), kern->name, "primitive", check_prim_name(i));
    check_tiles(kern);
    for (size_t i = 0; swiglu_dtype_at(i) >= 0; i++)
        if (!swiglu_dtype_is_float(swiglu_dtype_at(i)))
            verdict(check_quant(kern, swiglu_dtype_at(i)), kern->name, "block format",
                    swiglu_dtype_find(swiglu_dtype_at(i))->name);
    for (size_t i = 0; i < COUNT(dtypes); i++) {
        verdict(check_store(kern, dtypes[i]), kern->name, "store", dtype_names[i]);
        for (size_t j = 0; j < COUNT(forms); j++)
            verdict(check_stage(kern, dtypes[i], forms[j]), kern->name, j ? "stage for bf16 from" : "stage from",
                    dtype_names[i]);
        verdict(check_stage_int8(kern, dtypes[i]), kern->name, "stage for int8 from", dtype_names[i]);
        verdict(check_pack(kern, 1, dtypes[i]), kern->name, "pack_rows", dtype_names[i]);
        verdict(check_pack(kern, 0, dtypes[i]), kern->name, "pack_cols", dtype_names[i]);
    }
    for (size_t j = 0; j < COUNT(forms); j++)
        verdict(check_turn(kern, forms[j]), kern->name, "turn", j ? "bf16" : "f32");
    for (size_t i = 0; i < COUNT(kinds); i++) {
        verdict(check_act(kern, (int)i, 0), kern->name, "act", kinds[i]);
        verdict(check_act(kern, (int)i, 1), kern->name, "derivative", kinds[i]);
        for (size_t j = 0; j < COUNT(forms); j++) {
            verdict(check_hidden(kern, (int)i, forms[j]), kern->name, j ? "hidden in bf16" : "hidden", kinds[i]);
            verdict(check_grad(kern, (int)i, (int)j), kern->name, j ? "grad in bf16" : "grad", kinds[i]);
        }
    }
    for (size_t i = 0; i < SWIGLU_N_READERS; i++) verdict(check_read_sum(kern, i), kern->name, "read_sum", "");
    printf("%-14s %zu passed, %zu failed\n", kern->name, n_passed - before, n_failed - failed_before);
}

int main(int argc, char **argv) {
    size_t n_tables = 0, n_caught = 0;
    if (argc > 1) seed = strtoull(argv[1], NULL, 0);
    printf("seed %llu\n", (unsigned long long)seed);
    while (swiglu_kern_table(n_tables)) n_tables++;
    while (n_tables-- > 0) { /* generic is last in the table */
        const struct swiglu_kern *kern = swiglu_kern_table(n_tables);
        if (swiglu_cpu_levels() & kern->isa) check_level(kern);
        else printf("%-14s not on this CPU: %s\n", kern->name, swiglu_cpu_why(kern->isa));
    }
    quiet = 1;
    const size_t missed = check_wrong_kernels(&n_caught);
    printf("%-14s %zu caught, %zu not\n", "wrong kernels", n_caught, missed);
    n_passed += n_caught, n_failed += missed;
    printf("%zu passed, %zu failed\n", n_passed, n_failed);
    return n_failed != 0;
}
