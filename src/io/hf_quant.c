/* SPDX-License-Identifier: Apache-2.0 */
#include "io/hf_quant.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/bytes.h"
#include "base/checked.h"
#include "dtype/dtype.h"
#include "io/safetensors.h"
#include "io/st_type.h"

typedef unsigned long long ull;

enum { WORD_BITS = 32, AWQ_BITS = 4 };

static const char *const piece_suffixes[] = {
#define PIECE(NAME, suffix) [SWIGLU_PIECE_##NAME] = suffix,
#include "io/hf_piece.def"
};
static const char *const piece_without[] = {
#define PIECE(NAME, suffix)
#define WITHOUT(suffix) suffix,
#include "io/hf_piece.def"
};

int swiglu_hf_piece(const char *suffix) {
    for (int i = 0; i < SWIGLU_PIECES; i++)
        if (!strcmp(piece_suffixes[i], suffix)) return i;
    for (size_t i = 0; i < sizeof piece_without / sizeof piece_without[0]; i++)
        if (!strcmp(piece_without[i], suffix)) return SWIGLU_PIECE_WITHOUT;
    return SWIGLU_PIECE_NONE;
}

bool swiglu_hf_is_numbers(int piece) {
    return piece == SWIGLU_PIECE_WEIGHT || piece == SWIGLU_PIECE_PACKED || piece == SWIGLU_PIECE_QWEIGHT;
}

/* One weight that is looked at. */
struct quant_case {
    const struct swiglu_layer_rules *rules;
    const struct swiglu_quant_config *config;
    struct swiglu_layer *layer;
    const long *piece;          /* tensors by piece */
    const struct swiglu_tensor *numbers;
    struct swiglu_scaled *q;
    struct swiglu_error *error;
};

static const char *quant_name(const struct quant_case *c, long tensor) {
    return swiglu_names_at(&c->rules->catalog->names, (size_t)tensor);
}

/* Why the weight cannot be read; the first reason stays. */
static SW_PRINTF(2, 3) enum swiglu_status quant_leave(const struct quant_case *c, const char *format, ...) {
    char text[144];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (!c->layer->reason[0])
        snprintf(c->layer->reason, sizeof c->layer->reason, "tensor %.60s: %s", quant_name(c, c->q->weight), text);
    return SWIGLU_OK;
}

static SW_PRINTF(3, 4) enum swiglu_status quant_bad(const struct quant_case *c, long tensor, const char *format, ...) {
    const struct swiglu_tensor *t = &c->rules->catalog->tensors[tensor];
    char text[240];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return swiglu_catalog_fail(c->rules->catalog, t->file, c->error, SWIGLU_E_FORMAT, t->entry, "tensor %.80s: %s",
                               quant_name(c, tensor), text);
}

/* The tensor is [rows, cols], where 1 column may be left out, and of one value all dimensions. */
static enum swiglu_status quant_shape(const struct quant_case *c, long tensor, uint64_t rows, uint64_t cols) {
    const struct swiglu_tensor *t = &c->rules->catalog->tensors[tensor];
    const bool fits = (t->n_dims == 2 && t->dims[0] == rows && t->dims[1] == cols) ||
                      (t->n_dims == 1 && t->dims[0] == rows && cols == 1) || (t->n_dims == 0 && rows == 1 && cols == 1);
    if (fits) return SWIGLU_OK;
    return quant_bad(c, tensor, "n_dims %u, dims %llu and %llu: must be %llu x %llu, as %.60s and quantization_config say",
                     t->n_dims, t->n_dims ? (ull)t->dims[0] : 1, t->n_dims > 1 ? (ull)t->dims[1] : 1, (ull)rows, (ull)cols,
                     quant_name(c, c->q->weight));
}

static enum swiglu_status quant_type(const struct quant_case *c, long tensor, uint32_t type) {
    const struct swiglu_tensor *t = &c->rules->catalog->tensors[tensor];
    if (t->type == type) return SWIGLU_OK;
    return quant_bad(c, tensor, "type %s: must be %s, as quantization_config says", swiglu_tensor_type_name(t),
                     swiglu_safetensors_type_name(type));
}

/* The tensor that must stand beside the numbers. */
static enum swiglu_status quant_beside(const struct quant_case *c, enum swiglu_module_part piece, long *tensor) {
    *tensor = c->piece[piece];
    if (*tensor >= 0) return SWIGLU_OK;
    return quant_leave(c, "no tensor with %s beside it", piece_suffixes[piece]);
}

/* Scales, or what stands beside them in their type. */
static enum swiglu_status quant_floats(const struct quant_case *c, long tensor, uint64_t rows, uint64_t cols) {
    const struct swiglu_tensor *t = &c->rules->catalog->tensors[tensor];
    TRY(quant_shape(c, tensor, rows, cols));
    if (swiglu_dtype_is_float((int)t->type) || t->type == SWIGLU_ST_F8_E8M0) return SWIGLU_OK;
    return quant_leave(c, "scales of type %s", swiglu_tensor_type_name(t));
}

/* Outputs and inputs that share a scale, by what the config says. false: it does not say it. */
static bool quant_grid(const struct quant_case *c) {
    const struct swiglu_quant_scheme *s = &c->config->scheme;
    struct swiglu_scaled *q = c->q;
    const bool by_word = s->strategy[0] != 0;
    q->row_group = 1, q->col_group = q->cols;
    if (s->has_block && (!by_word || !strcmp(s->strategy, "block"))) {
        q->row_group = s->block[0], q->col_group = s->block[1];
    } else if (!strcmp(c->config->method, "fbgemm_fp8") || !strcmp(s->strategy, "channel")) {
        q->col_group = q->cols;
    } else if (!strcmp(s->strategy, "tensor") || (!by_word && !strcmp(c->config->method, "fp8"))) {
        q->row_group = q->rows;
    } else if (!strcmp(s->strategy, "group") && s->group_size.known && s->group_size.value) {
        q->col_group = s->group_size.value;
    } else {
        return false;
    }
    q->n_groups = swiglu_ceil_div((size_t)q->cols, (size_t)q->col_group);
    return true;
}

/* ---- 8 bits a value ---- */

static enum swiglu_status quant_scaled(const struct quant_case *c) {
    struct swiglu_scaled *q = c->q;
    const char *format = c->config->format;
    const uint32_t type = c->numbers->type;
    const bool compressed = !strcmp(c->config->method, "compressed-tensors");
    const bool fp8 = !strcmp(c->config->method, "fp8") || !strcmp(c->config->method, "fbgemm_fp8");
    if (!fp8 && !(compressed && (!strcmp(format, "float-quantized") || !strcmp(format, "int-quantized") ||
                                 !strcmp(format, "naive-quantized"))))
        return quant_leave(c, "quantization_config: method \"%.24s\", format \"%.24s\": not read", c->config->method, format);
    if (type != SWIGLU_ST_F8_E4M3 && type != SWIGLU_ST_F8_E5M2 && !(compressed && type == SWIGLU_ST_I8))
        return quant_leave(c, "type %s with scales is not read", swiglu_tensor_type_name(c->numbers));
    if (c->numbers->n_dims != 2 || !c->numbers->dims[0] || !c->numbers->dims[1])
        return quant_bad(c, q->weight, "n_dims %u: a weight with scales has 2, of at least 1", c->numbers->n_dims);
    q->kind = SWIGLU_SCALED_GRID, q->bits = 8;
    q->rows = c->numbers->dims[0], q->cols = c->numbers->dims[1];
    q->scale = c->piece[SWIGLU_PIECE_SCALE_INV] >= 0 ? c->piece[SWIGLU_PIECE_SCALE_INV] : c->piece[SWIGLU_PIECE_SCALE];
    if (q->scale < 0 || (c->piece[SWIGLU_PIECE_SCALE_INV] >= 0 && c->piece[SWIGLU_PIECE_SCALE] >= 0))
        return quant_leave(c, "%s", q->scale < 0 ? "no scale beside it" : "weight_scale and weight_scale_inv beside it");
    if (!quant_grid(c))
        return quant_leave(c, "quantization_config does not say which values share a scale (strategy \"%.20s\")",
                           c->config->scheme.strategy);
    const uint64_t rows = swiglu_ceil_div((size_t)q->rows, (size_t)q->row_group);
    TRY(quant_floats(c, q->scale, rows, q->n_groups));
    q->zero = c->piece[SWIGLU_PIECE_ZERO];
    if (q->zero < 0)
        return type != SWIGLU_ST_I8 || c->config->scheme.symmetric
                   ? SWIGLU_OK : quant_leave(c, "no weight_zero_point beside it, though it is not symmetric");
    TRY(quant_type(c, q->zero, SWIGLU_ST_I8));
    return quant_shape(c, q->zero, rows, q->n_groups);
}

/* ---- words of 32 bits ---- */

/* 2, 4 or 8 bits a value: words hold whole values. */
static bool quant_bits_of_words(const struct quant_case *c) {
    const struct swiglu_quant_number *bits = &c->config->scheme.bits;
    c->q->bits = bits->known && (bits->value == 2 || bits->value == 4 || bits->value == 8) ? (unsigned)bits->value : 0;
    return c->q->bits != 0;
}

/* weight_shape holds [outputs, inputs]: the words do not tell how many inputs there are. */
static enum swiglu_status quant_stored_shape(const struct quant_case *c, long tensor) {
    const struct swiglu_catalog *catalog = c->rules->catalog;
    const struct swiglu_tensor *t = &catalog->tensors[tensor];
    const unsigned per_word = WORD_BITS / c->q->bits;
    unsigned char bytes[16];
    const size_t each = t->type == SWIGLU_ST_I64 ? 8 : 4;
    if (t->n_dims != 1 || t->dims[0] != 2 || (t->type != SWIGLU_ST_I64 && t->type != SWIGLU_ST_I32))
        return quant_bad(c, tensor, "two integers are expected");
    TRY(swiglu_file_read(&catalog->files[t->file], t->offset, bytes, 2 * each, c->error));
    const uint64_t rows = each == 8 ? swiglu_le64(bytes) : swiglu_le32(bytes),
                   cols = each == 8 ? swiglu_le64(bytes + 8) : swiglu_le32(bytes + 4);
    const uint64_t words = cols / per_word + (cols % per_word != 0);
    if (!rows || !cols || c->numbers->n_dims != 2 || c->numbers->dims[0] != rows || c->numbers->dims[1] != words)
        return quant_bad(c, tensor, "values %llu and %llu: the words of %.60s are another shape", (ull)rows, (ull)cols,
                         quant_name(c, c->q->weight));
    c->q->rows = rows, c->q->cols = cols;
    return SWIGLU_OK;
}

static enum swiglu_status quant_words(const struct quant_case *c) {
    struct swiglu_scaled *q = c->q;
    const struct swiglu_quant_scheme *s = &c->config->scheme;
    long shape;
    if (strcmp(c->config->method, "compressed-tensors") || strcmp(c->config->format, "pack-quantized"))
        return quant_leave(c, "quantization_config: method \"%.24s\", format \"%.24s\": not read", c->config->method,
                           c->config->format);
    if (!quant_bits_of_words(c) || strcmp(s->type, "int"))
        return quant_leave(c, "words of %llu-bit values of type \"%.12s\" are not read", (ull)s->bits.value, s->type);
    TRY(quant_type(c, q->weight, SWIGLU_ST_I32));
    TRY(quant_beside(c, SWIGLU_PIECE_SHAPE, &shape));
    TRY(quant_beside(c, SWIGLU_PIECE_SCALE, &q->scale));
    if (c->layer->reason[0]) return SWIGLU_OK;
    TRY(quant_stored_shape(c, shape));
    q->kind = SWIGLU_SCALED_WORDS;
    if (!quant_grid(c) || q->row_group > 1)
        return quant_leave(c, "quantization_config: strategy \"%.20s\" is not read with words", s->strategy);
    TRY(quant_floats(c, q->scale, q->rows, q->n_groups));
    q->g_idx = c->piece[SWIGLU_PIECE_GROUPS];
    if (q->g_idx >= 0) {
        TRY(quant_type(c, q->g_idx, SWIGLU_ST_I32));
        TRY(quant_shape(c, q->g_idx, q->cols, 1));
    }
    q->zero = c->piece[SWIGLU_PIECE_ZERO];
    if (q->zero < 0)
        return s->symmetric ? SWIGLU_OK : quant_leave(c, "no weight_zero_point beside it, though it is not symmetric");
    TRY(quant_type(c, q->zero, SWIGLU_ST_I32));
    return quant_shape(c, q->zero, swiglu_ceil_div((size_t)q->rows, WORD_BITS / q->bits), q->n_groups);
}

/* MLX: words of whole numbers along the inputs, whose rows they fill. */
static enum swiglu_status quant_mlx(const struct quant_case *c) {
    struct swiglu_scaled *q = c->q;
    const struct swiglu_quant_number *size = &c->config->scheme.group_size;
    const uint64_t *dims = c->numbers->dims;
    if (c->config->format[0] && strcmp(c->config->format, "affine"))
        return quant_leave(c, "quantization.mode \"%.24s\" is not read", c->config->format);
    if (c->config->exceptions) return quant_leave(c, "quantization: modules with rules of their own are not read");
    if (!quant_bits_of_words(c) || !size->known || !size->value)
        return quant_leave(c, "words of %llu-bit values in groups of %llu are not read", (ull)c->config->scheme.bits.value,
                           (ull)size->value);
    TRY(quant_type(c, q->weight, SWIGLU_ST_U32));
    TRY(quant_beside(c, SWIGLU_PIECE_SCALES, &q->scale));
    TRY(quant_beside(c, SWIGLU_PIECE_BIASES, &q->zero));
    if (c->layer->reason[0]) return SWIGLU_OK;
    q->kind = SWIGLU_SCALED_MLX;
    if (c->numbers->n_dims != 2 || !dims[0] || !dims[1] || SW_MUL(dims[1], (uint64_t)(WORD_BITS / q->bits), &q->cols))
        return quant_bad(c, q->weight, "n_dims %u, dims %llu and %llu: no words of %u values", c->numbers->n_dims,
                         (ull)dims[0], (ull)dims[1], WORD_BITS / q->bits);
    q->rows = dims[0], q->row_group = 1, q->col_group = size->value;
    q->n_groups = swiglu_ceil_div((size_t)q->cols, (size_t)q->col_group);
    TRY(quant_floats(c, q->scale, q->rows, q->n_groups));
    return quant_floats(c, q->zero, q->rows, q->n_groups);
}

/* GPTQ: words along the inputs. AWQ: along the outputs. */
static enum swiglu_status quant_by_input(const struct quant_case *c) {
    struct swiglu_scaled *q = c->q;
    const struct swiglu_quant_config *config = c->config;
    const bool awq = !strcmp(config->method, "awq"), gptq = !strcmp(config->method, "gptq");
    const bool known = gptq ? !config->format[0] || !strcmp(config->format, "gptq") || !strcmp(config->format, "gptq_v2")
                            : awq && (!config->version[0] || !strcasecmp(config->version, "gemm"));
    if (!known)
        return quant_leave(c, "quantization_config: method \"%.24s\", format \"%.24s\", version \"%.12s\": not read",
                           config->method, config->format, config->version);
    if (config->exceptions) return quant_leave(c, "quantization_config.dynamic: modules with rules of their own are not read");
    if (!quant_bits_of_words(c) || (awq && q->bits != AWQ_BITS))
        return quant_leave(c, "words of %llu-bit values are not read", (ull)config->scheme.bits.value);
    TRY(quant_type(c, q->weight, SWIGLU_ST_I32));
    TRY(quant_beside(c, SWIGLU_PIECE_SCALES, &q->scale));
    TRY(quant_beside(c, SWIGLU_PIECE_QZEROS, &q->zero));
    if (c->layer->reason[0]) return SWIGLU_OK;
    const unsigned per_word = WORD_BITS / q->bits;
    const uint64_t *dims = c->numbers->dims;
    q->kind = awq ? SWIGLU_SCALED_AWQ : SWIGLU_SCALED_GPTQ;
    if (c->numbers->n_dims != 2 || !dims[0] || !dims[1] || SW_MUL(dims[0], (uint64_t)(awq ? 1 : per_word), &q->cols) ||
        SW_MUL(dims[1], (uint64_t)(awq ? per_word : 1), &q->rows) || q->rows % per_word)
        return quant_bad(c, q->weight, "n_dims %u, dims %llu and %llu: no words of %u values", c->numbers->n_dims,
                         (ull)dims[0], (ull)dims[1], per_word);
    const struct swiglu_quant_number *size = &config->scheme.group_size;
    if (size->known && !size->value) return quant_leave(c, "quantization_config.group_size 0");
    q->row_group = 1, q->col_group = size->known ? size->value : q->cols;
    q->n_groups = swiglu_ceil_div((size_t)q->cols, (size_t)q->col_group);
    q->zero_offset = gptq && strcmp(config->format, "gptq_v2");
    TRY(quant_floats(c, q->scale, q->n_groups, q->rows));
    TRY(quant_type(c, q->zero, SWIGLU_ST_I32));
    TRY(quant_shape(c, q->zero, q->n_groups, q->rows / per_word));
    if (gptq) q->g_idx = c->piece[SWIGLU_PIECE_G_IDX];
    if (q->g_idx < 0) return SWIGLU_OK;
    TRY(quant_type(c, q->g_idx, SWIGLU_ST_I32));
    return quant_shape(c, q->g_idx, q->cols, 1);
}

/* How it is stored, for people. */
static void quant_words_of(const struct quant_case *c) {
    const struct swiglu_scaled *q = c->q;
    char *dst = c->layer->storage;
    const size_t n = sizeof c->layer->storage;
    if (q->kind == SWIGLU_SCALED_GRID) {
        snprintf(dst, n, "%.20s: %s, a scale per %llu x %llu", c->config->method, swiglu_tensor_type_name(c->numbers),
                 (ull)q->row_group, (ull)q->col_group);
    } else {
        snprintf(dst, n, "%.20s: %u bits, groups of %llu", c->config->method, q->bits, (ull)q->col_group);
    }
}

enum swiglu_status swiglu_hf_quant(const struct swiglu_layer_rules *rules, struct swiglu_layer *layer, enum swiglu_role role,
                                   struct swiglu_error *error) {
    const struct swiglu_quant_config *config = &((const struct swiglu_hf_naming *)rules->ctx)->config->quant;
    struct swiglu_scaled *q = &layer->quant[role];
    const long numbers = layer->tensor[role];
    const struct quant_case c = {.rules = rules, .config = config, .layer = layer, .piece = layer->piece[role],
                                 .numbers = &rules->catalog->tensors[numbers], .q = q, .error = error};
    bool alone = true;
    uint64_t bytes;
    *q = (struct swiglu_scaled){.weight = numbers, .scale = -1, .zero = -1, .g_idx = -1};
    if (!config->present) return SWIGLU_OK;
    for (int i = 0; i < SWIGLU_PIECES; i++) alone = alone && (swiglu_hf_is_numbers(i) || c.piece[i] < 0);
    const bool plain = c.piece[SWIGLU_PIECE_WEIGHT] >= 0;
    if (plain && alone && swiglu_dtype_find((int)c.numbers->type)) return SWIGLU_OK;
    if (config->several) return quant_leave(&c, "config_groups that store modules in different ways are not read");
    TRY(!strcmp(config->method, "mlx") ? quant_mlx(&c)
        : plain ? quant_scaled(&c) : c.piece[SWIGLU_PIECE_PACKED] >= 0 ? quant_words(&c) : quant_by_input(&c));
    if (layer->reason[0] || !q->kind) return SWIGLU_OK;
    quant_words_of(&c);
    if (SW_MUL(q->rows, q->cols, &bytes) || SW_MUL(bytes, (uint64_t)sizeof(float), &bytes) || bytes > SWIGLU_LIMIT_BYTES)
        return quant_bad(&c, numbers, "%llu x %llu values as f32: limit %llu bytes", (ull)q->rows, (ull)q->cols,
                         (ull)SWIGLU_LIMIT_BYTES);
    return SWIGLU_OK;
}
