/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrices as they lie in memory into panels, and panels of tokens into staged rows. Nothing is read beyond a row's end.
 *
 * Parameters: PACK_ROWS_NAME, PACK_COLS_NAME, TURN_NAME; the primitives of a vec_*.h; rows.tmpl.h before (stage_load).
 */
SW_ALWAYS_INLINE V pack_load(const char *p, int dtype, size_t n) { /* the first n <= VL values */
    char t[VL * 4] = {0};
    if (n >= VL) return stage_load(p, dtype);
    memcpy(t, p, n * (dtype == SWIGLU_F32 ? 4 : 2));
    return stage_load(t, dtype);
}

SW_ALWAYS_INLINE void pack_rows_of(const struct swiglu_pack_args *t, int dtype) {
    const size_t in_bytes = dtype == SWIGLU_F32 ? 4 : 2, n_k = t->n_k, n_lanes = t->n_lanes, ld = t->ld_bytes;
    const int pairs = t->form == SWIGLU_FORM_BF16_PAIR;
    enum { AHEAD = 16 }; /* rows: too far apart for the hardware to guess */
    const char *src = t->src;
    char *dst = t->dst;
    size_t k = 0;
    if (pairs && dtype == SWIGLU_BF16 && n_lanes == 2 * VL) /* the rule: whole panels without conversion */
        for (; k + 2 <= n_k; k += 2, src += 2 * ld, dst += 2 * VL * 4) {
            V both[2];
            SW_PREFETCH_L2(src + AHEAD * ld);
            SW_PREFETCH_L2(src + (AHEAD + 1) * ld);
            v_pair_zip(src, src + ld, both);
            v_store(dst, v_pair_flush(both[0]));
            v_store(dst + VL * 4, v_pair_flush(both[1]));
        }
    for (; k < n_k; k += pairs ? 2 : 1, src += pairs ? 2 * ld : ld, dst += 2 * VL * 4)
        for (size_t l = 0; l < n_lanes; l += VL) {
            SW_PREFETCH_L2(src + AHEAD * ld + l * in_bytes);
            V a = pack_load(src + l * in_bytes, dtype, n_lanes - l);
            if (pairs) SW_PREFETCH_L2(src + (AHEAD + 1) * ld + l * in_bytes);
            if (pairs && dtype == SWIGLU_BF16) { /* as they are, but for the flush; both may be ragged */
                const V odd = k + 1 < n_k ? pack_load(src + ld + l * in_bytes, dtype, n_lanes - l) : v_set1(0.0f);
                a = v_pair_flush(v_from_bits(vi_or(vi_shr(v_bits(a), 16), v_bits(odd))));
            } else if (pairs) {
                const V odd = k + 1 < n_k ? pack_load(src + ld + l * in_bytes, dtype, n_lanes - l) : v_set1(0.0f);
                a = epi_bf16_pair(a, odd);
            }
            v_store(dst + l * 4, a);
        }
}

/* 16-bit values as they are: a lane is one of them. Loading bf16 only moves them to the high half, whatever they mean. */
SW_ALWAYS_INLINE void pack_rows_16(const struct swiglu_pack_args *t) {
    const size_t n_lanes = t->n_lanes;
    const char *src = t->src;
    char *dst = t->dst;
    for (size_t k = 0; k < t->n_k; k++, src += t->ld_bytes, dst += 2 * VL * 2)
        for (size_t l = 0; l < n_lanes; l += VL)
            vi_store16_first(dst + l * 2, vi_shr(v_bits(pack_load(src + l * 2, SWIGLU_BF16, n_lanes - l)), 16), VL);
}

SW_KERNEL void PACK_ROWS_NAME(const struct swiglu_pack_args *t) {
    if (t->form == SWIGLU_FORM_F16 || t->form == SWIGLU_FORM_BF16)
        pack_rows_16(t);
    else if (t->dtype == SWIGLU_F32)
        pack_rows_of(t, SWIGLU_F32);
    else if (t->dtype == SWIGLU_F16)
        pack_rows_of(t, SWIGLU_F16);
    else
        pack_rows_of(t, SWIGLU_BF16);
}

/* The 32-bit elements of VL steps of one lane: values, or pairs of them made in a local. */
SW_ALWAYS_INLINE V pack_steps(const char *p, int dtype, int pairs, size_t n) {
    uint16_t t[2 * VL] = {0};
    const size_t in_bytes = dtype == SWIGLU_F32 ? 4 : 2;
    if (!pairs) return pack_load(p, dtype, n);
    if (dtype == SWIGLU_BF16 && n >= 2 * VL) return v_pair_flush(v_load(p));
    SW_UNROLL for (size_t i = 0; i < 2 * VL; i += VL)
        if (i < n)
            vi_store16_first(t + i, vi_shr(v_bits(epi_bf16_staging(pack_load(p + i * in_bytes, dtype, n - i))), 16), VL);
    return v_load(t);
}

SW_ALWAYS_INLINE void pack_cols_of(const struct swiglu_pack_args *t, int dtype) {
    const size_t in_bytes = dtype == SWIGLU_F32 ? 4 : 2, k_step = t->form == SWIGLU_FORM_BF16_PAIR ? 2 : 1;
    const size_t n_steps = (t->n_k + k_step - 1) / k_step;
    const int as_is = dtype == (k_step == 2 ? SWIGLU_BF16 : SWIGLU_F32); /* no conversion: the rule */
    for (size_t l = 0; l < t->n_lanes; l += VL)
        for (size_t s = 0; s < n_steps; s += VL) {
            V r[VL];
            const size_t n = n_steps - s < VL ? n_steps - s : VL;
            if (as_is && l + VL <= t->n_lanes && (s + VL) * k_step <= t->n_k) {
                const char *src = (const char *)t->src + l * t->ld_bytes + s * 4;
                SW_UNROLL for (size_t i = 0; i < VL; i++) {
                    r[i] = v_load(src + i * t->ld_bytes);
                    if (k_step == 2) r[i] = v_pair_flush(r[i]);
                }
                v_transpose(r);
                SW_UNROLL for (size_t i = 0; i < VL; i++) v_store(t->dst + ((s + i) * 2 * VL + l) * 4, r[i]);
                continue;
            }
            for (size_t i = 0; i < VL; i++) /* not unrolled: 16 copies of a ragged load gain nothing */
                r[i] = l + i < t->n_lanes ? pack_steps((const char *)t->src + (l + i) * t->ld_bytes + s * k_step * in_bytes,
                                                       dtype, k_step == 2, t->n_k - s * k_step)
                                          : v_set1(0.0f);
            v_transpose(r);
            SW_UNROLL for (size_t i = 0; i < VL; i++)
                if (i < n) v_store(t->dst + ((s + i) * 2 * VL + l) * 4, r[i]);
        }
}

/* Two depths of a lane share 32 bits until they are stored. */
SW_ALWAYS_INLINE void pack_cols_16(const struct swiglu_pack_args *t) {
    for (size_t l = 0; l < t->n_lanes; l += VL)
        for (size_t k = 0; k < t->n_k; k += 2 * VL) {
            V r[VL];
            const char *src = (const char *)t->src + l * t->ld_bytes + k * 2;
            const size_t n = t->n_k - k < 2 * VL ? t->n_k - k : 2 * VL;
            for (size_t i = 0; i < VL; i++, src += t->ld_bytes) {
                char ragged[2 * VL * 2] = {0};
                if (n < 2 * VL && l + i < t->n_lanes) memcpy(ragged, src, n * 2);
                r[i] = l + i >= t->n_lanes ? v_set1(0.0f) : v_load(n < 2 * VL ? ragged : src);
            }
            v_transpose(r);
            SW_UNROLL for (size_t i = 0; i < VL; i++) {
                char *const dst = t->dst + ((k + 2 * i) * 2 * VL + l) * 2;
                if (2 * i < n) vi_store16_first(dst, vi_and(v_bits(r[i]), vi_set1(0xFFFF)), VL);
                if (2 * i + 1 < n) vi_store16_first(dst + 2 * VL * 2, vi_shr(v_bits(r[i]), 16), VL);
            }
        }
}

SW_KERNEL void PACK_COLS_NAME(const struct swiglu_pack_args *t) {
    if (t->form == SWIGLU_FORM_F16 || t->form == SWIGLU_FORM_BF16)
        pack_cols_16(t);
    else if (t->dtype == SWIGLU_F32)
        pack_cols_of(t, SWIGLU_F32);
    else if (t->dtype == SWIGLU_F16)
        pack_cols_of(t, SWIGLU_F16);
    else
        pack_cols_of(t, SWIGLU_BF16);
}

SW_KERNEL void TURN_NAME(const struct swiglu_turn_args *t) {
    for (size_t s = 0; s < t->n_blocks; s += VL) {
        V r[VL];
        SW_UNROLL for (size_t i = 0; i < VL; i++) {
            SW_PREFETCH_L2(t->src + (s + VL + i) * 2 * VL * 4);
            r[i] = s + i < t->n_blocks ? v_load(t->src + (s + i) * 2 * VL * 4) : v_set1(0.0f);
        }
        v_transpose(r);
        for (size_t i = 0; i < VL && i < t->n_lanes; i++) {
            SW_PREFETCH_L1(t->rows[i] + (s + VL) * 4 * (t->x == SWIGLU_X_BF16_IN_F32 ? 2 : 1));
            uint32_t pair[VL], wide[2 * VL];
            if (t->x != SWIGLU_X_BF16_IN_F32) {
                v_store(t->rows[i] + s * 4, r[i]);
                continue;
            }
            v_store(pair, r[i]);
            for (size_t l = 0; l < VL; l++) wide[2 * l] = pair[l] << 16, wide[2 * l + 1] = pair[l] & 0xFFFF0000u;
            memcpy(t->rows[i] + s * 8, wide, sizeof wide);
        }
    }
}
#undef PACK_ROWS_NAME
#undef PACK_COLS_NAME
#undef TURN_NAME
