/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bits of a training step: those of the plain loops of plain.h, at every level, on any number of threads, with either
 * policy; and those of one batch from micro-batches of whole chunks of tokens.
 */
#include "plain.h"

#include <pthread.h>

static struct swiglu_pool *pools[2]; /* of 2 and 3 threads */

static int open_pools(void **state) {
    (void)state;
    for (unsigned i = 0; i < COUNT(pools); i++)
        if (swiglu_pool_create(2 + i, &pools[i]) != SWIGLU_OK) return 1;
    return 0;
}
static int close_pools(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(pools); i++) swiglu_pool_destroy(pools[i]);
    return 0;
}

/* ---- every way of asking ---- */

static void check_y(const struct lesson *l, int compute, const struct outcome *o) {
    struct swiglu_block *block = prepare(&l->block.desc, compute, 0);
    float *y = malloc((o->n[Y] + 1) * sizeof *y);
    run_block(block, l->m, l->x, (struct swiglu_rows){y, SWIGLU_F32, 0}, NULL);
    assert_memory_equal(y, o->part[Y], o->n[Y] * sizeof *y); /* swiglu_forward */
    free(y);
    swiglu_block_destroy(block);
}

static void same_in_every_way(const struct lesson *l, int compute, const char *what) {
    struct outcome want = new_outcome(&l->block.desc, l->m);
    plain_step(l, compute, 0, &want);
    check_y(l, compute, &want);
    for (const uint64_t *level = each_level(); *level; level++)
        for (size_t n = 0; n <= COUNT(pools); n++) {
            const struct swiglu_runner runner = n ? swiglu_pool_runner(pools[n - 1]) : (struct swiglu_runner){NULL, NULL, 0};
            for (unsigned policy = SWIGLU_TRAIN_KEEP_X; policy <= SWIGLU_TRAIN_KEEP_GATE_UP; policy++) {
                char how[240];
                snprintf(how, sizeof how, "%s, compute %d, level %d, %zu threads, policy %u", what, compute, (int)*level,
                         n + 1, policy);
                struct outcome o = learn(l, (struct how){compute, *level, policy, n ? &runner : NULL});
                assert_same_outcome(&o, &want, how);
                free(o.all);
            }
        }
    free(want.all);
}

static void check_shape(size_t m, size_t d_in, size_t d_ff, size_t d_out) {
    static const char *const acts[] = {"silu", "gelu", "gpt_oss", "xielu", "step", "relu2", "gelu_tanh"};
    static const int dtypes[] = {SWIGLU_F32, SWIGLU_BF16, SWIGLU_F16};
    static size_t turn; /* every layout, activation, dtype and orientation takes its turn */
    for (int compute = SWIGLU_COMPUTE_F32; compute <= SWIGLU_COMPUTE_BF16; compute++, turn++) {
        char what[120];
        const int layout = (int)(turn % 5);
        struct lesson l = new_lesson(new_block(d_in, d_ff, d_out, layout, acts[turn % COUNT(acts)], dtypes[turn % 3],
                                               turn % 4 < 2, turn % 3 != 1, 100 + turn), m, 2, turn);
        snprintf(what, sizeof what, "m %zu, %zu -> %zu -> %zu, layout %d, %s", m, d_in, d_ff, d_out, layout,
                 acts[turn % COUNT(acts)]);
        same_in_every_way(&l, compute, what);
        free_lesson(&l);
    }
}

static const size_t edges[] = {1,  2,  3,   4,   5,   6,   7,   8,   9,   15,  16,  17,  31,   32,   33,
                               63, 64, 65, 127, 128, 129, 130, 255, 257, 511, 512, 513, 1023, 1024, 1025};

/* Sanitizers look at the same code with a tenth of the shapes. */
static const size_t stride = ADDRESS_SANITIZED || THREAD_SANITIZED ? 10 : 1;

static void edges_of_tokens(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(edges); i += stride) check_shape(edges[i], 19, 13, 11);
}
static void edges_of_hidden_units(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(edges); i += stride) check_shape(7, 9, edges[i], 5);
}
static void edges_of_inputs(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(edges); i += stride) check_shape(6, edges[i], 10, 3);
}
static void edges_of_outputs(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(edges); i += stride) check_shape(5, 3, 12, edges[i]);
}
static void several_edges_at_once(void **state) {
    (void)state;
    static const size_t shapes[][4] = {{513, 9, 514, 7}, {20, 17, 1030, 18}, {1030, 20, 130, 9}};
    for (size_t i = 0; i < COUNT(shapes); i += stride) check_shape(shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][3]);
}

/* Widths of nothing: sums are empty, bias gradients are not. */
static void widths_of_nothing(void **state) {
    (void)state;
    check_shape(5, 0, 7, 4);
    check_shape(5, 6, 0, 4);
    check_shape(5, 6, 7, 0);
}

/* ---- batches of batches ---- */

/* Tokens [first, end) of a lesson, gradients continued. */
static void learn_part(const struct lesson *l, struct how how, size_t first, size_t end, struct outcome *all) {
    struct lesson part = *l;
    struct outcome o = *all;
    part.m = end - first;
    part.x.data = l->x_data + first * l->block.desc.d_in, part.dy.data = l->dy_data + first * l->block.desc.d_out;
    o.part[Y] += first * l->block.desc.d_out, o.part[DX] += first * l->block.desc.d_in;
    if (first) how.flags |= SWIGLU_TRAIN_ACCUMULATE;
    train(&part.block.desc, how, part.m, part.x, part.dy, &o);
}

static void micro_batches_of_whole_chunks_are_one_batch(void **state) {
    (void)state;
    static const size_t cuts[][4] = {{0, 512, 1024, 1300}, {0, 1024, 1300, 1300}, {0, 512, 1300, 1300}};
    for (int compute = SWIGLU_COMPUTE_F32; compute <= SWIGLU_COMPUTE_BF16; compute++)
        for (int layout = SWIGLU_SEPARATE; layout <= SWIGLU_UNGATED; layout++)
            for (size_t i = 0; i < COUNT(cuts); i++) {
                const struct how how = {.compute = compute, .flags = i % 2};
                struct lesson l = new_lesson(new_block(21, 35, 10, layout, "silu", SWIGLU_F32, layout % 2, 1, 200), 1300, 1, 201);
                struct outcome whole = learn(&l, how), parts = new_outcome(&l.block.desc, l.m);
                for (size_t c = 0; c < 3; c++)
                    if (cuts[i][c] < cuts[i][c + 1]) learn_part(&l, how, cuts[i][c], cuts[i][c + 1], &parts);
                assert_same_outcome(&parts, &whole, "micro-batches");
                free(whole.all), free(parts.all);
                free_lesson(&l);
            }
}

static void accumulating_goes_on_from_what_is_there(void **state) {
    (void)state;
    for (const uint64_t *level = each_level(); *level; level++)
        for (int compute = SWIGLU_COMPUTE_F32; compute <= SWIGLU_COMPUTE_BF16; compute++)
            for (int layout = SWIGLU_SEPARATE; layout <= SWIGLU_UNGATED; layout++) {
                uint64_t seed = 210;
                struct lesson l = new_lesson(new_block(21, 33, 10, layout, "silu", SWIGLU_BF16, layout % 2, 0, 211), 515, 1, 212);
                struct outcome want = new_outcome(&l.block.desc, l.m), o = new_outcome(&l.block.desc, l.m);
                for (size_t i = 0; i < want.total; i++) want.all[i] = o.all[i] = next_normal(&seed);
                plain_step(&l, compute, 1, &want);
                train(&l.block.desc, (struct how){compute, *level, SWIGLU_TRAIN_ACCUMULATE, NULL}, l.m, l.x, l.dy, &o);
                assert_same_outcome(&o, &want, "accumulated");
                free(want.all), free(o.all);
                free_lesson(&l);
            }
}

/* C071: bf16 weights, gradients of 256 and of 1: their sum needs more than bf16 holds. */
static void gradients_of_bf16_weights_add_in_f32(void **state) {
    (void)state;
    const uint16_t one = 0x3F80;
    const float x = 1, dy[2] = {256, 1};
    struct swiglu_desc d;
    swiglu_desc_init(&d);
    d.d_in = d.d_ff = d.d_out = 1;
    assert_int_equal(swiglu_act_init(&d.act, "identity"), SWIGLU_OK);
    d.gate = d.up = d.down = (struct swiglu_matrix){.data = &one, .dtype = SWIGLU_BF16, .rows = 1, .cols = 1};
    struct outcome o = new_outcome(&d, 1);
    for (unsigned i = 0; i < 2; i++)
        train(&d, (struct how){.flags = i ? SWIGLU_TRAIN_ACCUMULATE : 0}, 1, (struct swiglu_crows){&x, SWIGLU_F32, 0},
              (struct swiglu_crows){&dy[i], SWIGLU_F32, 0}, &o);
    for (int part = D_GATE; part < N_PARTS; part++) assert_true(o.part[part][0] == 257);
    assert_true(o.part[DX][0] == 2); /* dx is not added to */
    free(o.all);
}

/* Gradients of one step as bf16, between untouched values, against those in f32. */
static void check_bf16_gradients(const struct lesson *l, struct how how, const struct outcome *want) {
    struct outcome o = new_outcome(&l->block.desc, l->m);
    struct swiglu_grads g = grads_of(&o);
    struct swiglu_rows *const rows[] = {&g.gate, &g.up, &g.down};
    how.flags |= SWIGLU_TRAIN_BF16_GRADIENTS;
    for (int i = 0; i < 3; i++) rows[i]->dtype = SWIGLU_BF16; /* the first half of the room for f32 */
    assert_int_equal(train_into(&l->block.desc, how, l->m, l->x, l->dy, (struct swiglu_rows){o.part[Y], SWIGLU_F32, 0}, &g),
                     SWIGLU_OK);
    for (int part = 0; part < N_PARTS; part++) {
        const int weight = part == D_GATE || part == D_UP || part == D_DOWN;
        if (!weight) assert_memory_equal(o.part[part], want->part[part], o.n[part] * sizeof(float));
        for (size_t i = 0; weight && i < o.n[part]; i++) {
            uint16_t got[2];
            memcpy(&got[0], (const char *)o.part[part] + 2 * i, 2);
            memcpy(&got[1], (const char *)o.part[part] + 2 * (o.n[part] + i), 2);
            if (got[0] != swiglu_bf16_store(want->part[part][i]) || got[1] != 0xFFFF)
                fail_msg("part %d value %zu of %zu rows: %04x, behind it %04x, f32 %a", part, i, l->m, got[0], got[1],
                         (double)want->part[part][i]);
        }
    }
    free(o.all);
}

static void bf16_gradients_are_f32_sums_rounded_once(void **state) {
    (void)state;
    static const size_t rows[] = {7, 512, 513, 1030};
    const struct swiglu_runner runner = swiglu_pool_runner(pools[0]);
    for (const uint64_t *level = each_level(); *level; level++)
        for (size_t i = 0; i < COUNT(rows); i += stride)
            for (int turn = 0; turn < 10; turn++) {
                const struct how how = {SWIGLU_COMPUTE_F32 + turn % 2, *level, (unsigned)turn / 2 % 2, turn % 3 ? &runner : NULL};
                struct lesson l = new_lesson(new_block(21, 35, 10, turn % 5, "silu", SWIGLU_BF16, turn / 5, 1, 230), rows[i], 1,
                                             231);
                struct outcome want = learn(&l, how);
                check_bf16_gradients(&l, how, &want);
                free(want.all);
                free_lesson(&l);
            }
}

/* ---- many threads of the caller ---- */

struct user { const struct lesson *l; const struct outcome *want; struct how how; int n_right; };

static void *use_description(void *arg) {
    struct user *u = arg;
    const struct lesson *l = u->l;
    struct outcome o = *u->want;
    float *all = malloc(o.total * sizeof *all), *at = all;
    for (int i = 0; i < N_PARTS; at += o.n[i++]) o.part[i] = at;
    const struct swiglu_grads grads = grads_of(&o);
    for (int i = 0; i < 10; i++) {
        memset(all, 0xFF, o.total * sizeof *all);
        const enum swiglu_status status = train_into(&l->block.desc, u->how, l->m, l->x, l->dy,
                                                     (struct swiglu_rows){o.part[Y], SWIGLU_F32, 0}, &grads);
        u->n_right += status == SWIGLU_OK && memcmp(all, u->want->all, o.total * sizeof *all) == 0;
    }
    free(all);
    return NULL;
}

static void one_description_serves_eight_threads(void **state) {
    (void)state;
    struct lesson l = new_lesson(new_block(40, 150, 36, SWIGLU_SEPARATE, "silu", SWIGLU_F32, 0, 1, 220), 60, 1, 221);
    struct outcome want = learn(&l, (struct how){.compute = SWIGLU_COMPUTE_F32});
    const struct swiglu_runner runner = swiglu_pool_runner(pools[1]); /* busy with one of them: the others run alone */
    struct user users[8];
    pthread_t threads[8];
    for (size_t i = 0; i < 8; i++) {
        users[i] = (struct user){&l, &want, {SWIGLU_COMPUTE_F32, 0, i % 2, i < 4 ? &runner : NULL}, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, use_description, &users[i]), 0);
    }
    for (size_t i = 0; i < 8; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(users[i].n_right, 10);
    }
    free(want.all);
    free_lesson(&l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(edges_of_tokens),
        cmocka_unit_test(edges_of_hidden_units),
        cmocka_unit_test(edges_of_inputs),
        cmocka_unit_test(edges_of_outputs),
        cmocka_unit_test(several_edges_at_once),
        cmocka_unit_test(widths_of_nothing),
        cmocka_unit_test(micro_batches_of_whole_chunks_are_one_batch),
        cmocka_unit_test(accumulating_goes_on_from_what_is_there),
        cmocka_unit_test(gradients_of_bf16_weights_add_in_f32),
        cmocka_unit_test(bf16_gradients_are_f32_sums_rounded_once),
        cmocka_unit_test(one_description_serves_eight_threads),
    };
    return cmocka_run_group_tests(tests, open_pools, close_pools);
}
