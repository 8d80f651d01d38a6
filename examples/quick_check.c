/* SPDX-License-Identifier: Apache-2.0 */
/* Is the block what it should be? Prints the three matrices and their parameters, runs a batch, checks the result. */
#include <inttypes.h>

#include "ffn.h"

/* n with a comma between groups of three digits. */
static const char *grouped(uint64_t n, char text[32]) {
    char digits[24];
    const int length = snprintf(digits, sizeof digits, "%" PRIu64, n);
    int at = 0;
    for (int i = 0; i < length; i++) {
        if (i && (length - i) % 3 == 0) text[at++] = ',';
        text[at++] = digits[i];
    }
    text[at] = 0;
    return text;
}

static void print_matrix(const char *name, size_t inputs, size_t outputs) {
    char text[32];
    printf("  %s : %zu x %zu = %s\n", name, inputs, outputs, grouped((uint64_t)inputs * outputs, text));
}

int main(void) {
    enum { BATCH = 2, TOKENS = 64, D_MODEL = 768 };
    const size_t m = (size_t)BATCH * TOKENS, n = m * D_MODEL;
    uint64_t seed = 1;
    size_t d_ff;
    /* Two thirds of 4 d_model, rounded to the nearest 256: three matrices cost what two did. */
    must(swiglu_width(SWIGLU_WIDTH_NEAREST, D_MODEL, 256, 0, &d_ff), "width", NULL);

    struct ffn ffn = ffn_create(D_MODEL, d_ff, &seed);
    struct swiglu_counts counts = {.struct_size = sizeof counts};
    must(swiglu_count(&ffn.desc, &counts), "count", NULL);
    printf("SwiGLU d_model=%d  d_ff=%zu\n", D_MODEL, d_ff);
    print_matrix("gate", D_MODEL, d_ff);
    print_matrix("up  ", D_MODEL, d_ff);
    print_matrix("down", d_ff, D_MODEL);
    printf("  total MLP params : %.3fM\n", (double)counts.parameters / 1e6);

    float *x = must_alloc(n, sizeof *x), *y = must_alloc(n, sizeof *y);
    fill_normal(x, n, &seed);
    ffn_forward(&ffn, m, x, y);
    printf("Input  shape : (%d, %d, %zu)\n", BATCH, TOKENS, ffn.desc.d_in);
    printf("Output shape : (%d, %d, %zu)\n", BATCH, TOKENS, ffn.desc.d_out);

    const int pass = ffn.desc.d_out == ffn.desc.d_in && counts.parameters == 3 * (uint64_t)D_MODEL * d_ff &&
                     ffn_row_is_right(&ffn, 0, x, y) && ffn_row_is_right(&ffn, m - 1, x, y);
    puts(pass ? "PASS" : "FAIL");
    free(x), free(y);
    ffn_destroy(&ffn);
    return !pass;
}
