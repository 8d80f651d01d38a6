/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The activations of act.def: V act_<name>(V a, const struct swiglu_act *p), in the primitives of the vec_*.h included
 * before. Only additions, multiplications, fused multiply-adds, divisions, comparisons and bit operations: the bits are
 * those of the generic level everywhere. NaN in gives NaN out, infinities give the limits (docs/numerics.md).
 *
 * silu, sigmoid and gelu_tanh share a logistic core in f32 whose argument is a sum of two floats: at most 2 ULP where
 * |result| >= 2^-100. The others work in double and round once. test/unit/test_activation.c measures all.
 */

/* exp(r) = 1 + r + r^2 (c4 + r (c3 + ...)): minimax on |r| <= ln(2)/2, relative error below 2^-26 */
#define EXP_C0 1.381453825e-03f
#define EXP_C1 8.368745446e-03f
#define EXP_C2 4.166838899e-02f
#define EXP_C3 1.666652113e-01f
#define EXP_C4 4.999999404e-01f
#define LN2_HI 0.693359375f     /* 9 bits: its product with n is exact */
#define LN2_LO (-2.12194440e-4f) /* ln 2 - LN2_HI */
#define LOG2_E 1.44269504088896341f

/* 1 / d = 1 / (1 + exp(-(hi + lo))) and exp(-(hi + lo)) = s + s t, s a power of two. hi < -88.3 is left to the callers.
 * With s = 2^n exact and t = exp(r) - 1 the denominator is (1 + s) + t s, 1 + s as an exact sum of two floats: it is
 * rounded once, where 1 + exp rounds twice. That is 1.73 instead of 2.19 ULP (silu). */
typedef struct { V s, t, d; } act_core;
SW_ALWAYS_INLINE act_core act_logistic_core(V hi, V lo) {
    /* NaN becomes 88.3 here, so that a conversion to int never sees it: callers bring it back through a numerator */
    const V x = v_max(v_min(v_sub(v_set1(-0.0f), hi), v_set1(88.3f)), v_set1(-87.0f));
    const V n = v_rint(v_mul(x, v_set1(LOG2_E)));
    const V r = v_sub(v_fnma(n, v_set1(LN2_HI), x), v_fma(n, v_set1(LN2_LO), lo));
    V p = v_set1(EXP_C0);
    p = v_fma(p, r, v_set1(EXP_C1));
    p = v_fma(p, r, v_set1(EXP_C2));
    p = v_fma(p, r, v_set1(EXP_C3));
    p = v_fma(p, r, v_set1(EXP_C4));
    const V t = v_fma(v_mul(r, r), p, r);
    const V s = v_from_bits(vi_shl(vi_add(v_to_int(n), vi_set1(127)), 23));
    const V one = v_set1(1.0f), big = v_max(s, one), small = v_min(s, one), sum = v_add(big, small);
    return (act_core){s, t, v_add(sum, v_fma(t, s, v_sub(small, v_sub(sum, big))))};
}

/* top / (1 + exp(-(hi + lo))), and `low` where hi < -88.3 (there |result| < 2^-100 for every caller) */
SW_ALWAYS_INLINE V act_logistic(V top, V hi, V lo, V low) {
    return v_div(v_select(v_lt(hi, v_set1(-88.3f)), low, top), act_logistic_core(hi, lo).d);
}

SW_ALWAYS_INLINE V act_identity(V a, const struct swiglu_act *p) { return (void)p, a; }

/* 0 > a ? 0 : a, so that -0 stays -0 and NaN stays NaN */
SW_ALWAYS_INLINE V act_relu(V a, const struct swiglu_act *p) { return (void)p, v_max(v_set1(0.0f), a); }

SW_ALWAYS_INLINE V act_relu2(V a, const struct swiglu_act *p) {
    const V r = act_relu(a, p);
    return v_mul(r, r);
}

SW_ALWAYS_INLINE V act_sigmoid(V a, const struct swiglu_act *p) {
    (void)p;
    return act_logistic(v_select(v_is_nan(a), a, v_set1(1.0f)), a, v_set1(0.0f), v_set1(0.0f));
}

SW_ALWAYS_INLINE V act_abs(V a) { return v_from_bits(vi_and(v_bits(a), vi_set1(0x7FFFFFFF))); }
SW_ALWAYS_INLINE V act_neg(V a) { return v_sub(v_set1(-0.0f), a); }
SW_ALWAYS_INLINE V act_signed_zero(V a) { return v_from_bits(vi_and(v_bits(a), vi_set1((int)0x80000000))); }

/* An argument of the logistic core as a sum of two floats. */
typedef struct { V hi, lo; } act_two;

/* alpha a. Where hi is large lo cannot matter, and could be infinite. */
SW_ALWAYS_INLINE act_two act_scaled(V a, const struct swiglu_act *p) {
    const V alpha = v_set1(p->alpha), hi = v_mul(alpha, a), lo = v_fma(alpha, a, act_neg(hi));
    return (act_two){hi, v_select(v_lt(act_abs(hi), v_set1(128.0f)), lo, v_set1(0.0f))};
}

SW_ALWAYS_INLINE V act_silu(V a, const struct swiglu_act *p) {
    const act_two x = act_scaled(a, p);
    return act_logistic(a, x.hi, x.lo, act_signed_zero(a));
}

/* alpha = 1, the same bits for less */
SW_ALWAYS_INLINE V act_silu_one(V a, const struct swiglu_act *p) {
    (void)p;
    return act_logistic(a, a, v_set1(0.0f), act_signed_zero(a));
}

/* a / (1 + exp(-v)), v = 2 sqrt(2/pi) (a + 0.044715 a^3) = a (k0 + k1 a^2), with v as a sum of two floats: a plain f32
 * argument would cost up to 105 ULP in the tail. Beyond +-16 the result is a or below 2^-100. */
SW_ALWAYS_INLINE V act_within_16(V a) { return v_max(v_min(a, v_set1(16.0f)), v_set1(-16.0f)); }
SW_ALWAYS_INLINE act_two act_cubic(V x) {
    const V k0_hi = v_set1(0x1.988454p+0f), k0_lo = v_set1(-0x1.857936p-25f); /* 2 sqrt(2/pi) */
    const V k1_hi = v_set1(0x1.2444f2p-4f), k1_lo = v_set1(0x1.49b16ap-29f);  /* 0.044715 k0 */
    const V q = v_mul(x, x), q_lo = v_fma(x, x, act_neg(q));
    const V c = v_mul(k1_hi, q), c_lo = v_fma(k1_hi, q, act_neg(c));
    const V s = v_add(k0_hi, c), b = v_sub(s, k0_hi);
    const V e = v_add(v_sub(k0_hi, v_sub(s, b)), v_sub(c, b)); /* exact: s + e = k0_hi + c */
    const V s_lo = v_add(v_add(e, k0_lo), v_add(c_lo, v_fma(k1_hi, q_lo, v_mul(k1_lo, q))));
    const V hi = v_mul(x, s);
    return (act_two){hi, v_fma(x, s_lo, v_fma(x, s, act_neg(hi)))};
}

SW_ALWAYS_INLINE V act_gelu_tanh(V a, const struct swiglu_act *p) {
    const act_two v = act_cubic(act_within_16(a));
    (void)p;
    return act_logistic(a, v.hi, v.lo, act_signed_zero(a));
}

/* exp(x) - 1 as (s - 1) + s t, and s (1 + t) = exp(x), in double for |x| <= 700: Taylor to degree 9 on |r| <= ln(2)/2,
 * relative error below 2^-35 */
typedef struct { VD s, t; } act_exp;
SW_ALWAYS_INLINE act_exp act_exp_double(VD x) {
    const VD magic = vd_set1(0x1.8p52); /* n + magic has n in its low bits */
    const VD nm = vd_fma(x, vd_set1(0x1.71547652b82fep+0), magic), n = vd_sub(nm, magic);
    const VD r = vd_fma(n, vd_set1(-0x1.abc9e3b39803fp-56), vd_fma(n, vd_set1(-0x1.62e42fefa39efp-1), x));
    VD p = vd_set1(1.0 / 362880);
    p = vd_fma(p, r, vd_set1(1.0 / 40320));
    p = vd_fma(p, r, vd_set1(1.0 / 5040));
    p = vd_fma(p, r, vd_set1(1.0 / 720));
    p = vd_fma(p, r, vd_set1(1.0 / 120));
    p = vd_fma(p, r, vd_set1(1.0 / 24));
    p = vd_fma(p, r, vd_set1(1.0 / 6));
    p = vd_fma(p, r, vd_set1(0.5));
    return (act_exp){vd_exp2_magic(nm), vd_fma(vd_mul(r, r), p, r)};
}
SW_ALWAYS_INLINE VD act_expm1_double(VD x) {
    const act_exp e = act_exp_double(x);
    return vd_fma(e.s, e.t, vd_sub(e.s, vd_set1(1.0)));
}

/* a Phi(a), from the lower tail q = Phi(-|a|) = exp(-a^2/2) R(|a|): 1 + erf cancels below -5, this does not.
 * R(t) = erfcx(t / sqrt 2) / 2 as a polynomial in z = 1 / (1 + t/4) on 0..14, minimax, relative error below 2^-32. */
typedef struct { VD t, tail, e; } act_normal; /* |a| <= 14, Phi(-|a|), exp(-a^2/2) */
SW_ALWAYS_INLINE act_normal act_normal_tail(V a) {
    static const double c[12] = {-0x1.0955171a7310fp-6, 0x1.da0c2b284bacep-4, -0x1.52cb24a247a0cp-2, 0x1.e45e410c87261p-2,
                                 -0x1.97e2d65509ea6p-2, 0x1.3793575eaf34ep-2, -0x1.99934d525c0d7p-5, 0x1.da32eafe3d490p-4,
                                 0x1.60f32a8bf3b6fp-4,  0x1.9cade0ab63cacp-4, 0x1.982d252966f2fp-4, 0x1.9810631cc42a3p-19};
    const VD t = vd_from(v_min(v_set1(14.0f), act_abs(a)));
    const VD z = vd_div(vd_set1(1.0), vd_fma(t, vd_set1(0.25), vd_set1(1.0)));
    VD r = vd_set1(c[0]);
    SW_UNROLL for (int i = 1; i < 12; i++) r = vd_fma(r, z, vd_set1(c[i]));
    const act_exp x = act_exp_double(vd_mul(vd_mul(t, t), vd_set1(-0.5)));
    const VD e = vd_fma(x.s, x.t, x.s);
    return (act_normal){t, vd_mul(r, e), e};
}

SW_ALWAYS_INLINE V act_gelu_erf(V a, const struct swiglu_act *p) {
    const act_normal n = act_normal_tail(a);
    const VD part = vd_mul(n.t, n.tail); /* |a| Phi(-|a|) */
    const V below = act_neg(vd_to(part)), above = vd_to(vd_sub(vd_from(a), part));
    (void)p;
    return v_select(v_lt(a, v_set1(-14.0f)), v_set1(-0.0f), v_select(v_lt(a, v_set1(0.0f)), below, above));
}

/* param: p, n, b, e. Written as n expm1(min(a, e)) + (b - n) a, which has the right limit at -Inf. */
SW_ALWAYS_INLINE V act_xielu(V a, const struct swiglu_act *p) {
    const VD x = vd_from(a), b = vd_set1((double)p->param[2]), n = vd_set1((double)p->param[1]);
    const VD above = vd_fma(vd_mul(vd_set1((double)p->param[0]), x), x, vd_mul(b, x));
    const VD m = act_expm1_double(vd_from(v_max(v_set1(-100.0f), v_min(v_set1(p->param[3]), a))));
    const VD bent = vd_mul(n, m); /* without a rest no 0 x Inf */
    const VD below = p->param[1] == p->param[2] ? bent : vd_fma(vd_sub(b, n), x, bent);
    return v_select(v_lt(v_set1(0.0f), a), vd_to(above), vd_to(below));
}

/* b tanh(a / b) = b m / (m + 2), m = expm1(2 a / b); beyond |a / b| = 20 that is +-b to the last bit */
SW_ALWAYS_INLINE VD act_cap_expm1(V a, float b) { /* m */
    const V edge = v_set1(20.0f * b);
    const VD y = vd_div(vd_from(v_max(act_neg(edge), v_min(edge, a))), vd_set1((double)b));
    return act_expm1_double(vd_add(y, y));
}
SW_ALWAYS_INLINE VD act_cap_double(V a, float b) {
    const VD m = act_cap_expm1(a, b);
    return vd_div(vd_mul(vd_set1((double)b), m), vd_add(m, vd_set1(2.0)));
}

/* param: b1, b2. The gate side; act_situ_up is what becomes of up. */
SW_ALWAYS_INLINE VD act_exp_of_minus(V a) { /* exp(-a), |a| up to 110: beyond that the logistic is 1 or rounds to 0 */
    const act_exp e = act_exp_double(vd_from(v_max(v_set1(-110.0f), v_min(v_set1(110.0f), act_neg(a)))));
    return vd_fma(e.s, e.t, e.s);
}
SW_ALWAYS_INLINE V act_situ(V a, const struct swiglu_act *p) {
    return vd_to(vd_div(act_cap_double(a, p->param[0]), vd_add(vd_set1(1.0), act_exp_of_minus(a))));
}
SW_ALWAYS_INLINE V act_situ_up(V u, const struct swiglu_act *p) { return vd_to(act_cap_double(u, p->param[1])); }

#include "kern/act_grad.tmpl.h"

#undef EXP_C0
#undef EXP_C1
#undef EXP_C2
#undef EXP_C3
#undef EXP_C4
#undef LN2_HI
#undef LN2_LO
#undef LOG2_E
