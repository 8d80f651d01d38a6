/* SPDX-License-Identifier: Apache-2.0 */
/* Heads: a step of a block whose matrices lie in two pieces each has the bits of the step of the whole block, and the
 * gradients of the heads are a part of the whole gradients. */
#include "train.h"

enum { N_IN = 64, N_OUT = 32 }; /* columns of the heads of gate and up, rows of that of down */

static struct swiglu_pool *pool;
static int open_pool(void **state) {
    (void)state;
    return swiglu_pool_create(3, &pool) != SWIGLU_OK;
}
static int close_pool(void **state) {
    (void)state;
    swiglu_pool_destroy(pool);
    return 0;
}

/* Cuts the first n columns (or rows) off m, into memory of their own. */
static struct swiglu_matrix cut(struct swiglu_matrix *m, size_t n, int rows) {
    const size_t bytes = float_bytes(m->dtype);
    struct swiglu_matrix head = *m;
    *(rows ? &head.rows : &head.cols) = n;
    head.ld_elems = head.in_out ? head.rows : head.cols;
    char *const data = malloc(head.rows * head.cols * bytes + 1);
    for (size_t o = 0; o < head.rows; o++)
        for (size_t i = 0; i < head.cols; i++) {
            const size_t from = m->in_out ? i * m->ld_elems + o : o * m->ld_elems + i;
            memcpy(data + weight_at(&head, o, i) * bytes, (const char *)m->data + from * bytes, bytes);
        }
    head.data = data;
    m->data = (const char *)m->data + n * (m->in_out == rows ? 1 : m->ld_elems) * bytes;
    *(rows ? &m->rows : &m->cols) -= n;
    return head;
}

static struct swiglu_desc cut_block(const struct swiglu_desc *whole, int in, int out) {
    struct swiglu_desc d = *whole;
    if (in && d.gate.data) d.gate_head = cut(&d.gate, N_IN, 0);
    if (in && d.up.data) d.up_head = cut(&d.up, N_IN, 0);
    if (out) d.down_head = cut(&d.down, N_OUT, 1);
    return d;
}

static void free_heads(const struct swiglu_desc *d) {
    free((void *)d->gate_head.data), free((void *)d->up_head.data), free((void *)d->down_head.data);
}

static void check_gradient(const struct swiglu_matrix *head, const struct swiglu_matrix *whole, const float *got,
                           const float *want, const char *what) {
    for (size_t o = 0; o < head->rows; o++)
        for (size_t i = 0; i < head->cols; i++)
            if (!same_float(got[weight_at(head, o, i)], want[weight_at(whole, o, i)]))
                fail_msg("%s: gradient [%zu, %zu] is %a instead of %a", what, o, i, (double)got[weight_at(head, o, i)],
                         (double)want[weight_at(whole, o, i)]);
}

static void check_step(const struct lesson *l, struct how how, int in, int out, const struct outcome *want, const char *what) {
    const struct swiglu_desc d = cut_block(&l->block.desc, in, out);
    const struct swiglu_matrix *const heads[] = {&d.gate_head, &d.up_head, &d.down_head};
    const struct swiglu_matrix *const whole[] = {&l->block.desc.gate, &l->block.desc.up, &l->block.desc.down};
    struct outcome o = new_outcome(&l->block.desc, l->m);
    struct swiglu_grads g = grads_of(&o);
    struct swiglu_rows *const rows[] = {&g.gate, &g.up, &g.down};
    for (int i = 0; i < 3; i++)
        if (!heads[i]->data) rows[i]->data = NULL;
    assert_int_equal(train_into(&d, how, l->m, l->x, l->dy, (struct swiglu_rows){o.part[Y], SWIGLU_F32, 0}, &g), SWIGLU_OK);
    for (int part = 0; part < N_PARTS; part++) {
        if (part < D_GATE || part > D_DOWN) {
            for (size_t i = 0; i < o.n[part]; i++)
                if (!same_float(o.part[part][i], want->part[part][i])) fail_msg("%s: %s [%zu]", what, part_name(part), i);
        } else if (heads[part - D_GATE]->data) {
            check_gradient(heads[part - D_GATE], whole[part - D_GATE], o.part[part], want->part[part], what);
        }
    }
    free(o.all);
    free_heads(&d);
}

static void pieces_have_the_bits_of_the_whole(void **state) {
    (void)state;
    static const size_t shapes[][4] = {{5, 64, 40, 32}, {513, 96, 530, 71}, {33, 200, 150, 33}, {2, 700, 9, 600}};
    static const int dtypes[] = {SWIGLU_F32, SWIGLU_BF16, SWIGLU_F16};
    const struct swiglu_runner runner = swiglu_pool_runner(pool);
    unsigned turn = 0;
    for (const uint64_t *level = each_level(); *level; level++)
        for (size_t i = 0; i < COUNT(shapes); i++)
            for (int layout = SWIGLU_SEPARATE; layout <= SWIGLU_UNGATED; layout++)
                for (int compute = SWIGLU_COMPUTE_F32; compute <= SWIGLU_COMPUTE_BF16; compute++, turn++) {
                    char what[120];
                    const struct how how = {compute, *level, turn % 2, turn % 3 ? &runner : NULL};
                    struct lesson l = new_lesson(new_block(shapes[i][1], shapes[i][2], shapes[i][3], layout, "silu",
                                                           dtypes[turn % 3], turn / 3 % 2, turn % 5 < 2, 300 + turn),
                                                 shapes[i][0], 1, turn);
                    struct outcome want = learn(&l, how);
                    snprintf(what, sizeof what, "shape %zu, layout %d, compute %d, level %d", i, layout, compute, (int)*level);
                    check_step(&l, how, 1, 1, &want, what);
                    check_step(&l, how, turn % 2, !(turn % 2), &want, what);
                    free(want.all);
                    free_lesson(&l);
                }
}

/* A head of another dtype than its matrix, as adapters in f32 beside weights in bf16. */
static void a_head_has_a_dtype_of_its_own(void **state) {
    (void)state;
    struct lesson l = new_lesson(new_block(96, 40, 64, SWIGLU_SEPARATE, "silu", SWIGLU_BF16, 0, 0, 400), 9, 1, 401);
    struct outcome want = learn(&l, (struct how){0}), o = new_outcome(&l.block.desc, l.m);
    struct swiglu_desc d = cut_block(&l.block.desc, 1, 1);
    struct swiglu_matrix *const heads[] = {&d.gate_head, &d.up_head, &d.down_head};
    float wide[3][40 * 64];
    for (int i = 0; i < 3; i++) {
        assert_int_equal(swiglu_decode(SWIGLU_BF16, heads[i]->data, heads[i]->rows * heads[i]->cols, wide[i]), SWIGLU_OK);
        free((void *)heads[i]->data);
        heads[i]->data = wide[i];
        heads[i]->dtype = SWIGLU_F32;
    }
    const struct swiglu_grads g = {.struct_size = sizeof g, .dx = {o.part[DX], SWIGLU_F32, 0}};
    assert_int_equal(train_into(&d, (struct how){0}, l.m, l.x, l.dy, (struct swiglu_rows){o.part[Y], SWIGLU_F32, 0}, &g),
                     SWIGLU_OK);
    assert_memory_equal(o.part[Y], want.part[Y], o.n[Y] * sizeof(float));
    assert_memory_equal(o.part[DX], want.part[DX], o.n[DX] * sizeof(float));
    free(want.all), free(o.all);
    free_lesson(&l);
}

static enum swiglu_status status_of(const struct swiglu_desc *d) {
    size_t work, saved;
    return swiglu_train_bytes(d, NULL, 4, 0, 1, &work, &saved);
}

#define REFUSED(status, change)                          \
    do {                                                 \
        struct swiglu_desc d = right;                    \
        change;                                          \
        assert_int_equal(status_of(&d), status);         \
    } while (0)

static void bad_heads_are_refused(void **state) {
    (void)state;
    static const float memory[128];
    struct block_data b = new_block(96, 40, 64, SWIGLU_SEPARATE, "silu", SWIGLU_F32, 0, 0, 410);
    const struct swiglu_desc right = cut_block(&b.desc, 1, 1);
    struct swiglu_block *block;
    struct swiglu_reference reference = {.struct_size = sizeof reference, .y = (double[4 * 64]){0}};
    assert_int_equal(status_of(&right), SWIGLU_OK);
    REFUSED(SWIGLU_E_SHAPE, (d.gate_head.cols = 48, d.up_head.cols = 48));
    REFUSED(SWIGLU_E_SHAPE, d.gate_head.cols = 32);
    REFUSED(SWIGLU_E_SHAPE, d.down_head.rows = 96);
    REFUSED(SWIGLU_E_SHAPE, d.gate.cols = 96);
    REFUSED(SWIGLU_E_SHAPE, d.gate_head.rows = 39);
    REFUSED(SWIGLU_E_SHAPE, d.up_head.ld_elems = 63);
    REFUSED(SWIGLU_E_ARGUMENT, d.down_head.data = NULL);
    REFUSED(SWIGLU_E_ARGUMENT, (d.up_head = d.gate_head = (struct swiglu_matrix){0}, d.gate.cols = d.up.cols = 96,
                                d.gate_head.data = memory));
    REFUSED(SWIGLU_E_UNSUPPORTED, d.up_head.dtype = SWIGLU_Q8_0);
    assert_int_equal(swiglu_block_create(&right, NULL, &block, NULL), SWIGLU_E_UNSUPPORTED);
    assert_int_equal(swiglu_reference_run(&right, 1, (struct swiglu_crows){memory, SWIGLU_F32, 0}, &reference, NULL),
                     SWIGLU_E_UNSUPPORTED);
    free_heads(&right);
    free_block(&b);
}

/* A matrix without a head beside one with has no gradient: it is frozen. */
static void what_has_no_head_has_no_gradient(void **state) {
    (void)state;
    struct lesson l = new_lesson(new_block(96, 40, 64, SWIGLU_SEPARATE, "silu", SWIGLU_F32, 0, 0, 420), 4, 1, 421);
    const struct swiglu_desc d = cut_block(&l.block.desc, 1, 0);
    struct outcome o = new_outcome(&l.block.desc, l.m);
    const struct swiglu_grads g = grads_of(&o);
    assert_int_equal(train_into(&d, (struct how){0}, l.m, l.x, l.dy, (struct swiglu_rows){o.part[Y], SWIGLU_F32, 0}, &g),
                     SWIGLU_E_ARGUMENT);
    free(o.all);
    free_heads(&d);
    free_lesson(&l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_have_the_bits_of_the_whole),
        cmocka_unit_test(a_head_has_a_dtype_of_its_own),
        cmocka_unit_test(bad_heads_are_refused),
        cmocka_unit_test(what_has_no_head_has_no_gradient),
    };
    return cmocka_run_group_tests(tests, open_pool, close_pool);
}
