/* SPDX-License-Identifier: Apache-2.0 */
/* AVX-512F/BW/VL primitives: 16 lanes. Each equals its C expression on every input it can meet. */
#include <immintrin.h>
#include <string.h>

#include "kern/vec_x86.h"

/* Opens the level's target region; the isa_*.c that includes this closes it. */
SW_TARGET_BEGIN(LEVEL_TARGET)

#define VL 16
typedef __m512 V;
typedef __m512i VI;
typedef __mmask16 VM;
typedef struct { __m512d lo, hi; } VD;

#define V_KEEP(v) __asm__("" : "+v"(v)) /* stops GCC from loading the same weights again for every row */

SW_ALWAYS_INLINE V v_load(const void *p) { return _mm512_loadu_ps(p); }
SW_ALWAYS_INLINE void v_store(void *p, V a) { _mm512_storeu_ps(p, a); }
SW_ALWAYS_INLINE V v_bcast(const void *p) { float f; memcpy(&f, p, sizeof f); return _mm512_set1_ps(f); }
SW_ALWAYS_INLINE V v_set1(float a) { return _mm512_set1_ps(a); }
SW_ALWAYS_INLINE V v_fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }   /* a b + c */
SW_ALWAYS_INLINE V v_fnma(V a, V b, V c) { return _mm512_fnmadd_ps(a, b, c); } /* c - a b */
SW_ALWAYS_INLINE V v_add(V a, V b) { return _mm512_add_ps(a, b); }
SW_ALWAYS_INLINE V v_sub(V a, V b) { return _mm512_sub_ps(a, b); }
SW_ALWAYS_INLINE V v_mul(V a, V b) { return _mm512_mul_ps(a, b); }
SW_ALWAYS_INLINE V v_div(V a, V b) { return _mm512_div_ps(a, b); }
SW_ALWAYS_INLINE V v_max(V a, V b) { return _mm512_max_ps(a, b); } /* a > b ? a : b */
SW_ALWAYS_INLINE V v_min(V a, V b) { return _mm512_min_ps(a, b); } /* a < b ? a : b */
SW_ALWAYS_INLINE V v_rint(V a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
SW_ALWAYS_INLINE VI v_to_int(V a) { return _mm512_cvtps_epi32(a); } /* |a| < 2^31, integral */
SW_ALWAYS_INLINE VI v_bits(V a) { return _mm512_castps_si512(a); }
SW_ALWAYS_INLINE V v_from_bits(VI a) { return _mm512_castsi512_ps(a); }
SW_ALWAYS_INLINE VI vi_set1(int a) { return _mm512_set1_epi32(a); }
SW_ALWAYS_INLINE VI vi_add(VI a, VI b) { return _mm512_add_epi32(a, b); }
SW_ALWAYS_INLINE VI vi_and(VI a, VI b) { return _mm512_and_si512(a, b); }
SW_ALWAYS_INLINE VI vi_or(VI a, VI b) { return _mm512_or_si512(a, b); }
SW_ALWAYS_INLINE VI vi_xor(VI a, VI b) { return _mm512_xor_si512(a, b); }
SW_ALWAYS_INLINE VI vi_shl(VI a, int n) { return _mm512_slli_epi32(a, (unsigned)n); }
SW_ALWAYS_INLINE VI vi_shr(VI a, int n) { return _mm512_srli_epi32(a, (unsigned)n); }
SW_ALWAYS_INLINE VM v_lt(V a, V b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
SW_ALWAYS_INLINE VM v_is_nan(V a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q); }
SW_ALWAYS_INLINE int v_any_nan(V a, V b) { return _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q); }
SW_ALWAYS_INLINE VM vi_is_zero(VI a) { return _mm512_testn_epi32_mask(a, a); }
SW_ALWAYS_INLINE V v_select(VM m, V a, V b) { return _mm512_mask_mov_ps(b, m, a); } /* m ? a : b */

/* Lanes at and beyond n are false. */
SW_ALWAYS_INLINE VM v_first(size_t n) { return n >= 16 ? 0xFFFF : (VM)((1u << n) - 1); }
SW_ALWAYS_INLINE V v_keep_first(V a, size_t n) { return _mm512_maskz_mov_ps(v_first(n), a); }
SW_ALWAYS_INLINE void v_store_first(void *p, V a, size_t n) { _mm512_mask_storeu_ps(p, v_first(n), a); }

SW_ALWAYS_INLINE V v_load_first(const void *p, size_t n) { return _mm512_maskz_loadu_ps(v_first(n), p); }

/* r[i] lane j <-> r[j] lane i */
SW_ALWAYS_INLINE void v_transpose(V r[16]) {
    __m512 t[16];
    SW_UNROLL for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    SW_UNROLL for (int i = 0; i < 16; i += 4)
        SW_UNROLL for (int j = 0; j < 2; j++) {
            const __m512d a = _mm512_castps_pd(t[i + j]), b = _mm512_castps_pd(t[i + j + 2]);
            r[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
            r[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
        }
    SW_UNROLL for (int i = 0; i < 16; i += 8)
        SW_UNROLL for (int j = 0; j < 4; j++) {
            t[i + j] = _mm512_shuffle_f32x4(r[i + j], r[i + j + 4], 0x88);
            t[i + j + 4] = _mm512_shuffle_f32x4(r[i + j], r[i + j + 4], 0xDD);
        }
    SW_UNROLL for (int j = 0; j < 8; j++) {
        r[j] = _mm512_shuffle_f32x4(t[j], t[j + 8], 0x88);
        r[j + 8] = _mm512_shuffle_f32x4(t[j], t[j + 8], 0xDD);
    }
}

/* 16-bit formats in memory. */
SW_ALWAYS_INLINE V v_load_f16(const void *p) { return _mm512_cvtph_ps(_mm256_loadu_si256(p)); }
SW_ALWAYS_INLINE V v_load_bf16(const void *p) {
    return v_from_bits(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(p)), 16));
}
SW_ALWAYS_INLINE VI v_to_f16(V a) { /* nearest even; NaN already canonical; value in the low half of each lane */
    return _mm512_cvtepu16_epi32(_mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
SW_ALWAYS_INLINE void vi_store16_first(void *p, VI a, size_t n) {
    _mm256_mask_storeu_epi16(p, v_first(n), _mm512_cvtepi32_epi16(a));
}

/* bf16 pairs without the instruction: the caller of the k loop sets FTZ and DAZ around it, as vdpbf16ps behaves. */
SW_ALWAYS_INLINE V v_pair_odd(const void *p) { return v_from_bits(vi_and(_mm512_loadu_si512(p), vi_set1((int)0xFFFF0000))); }
SW_ALWAYS_INLINE V v_pair_even(const void *p) { return v_from_bits(vi_shl(_mm512_loadu_si512(p), 16)); }
SW_ALWAYS_INLINE V v_fma_flush(V a, V b, V c) { return v_fma(a, b, c); }
/* Pairs of bf16 as they lie in memory: those with an exponent field of 0 become signed zeros. */
SW_ALWAYS_INLINE V v_pair_flush(V a) {
    const __m512i v = v_bits(a), sign = _mm512_and_si512(v, _mm512_set1_epi16((short)0x8000));
    return v_from_bits(_mm512_mask_mov_epi16(sign, _mm512_test_epi16_mask(v, _mm512_set1_epi16(0x7F80)), v));
}
/* Two vectors of pairs from 32 bf16 of each of two depths. */
SW_ALWAYS_INLINE void v_pair_zip(const void *even, const void *odd, V to[2]) {
    static const int16_t order[32] = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                                      8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
    const __m512i a = _mm512_loadu_si512(even), b = _mm512_loadu_si512(odd), low = _mm512_loadu_si512(order);
    to[0] = v_from_bits(_mm512_permutex2var_epi16(a, low, b));
    to[1] = v_from_bits(_mm512_permutex2var_epi16(a, _mm512_add_epi16(low, _mm512_set1_epi16(16)), b));
}

/* Integers: lanes of 32 bits, or of 4 bytes each. */
SW_ALWAYS_INLINE VI vi_bcast(const void *p) { int i; memcpy(&i, p, sizeof i); return _mm512_set1_epi32(i); }
SW_ALWAYS_INLINE VI vi_sub(VI a, VI b) { return _mm512_sub_epi32(a, b); }
SW_ALWAYS_INLINE VI vi_mul(VI a, VI b) { return _mm512_mullo_epi32(a, b); }
SW_ALWAYS_INLINE VI vi_max_u(VI a, VI b) { return _mm512_max_epu32(a, b); }
SW_ALWAYS_INLINE uint32_t vi_hmax_u(VI a) { return _mm512_reduce_max_epu32(a); }
SW_ALWAYS_INLINE int32_t vi_hsum(VI a) { return _mm512_reduce_add_epi32(a); }
SW_ALWAYS_INLINE V vi_to_f32(VI a) { return _mm512_cvtepi32_ps(a); }
SW_ALWAYS_INLINE VI vi_load_u8(const void *p) { return _mm512_cvtepu8_epi32(_mm_loadu_si128(p)); }
SW_ALWAYS_INLINE VI vi_load_i8(const void *p) { return _mm512_cvtepi8_epi32(_mm_loadu_si128(p)); }
SW_ALWAYS_INLINE void vi_store8(void *p, VI a) { _mm_storeu_si128(p, _mm512_cvtepi32_epi8(a)); }
SW_ALWAYS_INLINE VI vi_lookup16(VI a, const unsigned char *table) {
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128((const void *)table)), a);
}
#if !defined(V_DOT4_BIAS)
/* Without VNNI: sums of two products stay below 2^15 (127 x 127, or 128 x 127, twice), so nothing saturates. */
#define V_DOT4_BIAS 0
SW_ALWAYS_INLINE VI v_dot4(VI acc, VI w, VI x) {
    return _mm512_add_epi32(acc, _mm512_madd_epi16(_mm512_maddubs_epi16(w, x), _mm512_set1_epi16(1)));
}
SW_ALWAYS_INLINE VI v_dot4_any(VI acc, VI w, VI x) {
    const __m512i signed_x = _mm512_mask_sub_epi8(x, _mm512_movepi8_mask(w), _mm512_setzero_si512(), x);
    return v_dot4(acc, _mm512_abs_epi8(w), signed_x);
}
#else
SW_ALWAYS_INLINE VI v_dot4(VI acc, VI w, VI x) { return _mm512_dpbusd_epi32(acc, w, x); }
SW_ALWAYS_INLINE VI v_dot4_any(VI acc, VI w, VI x) { return _mm512_dpbusd_epi32(acc, w, x); }
#endif

/* Double precision, for activations that need it: both halves at once. */
SW_ALWAYS_INLINE VD vd_from(V a) {
    return (VD){_mm512_cvtps_pd(_mm512_castps512_ps256(a)),
                _mm512_cvtps_pd(_mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a), 1)))};
}
SW_ALWAYS_INLINE V vd_to(VD a) { /* nearest even */
    return _mm512_castpd_ps(_mm512_insertf64x4(_mm512_castpd256_pd512(_mm256_castps_pd(_mm512_cvtpd_ps(a.lo))),
                                               _mm256_castps_pd(_mm512_cvtpd_ps(a.hi)), 1));
}
SW_ALWAYS_INLINE VD vd_set1(double a) { return (VD){_mm512_set1_pd(a), _mm512_set1_pd(a)}; }
SW_ALWAYS_INLINE VD vd_fma(VD a, VD b, VD c) {
    return (VD){_mm512_fmadd_pd(a.lo, b.lo, c.lo), _mm512_fmadd_pd(a.hi, b.hi, c.hi)};
}
SW_ALWAYS_INLINE VD vd_add(VD a, VD b) { return (VD){_mm512_add_pd(a.lo, b.lo), _mm512_add_pd(a.hi, b.hi)}; }
SW_ALWAYS_INLINE VD vd_sub(VD a, VD b) { return (VD){_mm512_sub_pd(a.lo, b.lo), _mm512_sub_pd(a.hi, b.hi)}; }
SW_ALWAYS_INLINE VD vd_mul(VD a, VD b) { return (VD){_mm512_mul_pd(a.lo, b.lo), _mm512_mul_pd(a.hi, b.hi)}; }
SW_ALWAYS_INLINE VD vd_div(VD a, VD b) { return (VD){_mm512_div_pd(a.lo, b.lo), _mm512_div_pd(a.hi, b.hi)}; }
SW_ALWAYS_INLINE __m512d vd_shift_exponent(__m512d a) {
    return _mm512_castsi512_pd(_mm512_slli_epi64(_mm512_add_epi64(_mm512_castpd_si512(a), _mm512_set1_epi64(1023)), 52));
}
/* 2^n for a = n + 1.5 * 2^52, n an integer in -1022..1023 */
SW_ALWAYS_INLINE VD vd_exp2_magic(VD a) { return (VD){vd_shift_exponent(a.lo), vd_shift_exponent(a.hi)}; }
