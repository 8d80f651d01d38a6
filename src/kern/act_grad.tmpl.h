/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Derivatives of the activations of act.def: V act_grad_<name>(V a, const struct swiglu_act *p), from a itself and never
 * from a rounded result; 1 - s is exp(-x) / (1 + exp(-x)), never a subtraction. Limits at the infinities, NaN for NaN.
 * Error at most 4 ulp(max(|f'|, 1/8)).
 */
SW_ALWAYS_INLINE V act_nan_or(V a, V r) { return v_select(v_is_nan(a), a, r); }

SW_ALWAYS_INLINE V act_grad_identity(V a, const struct swiglu_act *p) { return (void)p, act_nan_or(a, v_set1(1.0f)); }

SW_ALWAYS_INLINE V act_grad_relu(V a, const struct swiglu_act *p) {
    (void)p;
    return act_nan_or(a, v_select(v_lt(v_set1(0.0f), a), v_set1(1.0f), v_set1(0.0f)));
}

SW_ALWAYS_INLINE V act_grad_relu2(V a, const struct swiglu_act *p) {
    const V r = act_relu(a, p);
    return v_add(r, r);
}

SW_ALWAYS_INLINE V act_grad_sigmoid(V a, const struct swiglu_act *p) { /* even: both ends fall to 0 */
    const V x = act_neg(act_abs(a));
    const act_core c = act_logistic_core(x, v_set1(0.0f));
    const V q = v_div(v_set1(1.0f), c.d), r = v_mul(v_mul(v_fma(c.t, c.s, c.s), q), q);
    (void)p;
    return act_nan_or(a, v_select(v_lt(x, v_set1(-88.3f)), v_set1(0.0f), r));
}

/* s(x) + alpha silu (1 - s(x)), x = alpha a. The second factor is 0 long before silu needs its bound of 128. The core is
 * shared with silu, compilers see that. */
SW_ALWAYS_INLINE V act_grad_silu_at(act_two x, V silu) {
    const act_core c = act_logistic_core(x.hi, x.lo);
    const V q = v_div(v_set1(1.0f), c.d);
    const V r = v_fma(v_min(v_set1(128.0f), silu), v_mul(v_fma(c.t, c.s, c.s), q), q);
    return v_select(v_lt(x.hi, v_set1(-88.3f)), v_set1(-0.0f), r);
}
SW_ALWAYS_INLINE V act_grad_silu(V a, const struct swiglu_act *p) {
    return act_grad_silu_at(act_scaled(a, p), v_mul(v_set1(p->alpha), act_silu(a, p)));
}
SW_ALWAYS_INLINE V act_grad_silu_one(V a, const struct swiglu_act *p) {
    return act_grad_silu_at((act_two){a, v_set1(0.0f)}, act_silu_one(a, p));
}

/* s(v) + a v' s(v) (1 - s(v)), v' = k0 + 3 k1 a^2 */
SW_ALWAYS_INLINE V act_grad_gelu_tanh(V a, const struct swiglu_act *p) {
    const V x = act_within_16(a);
    const act_two v = act_cubic(x);
    const act_core c = act_logistic_core(v.hi, v.lo);
    const V q = v_div(v_set1(1.0f), c.d), rest = v_mul(v_mul(v_fma(c.t, c.s, c.s), q), q);
    const V slope = v_fma(v_mul(x, x), v_set1(0x1.b6676cp-3f), v_set1(0x1.988454p+0f));
    (void)p;
    return act_nan_or(a, v_select(v_lt(v.hi, v_set1(-88.3f)), v_set1(-0.0f), v_fma(v_mul(x, slope), rest, q)));
}

/* w = Phi(-|a|) - |a| phi(a); the derivative is w below 0 and 1 - w above */
SW_ALWAYS_INLINE V act_grad_gelu_erf(V a, const struct swiglu_act *p) {
    const act_normal n = act_normal_tail(a);
    const VD phi = vd_mul(n.e, vd_set1(0x1.9884533d43651p-2)); /* 1 / sqrt(2 pi) */
    const VD w = vd_sub(n.tail, vd_mul(n.t, phi));
    const V above = vd_to(vd_sub(vd_set1(1.0), w));
    (void)p;
    return v_select(v_lt(a, v_set1(-14.0f)), v_set1(-0.0f), v_select(v_lt(a, v_set1(0.0f)), vd_to(w), above));
}

/* 2 p a + b above 0; below, n exp(a) + b - n where a <= e and b - n between e and 0 */
SW_ALWAYS_INLINE V act_grad_xielu(V a, const struct swiglu_act *p) {
    const VD n = vd_set1((double)p->param[1]), b = vd_set1((double)p->param[2]), rest = vd_sub(b, n);
    const VD above = vd_fma(vd_set1(2 * (double)p->param[0]), vd_from(a), b);
    const act_exp e = act_exp_double(vd_from(v_max(v_set1(-100.0f), v_min(v_set1(0.0f), a))));
    const V inner = vd_to(vd_fma(n, vd_fma(e.s, e.t, e.s), rest));
    const V below = v_select(v_lt(v_set1(p->param[3]), a), vd_to(rest), inner);
    return act_nan_or(a, v_select(v_lt(v_set1(0.0f), a), vd_to(above), below));
}

/* 1 - tanh^2 = 4 (m + 1) / (m + 2)^2 */
SW_ALWAYS_INLINE VD act_grad_cap_double(V a, float b) {
    const VD m = act_cap_expm1(a, b), d = vd_add(m, vd_set1(2.0));
    return vd_div(vd_mul(vd_set1(4.0), vd_add(m, vd_set1(1.0))), vd_mul(d, d));
}
SW_ALWAYS_INLINE V act_grad_situ(V a, const struct swiglu_act *p) {
    const VD e = act_exp_of_minus(a), d = vd_add(vd_set1(1.0), e);
    const VD falling = vd_div(vd_mul(act_cap_double(a, p->param[0]), e), vd_mul(d, d));
    const V r = vd_to(vd_add(vd_div(act_grad_cap_double(a, p->param[0]), d), falling));
    return v_select(v_lt(v_set1(0x1.fffffep127f), a), v_set1(0.0f), r); /* the cap's own argument ends at 20 b1 */
}
SW_ALWAYS_INLINE V act_grad_situ_up(V u, const struct swiglu_act *p) {
    const V r = vd_to(act_grad_cap_double(u, p->param[1]));
    return v_select(v_lt(v_set1(0x1.fffffep127f), act_abs(u)), v_set1(0.0f), r);
}
