/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint with the blocks that --layers chooses, and the input that each of them gets. */
#ifndef CLI_CHECKPOINT_H
#define CLI_CHECKPOINT_H

#include <stddef.h>
#include <stdint.h>

#include <swiglu/model.h>

struct cli_checkpoint {
    const char *path;
    struct swiglu_model *model;
    struct swiglu_model_info info;
    size_t n, *index; /* chosen blocks that can be evaluated, by their index in the model */
    int named;        /* --layers was given */
    char format[32];  /* "gguf 3", "safetensors" */
};

/* Opens the file or folder; warnings go to stderr. A layer that list names ("0,3-5") must exist and be usable; list NULL = all
 * usable ones. */
void cli_checkpoint_open(struct cli_checkpoint *layers, const char *path, const struct swiglu_model_options *options,
                         const char *list);
void cli_checkpoint_close(struct cli_checkpoint *layers);
struct swiglu_model_block_info cli_checkpoint_block(const struct cli_checkpoint *layers, size_t i); /* i-th chosen */
/* "3", "3 expert 7", "3 shared expert" for text; "layer-003", "layer-003-expert-007", "layer-003-shared" for files. */
struct cli_block_label { char words[48], name[64]; };
struct cli_block_label cli_block_label(const struct swiglu_model_block_info *block);
/* The key "expert" of a JSON object: a number or "shared"; none for a block that is no expert. */
void cli_json_expert(const struct swiglu_model_block_info *block);
struct swiglu_model_block_info cli_model_block(const struct swiglu_model *model, size_t i);
struct swiglu_tensor_info cli_model_tensor(const struct swiglu_model *model, size_t i);
/* Whether b, which is next to a in some list, is the next layer, or the next expert of the same layer. */
int cli_block_follows(const struct swiglu_model_block_info *a, const struct swiglu_model_block_info *b);
/* "0-29", "3 expert 0-7": blocks of which each follows the one before. */
struct cli_block_label cli_range_label(const struct swiglu_model_block_info *first,
                                       const struct swiglu_model_block_info *last);
/* The first block from i on that is left out; n_blocks: none. *last: of those that follow it for the same reason. */
size_t cli_next_left_out(const struct cli_checkpoint *layers, size_t i, size_t *last);
/* One line on stderr for the blocks that are left out, each reason once. */
void cli_checkpoint_note_left_out(const struct cli_checkpoint *layers);

/* m rows of noise, each times the weight of the block's norm where the file has one of that width. */
void cli_checkpoint_noise(const struct cli_checkpoint *layers, size_t i, uint64_t seed, size_t m, float *x);
/* m * width floats; fails where that exceeds the address space. */
float *cli_rows_alloc(size_t m, size_t width);

#endif
