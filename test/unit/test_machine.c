/* SPDX-License-Identifier: Apache-2.0 */
/* What the CPU can run, which kernel is chosen, and the measuring of its limits. */
#include "forward.h"

#include "cpu/cpu.h"
#include "kern/kern.h"

/* ---- mocked CPUs ---- */

enum { FMA = 1 << 12, OSXSAVE = 1 << 27, AVX = 1 << 28, F16C = 1 << 29, AVX2 = 1 << 5, AVX512F_BW = 1 << 16 | 1 << 30,
       AVX512DQ = 1 << 17 };
static const uint32_t AVX512VL = 1u << 31;

enum { VNNI = 1 << 11 };

static uint64_t levels_of(uint32_t leaf1, uint32_t leaf7, uint32_t leaf7_1, uint64_t xcr0) { /* leaf7_1 ones have VNNI */
    const struct swiglu_cpuid id = {.max_leaf = 7, .leaf1_ecx = leaf1, .leaf7_ebx = leaf7, .leaf7_1_eax = leaf7_1,
                                    .leaf7_ecx = leaf7_1 ? VNNI : 0, .xcr0 = xcr0};
    const uint64_t features = swiglu_cpu_x86_features(&id), levels = swiglu_levels_of(features);
    for (uint64_t bit = 1; bit < (uint64_t)1 << 16; bit *= 2)
        assert_int_equal(strcmp(swiglu_why_of(features, bit), "yes") == 0, (levels & bit) != 0);
    return levels;
}

/* C172: CPUID says AVX, but the OS does not save its registers. C173, C175: a missing feature ends the ladder. */
static void levels_need_the_cpu_and_the_system(void **state) {
    (void)state;
    const uint32_t leaf1 = FMA | OSXSAVE | AVX | F16C, bf16 = 1 << 5;
    const uint32_t leaf7 = AVX2 | AVX512F_BW | AVX512DQ | AVX512VL;
    assert_int_equal(levels_of(leaf1, leaf7, bf16, 0xE7), 15 | SWIGLU_ISA_AVX512VNNI);
    assert_int_equal(levels_of(leaf1, leaf7, 1, 0xE7), 7 | SWIGLU_ISA_AVX512VNNI); /* Ice Lake: no bf16 */
    assert_int_equal(levels_of(leaf1, leaf7, 0, 0xE7), 7);
    assert_int_equal(levels_of(leaf1, leaf7, bf16, 0x07), 3);  /* no ZMM state */
    assert_int_equal(levels_of(leaf1, leaf7, bf16, 0x67), 3);  /* only half of it */
    assert_int_equal(levels_of(leaf1, leaf7, bf16, 0x01), 1);  /* no YMM state */
    assert_int_equal(levels_of(leaf1 & ~(uint32_t)OSXSAVE, leaf7, bf16, 0xE7), 1);
    assert_int_equal(levels_of(leaf1 & ~(uint32_t)FMA, leaf7, bf16, 0xE7), 1);
    assert_int_equal(levels_of(leaf1 & ~(uint32_t)F16C, leaf7, bf16, 0xE7), 1);
    assert_int_equal(levels_of(leaf1, leaf7 & ~(uint32_t)AVX2, bf16, 0xE7), 1);
    assert_int_equal(levels_of(leaf1, leaf7 & ~AVX512VL, bf16, 0xE7), 3); /* AVX-512 without VL */
    /* the bf16 level uses DQ */
    assert_int_equal(levels_of(leaf1, leaf7 & ~(uint32_t)AVX512DQ, bf16, 0xE7), 7 | SWIGLU_ISA_AVX512VNNI);
    assert_int_equal(levels_of(leaf1, AVX2, 0, 0x07), 3);                  /* Haswell, Broadwell */
    assert_int_equal(levels_of(0, 0, 0, 0), 1);                           /* Nehalem */
    const struct swiglu_cpuid old = {.max_leaf = 1, .leaf1_ecx = leaf1, .leaf7_ebx = leaf7, .xcr0 = 0xE7};
    assert_int_equal(swiglu_levels_of(swiglu_cpu_x86_features(&old)), 1); /* there is no leaf 7 to believe */
    /* a level names what the lowest missing one below it lacks */
    const struct swiglu_cpuid haswell = {.max_leaf = 7, .leaf1_ecx = leaf1, .leaf7_ebx = AVX2, .xcr0 = 0x07};
    const uint64_t features = swiglu_cpu_x86_features(&haswell);
    assert_string_equal(swiglu_why_of(features, SWIGLU_ISA_AVX512BF16), swiglu_why_of(features, SWIGLU_ISA_AVX512));
    assert_string_equal(swiglu_why_of(features, SWIGLU_ISA_AVX512), "the operating system does not save AVX-512 registers");
    assert_string_equal(swiglu_why_of(features, SWIGLU_ISA_NEON), "not an instruction set of this architecture");
}

static void cpu_is_described(void **state) {
    (void)state;
    struct swiglu_cpu_info cpu = {.struct_size = sizeof cpu};
    assert_int_equal(swiglu_cpu_query(&cpu), SWIGLU_OK);
    assert_true(cpu.can & SWIGLU_ISA_GENERIC && cpu.compiled & SWIGLU_ISA_GENERIC);
    assert_true(cpu.n_cpus >= 1);
    assert_int_equal(swiglu_cpu_query(NULL), SWIGLU_E_ARGUMENT);
}

/* The list of levels covers what the CPU and the build say, each bit once, and limits hold nothing above the level. */
static void levels_are_listed(void **state) {
    (void)state;
    struct swiglu_cpu_info cpu = {.struct_size = sizeof cpu};
    struct swiglu_level_info level = {.struct_size = sizeof level};
    uint64_t seen = 0, can = 0, compiled = 0;
    size_t n = 0;
    assert_int_equal(swiglu_cpu_query(&cpu), SWIGLU_OK);
    for (; swiglu_level_query(n, &level) == SWIGLU_OK; n++) {
        assert_true(level.bit && !(level.bit & (level.bit - 1)) && !(seen & level.bit));
        assert_true(level.limit & level.bit && level.limit & SWIGLU_ISA_GENERIC && !(level.limit & ~(seen | level.bit)));
        assert_int_equal(level.can, strcmp(level.why, "yes") == 0);
        seen |= level.bit, can |= level.can ? level.bit : 0, compiled |= level.compiled ? level.bit : 0;
        if (!level.can || !level.compiled) continue;
        const char *kernel, *suffix;
        assert_int_equal(swiglu_kernel_query(SWIGLU_F32, SWIGLU_COMPUTE_F32, level.limit, &kernel, NULL), SWIGLU_OK);
        assert_non_null(suffix = strchr(kernel, '_'));
        assert_string_equal(suffix + 1, level.name);
    }
    assert_true(n >= 2 && can == cpu.can && compiled == cpu.compiled);
    assert_int_equal(swiglu_level_query(n, &level), SWIGLU_E_ARGUMENT);
    assert_int_equal(swiglu_level_query(0, NULL), SWIGLU_E_ARGUMENT);
}

/* ---- the choice of a kernel ---- */

/* C176: every level in the build is chosen when the mask leaves it as the best one. */
static void every_shipped_kernel_is_reachable(void **state) {
    (void)state;
    static const struct { int dtype, compute; const char *stem; } forms[] = {
        {SWIGLU_F32, SWIGLU_COMPUTE_AUTO, "f32_"},    {SWIGLU_F16, SWIGLU_COMPUTE_AUTO, "f16_"},
        {SWIGLU_BF16, SWIGLU_COMPUTE_F32, "bf16_"},   {SWIGLU_BF16, SWIGLU_COMPUTE_AUTO, "bf16dot_"},
        {SWIGLU_F32, SWIGLU_COMPUTE_BF16, "bf16dot_"}, {SWIGLU_Q4_K, SWIGLU_COMPUTE_AUTO, "f32_"},
    };
    for (const uint64_t *level = each_level(); *level; level++)
        for (size_t i = 0; i < COUNT(forms); i++) {
            const char *kernel, *why, *name = swiglu_kern_select(*level, NULL, 0)->name;
            assert_int_equal(swiglu_kernel_query(forms[i].dtype, forms[i].compute, *level, &kernel, &why), SWIGLU_OK);
            assert_int_equal(strncmp(kernel, forms[i].stem, strlen(forms[i].stem)), 0);
            assert_string_equal(kernel + strlen(forms[i].stem), name);
            assert_true(strlen(why) > 5);
        }
    /* an upper limit as a mask of all levels below */
    assert_string_equal(swiglu_kern_select(SWIGLU_ISA_GENERIC, NULL, 0)->name, "generic");
    assert_null(swiglu_kern_select((uint64_t)1 << 40, NULL, 0));
    const char *kernel;
    assert_int_equal(swiglu_kernel_query(SWIGLU_F32, 0, (uint64_t)1 << 40, &kernel, NULL), SWIGLU_E_HARDWARE);
    assert_int_equal(swiglu_kernel_query(16, 0, 0, &kernel, NULL), SWIGLU_E_UNSUPPORTED);
    assert_int_equal(swiglu_kernel_query(SWIGLU_F32, 5, 0, &kernel, NULL), SWIGLU_E_ARGUMENT);
}

static void a_block_tells_what_it_runs_on(void **state) {
    (void)state;
    struct block_data b = new_block(64, 96, 32, SWIGLU_SEPARATE, "silu", SWIGLU_BF16, 0, 0, 1);
    for (const uint64_t *level = each_level(); *level; level++) {
        struct swiglu_block_info info = {.struct_size = sizeof info};
        struct swiglu_block *block = prepare(&b.desc, SWIGLU_COMPUTE_AUTO, *level);
        assert_int_equal(swiglu_block_query(block, &info), SWIGLU_OK);
        assert_int_equal(info.isa, *level);
        assert_int_equal(info.compute_first, SWIGLU_COMPUTE_BF16);
        assert_int_equal(strncmp(info.kernel_first, "bf16dot_", 8), 0);
        assert_int_equal(info.file_bytes, (2 * 64 * 96 + 96 * 32) * 2);
        assert_true(info.packed_bytes >= info.file_bytes && !info.expanded && info.gated);
        swiglu_block_destroy(block);
    }
    b.desc.gate.dtype = b.desc.up.dtype = SWIGLU_Q8_0; /* decoded, so larger than in the file */
    free(b.memory[0]), free(b.memory[1]);
    b.desc.gate.data = b.memory[0] = calloc(96 * 2, 34);
    b.desc.up.data = b.memory[1] = calloc(96 * 2, 34);
    struct swiglu_block_info info = {.struct_size = sizeof info};
    struct swiglu_block *block = prepare(&b.desc, SWIGLU_COMPUTE_AUTO, 0);
    assert_int_equal(swiglu_block_query(block, &info), SWIGLU_OK);
    assert_true(info.expanded);
    assert_int_equal(info.compute_first, SWIGLU_COMPUTE_F32);
    assert_int_equal(info.file_bytes, 2 * 96 * 2 * 34 + 96 * 32 * 2);
    swiglu_block_destroy(block);
    free_block(&b);
}

/* ---- limits ---- */

/* E.13: a probe counts what it does, so that none can be optimised away; and a rate is that of what was counted. */
static void probes_do_what_they_count(void **state) {
    (void)state;
    static const size_t rounds[] = {0, 1, 7, 4096};
    for (const uint64_t *level = each_level(); *level; level++) {
        const struct swiglu_kern *kern = swiglu_kern_select(*level, NULL, 0);
        assert_true(kern->peak_ops_f32 >= 2 * kern->vl && kern->peak_ops_bf16 >= kern->peak_ops_f32);
        for (size_t i = 0; i < COUNT(rounds); i++) { /* f32 holds these sums */
            assert_float_equal(2 * kern->peak_f32(rounds[i]), (double)rounds[i] * kern->peak_ops_f32, 0);
            assert_float_equal(2 * kern->peak_bf16(rounds[i]), (double)rounds[i] * kern->peak_ops_bf16, 0);
        }
    }
}

static void limits_are_plausible(void **state) {
    (void)state;
    const size_t bytes = (size_t)8 << 20;
    unsigned char *buffer = malloc(bytes + 100);
    memset(buffer, 1, bytes + 100);
    struct swiglu_limits limits = {.struct_size = sizeof limits};
    assert_int_equal(swiglu_measure(0, 0.005, buffer + 3, bytes, NULL, &limits), SWIGLU_OK); /* any alignment */
    assert_true(limits.f32_flops > 1e7 && limits.f32_flops < 1e14);
    assert_true(limits.bf16_flops > 1e6 && limits.bf16_flops < 1e15);
    assert_true(limits.read_bytes > 1e7 && limits.read_bytes < 1e13);
    assert_int_equal(swiglu_measure(0, 0, buffer, bytes, NULL, &limits), SWIGLU_E_ARGUMENT);
    assert_int_equal(swiglu_measure(0, NAN, buffer, bytes, NULL, &limits), SWIGLU_E_ARGUMENT);
    assert_int_equal(swiglu_measure(0, 0.01, NULL, bytes, NULL, &limits), SWIGLU_E_ARGUMENT);
    assert_int_equal(swiglu_measure(0, 0.01, buffer, 100, NULL, &limits), SWIGLU_E_ARGUMENT);
    assert_int_equal(swiglu_measure(0, 0.01, buffer, bytes, NULL, NULL), SWIGLU_E_ARGUMENT);
    assert_int_equal(swiglu_measure((uint64_t)1 << 40, 0.01, buffer, bytes, NULL, &limits), SWIGLU_E_HARDWARE);
    free(buffer);
}

static void dtypes_are_described(void **state) {
    (void)state;
    struct swiglu_dtype_info info = {.struct_size = sizeof info};
    assert_int_equal(swiglu_dtype_query(SWIGLU_Q4_K, &info), SWIGLU_OK);
    assert_string_equal(info.name, "q4_k");
    assert_int_equal(info.block_elems, 256);
    assert_int_equal(info.block_bytes, 144);
    static const int unknown[] = {4, 5, 9, 16, 31, 38, 40, -1, 0x7FFFFFFF};
    for (size_t i = 0; i < COUNT(unknown); i++)
        assert_int_equal(swiglu_dtype_query(unknown[i], &info), SWIGLU_E_ARGUMENT);
    assert_int_equal(swiglu_dtype_query(SWIGLU_F32, NULL), SWIGLU_E_ARGUMENT);
}

static void dtypes_are_listed(void **state) {
    (void)state;
    size_t n = 0;
    for (; swiglu_dtype_at(n) >= 0; n++) {
        struct swiglu_dtype_info info = {.struct_size = sizeof info};
        assert_int_equal(swiglu_dtype_query(swiglu_dtype_at(n), &info), SWIGLU_OK);
        const struct swiglu_scales s = info.scales;
        assert_int_equal(s.n_f16 + s.n_e8m0 > 0, info.block_elems > 1); /* whatever is scaled says where */
        for (unsigned i = 0; i < s.n_f16 + s.n_e8m0; i++) assert_true(s.at[i] + (s.n_f16 ? 2 : 1) <= info.block_bytes);
        for (size_t i = 0; i < n; i++) assert_int_not_equal(swiglu_dtype_at(i), swiglu_dtype_at(n));
    }
    assert_true(n >= 14);
    assert_int_equal(swiglu_dtype_at(n), -1);
    assert_int_equal(swiglu_dtype_at(SIZE_MAX), -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels_need_the_cpu_and_the_system),
        cmocka_unit_test(cpu_is_described),
        cmocka_unit_test(levels_are_listed),
        cmocka_unit_test(every_shipped_kernel_is_reachable),
        cmocka_unit_test(a_block_tells_what_it_runs_on),
        cmocka_unit_test(probes_do_what_they_count),
        cmocka_unit_test(limits_are_plausible),
        cmocka_unit_test(dtypes_are_described),
        cmocka_unit_test(dtypes_are_listed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
