/* SPDX-License-Identifier: Apache-2.0 */
/* Between gguf.c and its parser: fills g from the open file. */
#ifndef SWIGLU_GGUF_PARSE_H
#define SWIGLU_GGUF_PARSE_H

#include "io/gguf.h"

enum swiglu_status swiglu_gguf_parse(struct swiglu_gguf *g, struct swiglu_error *error);
size_t swiglu_kv_bytes(unsigned type); /* of one value; 0 for strings, arrays and unknown types */

#endif
