/* SPDX-License-Identifier: Apache-2.0 */
/* From a description to a prepared block. */
#ifndef SWIGLU_PREPARE_H
#define SWIGLU_PREPARE_H

#include "ffn/block.h"

/* desc and options were checked. */
enum swiglu_status swiglu_block_prepare(const struct swiglu_desc *desc, const struct swiglu_options *options,
                                        struct swiglu_block **block, struct swiglu_error *error);

void swiglu_block_free(struct swiglu_block *block);

/* Why a product with these weights runs as it does; a static string. */
const char *swiglu_prepare_why(int weight_dtype, int compute_asked);

#endif
