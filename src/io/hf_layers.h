/* SPDX-License-Identifier: Apache-2.0 */
/* The names of tensors and the config of the transformers world. */
#ifndef SWIGLU_HF_LAYERS_H
#define SWIGLU_HF_LAYERS_H

#include "io/config.h"
#include "io/layers.h"

/* override: NULL, or the name of the activation of every block. On failure nothing is held. */
enum swiglu_status swiglu_hf_layers(struct swiglu_layers *layers, struct swiglu_catalog *catalog,
                                    const struct swiglu_config *config, const char *override, bool experts,
                                    struct swiglu_error *error);

#endif
