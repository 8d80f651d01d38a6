/* SPDX-License-Identifier: Apache-2.0 */
/* Encoders of every format, from f32. The block formats want finite values; a value beyond what a scale can hold makes the
 * scale infinite. Declared from the list; dst has any alignment. */
#ifndef SWIGLU_ENCODE_H
#define SWIGLU_ENCODE_H

#include <stddef.h>

#define DTYPE(NAME, text, elems, bytes, file_type, scales, name) \
    void swiglu_encode_##name(const float *src, size_t n_blocks, void *dst);
#include "dtype/dtype.def"
#undef DTYPE

#endif
