/* SPDX-License-Identifier: Apache-2.0 */
/* What this machine and this build can do. */
#include "swiglu/swiglu.h"

#include "api/fenv.h"
#include "cpu/cpu.h"
#include "dtype/dtype.h"
#include "ffn/measure.h"
#include "ffn/prepare.h"
#include "kern/kern.h"

static uint64_t compiled_levels(void) {
    uint64_t levels = 0;
    for (size_t i = 0; swiglu_kern_table(i); i++) levels |= swiglu_kern_table(i)->isa;
    return levels;
}

enum swiglu_status swiglu_cpu_query(struct swiglu_cpu_info *info) {
    const struct swiglu_cpu_counts counts = swiglu_cpu_counts();
    struct swiglu_cpu_info full = {.struct_size = sizeof full, .can = swiglu_cpu_levels(), .compiled = compiled_levels(),
                                   .n_cpus = counts.n_cpus, .n_cores = counts.n_cores};
    return swiglu_struct_out(info, &full, sizeof full);
}

enum swiglu_status swiglu_level_query(size_t i, struct swiglu_level_info *info) {
    const struct swiglu_level_row *row = swiglu_level_row(i);
    if (!row) return SWIGLU_E_ARGUMENT;
    const struct swiglu_level_info full = {.struct_size = sizeof full, .name = row->name, .bit = row->bit,
                                           .limit = swiglu_level_limit(row), .can = (swiglu_cpu_levels() & row->bit) != 0,
                                           .compiled = (compiled_levels() & row->bit) != 0,
                                           .why = swiglu_cpu_why(row->bit)};
    return swiglu_struct_out(info, &full, sizeof full);
}

enum swiglu_status swiglu_kernel_query(int weight_dtype, int compute, uint64_t isa_mask, const char **kernel,
                                       const char **why) {
    if (!swiglu_compute_known(compute)) return SWIGLU_E_ARGUMENT;
    if (!swiglu_dtype_find(weight_dtype)) return SWIGLU_E_UNSUPPORTED;
    if (compute == SWIGLU_COMPUTE_INT8 && swiglu_dtype_is_float(weight_dtype)) return SWIGLU_E_UNSUPPORTED;
    const int resolved = swiglu_compute_resolve(compute, weight_dtype, weight_dtype);
    const struct swiglu_need need = swiglu_kern_need(resolved, weight_dtype, weight_dtype);
    const struct swiglu_kern *kern = swiglu_kern_select(isa_mask, &need, 1);
    if (!kern) return SWIGLU_E_HARDWARE;
    if (kernel) *kernel = kern->path[need.form][need.arith]->kernel;
    if (why) *why = swiglu_prepare_why(weight_dtype, compute);
    return SWIGLU_OK;
}

enum swiglu_status swiglu_measure(uint64_t isa_mask, double seconds, const void *buffer, size_t bytes,
                                  const struct swiglu_runner *runner, struct swiglu_limits *limits) {
    const size_t head = buffer ? -(uintptr_t)buffer & 4095 : 0, least = 2 << 20;
    struct swiglu_limits full = {.struct_size = sizeof full};
    fenv_t caller;
    if (!buffer || !limits || !(seconds > 0 && seconds <= 60) || bytes < least + head) return SWIGLU_E_ARGUMENT;
    const struct swiglu_kern *kern = swiglu_kern_select(isa_mask, NULL, 0);
    if (!kern) return SWIGLU_E_HARDWARE;
    swiglu_fenv_enter(&caller);
    swiglu_measure_run(kern, seconds, (const char *)buffer + head, bytes - head, runner, &full);
    swiglu_fenv_leave(&caller);
    return swiglu_struct_out(limits, &full, sizeof full);
}

enum swiglu_status swiglu_version(struct swiglu_build *build) {
    const struct swiglu_build full = {sizeof full, SWIGLU_VERSION_STRING, __VERSION__, SWIGLU_ABI, SWIGLU_CONTRACT};
    return swiglu_struct_out(build, &full, sizeof full);
}
