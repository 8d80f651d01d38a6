/* SPDX-License-Identifier: Apache-2.0 */
/* What a gated block costs beside a plain one at the same model width, and one forward of it. */

#include "ffn.h"

enum { D_MODEL = 768 };

static struct swiglu_counts count_block(int layout, size_t d_ff) {
    struct swiglu_counts counts = {.struct_size = sizeof counts};
    struct swiglu_desc desc;
    swiglu_desc_init(&desc);
    desc.layout = layout;
    desc.d_in = desc.d_out = D_MODEL;
    desc.d_ff = d_ff;
    must(swiglu_count(&desc, &counts), "count", NULL);
    return counts;
}

static void print_row(const char *name, int layout, size_t d_ff) {
    printf("%s:\n", name);
    printf("  Hidden dim: %zu\n", d_ff);
    printf("  Parameters: %.2fM\n", (double)count_block(layout, d_ff).parameters / 1e6);
}

int main(void) {
    enum { BATCH = 2, TOKENS = 512 };
    const size_t m = (size_t)BATCH * TOKENS, n = m * D_MODEL;
    size_t gated_ff;
    /* 8/3 d_model, rounded up to whole 256s: three matrices at the parameter count of two with 4 d_model. */
    must(swiglu_width(SWIGLU_WIDTH_UP, D_MODEL, 256, 0, &gated_ff), "width", NULL);

    puts("FFN Parameter Comparison:");
    print_row("RELU", SWIGLU_UNGATED, 4 * (size_t)D_MODEL);
    print_row("GELU", SWIGLU_UNGATED, 4 * (size_t)D_MODEL);
    print_row("SWIGLU", SWIGLU_SEPARATE, gated_ff);

    uint64_t seed = 1;
    struct ffn ffn = ffn_create(D_MODEL, gated_ff, &seed);
    float *x = must_alloc(n, sizeof *x), *y = must_alloc(n, sizeof *y);
    fill_normal(x, n, &seed);
    ffn_forward(&ffn, m, x, y);
    puts("\nSwiGLU Test:");
    printf("Input shape: (%d, %d, %zu)\n", BATCH, TOKENS, ffn.desc.d_in);
    printf("Output shape: (%d, %d, %zu)\n", BATCH, TOKENS, ffn.desc.d_out);
    printf("SwiGLU parameters: %.2fM\n", (double)count_block(SWIGLU_SEPARATE, gated_ff).parameters / 1e6);

    const int right = ffn_row_is_right(&ffn, 0, x, y) && ffn_row_is_right(&ffn, m - 1, x, y);
    if (!right) fprintf(stderr, "compare: the result differs from the reference\n");
    free(x), free(y);
    ffn_destroy(&ffn);
    return !right;
}
