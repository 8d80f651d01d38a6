/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work is cut into pieces: a group of panels with all depths, or (stored row = depth) a range of depths with all panels. A
 * piece of a matrix that can be addressed as it is goes straight to the kernels; others are read into a buffer of the thread
 * first, several stored rows a read, and block formats are decoded there, a range of depths that stays in L2 at a time.
 */
#include "ffn/pack.h"

#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "dtype/dtype.h"
#include "ffn/schedule.h"
#include "ffn/view.h"
#include "kern/lane.h"

enum {
    DEPTHS = 64,                /* of an [in, out] matrix per piece */
    DECODED = SWIGLU_CHUNK,     /* depths decoded at a time: whole blocks of every format */
    PIECE_BYTES = 512 << 10     /* of a matrix, about: a piece */
};

/* One matrix of a product: half `half` of packing `p`. */
struct source_part {
    const struct swiglu_packing *p;
    int half;
    size_t first, n; /* its pieces */
    size_t per_piece; /* panels, or depths */
};

struct failure {
    size_t piece;
    enum swiglu_status status;
    struct swiglu_error error;
};

struct job {
    const struct swiglu_kern *kern;
    struct source_part part[4]; /* the matrices of at most two products */
    size_t n_parts;
    const struct swiglu_options *options;
    uint64_t total;
    const void *caller; /* marks the calling thread */
    char *buffers;
    size_t raw_bytes, buffer_bytes; /* of a thread: what is read, then what is decoded */
    struct failure *failures;       /* of each thread */
    atomic_bool failed;
    _Atomic uint64_t done;  /* bytes */
    uint64_t reported;
};

static const struct swiglu_half *half_of(const struct source_part *s) { return &s->p->half[s->half]; }

static size_t stored_bytes(const struct swiglu_matrix *m) {
    return m->data ? 0 : swiglu_matrix_row_bytes(m);
}

/* Rows [row, row + n) of a matrix, stride rows apart, where they lie or read into buffer. Sets the bytes between them. */
static enum swiglu_status find_rows(const struct swiglu_matrix *m, size_t row, size_t stride, size_t n, char *buffer,
                                    const char **at, size_t *ld, struct swiglu_error *error) {
    const size_t bytes = swiglu_matrix_row_bytes(m), apart = stride * swiglu_matrix_ld_bytes(m);
    const uint64_t start = m->start + (uint64_t)row * swiglu_matrix_ld_bytes(m);
    if (m->data) {
        *at = (const char *)m->data + start, *ld = apart;
        return SWIGLU_OK;
    }
    *at = buffer, *ld = bytes;
    if (apart == bytes) return m->read(m->ctx, start, buffer, n * bytes, error);
    for (size_t i = 0; i < n; i++) TRY(m->read(m->ctx, start + i * apart, buffer + i * bytes, bytes, error));
    return SWIGLU_OK;
}

/* Rows are outputs: the units of one panel. */
static enum swiglu_status pack_panel(const struct job *job, const struct source_part *s, size_t panel, char *buffer,
                                     struct swiglu_error *error) {
    const struct swiglu_product *p = s->p->product;
    const struct swiglu_half *half = half_of(s);
    const struct swiglu_dtype_row *type = swiglu_dtype_find(half->matrix->dtype);
    const int form = p->path->form;
    const size_t unit = panel * p->units_per_panel, n = swiglu_min(p->units_per_panel, p->n_units - unit);
    const size_t lanes = 2 * (size_t)job->kern->vl;
    char *const dst = p->data + panel * p->panel_bytes + (size_t)s->half * p->units_per_panel * swiglu_forms[form].lane_bytes;
    float *const decoded = (float *)(buffer + job->raw_bytes);
    const char *at;
    size_t ld;
    TRY(find_rows(half->matrix, half->first + unit * half->stride, half->stride, n, buffer, &at, &ld, error));
    if (swiglu_dtype_is_float(half->matrix->dtype)) {
        const struct swiglu_view v = {.main = {at, half->matrix->dtype, ld / type->block_bytes, 1}};
        swiglu_view_pack(job->kern, v, 0, n, 0, p->k, form, dst);
        return SWIGLU_OK;
    }
    if (swiglu_lane_dtype(form) >= 0) { /* the file's own bits */
        for (size_t i = 0; i < n; i++)
            swiglu_lane_pack(job->kern, form, at + i * ld, p->k / type->block_elems, (size_t)s->half * p->units_per_panel + i,
                             p->data + panel * p->panel_bytes);
        return SWIGLU_OK;
    }
    for (size_t k = 0; k < p->k; k += DECODED) {
        const size_t n_k = swiglu_min(p->k - k, DECODED);
        for (size_t i = 0; i < n; i++)
            type->decode(at + i * ld + k / type->block_elems * type->block_bytes, n_k / type->block_elems, decoded + i * DECODED);
        const struct swiglu_view v = {.main = {(const char *)decoded, SWIGLU_F32, DECODED, 1}};
        swiglu_view_pack(job->kern, v, 0, n, 0, n_k, form, dst + swiglu_form_bytes(form, lanes, k));
    }
    return SWIGLU_OK;
}

/* Rows are depths: a range of them for all panels. */
static enum swiglu_status pack_depths(const struct job *job, const struct source_part *s, size_t k, size_t n_k, char *buffer,
                                      struct swiglu_error *error) {
    const struct swiglu_product *p = s->p->product;
    const struct swiglu_half *half = half_of(s);
    const size_t bytes = swiglu_float_bytes(half->matrix->dtype), lanes = 2 * (size_t)job->kern->vl;
    const int form = p->path->form;
    const char *at;
    size_t ld;
    TRY(find_rows(half->matrix, k, 1, n_k, buffer, &at, &ld, error));
    const struct swiglu_view v = {.main = {at + half->first * bytes, half->matrix->dtype, half->stride, ld / bytes}};
    const size_t half_bytes = p->units_per_panel * swiglu_forms[form].lane_bytes;
    char *dst = p->data + swiglu_form_bytes(form, lanes, k) + (size_t)s->half * half_bytes;
    for (size_t unit = 0; unit < p->n_units; unit += p->units_per_panel, dst += p->panel_bytes)
        swiglu_view_pack(job->kern, v, unit, swiglu_min(p->units_per_panel, p->n_units - unit), 0, n_k, form, dst);
    return SWIGLU_OK;
}

/* Piece i of a part; the bytes of the file that it took are added to *bytes. */
static enum swiglu_status pack_piece(const struct job *job, const struct source_part *s, size_t i, char *buffer,
                                     uint64_t *bytes, struct swiglu_error *error) {
    const struct swiglu_product *p = s->p->product;
    const struct swiglu_matrix *m = half_of(s)->matrix;
    if (m->in_out) {
        const size_t k = i * s->per_piece, n_k = swiglu_min(p->k - k, s->per_piece);
        *bytes = (uint64_t)n_k * p->n_units * swiglu_float_bytes(m->dtype);
        return pack_depths(job, s, k, n_k, buffer, error);
    }
    const size_t panel = i * s->per_piece, end = swiglu_min(panel + s->per_piece, p->n_panels);
    for (size_t j = panel; j < end; j++) TRY(pack_panel(job, s, j, buffer, error));
    *bytes = (uint64_t)(swiglu_min(end * p->units_per_panel, p->n_units) - panel * p->units_per_panel) *
             swiglu_matrix_row_bytes(m);
    return SWIGLU_OK;
}

/* On the calling thread alone. */
static enum swiglu_status report(struct job *job, uint64_t done, const char *name, struct swiglu_error *error) {
    const struct swiglu_options *o = job->options;
    if (!o->progress || swiglu_caller_mark() != job->caller) return SWIGLU_OK;
    job->reported = done < job->total ? done : job->total;
    REQUIRE(!o->progress(o->progress_ctx, job->reported, job->total), SWIGLU_E_CANCELLED, "packing %s: cancelled", name);
    return SWIGLU_OK;
}

static size_t count_pieces(const void *ctx, size_t phase) {
    const struct job *job = ctx;
    const struct source_part *last = &job->part[job->n_parts - 1];
    (void)phase;
    return last->first + last->n;
}

static void run_piece(void *ctx, unsigned thread, size_t phase, size_t piece) {
    struct job *job = ctx;
    struct failure *f = &job->failures[thread];
    const struct source_part *s = job->part;
    uint64_t bytes;
    (void)phase;
    if (atomic_load_explicit(&job->failed, memory_order_relaxed)) return;
    while (piece >= s->first + s->n) s++;
    enum swiglu_status status =
        pack_piece(job, s, piece - s->first, job->buffers + thread * job->buffer_bytes, &bytes, &f->error);
    if (status == SWIGLU_OK)
        status = report(job, atomic_fetch_add_explicit(&job->done, bytes, memory_order_relaxed) + bytes, s->p->name, &f->error);
    if (status == SWIGLU_OK) return;
    f->piece = piece, f->status = status;
    atomic_store_explicit(&job->failed, true, memory_order_relaxed);
}

/* The matrices of all packings as parts, and what a thread needs to read and decode a piece of any. */
static bool list_parts(struct job *job, const struct swiglu_packing *packings, size_t n, bool *anywhere) {
    size_t pieces = 0, decoded = 0;
    for (size_t i = 0; i < n; i++)
        for (int h = 0; h < packings[i].n_halves; h++) {
            const struct swiglu_product *p = packings[i].product;
            const struct swiglu_matrix *m = packings[i].half[h].matrix;
            struct source_part s = {&packings[i], h, pieces, 0, DEPTHS};
            size_t raw;
            if (p->n_units == 0 || p->k == 0) continue;
            if (!m->in_out) s.per_piece = swiglu_max(PIECE_BYTES / (p->units_per_panel * swiglu_matrix_row_bytes(m) + 1), 1);
            s.n = m->in_out ? swiglu_ceil_div(p->k, DEPTHS) : swiglu_ceil_div(p->n_panels, s.per_piece);
            pieces += s.n;
            if (SW_MUL(stored_bytes(m), m->in_out ? DEPTHS : p->units_per_panel, &raw)) return true;
            job->raw_bytes = swiglu_max(job->raw_bytes, raw);
            if (!swiglu_dtype_is_float(m->dtype)) decoded = swiglu_max(decoded, p->units_per_panel * DECODED * sizeof(float));
            *anywhere &= m->data || m->any_thread;
            job->part[job->n_parts++] = s;
        }
    return swiglu_align_up(job->raw_bytes, 64, &job->raw_bytes) || SW_ADD(job->raw_bytes, decoded + 64, &job->buffer_bytes);
}

enum swiglu_status swiglu_pack(const struct swiglu_kern *kern, const struct swiglu_packing *packings, size_t n,
                               const struct swiglu_options *options, uint64_t total_bytes, struct swiglu_error *error) {
    struct job job = {.kern = kern, .options = options, .total = total_bytes, .caller = swiglu_caller_mark()};
    bool anywhere = true;
    size_t bytes;
    const bool overflow = list_parts(&job, packings, n, &anywhere);
    if (job.n_parts == 0) return SWIGLU_OK;
    const struct swiglu_runner *runner = anywhere ? options->runner : NULL;
    const size_t threads = swiglu_runner_threads(runner);
    REQUIRE(!overflow && !SW_MUL(threads, job.buffer_bytes, &bytes), SWIGLU_E_SHAPE, "packing %s: a group of rows overflows",
            job.part[0].p->name);
    job.buffers = swiglu_alloc(bytes);
    job.failures = swiglu_alloc_array(threads, sizeof *job.failures);
    enum swiglu_status status = SWIGLU_OK;
    if (job.buffers && job.failures) {
        struct swiglu_schedule schedule = {.ctx = &job, .n_phases = 1, .n_tickets = count_pieces, .run = run_piece};
        const struct failure *first = NULL;
        for (size_t i = 0; i < threads; i++) job.failures[i].error.struct_size = sizeof job.failures[i].error;
        swiglu_schedule_run(&schedule, runner);
        for (size_t i = 0; i < threads; i++)
            if (job.failures[i].status && (!first || job.failures[i].piece < first->piece)) first = &job.failures[i];
        if (!first && job.reported < job.total) /* other threads did the rest */
            status = report(&job, job.total, job.part[0].p->name, error);
        if (first) status = first->status, (void)(error && swiglu_struct_out(error, &first->error, sizeof first->error));
    } else {
        status = swiglu_fail(error, SWIGLU_E_MEMORY, SWIGLU_NO_OFFSET, 0, "packing %s: no memory for %zu groups of %zu bytes",
                             job.part[0].p->name, threads, job.buffer_bytes);
    }
    swiglu_free(job.buffers);
    swiglu_free(job.failures);
    return status;
}
