/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libswiglu: the gated feed-forward block of language models,
 *
 *     y = (act(x Wg^T + bg) * (x Wu^T + bu)) Wd^T + bd        (gated)
 *     y =  act(x Wu^T + bu) Wd^T + bd                         (ungated)
 *
 * computed with bits that depend on nothing but the inputs: not on the number of rows, the number of threads, the
 * instruction set or the run (docs/numerics.md is the contract).
 *
 * The life of a user: swiglu_desc_init and fill in a description -> swiglu_block_create packs the weights ->
 * swiglu_forward_bytes tells the workspace -> swiglu_forward, as often as wanted, from any number of threads.
 *
 * Letters: m rows (tokens), d_in model width, d_ff hidden width, d_out output width (usually d_in). Strides count
 * elements, sizes count bytes. Structs that a caller fills begin with struct_size = sizeof the struct; a smaller value
 * takes the documented defaults for the missing tail, a larger one is an error unless the tail is zero.
 * Every function that returns a status must have it checked; 0 is success. Pointers are borrowed for the call only,
 * unless a comment says otherwise. The library never prints, exits, installs a handler or reads the environment, and a
 * caller's rounding or flush-to-zero mode changes no result and is as before on return.
 */
#ifndef SWIGLU_SWIGLU_H
#define SWIGLU_SWIGLU_H

#include <stddef.h>
#include <stdint.h>

#include "version.h"

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define SWIGLU_MUST_CHECK __attribute__((warn_unused_result))
#define SWIGLU_API __attribute__((visibility("default")))
#else
#define SWIGLU_MUST_CHECK
#define SWIGLU_API
#endif

/* ---- errors ---------------------------------------------------------------------------------------------------- */

enum swiglu_status {
    SWIGLU_OK = 0,
    SWIGLU_E_ARGUMENT = 10,    /* a NULL, an unknown name or enum value, a NaN bound, a bad struct_size */
    SWIGLU_E_CANCELLED = 11,   /* a progress callback asked to stop */
    SWIGLU_E_SHAPE = 20,       /* widths that do not fit together, a stride below the row, a size that overflows */
    SWIGLU_E_ALIAS = 21,       /* output overlaps an input in another way than y == x exactly */
    SWIGLU_E_FORMAT = 30,      /* a file that breaks the rules of its format */
    SWIGLU_E_UNSUPPORTED = 31, /* a valid thing that this library does not evaluate; the text names it */
    SWIGLU_E_OPEN = 40,        /* a file cannot be opened */
    SWIGLU_E_READ = 41,        /* a read failed or was short after a good open */
    SWIGLU_E_WRITE = 42,       /* a write, flush, sync or rename failed */
    SWIGLU_E_MEMORY = 50,      /* an allocation failed */
    SWIGLU_E_WORKSPACE = 51,   /* the workspace is NULL or too small */
    SWIGLU_E_HARDWARE = 60     /* no instruction-set level is left within the mask */
};

/* Filled by functions that read or prepare, when error is not NULL. offset is the byte in the file or UINT64_MAX. */
struct swiglu_error {
    size_t struct_size;
    enum swiglu_status status;
    int os_errno;    /* errno of the failed call, or 0 */
    uint64_t offset; /* byte offset in the file, UINT64_MAX = none */
    char text[448];  /* names file, field, value and limit; control bytes are escaped as \xNN */
};

/* what     the name of a status, such as "E_SHAPE"; "unknown" for a value outside the enum
 * memory   a static string     threads  any     errors  none     since  0.1 */
SWIGLU_API const char *swiglu_status_name(enum swiglu_status status);

/* ---- data types ------------------------------------------------------------------------------------------------ */

/* Numbers are those of GGUF (ggml_type), so that a file's value can be used as it is. */
enum swiglu_dtype {
    SWIGLU_F32 = 0, SWIGLU_F16 = 1, SWIGLU_Q4_0 = 2, SWIGLU_Q4_1 = 3, SWIGLU_Q5_0 = 6, SWIGLU_Q5_1 = 7,
    SWIGLU_Q8_0 = 8, SWIGLU_Q2_K = 10, SWIGLU_Q3_K = 11, SWIGLU_Q4_K = 12, SWIGLU_Q5_K = 13, SWIGLU_Q6_K = 14,
    SWIGLU_BF16 = 30, SWIGLU_MXFP4 = 39
};

/* Where a block holds its floating-point scales: f16 values at bytes at[0 .. n_f16 - 1], or one e8m0 byte (an exponent; 255
 * stands for NaN) at at[0]. All 0 for formats without blocks. */
struct swiglu_scales { unsigned n_f16, n_e8m0, at[2]; };

struct swiglu_dtype_info {
    size_t struct_size;
    const char *name;   /* "f32", "q4_k", ... */
    size_t block_elems; /* values per block; 1 for f32, f16, bf16 */
    size_t block_bytes;
    struct swiglu_scales scales;
};

/* what     the i-th weight format, such as SWIGLU_Q4_K; -1 after the last     threads  any     since  0.1 */
SWIGLU_API int swiglu_dtype_at(size_t i);

/* what     name, block length and size of a weight format, and where its blocks hold their scales
 * errors   E_ARGUMENT: no such format, or info NULL or of a bad struct_size     threads  any     since  0.1 */
SWIGLU_API SWIGLU_MUST_CHECK enum swiglu_status swiglu_dtype_query(int dtype, struct swiglu_dtype_info *info);

/* what     n values of src, in the given format, to f32, exactly (blocks by the format's own formula)
 * shapes   n is a multiple of the block length; src has n / block_elems * block_bytes bytes, any alignment
 * errors   E_ARGUMENT (format, NULL), E_SHAPE (n); dst untouched then     threads  any     since  0.1 */
SWIGLU_API SWIGLU_MUST_CHECK enum swiglu_status swiglu_decode(int dtype, const void *src, size_t n, float *dst);

/* what     n f32 values to a format. f32, f16, bf16: rounded once to nearest even, subnormals kept, every NaN canonical.
 *          Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, MXFP4: the bytes that the Python package gguf makes. K formats: a search for a small
 *          squared error. A scale beyond 65504 becomes infinite; look at what swiglu_decode makes of huge values
 * shapes   n is a multiple of the block length; dst gets n / block_elems * block_bytes bytes, any alignment
 * errors   E_ARGUMENT (format, NULL), E_SHAPE (n), E_UNSUPPORTED (a NaN or infinity, for a block format); dst untouched then
 * threads  any     since  0.1 */
SWIGLU_API SWIGLU_MUST_CHECK enum swiglu_status swiglu_encode(int dtype, const float *src, size_t n, void *dst);

/* ---- the activation, as data ----------------------------------------------------------------------------------- */

enum swiglu_act_kind {
    SWIGLU_ACT_IDENTITY = 0,  /* a                                        (gated: bilinear)                        */
    SWIGLU_ACT_RELU = 1,      /* max(a, 0)                                                                         */
    SWIGLU_ACT_RELU2 = 2,     /* max(a, 0)^2                                                                       */
    SWIGLU_ACT_SIGMOID = 3,   /* 1 / (1 + exp(-a))                        (gated: GLU)                             */
    SWIGLU_ACT_SILU = 4,      /* a / (1 + exp(-alpha a))                  alpha 1.702 = quick GELU                 */
    SWIGLU_ACT_GELU_ERF = 5,  /* a (1 + erf(a / sqrt 2)) / 2                                                       */
    SWIGLU_ACT_GELU_TANH = 6, /* a (1 + tanh(sqrt(2/pi) (a + 0.044715 a^3))) / 2                                   */
    SWIGLU_ACT_XIELU = 7,     /* a > 0: p a^2 + b a, else (expm1(min(a, e)) - a) n + b a; param = p, n, b, e       */
    SWIGLU_ACT_SITU = 8       /* b1 tanh(a / b1) / (1 + exp(-a)), and up becomes b2 tanh(up / b2); param = b1, b2  */
};

/* gate: g = clamp(gate, gate_lo, gate_hi), a = act(g)          with clamp_after: a = clamp(act(gate), gate_lo, gate_hi)
 * up:   u = clamp(up, up_lo, up_hi), then u + up_offset where up_offset != 0.   h = a * u.
 * Ungated blocks apply the gate side to their only product; up_* must then be at their defaults.
 * Infinite bounds mean none; NaN bounds, lo > hi and an upper gate or up bound of 0 are refused.
 * alpha is read by SILU only: 2^-20 <= |alpha| <= 2^20. */
struct swiglu_act {
    size_t struct_size;
    int kind; /* enum swiglu_act_kind */
    float alpha, up_offset, gate_lo, gate_hi, up_lo, up_hi;
    int clamp_after;
    float param[6]; /* named in enum swiglu_act_kind, unused ones 0 */
};

/* what     fills act from a name: "silu", "swish", "gelu", "gelu_tanh", "gelu_new", "gelu_pytorch_tanh", "quick_gelu",
 *          "relu", "relu2", "sigmoid", "glu", "identity", "xielu", "situ", and parameter sets of released models:
 *          "gpt_oss", "minimax_m3", "deepseek_v4", "step"; swiglu_act_name lists them all
 * errors   E_ARGUMENT: unknown name (nothing defaults to SiLU), NULL; act untouched then
 * threads  any     since  0.1 */
SWIGLU_API SWIGLU_MUST_CHECK enum swiglu_status swiglu_act_init(struct swiglu_act *act, const char *name);

/* what     the i-th name that swiglu_act_init knows, with one line that says what it is; NULL after the last
 * memory   static strings; about may be NULL     threads  any     since  0.1 */
SWIGLU_API const char *swiglu_act_name(size_t i, const char **about);

/* what     act(x) of n values as the generic level computes it: kind, alpha and param; no clamps, no up side
 * errors   E_ARGUMENT; y untouched then     numerics  docs/numerics.md, activations     threads  any     since  0.1 */
SWIGLU_API SWIGLU_MUST_CHECK enum swiglu_status swiglu_act_eval(const struct swiglu_act *act, size_t n, const float *x,
                                                                float *y);

/* ---- describing a block ---------------------------------------------------------------------------------------- */

enum swiglu_layout {
    SWIGLU_SEPARATE = 0,    /* gate and up are two matrices of d_ff rows                          */
    SWIGLU_GATE_UP = 1,     /* gate holds 2 d_ff rows: all of gate, then all of up                */
    SWIGLU_UP_GATE = 2,     /* gate holds 2 d_ff rows: all of up, then all of gate                */
    SWIGLU_INTERLEAVED = 3, /* gate holds 2 d_ff rows: gate 0, up 0, gate 1, up 1, ...            */
    SWIGLU_UNGATED = 4      /* no gate: up is the only first product                              */
};

/* Reads n_bytes of the matrix, starting at its byte `byte`, into dst; SWIGLU_OK, or what went wrong with error filled in
 * (it may be NULL). */
typedef enum swiglu_status swiglu_read_fn(void *ctx, uint64_t byte, void *dst, size_t n_bytes,
                                          struct swiglu_error *error);

/* A weight of logical shape [rows = outputs, cols = inputs]. Stored row by row, or with in_out = 1 transposed,
 * [inputs, outputs] (Conv1D). ld_elems: elements from one stored row to the next; 0 = contiguous. Block formats need
 * in_out = 0, and stored rows of whole blocks. */
struct swiglu_matrix {
    const void *data;     /* any alignment; or NULL, and then read is called */
    swiglu_read_fn *read; /* called by swiglu_block_create and swiglu_reference_run: from the calling thread only, or with
                             any_thread by several threads of the options' runner at once */
    void *ctx;
    int dtype, in_out;
    size_t rows, cols, ld_elems;
    uint64_t start; /* byte of the first value, in data or in what read reads */
    int any_thread;
};

struct swiglu_vector { const void *data; int dtype; }; /* f32, f16 or bf16; data NULL = no bias */

struct swiglu_desc {
    size_t struct_size;
    size_t d_in, d_ff, d_out;
    int layout; /* enum swiglu_layout */
    struct swiglu_act act;
    struct swiglu_matrix gate, up, down;             /* packed layouts put both halves in gate */
    struct swiglu_vector gate_bias, up_bias, down_bias; /* gate_bias is packed as its weight is */
    struct swiglu_matrix gate_head, up_head, down_head; /* for training only: docs/training.md, heads */
};

/* what     a description of nothing: separate layout, SiLU, no bias     threads  any     since  0.1 */
SWIGLU_API void swiglu_desc_init(struct swiglu_desc *desc);

/* ---- preparing a block ----------------------------------------------------------------------------------------- */

enum swiglu_compute {
    SWIGLU_COMPUTE_AUTO = 0, /* by weight dtype, per product: bf16 -> bf16; f32, f16, quantised -> f32 */
    SWIGLU_COMPUTE_F32 = 1,
    SWIGLU_COMPUTE_BF16 = 2,
    SWIGLU_COMPUTE_INT8 = 3  /* block formats only: rows become 8-bit integers with a scale per 32. Gate and up
                                of one format; two are E_UNSUPPORTED in this version */
};

enum swiglu_isa { /* bits of a mask; a table is used when the CPU can run it and its bit is set */
    SWIGLU_ISA_GENERIC = 1, SWIGLU_ISA_AVX2 = 2, SWIGLU_ISA_AVX512 = 4, SWIGLU_ISA_AVX512BF16 = 8, SWIGLU_ISA_NEON = 16,
    SWIGLU_ISA_AVX512VNNI = 32, SWIGLU_ISA_NEONDOT = 64
};

struct swiglu_runner;

struct swiglu_options {
    size_t struct_size;
    int compute;       /* enum swiglu_compute */
    uint64_t isa_mask; /* 0 = all */
    int (*progress)(void *ctx, uint64_t done, uint64_t total); /* bytes of weights packed; nonzero cancels */
    void *progress_ctx; /* called on the calling thread */
    const struct swiglu_runner *runner; /* threads that pack; NULL = the calling thread alone */
    int parts;         /* reserved: 0 */
};

struct swiglu_block;

/* what     checks the description, chooses a kernel for each product, packs the weights into memory of its own
 * shapes   gate, up [d_ff, d_in], down [d_out, d_ff], packed layouts gate [2 d_ff, d_in]; widths 0 are allowed
 * memory   nothing of desc is kept: weights may be freed, the file closed. Peak = packed bytes + a group of at most
 *          32 rows (64 of an in_out matrix) per thread.
 *          *block must be passed to swiglu_block_destroy; NULL on failure. options and error may be NULL.
 * threads  any; a block is immutable, many threads use it at once
 * errors   E_ARGUMENT, E_SHAPE, E_UNSUPPORTED, E_MEMORY, E_HARDWARE, E_CANCELLED, or what read returned     since  0.1 */
SWIGLU_API SWIGLU_MUST_CHECK enum swiglu_status swiglu_block_create(const struct swiglu_desc *desc,
                                                                    const struct swiglu_options *options,
                                                                    struct swiglu_block **block,
                                                                    struct swiglu_error *error);
SWIGLU_API void swiglu_block_destroy(struct swiglu_block *block); /* NULL is fine; no forward may be running */

struct swiglu_block_info {
    size_t struct_size;
    size_t d_in, d_ff, d_out;
    int gated;
    int compute_first, compute_down; /* SWIGLU_COMPUTE_F32, _BF16 or _INT8: of gate|up and of down */
    uint64_t isa;                 /* one bit of enum swiglu_isa */
    const char *kernel_first, *kernel_down; /* such as "f32_avx512"; static strings */
    const char *why;              /* why this kernel and this compute, static string */
    uint64_t packed_bytes;        /* memory held by this block */
    uint64_t file_bytes;          /* the same weights at their size in the file: what a forward must read */
    int expanded;                 /* 1 where weights take more memory than in the file (a block format decoded) */
};
/* errors   E_ARGUMENT     threads  any     since  0.1 */
SWIGLU_API SWIGLU_MUST_CHECK enum swiglu_status swiglu_block_query(const struct swiglu_block *block,
                                                                   struct swiglu_block_info *info);

enum swiglu_part { SWIGLU_PART_GATE = 0, SWIGLU_PART_UP = 1, SWIGLU_PART_DOWN = 2 };

/* what     one weight matrix as the block holds it, so that the original may be freed: bit for bit the original where it is
 *          held in its own type; what is held for bf16 compute has signed zeros for subnormals and canonical NaN
 * shapes   dst: [d_ff, d_in] of gate or up, [d_out, d_ff] of down, row by row; dtype f32, f16 or bf16, rounded once where
 *          that is narrower than what is held; ld_elems 0 = contiguous
 * errors   E_ARGUMENT (NULL, part, the gate of an ungated block, a block format), E_SHAPE (ld_elems); dst untouched then
 * threads  any     since  0.1 */
SWIGLU_API SWIGLU_MUST_CHECK enum swiglu_status swiglu_block_unpack(const struct swiglu_block *block, int part,
                                                                    int dtype, void *dst, size_t ld_elems);

/* ---- threads --------------------------------------------------------------------------------------------------- */

/* run calls body(arg) on 1 to n_wanted threads at once, the caller among them, and returns when all have returned.
 * Any number of threads that it really gives finishes the work; the bits are the same. */
struct swiglu_runner {
    void (*run)(void *ctx, unsigned n_wanted, void (*body)(void *), void *arg);
    void *ctx;
    unsigned n_threads; /* at most this many are wanted */
};

struct swiglu_pool;

/* what     persistent threads that sleep when idle; n_threads = 0: the cores this process may use (affinity, cgroup
 *          quota). The caller is one of them, so n_threads - 1 are started, at the first use.
 * memory   destroy joins them; NULL is fine     errors  E_ARGUMENT (> 1024), E_MEMORY
 * threads  one run at a time uses the pool: while it is busy, or in a forked child, run calls body on the caller alone
 * since    0.1 */
SWIGLU_API SWIGLU_MUST_CHECK enum swiglu_status swiglu_pool_create(unsigned n_threads, struct swiglu_pool **pool);
SWIGLU_API void swiglu_pool_destroy(struct swiglu_pool *pool);
SWIGLU_API struct swiglu_runner swiglu_pool_runner(struct swiglu_pool *pool);

/* what     a runner over GOMP_parallel of an OpenMP runtime that the process already has (its address, or NULL: serial)
 * threads  as the runtime allows     since  0.1 */
SWIGLU_API struct swiglu_runner swiglu_runner_gomp(void (*gomp_parallel)(void (*)(void *), void *, unsigned, unsigned),
                                                   unsigned n_threads);

/* ---- forward --------------------------------------------------------------------------------------------------- */

struct swiglu_crows { const void *data; int dtype; size_t ld_elems; }; /* f32, f16 or bf16; ld 0 = contiguous */
struct swiglu_rows { void *data; int dtype; size_t ld_elems; };
struct swiglu_work { void *data; size_t bytes; };

/* what     workspace for swiglu_forward with up to m rows and n_threads threads (0 counts as 1)
 * numerics it does not grow beyond m = 512     errors  E_ARGUMENT, E_SHAPE (overflow)     threads  any     since  0.1 */
SWIGLU_API SWIGLU_MUST_CHECK enum swiglu_status swiglu_forward_bytes(const struct swiglu_block *block, size_t m,
                                                                     unsigned n_threads, size_t *bytes);

/* what     y = block(x) for m rows
 * shapes   x: m x d_in, y: m x d_out, row strides ld_elems >= the width; m = 0 is success and touches nothing
 * memory   allocates nothing. work: any alignment, contents undefined, one per concurrent call, at least what
 *          swiglu_forward_bytes says for m and runner->n_threads. y may be x exactly (same data, dtype, stride)
 * threads  many at once on one block, each with its own work; runner NULL = the calling thread alone
 * errors   E_ARGUMENT, E_SHAPE, E_ALIAS, E_WORKSPACE: found before anything is written; swiglu_forward_check tells which
 *          argument it was
 * numerics bit-identical for any m, runner and instruction set; NaN in y is canonical     since  0.1 */
SWIGLU_API SWIGLU_MUST_CHECK enum swiglu_status swiglu_forward(const struct swiglu_block *block, size_t m,
                                                               struct swiglu_crows x, struct swiglu_rows y,
                                                               struct swiglu_work work,
                                                               const struct swiglu_runner *runner);

/* what     what swiglu_forward would return for these arguments, computing nothing; *error says which of them is wrong, by
 *          its name and value: "x: a stride of 3 values, but rows of 4"
 * errors   as swiglu_forward     threads  any     since  0.1 */
SWIGLU_API SWIGLU_MUST_CHECK enum swiglu_status swiglu_forward_check(const struct swiglu_block *block, size_t m,
                                                                     struct swiglu_crows x, struct swiglu_rows y,
                                                                     struct swiglu_work work,
                                                                     const struct swiglu_runner *runner,
                                                                     struct swiglu_error *error);

/* what     the two halves of swiglu_forward: h = act(x Wg^T + bg) * (x Wu^T + bu), then y = h Wd^T + bd. One after the
 *          other they give its bits
 * shapes   x: m x d_in, h: m x d_ff, y: m x d_out
 * memory   as swiglu_forward, and the same work. The output may be the input exactly
 * numerics h as down eats it: f32 (int8 compute: before it is quantised), or where down computes in bf16 values rounded to
 *          bf16, as bf16 or as f32; NaN is canonical, and the bits depend on as little as those of y. swiglu_down takes any
 *          h and rounds it so
 * errors   as swiglu_forward; swiglu_hidden: E_ARGUMENT for an h that is f16, or bf16 where down computes in f32
 * threads  as swiglu_forward     since  0.1 */
SWIGLU_API SWIGLU_MUST_CHECK enum swiglu_status swiglu_hidden(const struct swiglu_block *block, size_t m,
                                                              struct swiglu_crows x, struct swiglu_rows h,
                                                              struct swiglu_work work, const struct swiglu_runner *runner);
SWIGLU_API SWIGLU_MUST_CHECK enum swiglu_status swiglu_down(const struct swiglu_block *block, size_t m,
                                                            struct swiglu_crows h, struct swiglu_rows y,
                                                            struct swiglu_work work, const struct swiglu_runner *runner);

/* ---- training -------------------------------------------------------------------------------------------------- */

enum swiglu_train_flags {
    SWIGLU_TRAIN_KEEP_X = 0,       /* keep nothing: backward computes gate and up again from the caller's x */
    SWIGLU_TRAIN_KEEP_GATE_UP = 1, /* keep gate and up in saved, as f32; the same bits */
    SWIGLU_TRAIN_ACCUMULATE = 2,   /* weight and bias gradients: add to what is there instead of overwriting */
    SWIGLU_TRAIN_BF16_GRADIENTS = 4 /* weight gradients are bf16: f32 sums over all m, rounded once. Not with ACCUMULATE;
                                       above 512 rows the workspace also holds the f32 sums */
};

/* Gradients of a block. A NULL data is not computed. Weight gradients are f32 (or bf16, all with BF16_GRADIENTS), laid out
 * as their weights are: the same layout (packed halves in gate), the same in_out, row stride ld_elems (0 = contiguous);
 * bias gradients are f32, packed as their bias. dx may be f32, f16 or bf16. With heads, gate, up and down are gradients of
 * the heads, and there are none of the matrices behind them. */
struct swiglu_grads {
    size_t struct_size;
    struct swiglu_rows dx;                          /* m x d_in */
    struct swiglu_rows gate, up, down;
    float *gate_bias, *up_bias, *down_bias;
};

/* what     workspace of a training step of m rows on n_threads threads (the larger of forward and backward), and the
 *          bytes that forward leaves for backward: 0, or with KEEP_GATE_UP 4 m times d_ff (twice that when gated), where m
 *          counts in steps of 8 and d_ff in steps of 64
 * errors   as swiglu_block_create; E_UNSUPPORTED for weights of a block format or behind a callback
 * threads  any     since  0.1 */
SWIGLU_API SWIGLU_MUST_CHECK enum swiglu_status swiglu_train_bytes(const struct swiglu_desc *desc,
                                                                   const struct swiglu_options *options, size_t m,
                                                                   unsigned flags, unsigned n_threads,
                                                                   size_t *work_bytes, size_t *saved_bytes);

/* what     y = block(x) straight from the raw weights, packed on the fly; the bits of swiglu_forward
 * shapes   x: m x d_in, y: m x d_out
 * memory   allocates nothing. saved: swiglu_train_bytes says how large, any alignment, NULL when 0; its layout is that of
 *          the instruction set, for a backward with the same options; work as for forward
 * threads  many at once, each with its own work and saved; runner NULL = the calling thread alone
 * errors   as swiglu_train_bytes and swiglu_forward, found before anything is written     since  0.1 */
SWIGLU_API SWIGLU_MUST_CHECK enum swiglu_status swiglu_train_forward(const struct swiglu_desc *desc,
                                                                     const struct swiglu_options *options, size_t m,
                                                                     unsigned flags, struct swiglu_crows x,
                                                                     struct swiglu_rows y, void *saved,
                                                                     struct swiglu_work work,
                                                                     const struct swiglu_runner *runner);

/* what     gradients of the inputs and weights of swiglu_train_forward for dy
 * shapes   x: m x d_in (as in forward), dy: m x d_out, grads as described there
 * memory   allocates nothing; x, dy, weights and saved are only read. With m = 0 fresh gradients become +0.
 * numerics docs/numerics.md, backward: the same bits for any runner, instruction set and policy; N micro-batches of whole
 *          512-row chunks, accumulated, give the bits of one batch
 * errors   as swiglu_train_forward     threads  as there     since  0.1 */
SWIGLU_API SWIGLU_MUST_CHECK enum swiglu_status swiglu_train_backward(const struct swiglu_desc *desc,
                                                                      const struct swiglu_options *options, size_t m,
                                                                      unsigned flags, struct swiglu_crows x,
                                                                      struct swiglu_crows dy, const void *saved,
                                                                      const struct swiglu_grads *grads,
                                                                      struct swiglu_work work,
                                                                      const struct swiglu_runner *runner);

/* what     act'(x) of n values as backward computes it on the generic level: kind, alpha and param; no clamps, no up side
 * errors   E_ARGUMENT; y untouched then     threads  any     since  0.1 */
SWIGLU_API SWIGLU_MUST_CHECK enum swiglu_status swiglu_act_derivative(const struct swiglu_act *act, size_t n,
                                                                      const float *x, float *y);

/* ---- reference ------------------------------------------------------------------------------------------------- */

struct swiglu_reference {
    size_t struct_size;
    int compute;    /* the compute whose inputs and bound are wanted; AUTO as for a block */
    int y_dtype;    /* output rounding that the bound allows for */
    double *y;      /* m x d_out, contiguous: the block in double precision from the contract's own inputs */
    double *bound;  /* m x d_out or NULL: |y_forward - y| <= bound (docs/numerics.md, accuracy) */
    double *typical;/* m x d_out or NULL: the same with 4 sqrt(K) in place of the worst case; not a promise */
    double *plain;  /* m x d_out or NULL: plain double from the weights as they are in the file */
    double *hidden; /* m x d_ff or NULL: h in double as swiglu_hidden gives it, rounded where down computes in bf16 */
    double *hidden_bound; /* m x d_ff or NULL: |h of swiglu_hidden - hidden| <= hidden_bound */
    const float *h; /* m x d_ff, or NULL. What swiglu_hidden gave: y, bound and typical are then those of down on this h, the
                       rest is still that of x. So both products are judged sharply, one after the other */
};

/* what     a slow, plain evaluation in double precision with an error bound per output; shares no kernel
 * shapes   x: m x d_in     memory  allocates one decoded copy of the weights     threads  any
 * errors   as swiglu_block_create     since  0.1 */
SWIGLU_API SWIGLU_MUST_CHECK enum swiglu_status swiglu_reference_run(const struct swiglu_desc *desc, size_t m,
                                                                     struct swiglu_crows x,
                                                                     const struct swiglu_reference *out,
                                                                     struct swiglu_error *error);

/* ---- what the machine can do ----------------------------------------------------------------------------------- */

struct swiglu_cpu_info {
    size_t struct_size;
    uint64_t can;         /* levels this CPU and its OS can run, generic included */
    uint64_t compiled;    /* levels in this build */
    unsigned n_cpus;      /* usable by this process: its affinity within the quotas of its control groups, rounded down */
    unsigned n_cores;     /* the same, CPUs that share a core counted once: the default number of threads */
};
/* errors   E_ARGUMENT     threads  any     since  0.1 */
SWIGLU_API SWIGLU_MUST_CHECK enum swiglu_status swiglu_cpu_query(struct swiglu_cpu_info *info);

struct swiglu_level_info {
    size_t struct_size;
    const char *name;     /* "avx512bf16"; a static string */
    uint64_t bit;         /* of enum swiglu_isa */
    uint64_t limit;       /* the level and those below it: a mask whose upper limit it is */
    int can, compiled;    /* this CPU and its OS can run it; this build has it */
    const char *why;      /* "yes", or what the CPU or OS lacks; a static string */
};
/* what     instruction-set level i, from 0: generic is the first, of one architecture a better one comes later
 * errors   E_ARGUMENT: no such level     threads  any     since  0.1 */
SWIGLU_API SWIGLU_MUST_CHECK enum swiglu_status swiglu_level_query(size_t i, struct swiglu_level_info *info);

/* what     which kernel a product with these weights runs on within the mask (0 = all), and why
 * memory   static strings     errors  E_ARGUMENT, E_UNSUPPORTED, E_HARDWARE     threads  any     since  0.1 */
SWIGLU_API SWIGLU_MUST_CHECK enum swiglu_status swiglu_kernel_query(int weight_dtype, int compute, uint64_t isa_mask,
                                                                    const char **kernel, const char **why);

struct swiglu_limits {
    size_t struct_size;
    double f32_flops;  /* operations a second of the level's f32 FMA, all threads */
    double bf16_flops; /* of its bf16 dot (where bf16 is widened: of the f32 FMA) */
    double read_bytes; /* bytes a second of the best of a few read-only sums over buffer */
    double int8_ops;   /* operations a second of its dot product of bytes */
};

/* what     measures peak and read bandwidth of the best level within the mask, `seconds` for each figure
 * memory   buffer is read only and should exceed every cache (256 MiB or more); written once by the caller
 * threads  runs on the runner's threads (NULL = the caller); nothing else should run
 * errors   E_ARGUMENT, E_HARDWARE     since  0.1 */
SWIGLU_API SWIGLU_MUST_CHECK enum swiglu_status swiglu_measure(uint64_t isa_mask, double seconds, const void *buffer,
                                                               size_t bytes, const struct swiglu_runner *runner,
                                                               struct swiglu_limits *limits);

/* ---- sizes ----------------------------------------------------------------------------------------------------- */

enum swiglu_width_rule { SWIGLU_WIDTH_NONE = 0, SWIGLU_WIDTH_UP = 1, SWIGLU_WIDTH_NEAREST = 2 };

/* what     the hidden width of a gated block at parameter parity with a 4 d_model one: h = int(8 d_model / 3), where
 *          multiplier > 0: h = int(multiplier h), then rounded to a multiple of multiple_of by the rule (ties up)
 *          (llama-models models/llama3/model.py)
 * errors   E_ARGUMENT, E_SHAPE (overflow)     threads  any     since  0.1 */
SWIGLU_API SWIGLU_MUST_CHECK enum swiglu_status swiglu_width(int rule, size_t d_model, size_t multiple_of,
                                                             double multiplier, size_t *d_ff);

struct swiglu_counts {
    size_t struct_size;
    uint64_t parameters;      /* weights and biases */
    uint64_t flops_per_token; /* forward: 6 d_in d_ff gated, 4 ungated (2 d_ff d_in per product, d_out for down) */
    uint64_t weight_bytes;    /* at the weights' own dtypes */
};
/* what     counts of one block; only widths, layout, dtypes and the presence of biases are read
 * errors   E_ARGUMENT, E_SHAPE     threads  any     since  0.1 */
SWIGLU_API SWIGLU_MUST_CHECK enum swiglu_status swiglu_count(const struct swiglu_desc *desc,
                                                             struct swiglu_counts *counts);

/* ---- the build ------------------------------------------------------------------------------------------------- */

/* contract: a number that changes when any output bit may change (docs/numerics.md); builds of one contract agree. */
struct swiglu_build { size_t struct_size; const char *version, *compiler; int abi, contract; };
/* errors   E_ARGUMENT     threads  any     since  0.1 */
SWIGLU_API SWIGLU_MUST_CHECK enum swiglu_status swiglu_version(struct swiglu_build *build);

#ifdef __cplusplus
}
#endif
#endif
