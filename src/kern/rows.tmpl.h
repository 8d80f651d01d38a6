/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Staging: rows of x, of any float dtype and stride, become a tile of records. Full vectors are read where the row has
 * them; the ragged end goes through a local, so nothing beyond a row is touched.
 *
 * Parameters: STAGE_NAME; the primitives of a vec_*.h; epilogue.tmpl.h before (the staging rounding, epi_put_hidden).
 */
SW_ALWAYS_INLINE V stage_load(const char *p, int dtype) {
    return dtype == SWIGLU_F32 ? v_load(p) : dtype == SWIGLU_F16 ? v_load_f16(p) : v_load_bf16(p);
}

SW_ALWAYS_INLINE void stage_row(const char *src, char *dst, size_t n, int dtype, int x) {
    const size_t in_bytes = dtype == SWIGLU_F32 ? 4 : 2, out_bytes = x == SWIGLU_X_BF16_PAIR ? 2 : 4;
    size_t i = 0;
    for (; i + VL <= n; i += VL) epi_put_hidden(dst + i * out_bytes, x, stage_load(src + i * in_bytes, dtype));
    if (i < n) {
        char t[VL * 4] = {0};
        memcpy(t, src + i * in_bytes, (n - i) * in_bytes);
        epi_put_hidden(dst + i * out_bytes, x, stage_load(t, dtype));
    }
    /* one lane is not a pair: the k that pads an odd depth to even is +0 */
    if (x == SWIGLU_X_BF16_IN_F32 && n % 2) memset(dst + n * 4, 0, 4);
}

SW_KERNEL void STAGE_NAME(const struct swiglu_stage_args *t) {
    const size_t per_record = t->x == SWIGLU_X_BF16_PAIR ? 2 * SWIGLU_RECORD : SWIGLU_RECORD;
    const size_t in_bytes = t->dtype == SWIGLU_F32 ? 4 : 2;
    char *dst = t->dst;
    for (size_t k = 0; k < t->k; k += per_record) {
        const size_t n = t->k - k < per_record ? t->k - k : per_record;
        for (unsigned r = 0; r < t->mr; r++, dst += SWIGLU_RECORD_BYTES) {
            const char *src = (const char *)t->src + r * t->ld_bytes + k * in_bytes;
            if (r >= t->rows) {
                memset(dst, 0, SWIGLU_RECORD_BYTES);
            } else if (t->dtype == SWIGLU_F32) {
                if (t->x == SWIGLU_X_F32)
                    memcpy(dst, src, n * 4);
                else
                    stage_row(src, dst, n, SWIGLU_F32, t->x);
            } else {
                stage_row(src, dst, n, t->dtype, t->x);
            }
        }
    }
}
#undef STAGE_NAME
