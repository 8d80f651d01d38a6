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

/* 32 values with one scale (docs/numerics.md, int8 compute). Lanes are k here: only a maximum and integers cross them. */
SW_ALWAYS_INLINE void stage_int8(const char *src, char *dst, int dtype) {
    enum { N = 32 / VL };
    const size_t bytes = dtype == SWIGLU_F32 ? 4 * VL : 2 * VL;
    V v[N];
    VI most = vi_set1(0), head = most, tail = most;
    for (int i = 0; i < N; i++) {
        v[i] = stage_load(src + i * bytes, dtype);
        most = vi_max_u(most, vi_and(v_bits(v[i]), vi_set1(0x7FFFFFFF)));
    }
    const uint32_t u = vi_hmax_u(most);
    float scale[2];
    int32_t sum[2];
    if (u < 0x0D800000u || u >= 0x7F800000u) { /* below 2^-100, or a NaN or infinity: the row's output becomes NaN */
        memset(dst, 0, SWIGLU_INT8_BYTES);
        scale[0] = scale[1] = u >= 0x7F800000u ? swiglu_f32_from_bits(0x7FC00000u) : 0.0f;
        memcpy(dst + SWIGLU_INT8_D, scale, sizeof scale);
        return;
    }
    const float a = swiglu_f32_from_bits(u), r = 127.0f / a;
    for (int i = 0; i < N; i++) {
        const VI q = v_to_int(v_rint(v_mul(v[i], v_set1(r))));
        vi_store8(dst + i * VL, q);
        if (i < N / 2) head = vi_add(head, q);
        else tail = vi_add(tail, q);
    }
    sum[1] = vi_hsum(tail);
    sum[0] = vi_hsum(head) + sum[1];
    scale[0] = a / 127.0f;
    scale[1] = scale[0] * (float)sum[0];
    memcpy(dst + SWIGLU_INT8_D, scale, sizeof scale);
    memcpy(dst + SWIGLU_INT8_S, sum, sizeof sum);
}

/* Whole blocks; dtype is a literal at each call. */
SW_ALWAYS_INLINE void stage_int8_rows(const struct swiglu_stage_args *t, int dtype) {
    const size_t per_record = swiglu_staged_record_k(SWIGLU_X_INT8), in_bytes = dtype == SWIGLU_F32 ? 4 : 2;
    char *dst = t->dst;
    for (size_t k = 0; k < t->k; k += per_record) {
        const size_t n = t->k - k < per_record ? t->k - k : per_record;
        for (unsigned r = 0; r < t->mr; r++, dst += SWIGLU_RECORD_BYTES) {
            const char *src = (const char *)t->src + r * t->ld_bytes + k * in_bytes;
            if (r >= t->rows) memset(dst, 0, swiglu_staged_span(SWIGLU_X_INT8, n));
            else
                for (size_t i = 0; i < n; i += 32)
                    stage_int8(src + i * in_bytes, dst + swiglu_staged_span(SWIGLU_X_INT8, i), dtype);
        }
    }
}

SW_KERNEL void STAGE_NAME(const struct swiglu_stage_args *t) {
    if (t->x == SWIGLU_X_INT8) {
        if (t->dtype == SWIGLU_F32) stage_int8_rows(t, SWIGLU_F32);
        else if (t->dtype == SWIGLU_F16) stage_int8_rows(t, SWIGLU_F16);
        else stage_int8_rows(t, SWIGLU_BF16);
        return;
    }
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
