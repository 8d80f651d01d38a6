/* SPDX-License-Identifier: Apache-2.0 */
/* Scalar decoders: this code is each format. Declared from the list; src has any alignment. */
#ifndef SWIGLU_QUANT_H
#define SWIGLU_QUANT_H

#include <stddef.h>

#define DTYPE(NAME, text, elems, bytes, file_type, scales, name) \
    void swiglu_decode_##name(const void *src, size_t n_blocks, float *dst);
#include "dtype/dtype.def"
#undef DTYPE

#endif
