/* SPDX-License-Identifier: Apache-2.0 */
/* Running a described block in one call, for tests. */
#ifndef SWIGLU_TEST_FORWARD_H
#define SWIGLU_TEST_FORWARD_H

#include "support.h"

/* Levels that this CPU runs, one bit each; ends with 0. */
UNUSED_FN const uint64_t *each_level(void) {
    static uint64_t levels[65];
    struct swiglu_level_info level = {.struct_size = sizeof level};
    size_t n = 0;
    for (size_t i = 0; swiglu_level_query(i, &level) == SWIGLU_OK; i++)
        if (level.can && level.compiled) levels[n++] = level.bit;
    levels[n] = 0;
    return levels;
}

UNUSED_FN struct swiglu_block *prepare(const struct swiglu_desc *desc, int compute, uint64_t isa_mask) {
    const struct swiglu_options options = {.struct_size = sizeof options, .compute = compute, .isa_mask = isa_mask};
    struct swiglu_error error = {.struct_size = sizeof error};
    struct swiglu_block *block;
    if (swiglu_block_create(desc, &options, &block, &error) != SWIGLU_OK) fail_msg("%s", error.text);
    return block;
}

UNUSED_FN void run_block(const struct swiglu_block *block, size_t m, struct swiglu_crows x, struct swiglu_rows y,
                         const struct swiglu_runner *runner) {
    struct swiglu_work work;
    assert_int_equal(swiglu_forward_bytes(block, m, runner ? runner->n_threads : 1, &work.bytes), SWIGLU_OK);
    work.data = malloc(work.bytes);
    assert_non_null(work.data);
    memset(work.data, 0xFF, work.bytes); /* NaN: nothing may count on what is there */
    assert_int_equal(swiglu_forward(block, m, x, y, work, runner), SWIGLU_OK);
    free(work.data);
}

/* f32 in and out, contiguous, on the calling thread. */
UNUSED_FN void forward(const struct swiglu_desc *desc, int compute, uint64_t isa_mask, size_t m, const float *x,
                       float *y) {
    struct swiglu_block *block = prepare(desc, compute, isa_mask);
    run_block(block, m, (struct swiglu_crows){x, SWIGLU_F32, 0}, (struct swiglu_rows){y, SWIGLU_F32, 0}, NULL);
    swiglu_block_destroy(block);
}

#endif
