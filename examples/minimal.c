/* SPDX-License-Identifier: Apache-2.0 */
/* The shortest use: describe a block, prepare it, run one row through it. */
#include <stdio.h>
#include <stdlib.h>
#include <swiglu/swiglu.h>

int main(void) {
    enum { D = 4, F = 8 };
    float gate[F * D], up[F * D], down[D * F], x[D] = {1.0f, -0.5f, 0.25f, 2.0f}, y[D];
    for (int i = 0; i < F * D; i++) gate[i] = up[i] = down[i] = (float)(i % 7 - 3) / 4;

    struct swiglu_desc desc;
    swiglu_desc_init(&desc); /* SiLU, separate gate and up, no bias */
    desc.d_in = D, desc.d_ff = F, desc.d_out = D;
    desc.gate = (struct swiglu_matrix){.data = gate, .dtype = SWIGLU_F32, .rows = F, .cols = D};
    desc.up = (struct swiglu_matrix){.data = up, .dtype = SWIGLU_F32, .rows = F, .cols = D};
    desc.down = (struct swiglu_matrix){.data = down, .dtype = SWIGLU_F32, .rows = D, .cols = F};

    struct swiglu_error error = {.struct_size = sizeof error};
    struct swiglu_block *block = NULL;
    size_t bytes = 0;
    void *work = NULL;
    enum swiglu_status status = swiglu_block_create(&desc, NULL, &block, &error);
    if (status == SWIGLU_OK) status = swiglu_forward_bytes(block, 1, 1, &bytes);
    if (status == SWIGLU_OK && !(work = malloc(bytes))) status = SWIGLU_E_MEMORY;
    if (status == SWIGLU_OK)
        status = swiglu_forward(block, 1, (struct swiglu_crows){x, SWIGLU_F32, 0}, (struct swiglu_rows){y, SWIGLU_F32, 0},
                                (struct swiglu_work){work, bytes}, NULL);
    if (status == SWIGLU_OK)
        printf("y = %.6f %.6f %.6f %.6f\n", (double)y[0], (double)y[1], (double)y[2], (double)y[3]);
    else
        fprintf(stderr, "%s: %s\n", swiglu_status_name(status), error.text);
    free(work);
    swiglu_block_destroy(block);
    return status != SWIGLU_OK;
}
