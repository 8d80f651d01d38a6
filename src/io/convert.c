/* SPDX-License-Identifier: Apache-2.0 */
/* swiglu_model_convert: what becomes of each tensor (convert_plan.c), the header (write_*.c), the data in blocks. */
#include <string.h>

#include "base/alloc.h"
#include "dtype/dtype.h"
#include "io/convert_plan.h"
#include "io/retype.h"

enum { CHUNK_ELEMS = 1 << 18 }; /* a multiple of every block length */

/* The data on their way. */
struct convert_stream {
    const struct swiglu_conversion *c;
    struct swiglu_writer *w;
    struct swiglu_error *error;
    uint64_t done, total; /* bytes of tensors */
    float *values;        /* 2 CHUNK_ELEMS */
    void *in, *out;       /* CHUNK_ELEMS of 4 bytes */
};

static enum swiglu_status stream_progress(const struct convert_stream *s) {
    const struct swiglu_convert_options *o = &s->c->options;
    struct swiglu_error *error = s->error;
    REQUIRE(!o->progress || !o->progress(o->progress_ctx, s->done, s->total), SWIGLU_E_CANCELLED, "%s: cancelled",
            s->w->shown);
    return SWIGLU_OK;
}

static enum swiglu_status stream_put(struct convert_stream *s, const void *data, size_t n) {
    TRY(swiglu_writer_put(s->w, data, n, s->error));
    s->done += n;
    return stream_progress(s);
}

static enum swiglu_status stream_copy(struct convert_stream *s, const struct swiglu_piece *p) {
    for (uint64_t at = 0; at < p->bytes;) {
        const uint64_t left = p->bytes - at;
        const size_t n = left < CHUNK_ELEMS * sizeof(float) ? (size_t)left : CHUNK_ELEMS * sizeof(float);
        TRY(swiglu_model_read(s->c->model, p->tensor, p->from + at, s->in, n, s->error));
        TRY(stream_put(s, s->in, n));
        at += n;
    }
    return SWIGLU_OK;
}

static enum swiglu_status stream_piece(struct convert_stream *s, const struct swiglu_piece *p, int type) {
    struct swiglu_tensor_info t = {.struct_size = sizeof t};
    TRY(swiglu_model_tensor(s->c->model, p->tensor, &t));
    if (t.dtype == type) return stream_copy(s, p);
    const struct swiglu_dtype_row *from = swiglu_dtype_find(t.dtype), *to = swiglu_dtype_find(type);
    const size_t chunk = CHUNK_ELEMS / from->block_elems * from->block_bytes;
    struct swiglu_retype r = {.model = s->c->model, .tensor = p->tensor, .from = t.dtype, .to = type,
                              .values = s->values, .back = s->values + CHUNK_ELEMS};
    for (uint64_t at = 0; at < p->bytes;) {
        const size_t n_bytes = p->bytes - at < chunk ? (size_t)(p->bytes - at) : chunk;
        const size_t n = n_bytes / from->block_bytes * from->block_elems;
        TRY(swiglu_model_read(s->c->model, p->tensor, p->from + at, s->in, n_bytes, s->error));
        TRY(swiglu_retype_chunk(&r, p->from + at, s->in, n, s->out, s->error));
        TRY(stream_put(s, s->out, n / to->block_elems * to->block_bytes));
        at += n_bytes;
    }
    swiglu_retype_report(&r, &s->c->options);
    return SWIGLU_OK;
}

static enum swiglu_status convert_data(struct convert_stream *s) {
    struct swiglu_error *error = s->error;
    s->values = swiglu_alloc_array(2 * CHUNK_ELEMS, sizeof *s->values);
    s->in = swiglu_alloc_array(CHUNK_ELEMS, sizeof(float));
    s->out = swiglu_alloc_array(CHUNK_ELEMS, sizeof(float));
    REQUIRE(s->values && s->in && s->out, SWIGLU_E_MEMORY, "%s: out of memory", s->w->shown);
    for (size_t i = 0; i < s->c->n; i++) {
        const struct swiglu_output *o = &s->c->at[i];
        TRY(swiglu_writer_pad(s->w, o->offset, error));
        for (unsigned k = 0; k < o->n_pieces; k++) TRY(stream_piece(s, &o->piece[k], o->type));
    }
    return swiglu_writer_pad(s->w, s->c->end, error);
}

/* The file as a reader sees it has the tensors that were planned. */
static enum swiglu_status convert_verify(const struct swiglu_conversion *c, const struct swiglu_writer *w,
                                         struct swiglu_error *error) {
    struct swiglu_model *model;
    struct swiglu_tensor_info in = {.struct_size = sizeof in}, out = {.struct_size = sizeof out};
    struct swiglu_model_info info = {.struct_size = sizeof info};
    enum swiglu_status status = swiglu_model_open(w->temporary, NULL, &model, error);
    if (status != SWIGLU_OK) return status;
    bool same = !swiglu_model_query(model, &info) && info.n_tensors == c->n;
    for (size_t i = 0; i < c->n && same; i++) {
        const struct swiglu_output *o = &c->at[i];
        if (swiglu_model_tensor(c->model, o->piece[0].tensor, &in) || swiglu_model_tensor(model, i, &out)) break;
        char *name = swiglu_output_name(o, in.name);
        if (!name) status = SWIGLU_E_MEMORY;
        same = name && !strcmp(out.name, name) && out.dtype == o->type && out.bytes == o->bytes &&
               out.offset == o->offset;
        swiglu_free(name);
    }
    swiglu_model_close(model);
    REQUIRE(status == SWIGLU_OK, status, "%s: out of memory", w->shown);
    REQUIRE(same, SWIGLU_E_WRITE, "%s: the file reads back with other tensors than were written", w->shown);
    return SWIGLU_OK;
}

static enum swiglu_status convert_write(struct swiglu_conversion *c, struct swiglu_writer *w,
                                        struct swiglu_error *error) {
    struct convert_stream s = {.c = c, .w = w, .error = error};
    for (size_t i = 0; i < c->n; i++) s.total += c->at[i].bytes;
    const struct swiglu_gguf *g = swiglu_model_gguf(c->model);
    TRY(g ? swiglu_gguf_write(c, g, w, error) : swiglu_safetensors_write(c, swiglu_model_catalog(c->model), w, error));
    enum swiglu_status status = convert_data(&s);
    swiglu_free(s.values);
    swiglu_free(s.in);
    swiglu_free(s.out);
    TRY(status);
    TRY(swiglu_writer_sync(w, error));
    TRY(convert_verify(c, w, error));
    TRY(stream_progress(&s));
    return swiglu_writer_commit(w, error);
}

static enum swiglu_status convert_check(const struct swiglu_convert_options *o, struct swiglu_error *error) {
    REQUIRE(o->dtype == SWIGLU_DTYPE_KEEP || swiglu_dtype_find(o->dtype), SWIGLU_E_ARGUMENT, "options.dtype %d",
            o->dtype);
    REQUIRE(o->repack >= SWIGLU_REPACK_KEEP && o->repack <= SWIGLU_REPACK_GATE_UP, SWIGLU_E_ARGUMENT,
            "options.repack %d", o->repack);
    REQUIRE(o->format >= SWIGLU_FORMAT_KEEP && o->format <= SWIGLU_FORMAT_SAFETENSORS, SWIGLU_E_ARGUMENT,
            "options.format %d", o->format);
    return SWIGLU_OK;
}

enum swiglu_status swiglu_model_convert(const struct swiglu_model *model, const char *out_path,
                                        const struct swiglu_convert_options *options, struct swiglu_error *error) {
    struct swiglu_conversion c = {.model = model, .out_path = out_path, .options = {.dtype = SWIGLU_DTYPE_KEEP}};
    struct swiglu_writer w;
    REQUIRE(model && out_path && options, SWIGLU_E_ARGUMENT, "model, out_path or options is NULL");
    REQUIRE(!swiglu_struct_in(&c.options, sizeof c.options, options), SWIGLU_E_ARGUMENT,
            "options.struct_size %zu: this library knows %zu", options->struct_size, sizeof c.options);
    TRY(convert_check(&c.options, error));
    enum swiglu_status status = swiglu_conversion_plan(&c, error);
    const struct swiglu_catalog *const input = swiglu_model_catalog(model);
    if (status == SWIGLU_OK) status = swiglu_writer_open(&w, out_path, input->files, input->n_files, error);
    if (status == SWIGLU_OK) {
        status = convert_write(&c, &w, error);
        swiglu_writer_close(&w);
    }
    swiglu_conversion_free(&c);
    return status;
}
