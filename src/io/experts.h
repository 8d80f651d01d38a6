/* SPDX-License-Identifier: Apache-2.0 */
/* The experts of a mixture, one block each: not routed, only told apart. */
#ifndef SWIGLU_EXPERTS_H
#define SWIGLU_EXPERTS_H

#include "io/layers.h"

/* Puts the experts of each layer behind its line. On failure layers is as it was. */
enum swiglu_status swiglu_experts_add(struct swiglu_layers *layers, const struct swiglu_catalog *catalog,
                                      const struct swiglu_naming *naming, struct swiglu_error *error);

/* Digits up to a dot, without leading zero, within the limit: sets part->expert and what follows the dot. */
bool swiglu_expert_number(const char *digits, struct swiglu_expert_part *part, const char **rest);

#endif
