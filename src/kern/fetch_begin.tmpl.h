/* SPDX-License-Identifier: Apache-2.0 */
/* What a tile of many rows fetches beside the next rows: state of fetch.tmpl.h. */
const char *next_w = t->next_w;
const size_t next_w_stride = t->next_w_stride;
const struct swiglu_fetch *out = t->out;
const char *next_out = out->at, *out_end = next_out + out->bytes;
size_t out_rows = out->rows;
