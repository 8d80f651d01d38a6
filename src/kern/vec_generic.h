/* SPDX-License-Identifier: Apache-2.0 */
/* One lane of plain C: these expressions are what every other level's primitives must equal. fmaf is slow where the
 * build has no FMA instruction, and right; a double multiply-add would round twice. */
#include <math.h>

#include "base/half.h"
#include "kern/flush.h"

#define VL 1
typedef float V;
typedef uint32_t VI;
typedef int VM;
typedef double VD;

#if defined(__x86_64__)
#define V_KEEP(v) __asm__("" : "+x"(v))
#elif defined(__aarch64__)
#define V_KEEP(v) __asm__("" : "+w"(v))
#else
#define V_KEEP(v) __asm__("" : "+m"(v))
#endif

SW_ALWAYS_INLINE V v_load(const void *p) { float f; memcpy(&f, p, sizeof f); return f; }
SW_ALWAYS_INLINE void v_store(void *p, V a) { memcpy(p, &a, sizeof a); }
SW_ALWAYS_INLINE V v_bcast(const void *p) { return v_load(p); }
SW_ALWAYS_INLINE V v_set1(float a) { return a; }
SW_ALWAYS_INLINE V v_fma(V a, V b, V c) { return fmaf(a, b, c); }
SW_ALWAYS_INLINE V v_fnma(V a, V b, V c) { return fmaf(-a, b, c); }
SW_ALWAYS_INLINE V v_add(V a, V b) { return a + b; }
SW_ALWAYS_INLINE V v_sub(V a, V b) { return a - b; }
SW_ALWAYS_INLINE V v_mul(V a, V b) { return a * b; }
SW_ALWAYS_INLINE V v_div(V a, V b) { return a / b; }
SW_ALWAYS_INLINE V v_max(V a, V b) { return a > b ? a : b; }
SW_ALWAYS_INLINE V v_min(V a, V b) { return a < b ? a : b; }
SW_ALWAYS_INLINE V v_rint(V a) { return rintf(a); }
SW_ALWAYS_INLINE VI v_to_int(V a) { return (uint32_t)(int32_t)a; }
SW_ALWAYS_INLINE VI v_bits(V a) { return swiglu_f32_bits(a); }
SW_ALWAYS_INLINE V v_from_bits(VI a) { return swiglu_f32_from_bits(a); }
SW_ALWAYS_INLINE VI vi_set1(int a) { return (uint32_t)a; }
SW_ALWAYS_INLINE VI vi_add(VI a, VI b) { return a + b; }
SW_ALWAYS_INLINE VI vi_and(VI a, VI b) { return a & b; }
SW_ALWAYS_INLINE VI vi_or(VI a, VI b) { return a | b; }
SW_ALWAYS_INLINE VI vi_xor(VI a, VI b) { return a ^ b; }
SW_ALWAYS_INLINE VI vi_shl(VI a, int n) { return a << n; }
SW_ALWAYS_INLINE VI vi_shr(VI a, int n) { return a >> n; }
SW_ALWAYS_INLINE VM v_lt(V a, V b) { return a < b; }
SW_ALWAYS_INLINE VM v_is_nan(V a) { return a != a; }
SW_ALWAYS_INLINE int v_any_nan(V a, V b) { return (a != a) | (b != b); }
SW_ALWAYS_INLINE VM vi_is_zero(VI a) { return a == 0; }
SW_ALWAYS_INLINE V v_select(VM m, V a, V b) { return m ? a : b; }
SW_ALWAYS_INLINE V v_keep_first(V a, size_t n) { return n ? a : 0.0f; }
SW_ALWAYS_INLINE void v_store_first(void *p, V a, size_t n) { if (n) v_store(p, a); }

SW_ALWAYS_INLINE V v_load_first(const void *p, size_t n) { return n ? v_load(p) : 0.0f; }
SW_ALWAYS_INLINE void v_transpose(V r[1]) { (void)r; }

SW_ALWAYS_INLINE V v_load_f16(const void *p) { return swiglu_f16_widen(swiglu_le16(p)); }
SW_ALWAYS_INLINE V v_load_bf16(const void *p) { return swiglu_bf16_widen(swiglu_le16(p)); }
SW_ALWAYS_INLINE VI v_to_f16(V a) { return swiglu_f16_store(a); }
SW_ALWAYS_INLINE void vi_store16_first(void *p, VI a, size_t n) {
    const uint16_t h = (uint16_t)a;
    if (n) memcpy(p, &h, sizeof h);
}

SW_ALWAYS_INLINE V v_pair_odd(const void *p) { return v_from_bits(swiglu_le32(p) & 0xFFFF0000u); }
SW_ALWAYS_INLINE V v_pair_even(const void *p) { return v_from_bits(swiglu_le32(p) << 16); }
SW_ALWAYS_INLINE V v_fma_flush(V a, V b, V c) { return swiglu_fma_flush(a, b, c); }
SW_ALWAYS_INLINE V v_pair_flush(V a) {
    const VI u = v_bits(a);
    return v_from_bits((u & 0x7F800000u ? u & 0xFFFF0000u : u & 0x80000000u) | (u & 0x7F80u ? u & 0xFFFFu : u & 0x8000u));
}
/* Two pairs from two bf16 of each of two depths. */
SW_ALWAYS_INLINE void v_pair_zip(const void *even, const void *odd, V to[2]) {
    uint16_t a[2], b[2];
    memcpy(a, even, sizeof a);
    memcpy(b, odd, sizeof b);
    for (int i = 0; i < 2; i++) to[i] = v_from_bits((VI)(a[i] | (uint32_t)b[i] << 16));
}

/* Integers: lanes of 32 bits, or of 4 bytes each. */
SW_ALWAYS_INLINE VI vi_bcast(const void *p) { return swiglu_le32(p); }
SW_ALWAYS_INLINE VI vi_sub(VI a, VI b) { return a - b; }
SW_ALWAYS_INLINE VI vi_mul(VI a, VI b) { return a * b; }
SW_ALWAYS_INLINE VI vi_max_u(VI a, VI b) { return a > b ? a : b; }
SW_ALWAYS_INLINE uint32_t vi_hmax_u(VI a) { return a; }                    /* over lanes */
SW_ALWAYS_INLINE int32_t vi_hsum(VI a) { return (int32_t)a; }
SW_ALWAYS_INLINE V vi_to_f32(VI a) { return (float)(int32_t)a; }
SW_ALWAYS_INLINE VI vi_load_u8(const void *p) { return *(const unsigned char *)p; } /* a byte a lane */
SW_ALWAYS_INLINE VI vi_load_i8(const void *p) { return (uint32_t)*(const signed char *)p; }
SW_ALWAYS_INLINE void vi_store8(void *p, VI a) { *(unsigned char *)p = (unsigned char)a; }
SW_ALWAYS_INLINE VI vi_lookup16(VI a, const unsigned char *table) { /* each byte of a, 0..15, becomes that of the table */
    VI r = 0;
    for (int i = 0; i < 32; i += 8) r |= (VI)table[a >> i & 15] << i;
    return r;
}
/* acc and the sum of the products of w's and x's 4 signed bytes; v_dot4 where w's are 0..127. */
#define V_DOT4_BIAS 0 /* what v_dot4_any wants added to the bytes of w: 128 where the instruction takes them unsigned */
SW_ALWAYS_INLINE VI v_dot4_any(VI acc, VI w, VI x) {
    for (int i = 0; i < 32; i += 8) acc += (VI)((int8_t)(w >> i) * (int8_t)(x >> i));
    return acc;
}
SW_ALWAYS_INLINE VI v_dot4(VI acc, VI w, VI x) { return v_dot4_any(acc, w, x); }
#define V_FLUSH_ENTER() ((void)0)
#define V_FLUSH_LEAVE() ((void)0)
#define V_PIN2(a, b) ((void)0)
#define V_PIN4(a, b, c, d) ((void)0)

SW_ALWAYS_INLINE VD vd_from(V a) { return a; }
SW_ALWAYS_INLINE V vd_to(VD a) { return (float)a; }
SW_ALWAYS_INLINE VD vd_set1(double a) { return a; }
SW_ALWAYS_INLINE VD vd_fma(VD a, VD b, VD c) { return fma(a, b, c); }
SW_ALWAYS_INLINE VD vd_add(VD a, VD b) { return a + b; }
SW_ALWAYS_INLINE VD vd_sub(VD a, VD b) { return a - b; }
SW_ALWAYS_INLINE VD vd_mul(VD a, VD b) { return a * b; }
SW_ALWAYS_INLINE VD vd_div(VD a, VD b) { return a / b; }
SW_ALWAYS_INLINE VD vd_exp2_magic(VD a) {
    uint64_t u;
    memcpy(&u, &a, sizeof u);
    u = (u + 1023) << 52;
    memcpy(&a, &u, sizeof a);
    return a;
}
