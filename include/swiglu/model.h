/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoint files: find every feed-forward block, describe it, read its weights.
 *
 * Headers are read once into private memory, tensors by pread while they are packed: a file may be replaced, truncated
 * or closed after swiglu_block_create, and nothing is mapped; one that is written to between open and read is E_READ.
 * Hostile files give an error that names file, field, offset, value and limit (SWIGLU_E_FORMAT, E_UNSUPPORTED), never a
 * crash. Memory for a file's header is at most 16 MiB + 4 x the header's bytes.
 */
#ifndef SWIGLU_MODEL_H
#define SWIGLU_MODEL_H

#include "swiglu.h"

#ifdef __cplusplus
extern "C" {
#endif

struct swiglu_model;

struct swiglu_model_options {
    size_t struct_size;
    int strict;             /* 1: warnings (trailing bytes and the like) become errors */
    const char *activation; /* NULL, or a name for swiglu_act_init that overrides what the file says */
    int scan;               /* 1: a folder's index is not read, but every file in it called *.safetensors */
    int experts;            /* 1: each expert of a mixture is a block of its own too; nothing is routed. About 2 KiB of
                               memory an expert */
};

/* what     opens a GGUF file (v2, v3), any shard of a GGUF set, a .safetensors file with the config.json beside it, or a
 *          folder with model.safetensors.index.json (which may be named itself) and its shards, model.safetensors, or
 *          else one GGUF model; checks all of its headers, finds its blocks
 * memory   *model must be passed to swiglu_model_close; NULL on failure. options and error may be NULL
 * threads  any; a model is immutable, but its descriptions' read callbacks use pread and may run at once
 * errors   E_OPEN, E_FORMAT, E_UNSUPPORTED, E_READ, E_MEMORY, E_ARGUMENT     since  0.1 */
SWIGLU_API SWIGLU_MUST_CHECK enum swiglu_status swiglu_model_open(const char *path,
                                                                  const struct swiglu_model_options *options,
                                                                  struct swiglu_model **model,
                                                                  struct swiglu_error *error);
SWIGLU_API void swiglu_model_close(struct swiglu_model *model); /* NULL is fine; descriptions must not be used after */

struct swiglu_model_info {
    size_t struct_size;
    const char *format;       /* "gguf" or "safetensors" */
    unsigned format_version;  /* 0: the format has none */
    const char *architecture; /* general.architecture or the config's model_type, escaped; "" when there is none */
    const char *name;         /* general.name, escaped; "" when the file has none */
    uint64_t file_bytes;      /* of all files that hold tensors or are shards */
    size_t n_tensors, n_blocks, n_warnings, n_files; /* files: those of file_bytes */
    size_t n_metadata;
};
/* memory   strings live until close     errors  E_ARGUMENT     threads  any     since  0.1 */
SWIGLU_API SWIGLU_MUST_CHECK enum swiglu_status swiglu_model_query(const struct swiglu_model *model,
                                                                   struct swiglu_model_info *info);
/* memory   NULL after the last; lives until close     threads  any     since  0.1 */
SWIGLU_API const char *swiglu_model_warning(const struct swiglu_model *model, size_t i);

struct swiglu_metadata_info {
    size_t struct_size;
    const char *key;  /* escaped for printing */
    const char *type; /* "string", "u32", "f32", "bool", ...; of an array that of its elements */
    int is_array;
    int kept;         /* 0: a value too long to be kept */
    uint64_t count;   /* of an array: its elements */
};
/* what     entry i of the metadata, a GGUF file's keys or what __metadata__ of a safetensors file holds, in their order. value
 *          gets the value in words, escaped and cut to value_bytes with a NUL; the elements of an array stand behind
 *          commas; "" where it is not kept
 * errors   E_ARGUMENT (index, value NULL)     memory  key and type live until close     threads  any     since  0.1 */
SWIGLU_API SWIGLU_MUST_CHECK enum swiglu_status swiglu_model_metadata(const struct swiglu_model *model, size_t i,
                                                                      struct swiglu_metadata_info *info, char *value,
                                                                      size_t value_bytes);

struct swiglu_tensor_info {
    size_t struct_size;
    const char *name;      /* escaped for printing */
    int dtype;             /* GGUF's number; types that GGUF lacks from 1000 on. swiglu_dtype_query may not know it */
    const char *dtype_name;/* the format's own name, also for types that are listed only */
    unsigned n_dims;
    uint64_t dims[4];      /* outermost first: a weight of [rows, cols] has dims[0] rows; of more than 4 dimensions the
                              last ones are multiplied */
    uint64_t offset, bytes;/* in its file */
    const char *file;      /* path of that, for messages: escaped, a long one by its end */
};
/* errors   E_ARGUMENT (index)     memory  strings live until close     threads  any     since  0.1 */
SWIGLU_API SWIGLU_MUST_CHECK enum swiglu_status swiglu_model_tensor(const struct swiglu_model *model, size_t i,
                                                                    struct swiglu_tensor_info *info);

/* what     reads n_bytes of tensor i from its byte `byte` on; checks scales and values of nothing
 * errors   E_ARGUMENT (index, range), E_READ (short read, errno)     threads  any     since  0.1 */
SWIGLU_API SWIGLU_MUST_CHECK enum swiglu_status swiglu_model_read(const struct swiglu_model *model, size_t i,
                                                                  uint64_t byte, void *dst, size_t n_bytes,
                                                                  struct swiglu_error *error);

enum { SWIGLU_EXPERT_NONE = -1, SWIGLU_EXPERT_SHARED = -2 };

struct swiglu_model_block_info {
    size_t struct_size;
    size_t layer;           /* number in the file's names */
    int usable;             /* 1: swiglu_model_desc describes it; 0: left out */
    const char *reason;     /* why it was left out, or "" */
    const char *kind;       /* "gated", "plain", "experts", "expert", "shared expert", ... */
    const char *activation; /* the name or parameters in words, such as "silu" */
    const char *activation_source; /* "architecture llama", "config.json hidden_act", "--activation", ... */
    const char *layout_name;/* "separate", "gate|up", "up|gate", "interleaved", "ungated" */
    size_t d_in, d_ff, d_out;
    struct swiglu_act act;
    int layout;
    long gate, up, down;    /* tensor indices, -1 = none; packed layouts have gate only */
    long gate_bias, up_bias, down_bias;
    long norm;              /* the RMS or layer norm before the block, -1 = none found */
    uint64_t weight_bytes;  /* in the file, biases included */
    int in_out;             /* 1: the weights are stored [in, out] (Conv1D of GPT-2) */
    int expert;             /* number of the expert, SWIGLU_EXPERT_SHARED, or SWIGLU_EXPERT_NONE: a layer's own block.
                               Where a tensor holds all experts the matrices are slices of it */
    const char *storage;    /* of quantised weights, whose matrices then read as f32: "gptq: 4 bits, groups of 128"; else "" */
};
/* memory   strings live until close     errors  E_ARGUMENT (index)     threads  any     since  0.1 */
SWIGLU_API SWIGLU_MUST_CHECK enum swiglu_status swiglu_model_block(const struct swiglu_model *model, size_t i,
                                                                   struct swiglu_model_block_info *info);

/* what     a description of block i whose matrices read from the file; biases are kept by the model
 * memory   desc uses the model until swiglu_block_create returns
 * errors   E_ARGUMENT (index), E_UNSUPPORTED (left out, or a dtype without decoder), E_READ, E_MEMORY
 * threads  any     since  0.1 */
SWIGLU_API SWIGLU_MUST_CHECK enum swiglu_status swiglu_model_desc(struct swiglu_model *model, size_t i,
                                                                  struct swiglu_desc *desc,
                                                                  struct swiglu_error *error);

/* ---- converting ------------------------------------------------------------------------------------------------ */

enum swiglu_format { SWIGLU_FORMAT_KEEP = 0, SWIGLU_FORMAT_GGUF = 1, SWIGLU_FORMAT_SAFETENSORS = 2 };
enum swiglu_repack { SWIGLU_REPACK_KEEP = 0, SWIGLU_REPACK_SEPARATE = 1, SWIGLU_REPACK_GATE_UP = 2 };
#define SWIGLU_DTYPE_KEEP (-1)

struct swiglu_converted {
    size_t struct_size;
    const char *name;      /* of the tensor, as the input has it; until the call returns */
    int from, to;          /* enum swiglu_dtype */
    uint64_t n;            /* values */
    double relative_error; /* root of the sum of squared errors by that of the squares of the values; finite ones only */
    double largest_error;  /* largest |error| */
};

struct swiglu_convert_options {
    size_t struct_size;
    int dtype;  /* of the weights: enum swiglu_dtype (block formats in GGUF only) or SWIGLU_DTYPE_KEEP */
    int repack; /* enum swiglu_repack: how gate and up are stored; biases follow their weights */
    int format; /* enum swiglu_format; another than the input's is E_UNSUPPORTED, since the names differ */
    uint64_t split_max_bytes; /* 0: one file. Else GGUF whose tensors take more is written as a set of shards with at most
                                 so many bytes of tensors each, or with one tensor alone */
    int (*progress)(void *ctx, uint64_t done, uint64_t total); /* bytes of tensors written; nonzero cancels */
    void *progress_ctx;
    /* what became of a weight whose type changes, once it is written; progress_ctx is its ctx, too */
    void (*converted)(void *ctx, const struct swiglu_converted *tensor);
};

/* what     writes a checkpoint, in one file or as a set OUT-00001-of-0000N.gguf, whose gate, up and down weights of every
 *          usable block have another type or layout; all other tensors and the metadata byte for byte. Block formats are
 *          decoded exactly, then all types are encoded as by swiglu_encode; a tensor that has the type already keeps its
 *          bits
 * memory   row blocks, a few MiB, beside the header     threads  any
 * errors   E_UNSUPPORTED (nothing to convert; a value that the type cannot hold; rows that are no whole blocks; a layout
 *          that the family has no name for), E_ARGUMENT, E_OPEN (of a set: a shard is there already, none is replaced),
 *          E_READ, E_WRITE, E_MEMORY, E_CANCELLED: out_path is then what it was, and no shard is there, unless
 *          the text says that only its folder could not be synced. The new file is complete before it gets its name;
 *          out_path may be the input. A regular file that is replaced passes on its mode, a symbolic link is replaced.
 *          While it runs, OUT_PATH.swiglu-PID-N.tmp exists; those of writers that died are removed at the next call
 * since    0.1 */
SWIGLU_API SWIGLU_MUST_CHECK enum swiglu_status swiglu_model_convert(const struct swiglu_model *model,
                                                                     const char *out_path,
                                                                     const struct swiglu_convert_options *options,
                                                                     struct swiglu_error *error);

#ifdef __cplusplus
}
#endif
#endif
