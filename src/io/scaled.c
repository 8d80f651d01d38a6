/* SPDX-License-Identifier: Apache-2.0 */
#include "io/scaled.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/checked.h"
#include "dtype/dtype.h"
#include "io/st_type.h"

enum { WORD_BITS = 32 };

/* Memory for one stored row. */
struct scaled_row {
    const struct swiglu_scaled *q;
    const struct swiglu_catalog *catalog;
    struct swiglu_error *error;
    unsigned char *raw;      /* the stored numbers */
    unsigned char *packed;   /* scales and zeros as they are stored */
    float *scale, *zero;
    uint32_t *g_idx;         /* all of it, for rows that are outputs */
    size_t room;             /* values in scale and zero */
};

static const struct swiglu_tensor *scaled_tensor(const struct scaled_row *r, long tensor) { return &r->catalog->tensors[tensor]; }

static enum swiglu_status scaled_read_part(const struct scaled_row *r, long tensor, uint64_t byte, void *dst, size_t n) {
    const struct swiglu_tensor *t = scaled_tensor(r, tensor);
    return swiglu_file_read(&r->catalog->files[t->file], t->offset + byte, dst, n, r->error);
}

/* ---- values of the small types ---- */

static float scaled_e4m3(unsigned char b) {
    const int e = b >> 3 & 15, m = b & 7;
    const float v = (b & 0x7F) == 0x7F ? NAN : e ? ldexpf((float)(8 + m), e - 10) : ldexpf((float)m, -9);
    return b & 0x80 ? -v : v;
}

static float scaled_e5m2(unsigned char b) {
    const uint16_t half = (uint16_t)(b << 8); /* the upper byte of an f16 */
    float v;
    swiglu_dtype_find(SWIGLU_F16)->decode(&half, 1, &v);
    return v;
}

static float scaled_e8m0(unsigned char b) { return b == 255 ? NAN : ldexpf(1.0f, b - 127); }

/* n values of a tensor's type as f32; type and place were checked. */
static void scaled_convert(uint32_t type, const unsigned char *src, size_t n, float *dst) {
    if (swiglu_dtype_is_float((int)type)) {
        swiglu_dtype_find((int)type)->decode(src, n, dst);
        return;
    }
    for (size_t i = 0; i < n; i++)
        dst[i] = type == SWIGLU_ST_F8_E4M3   ? scaled_e4m3(src[i])
                 : type == SWIGLU_ST_F8_E5M2 ? scaled_e5m2(src[i])
                 : type == SWIGLU_ST_F8_E8M0 ? scaled_e8m0(src[i])
                 : type == SWIGLU_ST_I8      ? (float)(int8_t)src[i]
                                             : (float)src[i];
}

static size_t scaled_type_bytes(uint32_t type) { return swiglu_dtype_is_float((int)type) ? swiglu_float_bytes((int)type) : 1; }

/* Values [first, first + n) of row `row` of a tensor with `cols` values a row. */
static enum swiglu_status scaled_floats(const struct scaled_row *r, long tensor, uint64_t row, uint64_t cols, uint64_t first,
                                       size_t n, float *dst) {
    const uint32_t type = scaled_tensor(r, tensor)->type;
    const size_t bytes = scaled_type_bytes(type);
    TRY(scaled_read_part(r, tensor, (row * cols + first) * bytes, r->packed, n * bytes));
    scaled_convert(type, r->packed, n, dst);
    return SWIGLU_OK;
}

/* ---- a row of each kind ---- */

static uint32_t scaled_word(const unsigned char *words, uint64_t i) { return swiglu_le32((const char *)words + 4 * i); }

static uint32_t scaled_bits(uint32_t word, unsigned place, unsigned bits) {
    return bits == WORD_BITS ? word : word >> (place * bits) & ((1u << bits) - 1);
}

static enum swiglu_status scaled_row_grid(struct scaled_row *r, uint64_t row, uint64_t first, size_t n, float *dst) {
    const struct swiglu_scaled *q = r->q;
    const uint32_t type = scaled_tensor(r, q->weight)->type;
    const uint64_t g = first / q->col_group, n_g = (first + n - 1) / q->col_group - g + 1;
    TRY(scaled_read_part(r, q->weight, row * q->cols + first, r->raw, n));
    scaled_convert(type, r->raw, n, dst);
    TRY(scaled_floats(r, q->scale, row / q->row_group, q->n_groups, g, (size_t)n_g, r->scale));
    if (q->zero >= 0) TRY(scaled_floats(r, q->zero, row / q->row_group, q->n_groups, g, (size_t)n_g, r->zero));
    for (size_t i = 0; i < n; i++) {
        const size_t at = (size_t)((first + i) / q->col_group - g);
        dst[i] = (q->zero >= 0 ? dst[i] - r->zero[at] : dst[i]) * r->scale[at];
    }
    return SWIGLU_OK;
}

/* The group of input k. */
static enum swiglu_status scaled_group(const struct scaled_row *r, uint64_t k, uint64_t *group) {
    const struct swiglu_scaled *q = r->q;
    uint32_t at;
    *group = k / q->col_group;
    if (r->g_idx) {
        *group = r->g_idx[k];
    } else if (q->g_idx >= 0) {
        TRY(scaled_read_part(r, q->g_idx, 4 * k, &at, sizeof at));
        *group = at;
    }
    if (*group < q->n_groups) return SWIGLU_OK;
    const struct swiglu_tensor *t = scaled_tensor(r, q->g_idx);
    return swiglu_catalog_fail(r->catalog, t->file, r->error, SWIGLU_E_FORMAT, t->offset + 4 * k,
                               "tensor %.80s value %llu: group %llu: there are %llu",
                               swiglu_names_at(&r->catalog->names, (size_t)q->g_idx), (unsigned long long)k,
                               (unsigned long long)*group, (unsigned long long)q->n_groups);
}

static enum swiglu_status scaled_row_words(struct scaled_row *r, uint64_t row, uint64_t first, size_t n, float *dst) {
    const struct swiglu_scaled *q = r->q;
    const unsigned per_word = WORD_BITS / q->bits;
    const bool mlx = q->kind == SWIGLU_SCALED_MLX;
    const float middle = mlx ? 0 : (float)(1u << (q->bits - 1));
    const uint64_t word = first / per_word, n_words = (first + n - 1) / per_word - word + 1,
                   row_words = swiglu_ceil_div((size_t)q->cols, per_word);
    TRY(scaled_read_part(r, q->weight, 4 * (row * row_words + word), r->raw, (size_t)(4 * n_words)));
    TRY(scaled_floats(r, q->scale, row / q->row_group, q->n_groups, 0, (size_t)q->n_groups, r->scale));
    if (mlx) {
        TRY(scaled_floats(r, q->zero, row, q->n_groups, 0, (size_t)q->n_groups, r->zero));
    } else if (q->zero >= 0) { /* packed along the outputs */
        TRY(scaled_read_part(r, q->zero, 4 * (row / per_word * q->n_groups), r->packed, (size_t)(4 * q->n_groups)));
        for (uint64_t g = 0; g < q->n_groups; g++)
            r->zero[g] = (float)scaled_bits(scaled_word(r->packed, g), (unsigned)(row % per_word), q->bits) - middle;
    }
    for (size_t i = 0; i < n; i++) {
        const uint64_t k = first + i;
        uint64_t g;
        TRY(scaled_group(r, k, &g));
        const float v = (float)scaled_bits(scaled_word(r->raw, k / per_word - word), (unsigned)(k % per_word), q->bits) - middle;
        if (mlx) {
            dst[i] = v * r->scale[g];
            dst[i] += r->zero[g];
        } else {
            dst[i] = (q->zero >= 0 ? v - r->zero[g] : v) * r->scale[g];
        }
    }
    return SWIGLU_OK;
}

/* Output o of eight in a word of AWQ. */
static unsigned scaled_awq_place(uint64_t o) {
    static const unsigned char place[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    return place[o % 8];
}

/* Stored row k is an input: all outputs from first on. */
static enum swiglu_status scaled_row_by_input(struct scaled_row *r, uint64_t k, uint64_t first, size_t n, float *dst) {
    const struct swiglu_scaled *q = r->q;
    const bool awq = q->kind == SWIGLU_SCALED_AWQ;
    const unsigned per_word = WORD_BITS / q->bits;
    const uint64_t word = first / per_word, n_words = (first + n - 1) / per_word - word + 1, row_words = q->rows / per_word;
    uint64_t g;
    TRY(scaled_group(r, k, &g));
    TRY(scaled_floats(r, q->scale, g, q->rows, first, n, r->scale));
    TRY(scaled_read_part(r, q->zero, 4 * (g * row_words + word), r->packed, (size_t)(4 * n_words)));
    if (awq) {
        TRY(scaled_read_part(r, q->weight, 4 * (k * row_words + word), r->raw, (size_t)(4 * n_words)));
    } else {
        TRY(scaled_read_part(r, q->weight, 4 * (k / per_word * q->rows + first), r->raw, 4 * n));
    }
    for (size_t i = 0; i < n; i++) {
        const uint64_t o = first + i;
        const unsigned place = awq ? scaled_awq_place(o) : (unsigned)(k % per_word);
        const uint32_t v = scaled_bits(scaled_word(r->raw, awq ? o / per_word - word : i), place, q->bits);
        const unsigned zero = scaled_bits(scaled_word(r->packed, o / per_word - word),
                                          awq ? place : (unsigned)(o % per_word), q->bits) + q->zero_offset;
        dst[i] = (float)((int)v - (int)zero) * r->scale[i];
    }
    return SWIGLU_OK;
}

/* ---- any range ---- */

static enum swiglu_status scaled_open_row(struct scaled_row *r, uint64_t stored_cols) {
    const struct swiglu_scaled *q = r->q;
    struct swiglu_error *error = r->error;
    r->room = swiglu_max((size_t)stored_cols, (size_t)q->n_groups);
    r->raw = swiglu_alloc_array(r->room, sizeof(float));
    r->packed = swiglu_alloc_array(r->room, sizeof(float));
    r->scale = swiglu_alloc_array(r->room, sizeof *r->scale);
    r->zero = swiglu_alloc_array(r->room, sizeof *r->zero);
    const bool grouped = q->g_idx >= 0 && !swiglu_scaled_in_out(q);
    if (grouped) r->g_idx = swiglu_alloc_array((size_t)q->cols, sizeof *r->g_idx);
    REQUIRE(r->raw && r->packed && r->scale && r->zero && (r->g_idx || !grouped), SWIGLU_E_MEMORY,
            "out of memory for a row of %llu values", (unsigned long long)stored_cols);
    return grouped ? scaled_read_part(r, q->g_idx, 0, r->g_idx, (size_t)q->cols * sizeof *r->g_idx) : SWIGLU_OK;
}

static enum swiglu_status scaled_rows(struct scaled_row *r, uint64_t at, size_t n, float *dst) {
    const struct swiglu_scaled *q = r->q;
    const bool in_out = swiglu_scaled_in_out(q);
    const uint64_t cols = in_out ? q->rows : q->cols;
    TRY(scaled_open_row(r, cols));
    while (n) {
        const uint64_t row = at / cols, first = at % cols;
        const size_t now = cols - first < n ? (size_t)(cols - first) : n;
        TRY(in_out                              ? scaled_row_by_input(r, row, first, now, dst)
            : q->kind == SWIGLU_SCALED_GRID ? scaled_row_grid(r, row, first, now, dst)
                                            : scaled_row_words(r, row, first, now, dst));
        at += now, dst += now, n -= now;
    }
    return SWIGLU_OK;
}

enum swiglu_status swiglu_scaled_read(const struct swiglu_scaled *q, const struct swiglu_catalog *catalog, uint64_t byte,
                                     void *dst, size_t n_bytes, struct swiglu_error *error) {
    struct scaled_row r = {.q = q, .catalog = catalog, .error = error};
    const enum swiglu_status status = scaled_rows(&r, byte / sizeof(float), n_bytes / sizeof(float), dst);
    swiglu_free(r.raw);
    swiglu_free(r.packed);
    swiglu_free(r.scale);
    swiglu_free(r.zero);
    swiglu_free(r.g_idx);
    return status;
}
