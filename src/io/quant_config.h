/* SPDX-License-Identifier: Apache-2.0 */
/* quantization_config of a config.json, or quantization of MLX: how the weights of quantised modules are stored. */
#ifndef SWIGLU_QUANT_CONFIG_H
#define SWIGLU_QUANT_CONFIG_H

#include "io/catalog.h"
#include "io/json.h"

struct swiglu_quant_number { bool known; uint64_t value, offset; };

/* What says how a weight's numbers are meant: of the whole, or of a group of modules (compressed-tensors). */
struct swiglu_quant_scheme {
    struct swiglu_quant_number bits, group_size; /* group_size -1: all inputs, not known */
    bool symmetric;         /* no zeros; where it is not said, true */
    bool has_block;
    uint64_t block[2];      /* outputs and inputs that share a scale */
    char strategy[24], type[16];
};

struct swiglu_quant_config {
    bool present;
    uint64_t offset;
    char method[32], format[32], version[16]; /* quant_method; format, or checkpoint_format; version of AWQ */
    struct swiglu_quant_scheme scheme;
    bool several;   /* groups of modules whose weights are stored in different ways */
    bool exceptions; /* modules with rules of their own (GPTQ's dynamic, objects in MLX's) */
};

/* The last token was the key: reads the value. mlx: it is MLX's `quantization`, whose method is "mlx" and whose mode is the
 * format. E_FORMAT for what the format does not allow. */
enum swiglu_status swiglu_quant_config_read(struct swiglu_quant_config *config, bool mlx, struct swiglu_json *json);

#endif
