/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients against the double reference of grad_ref.h, which itself is held against central differences. */
#include "grad_ref.h"

/* ---- the judge itself ---- */

/* One coordinate of everything that a gradient is taken by, and what the reference says about it. */
static void differences_of(struct grad_ref *r, double *at, struct est gradient, const char *what) {
    const double step = 1e-5, before = *at;
    *at = before + step;
    const double above = ref_loss(r);
    *at = before - step;
    const double below = ref_loss(r);
    *at = before;
    /* third derivatives of order 10 times step^2, and 1e-16 of the loss over step */
    if (!(fabs((above - below) / (2 * step) - gradient.v) < 1e-8 * (1 + fabs(gradient.v))))
        fail_msg("%s: %.12g instead of %.12g", what, gradient.v, (above - below) / (2 * step));
}

static void check_differences(const struct lesson *l) {
    const struct swiglu_desc *d = &l->block.desc;
    struct grad_ref r = new_grad_ref(l, SWIGLU_COMPUTE_F32);
    for (size_t i = 0; i < l->m * d->d_in; i++) differences_of(&r, &r.x[i], r.part[DX][i], "dx");
    for (unsigned half = 0; half < r.n_halves; half++)
        for (size_t j = 0; j < d->d_ff; j++) {
            const int part = half_part(d, half);
            const size_t output = half_output(d, half, j);
            for (size_t i = 0; i < d->d_in; i++)
                differences_of(&r, &r.w[half][j * d->d_in + i],
                               r.part[part][weight_at(half_matrix(d, half), output, i)], part_name(part));
            differences_of(&r, &r.bias[half][j], r.part[part + D_GATE_BIAS - D_GATE][output], "db");
        }
    for (size_t o = 0; o < d->d_out; o++) {
        for (size_t j = 0; j < d->d_ff; j++)
            differences_of(&r, &r.down[o * d->d_ff + j], r.part[D_DOWN][weight_at(&d->down, o, j)], "dW down");
        differences_of(&r, &r.down_bias[o], r.part[D_DOWN_BIAS][o], "db down");
    }
    free_grad_ref(&r);
}

static void the_reference_agrees_with_central_differences(void **state) {
    (void)state;
    const char *name;
    for (size_t a = 0; (name = swiglu_act_name(a, NULL)); a++)
        for (int layout = SWIGLU_SEPARATE; layout <= SWIGLU_UNGATED; layout++) {
            /* x of 6 takes some of gate and up beyond the bounds of clamped sets */
            struct lesson l = new_lesson(new_block(5, 6, 4, layout, name, SWIGLU_F32, layout % 2, a % 2 == 0, 11 + a), 3,
                                         a % 3 ? 1 : 6, 12);
            check_differences(&l);
            free_lesson(&l);
        }
}

/* ---- f32 and bf16 against it ---- */

static double worst_ratio(const struct lesson *l, int compute, uint64_t level, const char *what) {
    int part = 0;
    struct outcome o = learn(l, (struct how){.compute = compute, .level = level});
    struct grad_ref r = new_grad_ref(l, compute);
    const double worst = worst_of(&o, &r, &part);
    if (!(worst <= 1)) fail_msg("%s, compute %d: %s is off by %g of its bound", what, compute, part_name(part), worst);
    free_grad_ref(&r);
    free(o.all);
    return worst;
}

static void every_activation_layout_dtype_and_compute_is_within_the_bound(void **state) {
    (void)state;
    static const int dtypes[] = {SWIGLU_F32, SWIGLU_F16, SWIGLU_BF16};
    const char *name;
    double worst = 0;
    for (size_t a = 0; (name = swiglu_act_name(a, NULL)); a++)
        for (int layout = SWIGLU_SEPARATE; layout <= SWIGLU_UNGATED; layout++)
            for (size_t t = 0; t < COUNT(dtypes); t++)
                for (int compute = SWIGLU_COMPUTE_F32; compute <= SWIGLU_COMPUTE_BF16; compute++) {
                    const int in_out = (int)(a + t) % 2, biased = (int)(a + (size_t)layout) % 2;
                    char what[80];
                    struct lesson l = new_lesson(new_block(33, 41, 19, layout, name, dtypes[t], in_out, biased, 22 + a), 5,
                                                 1 + 6 * (double)(a % 2), 23);
                    snprintf(what, sizeof what, "%s, layout %d, dtype %d", name, layout, dtypes[t]);
                    worst = fmax(worst, worst_ratio(&l, compute, 0, what));
                    free_lesson(&l);
                }
    print_message("worst |gradient - reference| / bound: %.3f\n", worst);
    assert_true(worst > 0.01); /* something was measured */
}

static void every_level_is_within_the_bound_at_depth(void **state) {
    (void)state;
    static const size_t shapes[][4] = {{530, 20, 9, 14}, {4, 1100, 30, 24}, {3, 24, 1130, 20}, {5, 20, 24, 1060}};
    for (const uint64_t *level = each_level(); *level; level++)
        for (size_t s = 0; s < COUNT(shapes); s++)
            for (int compute = SWIGLU_COMPUTE_F32; compute <= SWIGLU_COMPUTE_BF16; compute++) {
                const size_t *w = shapes[s];
                struct lesson l = new_lesson(new_block(w[1], w[2], w[3], SWIGLU_SEPARATE, s % 2 ? "gelu" : "silu",
                                                       SWIGLU_F32, 0, 1, 31), w[0], 1, 32);
                worst_ratio(&l, compute, *level, "at depth");
                free_lesson(&l);
            }
}

/* gate|up and down choose their compute apart, and dy enters dW down and dh in that of down. */
static void products_of_two_computes_are_within_the_bound(void **state) {
    (void)state;
    for (int down_is_bf16 = 0; down_is_bf16 < 2; down_is_bf16++) {
        uint64_t seed = 35;
        struct lesson l = new_lesson(new_block(33, 41, 19, SWIGLU_GATE_UP, "silu", down_is_bf16 ? SWIGLU_F32 : SWIGLU_BF16, 0,
                                               1, 33), 7, 1, 34);
        struct swiglu_desc *d = &l.block.desc;
        free(l.block.memory[2]);
        d->down.dtype = down_is_bf16 ? SWIGLU_BF16 : SWIGLU_F16;
        d->down.data = l.block.memory[2] = new_floats(d->down.dtype, 41 * 19, 0.15, &seed);
        for (const uint64_t *level = each_level(); *level; level++)
            worst_ratio(&l, SWIGLU_COMPUTE_AUTO, *level, "two computes");
        free_lesson(&l);
    }
}

/* A judge that accepts everything would pass the tests above: one lost element of dy, of x or of a weight is noticed. */
static void a_lost_value_is_noticed(void **state) {
    (void)state;
    for (int what = 0; what < 3; what++) {
        int part = 0;
        struct lesson l = new_lesson(new_block(24, 40, 24, SWIGLU_SEPARATE, "silu", SWIGLU_F32, 0, 1, 41), 20, 1, 42);
        struct grad_ref r = new_grad_ref(&l, SWIGLU_COMPUTE_F32);
        float *const lost[] = {&l.dy_data[100], &l.x_data[100], &((float *)l.block.memory[0])[100]};
        *lost[what] = 0;
        struct outcome o = learn(&l, (struct how){.compute = SWIGLU_COMPUTE_F32});
        assert_true(worst_of(&o, &r, &part) > 10);
        free(o.all);
        free_grad_ref(&r);
        free_lesson(&l);
    }
}

/* ---- the adjoint test ---- */

/* <dY, J v> = <J^T dY, v> for a direction v of x: J v by central differences of the double forward pass. */
static void the_adjoint_test_holds(void **state) {
    (void)state;
    const char *name;
    for (size_t a = 0; (name = swiglu_act_name(a, NULL)); a++) {
        enum { M = 6, D_IN = 20 };
        const double step = 1e-6;
        uint64_t seed = 51;
        struct lesson l = new_lesson(new_block(D_IN, 30, 12, SWIGLU_INTERLEAVED, name, SWIGLU_F32, 1, 1, 52 + a), M, 1, 53);
        struct outcome o = learn(&l, (struct how){.compute = SWIGLU_COMPUTE_F32});
        struct grad_ref r = new_grad_ref(&l, SWIGLU_COMPUTE_F32);
        double v[M * D_IN], inner = 0, bound = 0, loss[2];
        for (size_t i = 0; i < M * D_IN; i++) {
            v[i] = next_normal(&seed);
            inner += (double)o.part[DX][i] * v[i];
            bound += r.part[DX][i].e * fabs(v[i]);
        }
        for (int side = 0; side < 2; side++) {
            for (size_t i = 0; i < M * D_IN; i++) r.x[i] = (double)l.x_data[i] + (side ? step : -step) * v[i];
            loss[side] = ref_loss(&r);
        }
        const double forward_side = (loss[1] - loss[0]) / (2 * step);
        if (!(fabs(forward_side - inner) <= bound + 1e-8 * (1 + fabs(inner)))) /* no kink lies between the two sides */
            fail_msg("%s: <dY, J v> = %.9g, <J' dY, v> = %.9g", name, forward_side, inner);
        free(o.all);
        free_grad_ref(&r);
        free_lesson(&l);
    }
}

/* ---- known values ---- */

/* One token, widths of 1, unit weights: gate and up are the inputs themselves. */
struct single { struct swiglu_desc desc; float one, gate, up, x, dy; };

static void single_init(struct single *s, const char *act, float gate, float up) {
    *s = (struct single){.one = 1, .gate = gate, .up = up, .x = 1, .dy = 1};
    swiglu_desc_init(&s->desc);
    s->desc.d_in = s->desc.d_ff = s->desc.d_out = 1;
    assert_int_equal(swiglu_act_init(&s->desc.act, act), SWIGLU_OK);
    s->desc.gate = (struct swiglu_matrix){.data = &s->gate, .rows = 1, .cols = 1};
    s->desc.up = (struct swiglu_matrix){.data = &s->up, .rows = 1, .cols = 1};
    s->desc.down = (struct swiglu_matrix){.data = &s->one, .rows = 1, .cols = 1};
}

/* With x = 1 the gradients of the weights are those of gate and up. */
static void single_gradients(const struct single *s, uint64_t level, float *dg, float *du) {
    struct outcome o = new_outcome(&s->desc, 1);
    train(&s->desc, (struct how){.compute = SWIGLU_COMPUTE_F32, .level = level}, 1,
          (struct swiglu_crows){&s->x, SWIGLU_F32, 0}, (struct swiglu_crows){&s->dy, SWIGLU_F32, 0}, &o);
    *dg = o.part[D_GATE][0], *du = o.part[D_UP][0];
    assert_true(same_float(*dg, o.part[D_GATE_BIAS][0]) && same_float(*du, o.part[D_UP_BIAS][0]));
    free(o.all);
}

static void gate_and_up_come_under_their_own_names(void **state) { /* C070 */
    (void)state;
    for (const uint64_t *level = each_level(); *level; level++) {
        struct single s;
        float dg, du;
        single_init(&s, "silu", 1.5f, 2);
        single_gradients(&s, *level, &dg, &du);
        assert_true(fabs(dg - 2.08259) < 1e-5 && fabs(du - 1.22636) < 1e-5);
    }
}

/* On a clamp bound exactly the gradient passes; one step beyond it does not. */
static void on_a_bound_the_gradient_passes(void **state) { /* C022 */
    (void)state;
    static const struct { const char *act; float limit; } sets[] = {{"gpt_oss", 7}, {"minimax_m3", 7}, {"deepseek_v4", 10}};
    for (const uint64_t *level = each_level(); *level; level++)
        for (size_t i = 0; i < COUNT(sets); i++) {
            const float limit = sets[i].limit, beyond = nextafterf(limit, 100);
            struct single s;
            float dg, du;
            single_init(&s, sets[i].act, limit, limit);
            const double up = limit + s.desc.act.up_offset;
            single_gradients(&s, *level, &dg, &du);
            assert_true(fabs(dg - up * slope_of(&s.desc.act, limit)) < 1e-5);
            assert_true(fabs(du - swiglu_ref_act(&s.desc.act, limit)) < 1e-5);
            single_init(&s, sets[i].act, beyond, beyond);
            single_gradients(&s, *level, &dg, &du);
            assert_true(dg == 0 && du == 0);
            single_init(&s, sets[i].act, -beyond, -limit); /* no lower bound on the gate */
            single_gradients(&s, *level, &dg, &du);
            assert_true(dg != 0 && du != 0);
            single_init(&s, sets[i].act, 1, -beyond);
            single_gradients(&s, *level, &dg, &du);
            assert_true(dg != 0 && du == 0);
        }
}

/* clamp_after judges act(gate): with the identity the bound can be met exactly. */
static void a_clamp_after_the_activation_judges_its_value(void **state) {
    (void)state;
    for (const uint64_t *level = each_level(); *level; level++) {
        struct single s;
        float dg, du;
        single_init(&s, "step", 7, 7);
        s.desc.act.kind = SWIGLU_ACT_IDENTITY;
        single_gradients(&s, *level, &dg, &du);
        assert_true(dg == 7 && du == 7);
        s.gate = nextafterf(7, 8), s.up = 3;
        single_gradients(&s, *level, &dg, &du);
        assert_true(dg == 0 && du == 7);
        single_init(&s, "step", 7, 3); /* silu(7) = 6.99 is below 7 */
        single_gradients(&s, *level, &dg, &du);
        assert_true(fabs(dg - 3 * slope_of(&s.desc.act, 7)) < 1e-5);
        s.gate = 7.01f; /* silu(7.01) = 7.0037 */
        single_gradients(&s, *level, &dg, &du);
        assert_true(dg == 0 && du == 7);
    }
}

/* Bias gradients are sums over tokens, whatever lay in memory before. train.h fills workspace and results with NaN. */
static void bias_gradients_are_reduced(void **state) { /* C068 */
    (void)state;
    enum { M = 4, W = 8 };
    struct lesson l = new_lesson(new_block(W, 12, W, SWIGLU_SEPARATE, "silu", SWIGLU_F32, 0, 1, 61), M, 1, 62);
    struct outcome o = learn(&l, (struct how){.compute = SWIGLU_COMPUTE_F32});
    for (size_t i = 0; i < o.total; i++) assert_true(isfinite(o.all[i]));
    for (size_t i = 0; i < W; i++) {
        float sum = 0;
        for (size_t t = 0; t < M; t++) sum += l.dy_data[t * W + i];
        assert_true(same_float(o.part[D_DOWN_BIAS][i], sum));
    }
    for (int half = 0; half < 2; half++)
        for (size_t j = 0; j < 12; j++) { /* the gradients of single tokens add up */
            float sum = 0;
            for (size_t t = 0; t < M; t++) {
                struct lesson one = l;
                one.m = 1;
                one.x.data = l.x_data + t * W, one.dy.data = l.dy_data + t * W;
                struct outcome p = learn(&one, (struct how){.compute = SWIGLU_COMPUTE_F32});
                sum += p.part[D_GATE_BIAS + half][j];
                free(p.all);
            }
            assert_true(same_float(o.part[D_GATE_BIAS + half][j], sum));
        }
    free(o.all);
    free_lesson(&l);
}

/* ---- values that are not finite ---- */

static void a_bad_token_poisons_its_own_row_of_dx(void **state) {
    (void)state;
    enum { M = 9, D_IN = 17 };
    struct lesson l = new_lesson(new_block(D_IN, 20, 13, SWIGLU_SEPARATE, "silu", SWIGLU_F32, 0, 1, 71), M, 1, 72);
    const struct how how = {.compute = SWIGLU_COMPUTE_F32};
    struct outcome good = learn(&l, how);
    for (int in_dy = 0; in_dy < 2; in_dy++) {
        float *const bad = in_dy ? &l.dy_data[4 * 13 + 3] : &l.x_data[4 * D_IN + 3], before = *bad;
        *bad = swiglu_f32_from_bits(0xFFA12345); /* a NaN with a sign and a payload */
        for (const uint64_t *level = each_level(); *level; level++)
            for (int compute = SWIGLU_COMPUTE_F32; compute <= SWIGLU_COMPUTE_BF16; compute++) {
                struct outcome o = learn(&l, (struct how){.compute = compute, .level = *level});
                for (size_t i = 0; i < M * D_IN; i++) {
                    if (i / D_IN == 4) assert_int_equal(swiglu_f32_bits(o.part[DX][i]), 0x7FC00000);
                    else if (compute == SWIGLU_COMPUTE_F32) assert_true(same_float(o.part[DX][i], good.part[DX][i]));
                    else assert_true(isfinite(o.part[DX][i]));
                }
                for (int part = D_GATE; part < D_DOWN_BIAS; part++) /* every token is summed: NaN, and the canonical one */
                    for (size_t i = 0; i < o.n[part]; i++)
                        if (isnan(o.part[part][i])) assert_int_equal(swiglu_f32_bits(o.part[part][i]), 0x7FC00000);
                assert_true(isnan(o.part[D_GATE][0]) && isnan(o.part[D_UP_BIAS][0]));
                assert_true(isnan(o.part[D_DOWN][3 * 20]) && isnan(o.part[D_DOWN_BIAS][3]) == in_dy);
                free(o.all);
            }
        *bad = before;
    }
    free(good.all);
    free_lesson(&l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_reference_agrees_with_central_differences),
        cmocka_unit_test(every_activation_layout_dtype_and_compute_is_within_the_bound),
        cmocka_unit_test(every_level_is_within_the_bound_at_depth),
        cmocka_unit_test(products_of_two_computes_are_within_the_bound),
        cmocka_unit_test(a_lost_value_is_noticed),
        cmocka_unit_test(the_adjoint_test_holds),
        cmocka_unit_test(gate_and_up_come_under_their_own_names),
        cmocka_unit_test(on_a_bound_the_gradient_passes),
        cmocka_unit_test(a_clamp_after_the_activation_judges_its_value),
        cmocka_unit_test(bias_gradients_are_reduced),
        cmocka_unit_test(a_bad_token_poisons_its_own_row_of_dx),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
