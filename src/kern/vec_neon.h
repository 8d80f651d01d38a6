/* SPDX-License-Identifier: Apache-2.0 */
/* AArch64 NEON primitives: 4 lanes. Each equals its C expression on every input it can meet; FMAX and FMIN treat NaN
 * otherwise than a > b ? a : b, so those compare and select. */
#include <arm_neon.h>
#include <string.h>

#include "kern/flush.h"

#define VL 4
typedef float32x4_t V;
typedef uint32x4_t VI;
typedef uint32x4_t VM;
typedef struct { float64x2_t lo, hi; } VD;

#define V_KEEP(v) __asm__("" : "+w"(v))

SW_ALWAYS_INLINE VI v_bits(V a) { return vreinterpretq_u32_f32(a); }
SW_ALWAYS_INLINE V v_from_bits(VI a) { return vreinterpretq_f32_u32(a); }
SW_ALWAYS_INLINE V v_load(const void *p) { return vreinterpretq_f32_u8(vld1q_u8(p)); }
SW_ALWAYS_INLINE void v_store(void *p, V a) { vst1q_u8(p, vreinterpretq_u8_f32(a)); }
SW_ALWAYS_INLINE V v_bcast(const void *p) { float f; memcpy(&f, p, sizeof f); return vdupq_n_f32(f); }
SW_ALWAYS_INLINE V v_set1(float a) { return vdupq_n_f32(a); }
SW_ALWAYS_INLINE V v_fma(V a, V b, V c) { return vfmaq_f32(c, a, b); }
SW_ALWAYS_INLINE V v_fnma(V a, V b, V c) { return vfmsq_f32(c, a, b); }
SW_ALWAYS_INLINE V v_add(V a, V b) { return vaddq_f32(a, b); }
SW_ALWAYS_INLINE V v_sub(V a, V b) { return vsubq_f32(a, b); }
SW_ALWAYS_INLINE V v_mul(V a, V b) { return vmulq_f32(a, b); }
SW_ALWAYS_INLINE V v_div(V a, V b) { return vdivq_f32(a, b); }
SW_ALWAYS_INLINE V v_max(V a, V b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
SW_ALWAYS_INLINE V v_min(V a, V b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
SW_ALWAYS_INLINE V v_rint(V a) { return vrndnq_f32(a); }
SW_ALWAYS_INLINE VI v_to_int(V a) { return vreinterpretq_u32_s32(vcvtq_s32_f32(a)); }
SW_ALWAYS_INLINE VI vi_set1(int a) { return vdupq_n_u32((uint32_t)a); }
SW_ALWAYS_INLINE VI vi_add(VI a, VI b) { return vaddq_u32(a, b); }
SW_ALWAYS_INLINE VI vi_and(VI a, VI b) { return vandq_u32(a, b); }
SW_ALWAYS_INLINE VI vi_or(VI a, VI b) { return vorrq_u32(a, b); }
SW_ALWAYS_INLINE VI vi_xor(VI a, VI b) { return veorq_u32(a, b); }
SW_ALWAYS_INLINE VI vi_shl(VI a, int n) { return vshlq_u32(a, vdupq_n_s32(n)); }
SW_ALWAYS_INLINE VI vi_shr(VI a, int n) { return vshlq_u32(a, vdupq_n_s32(-n)); }
SW_ALWAYS_INLINE VM v_lt(V a, V b) { return vcltq_f32(a, b); }
SW_ALWAYS_INLINE VM v_is_nan(V a) { return vmvnq_u32(vceqq_f32(a, a)); }
SW_ALWAYS_INLINE int v_any_nan(V a, V b) { return vmaxvq_u32(vorrq_u32(v_is_nan(a), v_is_nan(b))) != 0; }
SW_ALWAYS_INLINE VM vi_is_zero(VI a) { return vceqzq_u32(a); }
SW_ALWAYS_INLINE V v_select(VM m, V a, V b) { return vbslq_f32(m, a, b); }

SW_ALWAYS_INLINE V v_keep_first(V a, size_t n) {
    static const uint32_t lane[4] = {0, 1, 2, 3};
    return v_from_bits(vandq_u32(v_bits(a), vcltq_u32(vld1q_u32(lane), vdupq_n_u32(n > 4 ? 4 : (uint32_t)n))));
}
SW_ALWAYS_INLINE void v_store_first(void *p, V a, size_t n) {
    float t[4];
    vst1q_f32(t, a);
    memcpy(p, t, 4 * (n < 4 ? n : 4));
}

SW_ALWAYS_INLINE V v_load_first(const void *p, size_t n) {
    float t[4] = {0};
    memcpy(t, p, 4 * (n < 4 ? n : 4));
    return vld1q_f32(t);
}

SW_ALWAYS_INLINE void v_transpose(V r[4]) {
    const float32x4x2_t a = vtrnq_f32(r[0], r[1]), b = vtrnq_f32(r[2], r[3]);
    r[0] = vcombine_f32(vget_low_f32(a.val[0]), vget_low_f32(b.val[0]));
    r[1] = vcombine_f32(vget_low_f32(a.val[1]), vget_low_f32(b.val[1]));
    r[2] = vcombine_f32(vget_high_f32(a.val[0]), vget_high_f32(b.val[0]));
    r[3] = vcombine_f32(vget_high_f32(a.val[1]), vget_high_f32(b.val[1]));
}

SW_ALWAYS_INLINE V v_load_f16(const void *p) { return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p))); }
SW_ALWAYS_INLINE V v_load_bf16(const void *p) { return v_from_bits(vshll_n_u16(vreinterpret_u16_u8(vld1_u8(p)), 16)); }
SW_ALWAYS_INLINE VI v_to_f16(V a) { return vmovl_u16(vreinterpret_u16_f16(vcvt_f16_f32(a))); }
SW_ALWAYS_INLINE void vi_store16_first(void *p, VI a, size_t n) {
    uint16_t t[4];
    vst1_u16(t, vmovn_u32(a));
    memcpy(p, t, 2 * (n < 4 ? n : 4));
}

SW_ALWAYS_INLINE V v_pair_odd(const void *p) { return v_from_bits(vandq_u32(v_bits(v_load(p)), vdupq_n_u32(0xFFFF0000u))); }
SW_ALWAYS_INLINE V v_pair_even(const void *p) { return v_from_bits(vshlq_n_u32(v_bits(v_load(p)), 16)); }
/* Compare and select; the exact test of swiglu_fma_flush runs only where some lane is +-2^-126. */
SW_ALWAYS_INLINE V v_fma_flush(V a, V b, V c) {
    const V r = vfmaq_f32(c, a, b), least = vdupq_n_f32(0x1p-126f);
    if (__builtin_expect(vmaxvq_u32(vceqq_f32(vabsq_f32(r), least)) != 0, 0)) {
        float va[4], vb[4], vc[4];
        vst1q_f32(va, a), vst1q_f32(vb, b), vst1q_f32(vc, c);
        for (int i = 0; i < 4; i++) vc[i] = swiglu_fma_flush(va[i], vb[i], vc[i]);
        return vld1q_f32(vc);
    }
    return vbslq_f32(vcaltq_f32(r, least), v_from_bits(vandq_u32(v_bits(r), vdupq_n_u32(0x80000000u))), r);
}
SW_ALWAYS_INLINE V v_pair_flush(V a) {
    const uint16x8_t v = vreinterpretq_u16_f32(a), sign = vandq_u16(v, vdupq_n_u16(0x8000));
    return vreinterpretq_f32_u16(vbslq_u16(vtstq_u16(v, vdupq_n_u16(0x7F80)), v, sign));
}
/* Two vectors of pairs from 8 bf16 of each of two depths. */
SW_ALWAYS_INLINE void v_pair_zip(const void *even, const void *odd, V to[2]) {
    const uint16x8_t a = vreinterpretq_u16_u8(vld1q_u8(even)), b = vreinterpretq_u16_u8(vld1q_u8(odd));
    to[0] = vreinterpretq_f32_u16(vzip1q_u16(a, b));
    to[1] = vreinterpretq_f32_u16(vzip2q_u16(a, b));
}

/* Integers: lanes of 32 bits, or of 4 bytes each. */
SW_ALWAYS_INLINE VI vi_bcast(const void *p) { uint32_t i; memcpy(&i, p, sizeof i); return vdupq_n_u32(i); }
SW_ALWAYS_INLINE VI vi_sub(VI a, VI b) { return vsubq_u32(a, b); }
SW_ALWAYS_INLINE VI vi_mul(VI a, VI b) { return vmulq_u32(a, b); }
SW_ALWAYS_INLINE VI vi_max_u(VI a, VI b) { return vmaxq_u32(a, b); }
SW_ALWAYS_INLINE uint32_t vi_hmax_u(VI a) { return vmaxvq_u32(a); }
SW_ALWAYS_INLINE int32_t vi_hsum(VI a) { return (int32_t)vaddvq_u32(a); }
SW_ALWAYS_INLINE V vi_to_f32(VI a) { return vcvtq_f32_s32(vreinterpretq_s32_u32(a)); }
SW_ALWAYS_INLINE VI vi_load_u8(const void *p) {
    uint32_t four;
    memcpy(&four, p, sizeof four);
    return vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(four))));
}
SW_ALWAYS_INLINE VI vi_load_i8(const void *p) {
    uint32_t four;
    memcpy(&four, p, sizeof four);
    return vreinterpretq_u32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vcreate_s8(four)))));
}
SW_ALWAYS_INLINE void vi_store8(void *p, VI a) {
    const uint16x4_t h = vmovn_u32(a);
    const uint32_t four = vget_lane_u32(vreinterpret_u32_u8(vmovn_u16(vcombine_u16(h, h))), 0);
    memcpy(p, &four, sizeof four);
}
SW_ALWAYS_INLINE VI vi_lookup16(VI a, const unsigned char *table) {
    return vreinterpretq_u32_u8(vqtbl1q_u8(vld1q_u8(table), vreinterpretq_u8_u32(a)));
}
#define V_DOT4_BIAS 0
#if !defined(V_DOT4)
SW_ALWAYS_INLINE VI v_dot4_any(VI acc, VI w, VI x) { /* |products| <= 128 x 127: 16 bits hold them */
    const int8x16_t a = vreinterpretq_s8_u32(w), b = vreinterpretq_s8_u32(x);
    const int32x4_t low = vpaddlq_s16(vmull_s8(vget_low_s8(a), vget_low_s8(b))), high = vpaddlq_s16(vmull_high_s8(a, b));
    return vaddq_u32(acc, vreinterpretq_u32_s32(vpaddq_s32(low, high)));
}
#else
SW_ALWAYS_INLINE VI v_dot4_any(VI acc, VI w, VI x) { return V_DOT4(acc, w, x); }
#endif
SW_ALWAYS_INLINE VI v_dot4(VI acc, VI w, VI x) { return v_dot4_any(acc, w, x); }
#define V_FLUSH_ENTER() ((void)0)
#define V_FLUSH_LEAVE() ((void)0)
#define V_PIN2(a, b) ((void)0)
#define V_PIN4(a, b, c, d) ((void)0)

SW_ALWAYS_INLINE VD vd_from(V a) { return (VD){vcvt_f64_f32(vget_low_f32(a)), vcvt_high_f64_f32(a)}; }
SW_ALWAYS_INLINE V vd_to(VD a) { return vcvt_high_f32_f64(vcvt_f32_f64(a.lo), a.hi); }
SW_ALWAYS_INLINE VD vd_set1(double a) { return (VD){vdupq_n_f64(a), vdupq_n_f64(a)}; }
SW_ALWAYS_INLINE VD vd_fma(VD a, VD b, VD c) { return (VD){vfmaq_f64(c.lo, a.lo, b.lo), vfmaq_f64(c.hi, a.hi, b.hi)}; }
SW_ALWAYS_INLINE VD vd_add(VD a, VD b) { return (VD){vaddq_f64(a.lo, b.lo), vaddq_f64(a.hi, b.hi)}; }
SW_ALWAYS_INLINE VD vd_sub(VD a, VD b) { return (VD){vsubq_f64(a.lo, b.lo), vsubq_f64(a.hi, b.hi)}; }
SW_ALWAYS_INLINE VD vd_mul(VD a, VD b) { return (VD){vmulq_f64(a.lo, b.lo), vmulq_f64(a.hi, b.hi)}; }
SW_ALWAYS_INLINE VD vd_div(VD a, VD b) { return (VD){vdivq_f64(a.lo, b.lo), vdivq_f64(a.hi, b.hi)}; }
SW_ALWAYS_INLINE float64x2_t vd_shift_exponent(float64x2_t a) {
    return vreinterpretq_f64_u64(vshlq_n_u64(vaddq_u64(vreinterpretq_u64_f64(a), vdupq_n_u64(1023)), 52));
}
SW_ALWAYS_INLINE VD vd_exp2_magic(VD a) { return (VD){vd_shift_exponent(a.lo), vd_shift_exponent(a.hi)}; }
