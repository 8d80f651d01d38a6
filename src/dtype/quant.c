/* SPDX-License-Identifier: Apache-2.0 */
#include "dtype/quant.h"

#include <string.h>

#include "base/half.h"

void swiglu_decode_f32(const void *src, size_t n_blocks, float *dst) { memcpy(dst, src, n_blocks * sizeof *dst); }

void swiglu_decode_f16(const void *src, size_t n_blocks, float *dst) {
    for (size_t i = 0; i < n_blocks; i++) dst[i] = swiglu_f16_widen(swiglu_le16((const char *)src + 2 * i));
}

void swiglu_decode_bf16(const void *src, size_t n_blocks, float *dst) {
    for (size_t i = 0; i < n_blocks; i++) dst[i] = swiglu_bf16_widen(swiglu_le16((const char *)src + 2 * i));
}
