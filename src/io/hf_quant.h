/* SPDX-License-Identifier: Apache-2.0 */
/* What the tensors of a quantised module mean, as config.json says. */
#ifndef SWIGLU_HF_QUANT_H
#define SWIGLU_HF_QUANT_H

#include "io/hf_config.h"

enum { SWIGLU_PIECE_NONE = -1, SWIGLU_PIECE_WITHOUT = -2 };

/* The piece of a module that a tensor with this suffix is, or one of the two above. */
int swiglu_hf_piece(const char *suffix);

/* Whether it holds the numbers of the weight. */
bool swiglu_hf_is_numbers(int piece);

/* Describes the weight of this role, which the layer has, in layer->quant; or leaves it as it is, or says in layer->reason why
 * the weight cannot be read. E_FORMAT: tensors that contradict the config, or each other. */
enum swiglu_status swiglu_hf_quant(const struct swiglu_layer_rules *rules, struct swiglu_layer *layer, enum swiglu_role role,
                                   struct swiglu_error *error);

#endif
