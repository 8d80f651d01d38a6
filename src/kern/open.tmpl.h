/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slices of a panel of the fmt_*.h included before, opened: for int8 compute into the integers and scales that tiles of many
 * rows read, for f32 and bf16 compute into weights as their decoder gives them (one fused multiply-add rounds as the decoder
 * does: the product of scales and integer is exact).
 *
 * Parameters: OPEN_NAME(to), the functions.
 */
#if Q_KIND == Q_SYMMETRIC
#define OPEN_FORM SWIGLU_FORM_I8
#define OPEN_LANE 36
#elif Q_KIND == Q_MINIMUM
#define OPEN_FORM SWIGLU_FORM_I8_MIN
#define OPEN_LANE 40
#elif Q_KIND == Q_HALVES
#define OPEN_FORM SWIGLU_FORM_I8_HALVES
#define OPEN_LANE 44
#else
#define OPEN_FORM SWIGLU_FORM_I8_HALVES_MIN
#define OPEN_LANE 56
#endif
#define OPEN_PUT(at, value) v_store(to + (size_t)(at) * 2 * VL + (size_t)j * 4 * VL, value)

SW_KERNEL void OPEN_NAME(int8)(const struct swiglu_open_args *t) {
    const char *p = t->src;
    char *to = t->dst;
    for (size_t k = 0; k < t->n_k; k += 32 * Q_PARTS, p += Q_BLOCK_BYTES)
        for (int part = 0; part < Q_PARTS; part++, to += OPEN_LANE * 2 * VL)
            SW_UNROLL for (int j = 0; j < 2; j++) {
                SW_UNROLL for (int g = 0; g < 8; g++) {
                    VI q = Q_GROUP(p, j, part, g);
#if Q_KIND == Q_SYMMETRIC && Q_ZERO != V_DOT4_BIAS /* no byte carries: integers plus 128, then without where they are signed */
                    q = vi_add(q, vi_set1((int)((128 - Q_ZERO) * 0x01010101u)));
                    if (!V_DOT4_BIAS) q = vi_xor(q, vi_set1((int)0x80808080u));
#elif Q_KIND == Q_HALVES && Q_ZERO != 32
                    q = vi_add(q, vi_set1((32 - Q_ZERO) * 0x01010101));
#endif
                    OPEN_PUT(4 * g, v_from_bits(q));
                }
                OPEN_PUT(32, Q_A(p, j, part));
#if Q_KIND == Q_MINIMUM
                OPEN_PUT(36, Q_B(p, j, part));
#elif Q_KIND == Q_HALVES
                SW_UNROLL for (int h = 0; h < 2; h++) OPEN_PUT(36 + 4 * h, v_from_bits(Q_S(p, j, part, h)));
#elif Q_KIND == Q_HALVES_MIN
                OPEN_PUT(36, Q_AM(p, j, part));
                SW_UNROLL for (int h = 0; h < 2; h++) {
                    OPEN_PUT(40 + 4 * h, v_from_bits(Q_S(p, j, part, h)));
                    OPEN_PUT(48 + 4 * h, v_from_bits(Q_M(p, j, part, h)));
                }
#endif
            }
}

/* The weight of byte i of a group: of a half where scales are of halves. */
SW_ALWAYS_INLINE V OPEN_NAME(weight)(VI q, int i, V a, V b) {
    VI one = vi_and(q_shr(q, 8 * i), vi_set1(255));
#if defined(Q_ANY)
    one = vi_and(vi_add(one, vi_set1(128 - Q_ZERO)), vi_set1(255)); /* signed bytes, or with a bias of 128 already */
    const V f = vi_to_f32(vi_sub(one, vi_set1(128)));
#else
    const V f = vi_to_f32(vi_sub(one, vi_set1(Q_ZERO)));
#endif
#if Q_KIND == Q_MINIMUM || Q_KIND == Q_HALVES_MIN
    return v_fma(a, f, b);
#else
    (void)b;
    return v_mul(a, f);
#endif
}

/* bf16 is a literal at each call: pairs rounded by the staging rule, or f32. */
SW_ALWAYS_INLINE void OPEN_NAME(values)(const struct swiglu_open_args *t, int bf16) {
    const char *p = t->src;
    char *to = t->dst;
    for (size_t k = 0; k < t->n_k; k += 32 * Q_PARTS, p += Q_BLOCK_BYTES)
        for (int part = 0; part < Q_PARTS; part++, to += (bf16 ? 64 : 128) * 2 * VL)
            SW_UNROLL for (int j = 0; j < 2; j++) {
                V a = Q_A(p, j, part), b = a;
                for (int g = 0; g < 8; g++) {
#if Q_KIND >= Q_HALVES
                    if (g % 4 == 0) {
                        a = v_mul(Q_A(p, j, part), vi_to_f32(Q_S(p, j, part, g / 4)));
#if Q_KIND == Q_HALVES_MIN
                        b = v_neg(v_mul(Q_AM(p, j, part), vi_to_f32(Q_M(p, j, part, g / 4))));
#endif
                    }
#elif Q_KIND == Q_MINIMUM
                    b = Q_B(p, j, part);
#endif
                    const VI q = Q_GROUP(p, j, part, g);
                    V v[4];
                    SW_UNROLL for (int i = 0; i < 4; i++) v[i] = OPEN_NAME(weight)(q, i, a, b);
                    if (bf16) {
                        OPEN_PUT(8 * g, epi_bf16_pair(v[0], v[1]));
                        OPEN_PUT(8 * g + 4, epi_bf16_pair(v[2], v[3]));
                    } else {
                        SW_UNROLL for (int i = 0; i < 4; i++) OPEN_PUT(16 * g + 4 * i, v[i]);
                    }
                }
            }
}

SW_KERNEL void OPEN_NAME(f32)(const struct swiglu_open_args *t) { OPEN_NAME(values)(t, 0); }
SW_KERNEL void OPEN_NAME(bf16)(const struct swiglu_open_args *t) { OPEN_NAME(values)(t, 1); }
#undef OPEN_PUT
#undef OPEN_LANE
