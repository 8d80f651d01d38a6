/* SPDX-License-Identifier: Apache-2.0 */
/* The dtypes of safetensors by number. */
#ifndef SWIGLU_ST_TYPE_H
#define SWIGLU_ST_TYPE_H

enum swiglu_st_type {
#define TYPE(number, name, bits) SWIGLU_ST_##name = number,
#include "io/st_type.def"
#undef TYPE
};

#endif
