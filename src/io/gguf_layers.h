/* SPDX-License-Identifier: Apache-2.0 */
/* GGUF's names of tensors and metadata. */
#ifndef SWIGLU_GGUF_LAYERS_H
#define SWIGLU_GGUF_LAYERS_H

#include "io/gguf.h"
#include "io/layers.h"

/* override: NULL, or the name of the activation of every block. On failure nothing is held. */
enum swiglu_status swiglu_gguf_layers(struct swiglu_layers *layers, const struct swiglu_gguf *g, const char *override,
                                      bool experts, struct swiglu_error *error);

/* general.architecture, "" when there is none. */
const char *swiglu_gguf_architecture(const struct swiglu_gguf *g);

#endif
