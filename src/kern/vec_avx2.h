/* SPDX-License-Identifier: Apache-2.0 */
/* AVX2 + FMA + F16C primitives: 8 lanes. Each equals its C expression on every input it can meet. */
#include <immintrin.h>
#include <string.h>

#include "kern/vec_x86.h"

/* Opens the level's target region; the isa_*.c that includes this closes it. */
SW_TARGET_BEGIN(LEVEL_TARGET)

#define VL 8
typedef __m256 V;
typedef __m256i VI;
typedef __m256 VM;
typedef struct { __m256d lo, hi; } VD;

#define V_KEEP(v) __asm__("" : "+x"(v))

SW_ALWAYS_INLINE V v_load(const void *p) { return _mm256_loadu_ps(p); }
SW_ALWAYS_INLINE void v_store(void *p, V a) { _mm256_storeu_ps(p, a); }
SW_ALWAYS_INLINE V v_bcast(const void *p) { return _mm256_broadcast_ss(p); }
SW_ALWAYS_INLINE V v_set1(float a) { return _mm256_set1_ps(a); }
SW_ALWAYS_INLINE V v_fma(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
SW_ALWAYS_INLINE V v_fnma(V a, V b, V c) { return _mm256_fnmadd_ps(a, b, c); }
SW_ALWAYS_INLINE V v_add(V a, V b) { return _mm256_add_ps(a, b); }
SW_ALWAYS_INLINE V v_sub(V a, V b) { return _mm256_sub_ps(a, b); }
SW_ALWAYS_INLINE V v_mul(V a, V b) { return _mm256_mul_ps(a, b); }
SW_ALWAYS_INLINE V v_div(V a, V b) { return _mm256_div_ps(a, b); }
SW_ALWAYS_INLINE V v_max(V a, V b) { return _mm256_max_ps(a, b); } /* a > b ? a : b */
SW_ALWAYS_INLINE V v_min(V a, V b) { return _mm256_min_ps(a, b); } /* a < b ? a : b */
SW_ALWAYS_INLINE V v_rint(V a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
SW_ALWAYS_INLINE VI v_to_int(V a) { return _mm256_cvtps_epi32(a); }
SW_ALWAYS_INLINE VI v_bits(V a) { return _mm256_castps_si256(a); }
SW_ALWAYS_INLINE V v_from_bits(VI a) { return _mm256_castsi256_ps(a); }
SW_ALWAYS_INLINE VI vi_set1(int a) { return _mm256_set1_epi32(a); }
SW_ALWAYS_INLINE VI vi_add(VI a, VI b) { return _mm256_add_epi32(a, b); }
SW_ALWAYS_INLINE VI vi_and(VI a, VI b) { return _mm256_and_si256(a, b); }
SW_ALWAYS_INLINE VI vi_or(VI a, VI b) { return _mm256_or_si256(a, b); }
SW_ALWAYS_INLINE VI vi_xor(VI a, VI b) { return _mm256_xor_si256(a, b); }
SW_ALWAYS_INLINE VI vi_shl(VI a, int n) { return _mm256_slli_epi32(a, n); }
SW_ALWAYS_INLINE VI vi_shr(VI a, int n) { return _mm256_srli_epi32(a, n); }
SW_ALWAYS_INLINE VM v_lt(V a, V b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
SW_ALWAYS_INLINE VM v_is_nan(V a) { return _mm256_cmp_ps(a, a, _CMP_UNORD_Q); }
SW_ALWAYS_INLINE int v_any_nan(V a, V b) { return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_UNORD_Q)); }
SW_ALWAYS_INLINE VM vi_is_zero(VI a) { return v_from_bits(_mm256_cmpeq_epi32(a, _mm256_setzero_si256())); }
SW_ALWAYS_INLINE V v_select(VM m, V a, V b) { return _mm256_blendv_ps(b, a, m); }

SW_ALWAYS_INLINE VI v_first(size_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n > 8 ? 8 : (int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
SW_ALWAYS_INLINE V v_keep_first(V a, size_t n) { return v_from_bits(vi_and(v_bits(a), v_first(n))); }
SW_ALWAYS_INLINE void v_store_first(void *p, V a, size_t n) { _mm256_maskstore_ps(p, v_first(n), a); }

/* Through a local: an emulator (QEMU 7.2) lets a masked load fault on lanes that the mask excludes. */
SW_ALWAYS_INLINE V v_load_first(const void *p, size_t n) {
    float t[8] = {0};
    if (n >= 8) return v_load(p);
    memcpy(t, p, 4 * n);
    return v_load(t);
}

SW_ALWAYS_INLINE void v_transpose(V r[8]) {
    __m256 t[8];
    SW_UNROLL for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    SW_UNROLL for (int i = 0; i < 8; i += 4)
        SW_UNROLL for (int j = 0; j < 2; j++) {
            r[i + 2 * j] = _mm256_shuffle_ps(t[i + j], t[i + j + 2], 0x44);
            r[i + 2 * j + 1] = _mm256_shuffle_ps(t[i + j], t[i + j + 2], 0xEE);
        }
    SW_UNROLL for (int j = 0; j < 4; j++) {
        t[j] = _mm256_permute2f128_ps(r[j], r[j + 4], 0x20);
        t[j + 4] = _mm256_permute2f128_ps(r[j], r[j + 4], 0x31);
    }
    SW_UNROLL for (int j = 0; j < 8; j++) r[j] = t[j];
}

SW_ALWAYS_INLINE V v_load_f16(const void *p) { return _mm256_cvtph_ps(_mm_loadu_si128(p)); }
SW_ALWAYS_INLINE V v_load_bf16(const void *p) {
    return v_from_bits(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(p)), 16));
}
SW_ALWAYS_INLINE VI v_to_f16(V a) {
    return _mm256_cvtepu16_epi32(_mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
SW_ALWAYS_INLINE void vi_store16_first(void *p, VI a, size_t n) { /* no 16-bit masked store: through a local */
    uint16_t t[8];
    _mm_storeu_si128((void *)t, _mm_packus_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1)));
    memcpy(p, t, 2 * (n < 8 ? n : 8));
}

/* The mask as a memory operand: 12 accumulators, 2 weights and a broadcast leave no register for it, and GCC 12 would keep
 * three accumulators in memory instead. */
SW_ALWAYS_INLINE V v_pair_odd(const void *p) {
    static const _Alignas(32) uint32_t high[8] = {0xFFFF0000, 0xFFFF0000, 0xFFFF0000, 0xFFFF0000,
                                                  0xFFFF0000, 0xFFFF0000, 0xFFFF0000, 0xFFFF0000};
    V w = _mm256_loadu_ps(p);
    __asm__("vandps %1, %0, %0" : "+x"(w) : "m"(high));
    return w;
}
SW_ALWAYS_INLINE V v_pair_even(const void *p) { return v_from_bits(vi_shl(_mm256_loadu_si256(p), 16)); }
/* As text, so that accumulators keep their registers: GCC 12 rotates them through the other forms of the instruction, runs
 * out of the 16 there are and spills (8 % of this k loop; the other loops have a register to spare and gain nothing). */
SW_ALWAYS_INLINE V v_fma_flush(V a, V b, V c) {
    __asm__("vfmadd231ps %2, %1, %0" : "+x"(c) : "x"(a), "x"(b));
    return c;
}
SW_ALWAYS_INLINE V v_pair_flush(V a) {
    const __m256i v = v_bits(a), sign = _mm256_and_si256(v, _mm256_set1_epi16((short)0x8000));
    const __m256i zero = _mm256_cmpeq_epi16(_mm256_and_si256(v, _mm256_set1_epi16(0x7F80)), _mm256_setzero_si256());
    return v_from_bits(_mm256_blendv_epi8(v, sign, zero));
}
/* Two vectors of pairs from 16 bf16 of each of two depths. */
SW_ALWAYS_INLINE void v_pair_zip(const void *even, const void *odd, V to[2]) {
    const __m256i a = _mm256_loadu_si256(even), b = _mm256_loadu_si256(odd);
    const __m256i low = _mm256_unpacklo_epi16(a, b), high = _mm256_unpackhi_epi16(a, b);
    to[0] = v_from_bits(_mm256_permute2x128_si256(low, high, 0x20));
    to[1] = v_from_bits(_mm256_permute2x128_si256(low, high, 0x31));
}

/* Integers: lanes of 32 bits, or of 4 bytes each. */
SW_ALWAYS_INLINE VI vi_bcast(const void *p) { int i; memcpy(&i, p, sizeof i); return _mm256_set1_epi32(i); }
SW_ALWAYS_INLINE VI vi_sub(VI a, VI b) { return _mm256_sub_epi32(a, b); }
SW_ALWAYS_INLINE VI vi_mul(VI a, VI b) { return _mm256_mullo_epi32(a, b); }
SW_ALWAYS_INLINE VI vi_max_u(VI a, VI b) { return _mm256_max_epu32(a, b); }
SW_ALWAYS_INLINE uint32_t vi_hmax_u(VI a) {
    __m128i m = _mm_max_epu32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4E));
    return (uint32_t)_mm_cvtsi128_si32(_mm_max_epu32(m, _mm_shuffle_epi32(m, 0xB1)));
}
SW_ALWAYS_INLINE int32_t vi_hsum(VI a) {
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4E));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xB1)));
}
SW_ALWAYS_INLINE V vi_to_f32(VI a) { return _mm256_cvtepi32_ps(a); }
SW_ALWAYS_INLINE VI vi_load_u8(const void *p) { return _mm256_cvtepu8_epi32(_mm_loadl_epi64(p)); }
SW_ALWAYS_INLINE VI vi_load_i8(const void *p) { return _mm256_cvtepi8_epi32(_mm_loadl_epi64(p)); }
SW_ALWAYS_INLINE void vi_store8(void *p, VI a) { /* lanes are -128..127 or 0..127 */
    const __m128i h = _mm_packs_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    _mm_storel_epi64(p, _mm_packs_epi16(h, h));
}
SW_ALWAYS_INLINE VI vi_lookup16(VI a, const unsigned char *table) {
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)table)), a);
}
/* Sums of two products stay below 2^15 (127 x 127, or 128 x 127, twice), so nothing saturates. */
#define V_DOT4_BIAS 0
SW_ALWAYS_INLINE VI v_dot4(VI acc, VI w, VI x) {
    return _mm256_add_epi32(acc, _mm256_madd_epi16(_mm256_maddubs_epi16(w, x), _mm256_set1_epi16(1)));
}
SW_ALWAYS_INLINE VI v_dot4_any(VI acc, VI w, VI x) {
    return v_dot4(acc, _mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
}

SW_ALWAYS_INLINE VD vd_from(V a) {
    return (VD){_mm256_cvtps_pd(_mm256_castps256_ps128(a)), _mm256_cvtps_pd(_mm256_extractf128_ps(a, 1))};
}
SW_ALWAYS_INLINE V vd_to(VD a) {
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm256_cvtpd_ps(a.lo)), _mm256_cvtpd_ps(a.hi), 1);
}
SW_ALWAYS_INLINE VD vd_set1(double a) { return (VD){_mm256_set1_pd(a), _mm256_set1_pd(a)}; }
SW_ALWAYS_INLINE VD vd_fma(VD a, VD b, VD c) {
    return (VD){_mm256_fmadd_pd(a.lo, b.lo, c.lo), _mm256_fmadd_pd(a.hi, b.hi, c.hi)};
}
SW_ALWAYS_INLINE VD vd_add(VD a, VD b) { return (VD){_mm256_add_pd(a.lo, b.lo), _mm256_add_pd(a.hi, b.hi)}; }
SW_ALWAYS_INLINE VD vd_sub(VD a, VD b) { return (VD){_mm256_sub_pd(a.lo, b.lo), _mm256_sub_pd(a.hi, b.hi)}; }
SW_ALWAYS_INLINE VD vd_mul(VD a, VD b) { return (VD){_mm256_mul_pd(a.lo, b.lo), _mm256_mul_pd(a.hi, b.hi)}; }
SW_ALWAYS_INLINE VD vd_div(VD a, VD b) { return (VD){_mm256_div_pd(a.lo, b.lo), _mm256_div_pd(a.hi, b.hi)}; }
SW_ALWAYS_INLINE __m256d vd_shift_exponent(__m256d a) {
    return _mm256_castsi256_pd(_mm256_slli_epi64(_mm256_add_epi64(_mm256_castpd_si256(a), _mm256_set1_epi64x(1023)), 52));
}
SW_ALWAYS_INLINE VD vd_exp2_magic(VD a) { return (VD){vd_shift_exponent(a.lo), vd_shift_exponent(a.hi)}; }
