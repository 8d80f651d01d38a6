/* SPDX-License-Identifier: Apache-2.0 */
#include "scan.h"

#include <stdio.h>
#include <stdlib.h>

#include "cli.h"
#include "checkpoint.h"

/* exponent_mask: the exponent field of a float format whose mantissa lies below it. */
static const char *classify(uint32_t bits, uint32_t exponent_mask) {
    uint32_t mantissa_mask = (exponent_mask & -exponent_mask) - 1;
    if ((bits & exponent_mask) != exponent_mask) return NULL;
    return bits & mantissa_mask ? "NaN" : "Inf";
}

static uint32_t load(const unsigned char *p, size_t n) {
    uint32_t bits = 0;
    for (size_t i = 0; i < n; i++) bits |= (uint32_t)p[i] << 8 * i;
    return bits;
}

static void scan_block(const unsigned char *block, const struct swiglu_scales *s, char *what, size_t size) {
    for (unsigned i = 0; i < s->n_f16; i++) {
        uint32_t bits = load(block + s->at[i], 2);
        const char *kind = classify(bits, 0x7c00);
        if (kind) snprintf(what, size, "%s scale 0x%04x", kind, bits);
    }
    if (s->n_e8m0 && block[s->at[0]] == 255) snprintf(what, size, "e8m0 scale 255");
}

static void scan_value(const unsigned char *p, int dtype, char *what, size_t size) {
    size_t n = dtype == SWIGLU_F32 ? 4 : 2;
    uint32_t bits = load(p, n);
    const char *kind = classify(bits, dtype == SWIGLU_F32 ? 0x7f800000 : dtype == SWIGLU_F16 ? 0x7c00 : 0x7f80);
    if (kind) snprintf(what, size, "%s 0x%0*x", kind, (int)(2 * n), bits);
}

int cli_scan_tensor(const struct swiglu_model *model, size_t tensor, struct cli_finding *finding, const char *path) {
    struct swiglu_tensor_info info = cli_model_tensor(model, tensor);
    struct swiglu_dtype_info dtype = {.struct_size = sizeof dtype};
    struct swiglu_error error = {.struct_size = sizeof error};
    *finding = (struct cli_finding){0};
    if (swiglu_dtype_query(info.dtype, &dtype)) return 0;
    finding->in_blocks = dtype.block_elems > 1;
    size_t chunk_bytes = ((size_t)1 << 20) / dtype.block_bytes * dtype.block_bytes;
    unsigned char *chunk = cli_alloc(chunk_bytes, 1);
    for (uint64_t at = 0; at < info.bytes;) {
        size_t n = info.bytes - at < chunk_bytes ? (size_t)(info.bytes - at) : chunk_bytes;
        cli_require(swiglu_model_read(model, tensor, at, chunk, n, &error), &error, path);
        for (size_t i = 0; i + dtype.block_bytes <= n; i += dtype.block_bytes) {
            char what[sizeof finding->what] = "";
            if (finding->in_blocks)
                scan_block(chunk + i, &dtype.scales, what, sizeof what);
            else
                scan_value(chunk + i, info.dtype, what, sizeof what);
            if (!*what || finding->n_bad++) continue;
            finding->index = (at + i) / dtype.block_bytes;
            finding->offset = info.offset + at + i;
            snprintf(finding->what, sizeof finding->what, "%s", what);
        }
        at += n;
    }
    free(chunk);
    return 1;
}
