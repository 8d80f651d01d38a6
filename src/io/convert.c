/* SPDX-License-Identifier: Apache-2.0 */
/* What becomes of each tensor (convert_plan.c), the header (write_*.c), the data in blocks. */
#include <errno.h>
#include <string.h>

#include "base/alloc.h"
#include "dtype/dtype.h"
#include "io/convert_plan.h"
#include "io/gguf_set.h"
#include "io/retype.h"
#include "io/safetensors.h"

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
        TRY(swiglu_checkpoint_read(s->c->model, p->tensor, p->from + at, s->in, n, s->error));
        TRY(stream_put(s, s->in, n));
        at += n;
    }
    return SWIGLU_OK;
}

static enum swiglu_status stream_piece(struct convert_stream *s, const struct swiglu_piece *p, int type) {
    const int was = (int)s->c->model->catalog.tensors[p->tensor].type;
    if (was == type) return stream_copy(s, p);
    const struct swiglu_dtype_row *from = swiglu_dtype_find(was), *to = swiglu_dtype_find(type);
    const size_t chunk = CHUNK_ELEMS / from->block_elems * from->block_bytes;
    struct swiglu_retype r = {.model = s->c->model, .tensor = p->tensor, .from = was, .to = type,
                              .values = s->values, .back = s->values + CHUNK_ELEMS};
    for (uint64_t at = 0; at < p->bytes;) {
        const size_t n_bytes = p->bytes - at < chunk ? (size_t)(p->bytes - at) : chunk;
        const size_t n = n_bytes / from->block_bytes * from->block_elems;
        TRY(swiglu_checkpoint_read(s->c->model, p->tensor, p->from + at, s->in, n_bytes, s->error));
        TRY(swiglu_retype_chunk(&r, p->from + at, s->in, n, s->out, s->error));
        TRY(stream_put(s, s->out, n / to->block_elems * to->block_bytes));
        at += n_bytes;
    }
    swiglu_retype_report(&r, &s->c->options);
    return SWIGLU_OK;
}

static enum swiglu_status convert_data(struct convert_stream *s, const struct swiglu_output_file *file) {
    for (size_t i = file->begin; i < file->end; i++) {
        const struct swiglu_output *o = &s->c->at[i];
        TRY(swiglu_writer_pad(s->w, o->offset, s->error));
        for (unsigned k = 0; k < o->n_pieces; k++) TRY(stream_piece(s, &o->piece[k], o->type));
    }
    return swiglu_writer_pad(s->w, file->bytes, s->error);
}

/* ---- what was written ---- */

static enum swiglu_status verify_read(const struct swiglu_conversion *c, const struct swiglu_writer *w,
                                      struct swiglu_catalog *catalog, struct swiglu_error *error) {
    struct swiglu_gguf g = {0};
    if (!swiglu_model_gguf(c->model)) {
        TRY(swiglu_catalog_add_file(catalog, w->temporary, error));
        TRY(swiglu_safetensors_read(catalog, 0, error));
        return swiglu_catalog_sort(catalog, error);
    }
    char **paths = swiglu_alloc_array(c->n_files, sizeof *paths);
    REQUIRE(paths, SWIGLU_E_MEMORY, "%s: out of memory", w->shown);
    for (size_t i = 0; i < c->n_files; i++) paths[i] = w[i].temporary;
    const enum swiglu_status status = swiglu_gguf_read_set(&g, catalog, paths, c->n_files, w->temporary, error);
    swiglu_gguf_free(&g);
    swiglu_free(paths);
    return status;
}

/* The files as a reader sees them have the tensors that were planned. */
static enum swiglu_status verify_tensors(const struct swiglu_conversion *c, const struct swiglu_writer *w,
                                         const struct swiglu_catalog *catalog, struct swiglu_error *error) {
    bool same = catalog->names.n == c->n;
    for (size_t i = 0, file = 0; i < c->n && same; i++) {
        const struct swiglu_output *o = &c->at[i];
        const struct swiglu_tensor *t = &catalog->tensors[i];
        while (i >= c->files[file].end) file++;
        char *name = swiglu_output_name(o, swiglu_names_at(&c->model->catalog.names, o->piece[0].tensor));
        REQUIRE(name, SWIGLU_E_MEMORY, "%s: out of memory", w->shown);
        same = !strcmp(swiglu_names_at(&catalog->names, i), name) && (int)t->type == o->type && t->bytes == o->bytes &&
               t->offset == o->offset && t->file == file;
        swiglu_free(name);
    }
    REQUIRE(same, SWIGLU_E_WRITE, "%s: the file reads back with other tensors than were written", w->shown);
    return SWIGLU_OK;
}

static enum swiglu_status convert_verify(const struct swiglu_conversion *c, const struct swiglu_writer *w,
                                         struct swiglu_error *error) {
    struct swiglu_catalog catalog = {0};
    enum swiglu_status status = verify_read(c, w, &catalog, error);
    if (status == SWIGLU_OK) status = verify_tensors(c, w, &catalog, error);
    swiglu_catalog_close(&catalog);
    return status;
}

/* ---- the whole ---- */

static enum swiglu_status convert_files(struct convert_stream *s, struct swiglu_conversion *c, struct swiglu_writer *writers) {
    struct swiglu_error *error = s->error;
    const struct swiglu_gguf *g = swiglu_model_gguf(c->model);
    s->values = swiglu_alloc_array(2 * CHUNK_ELEMS, sizeof *s->values);
    s->in = swiglu_alloc_array(CHUNK_ELEMS, sizeof(float));
    s->out = swiglu_alloc_array(CHUNK_ELEMS, sizeof(float));
    REQUIRE(s->values && s->in && s->out, SWIGLU_E_MEMORY, "%s: out of memory", writers->shown);
    for (size_t i = 0; i < c->n_files; i++) {
        s->w = &writers[i];
        TRY(g ? swiglu_gguf_write(c, g, i, s->w, error)
              : swiglu_safetensors_write(c, &c->model->catalog, s->w, error));
        TRY(convert_data(s, &c->files[i]));
        TRY(swiglu_writer_sync(s->w, error));
    }
    return SWIGLU_OK;
}

/* A set appears from its end: only the first shard leads to the others. Where one fails all go. */
static enum swiglu_status convert_commit(const struct swiglu_conversion *c, struct swiglu_writer *writers,
                                         struct swiglu_error *error) {
    enum swiglu_status status = SWIGLU_OK;
    for (size_t i = c->n_files; i-- && status == SWIGLU_OK;) status = swiglu_writer_commit(&writers[i], error);
    for (size_t i = 0; i < c->n_files && c->n_files > 1 && status != SWIGLU_OK; i++) swiglu_writer_undo(&writers[i]);
    return status;
}

static enum swiglu_status convert_write(struct swiglu_conversion *c, struct swiglu_writer *writers,
                                        struct swiglu_error *error) {
    struct convert_stream s = {.c = c, .w = writers, .error = error};
    for (size_t i = 0; i < c->n; i++) s.total += c->at[i].bytes;
    const enum swiglu_status status = convert_files(&s, c, writers);
    swiglu_free(s.values);
    swiglu_free(s.in);
    swiglu_free(s.out);
    TRY(status);
    TRY(convert_verify(c, writers, error));
    TRY(stream_progress(&s));
    return convert_commit(c, writers, error);
}

/* Old shards beside new ones would be a model that nobody made, so none is replaced. */
static enum swiglu_status convert_open(const struct swiglu_conversion *c, size_t i, struct swiglu_writer *w,
                                       struct swiglu_error *error) {
    const struct swiglu_catalog *const input = &c->model->catalog;
    if (c->n_files > 1 && swiglu_writer_exists(c->files[i].path)) {
        char shown[SWIGLU_SHOWN_BYTES];
        swiglu_file_show(shown, c->files[i].path);
        return swiglu_fail(error, SWIGLU_E_OPEN, SWIGLU_NO_OFFSET, EEXIST,
                           "%s: is there already; a set is not replaced, so remove its shards first", shown);
    }
    return swiglu_writer_open(w, c->files[i].path, input->files, input->n_files, error);
}

static enum swiglu_status convert_planned(struct swiglu_conversion *c, struct swiglu_error *error) {
    struct swiglu_writer *writers = swiglu_alloc_array(c->n_files, sizeof *writers);
    REQUIRE(writers, SWIGLU_E_MEMORY, "out of memory");
    enum swiglu_status status = SWIGLU_OK;
    size_t n = 0;
    for (; n < c->n_files && status == SWIGLU_OK; n++) status = convert_open(c, n, &writers[n], error);
    if (status == SWIGLU_OK) {
        status = convert_write(c, writers, error);
    } else {
        n--; /* this one is not open */
    }
    while (n--) swiglu_writer_close(&writers[n]);
    swiglu_free(writers);
    return status;
}

enum swiglu_status swiglu_convert(const struct swiglu_model *model, const char *out_path,
                                  const struct swiglu_convert_options *options, struct swiglu_error *error) {
    struct swiglu_conversion c = {.model = model, .out_path = out_path, .options = *options};
    enum swiglu_status status = swiglu_conversion_plan(&c, error);
    if (status == SWIGLU_OK) status = convert_planned(&c, error);
    swiglu_conversion_free(&c);
    return status;
}
