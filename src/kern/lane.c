/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A block of a file becomes a record of the same bits in the order of fmt_<name>.h, that in which tiles read them: memory is
 * then one ascending stream, which the hardware fetches ahead. Each field goes to its place among those of the other lanes.
 */
#include "kern/lane.h"

#include <string.h>

#include "base/bytes.h"

typedef unsigned char byte;

/* Six-bit scales and minima of Q4_K and Q5_K: 12 bytes <-> 8 and 8. */
static void widen_k4(const byte *s, byte *scale, byte *min) {
    for (int i = 0; i < 4; i++) {
        scale[i] = s[i] & 63, min[i] = s[i + 4] & 63;
        scale[i + 4] = (byte)((s[i + 8] & 15) | s[i] >> 6 << 4), min[i + 4] = (byte)(s[i + 8] >> 4 | s[i + 4] >> 6 << 4);
    }
}
static void narrow_k4(const byte *scale, const byte *min, byte *s) {
    for (int i = 0; i < 4; i++) {
        s[i] = (byte)(scale[i] | scale[i + 4] >> 4 << 6), s[i + 4] = (byte)(min[i] | min[i + 4] >> 4 << 6);
        s[i + 8] = (byte)((scale[i + 4] & 15) | (min[i + 4] & 15) << 4);
    }
}

/* Sixteen six-bit scales of Q3_K, minus 32. */
static void widen_k3(const byte *s, byte *scale) {
    for (int i = 0; i < 16; i++)
        scale[i] = (byte)((s[i % 8] >> i / 8 * 4 & 15) | (s[8 + i % 4] >> i / 4 * 2 & 3) << 4) - 32;
}
static void narrow_k3(const byte *scale, byte *s) {
    memset(s, 0, 12);
    for (int i = 0; i < 16; i++) {
        const byte v = (byte)(scale[i] + 32);
        s[i % 8] |= (byte)((v & 15) << i / 8 * 4);
        s[8 + i % 4] |= (byte)(v >> 4 << i / 4 * 2);
    }
}

/* Bit 4 g + i of the file's fifth bits is bit g of byte i here, so that one shift serves a group of four. */
static void turn_bits(const byte *from, byte *to, int back) {
    const uint32_t bits = swiglu_le32(from);
    uint32_t turned = 0;
    for (int g = 0; g < 8; g++)
        for (int i = 0; i < 4; i++)
            if (back) turned |= (bits >> (8 * i + g) & 1) << (4 * g + i);
            else turned |= (bits >> (4 * g + i) & 1) << (8 * i + g);
    memcpy(to, &turned, sizeof turned);
}

/* The file keeps the bit of part p at bit p of 8 dwords; here each part has a dword of its own, turned as above: per_unit of
 * them in a unit, units `unit` bytes apart. */
static void spread_bits(byte *file, byte *record, int per_unit, int unit, int back) {
    uint32_t in[8], out[8] = {0};
    for (int i = 0; i < 8; i++) in[i] = swiglu_le32(back ? record + i / per_unit * unit + i % per_unit * 4 : file + 4 * i);
    for (int i = 0; i < 8; i++)
        for (int o = 0; o < 8; o++) out[o] |= (in[i] >> o & 0x01010101u) << i;
    for (int o = 0; o < 8; o++) memcpy(back ? file + 4 * o : record + o / per_unit * unit + o % per_unit * 4, &out[o], 4);
}

static void copy(byte *to, const byte *from, size_t n) { memcpy(to, from, n); }

/* Between a block of a file and a record; back: from the record to the block. A part is a run of bytes that keep their order. */
#define PART(file_at, record_at, n) \
    (back ? copy(file + (file_at), record + (record_at), n) : copy(record + (record_at), file + (file_at), n))

static void q8_0(byte *file, byte *record, int back, byte bias) {
    PART(0, 0, 34);
    if (bias)
        for (int i = 2; i < 34; i++) *(back ? file + i : record + i) ^= bias;
}
static void q4_0(byte *file, byte *record, int back) { PART(0, 0, 18); }
static void q4_1(byte *file, byte *record, int back) { PART(0, 0, 20); }
static void q5_0(byte *file, byte *record, int back) {
    PART(0, 0, 2), PART(6, 6, 16);
    if (back) turn_bits(record + 2, file + 2, 1);
    else turn_bits(file + 2, record + 2, 0);
}
static void q5_1(byte *file, byte *record, int back) {
    PART(0, 0, 4), PART(8, 8, 16);
    if (back) turn_bits(record + 4, file + 4, 1);
    else turn_bits(file + 4, record + 4, 0);
}
static void mxfp4(byte *file, byte *record, int back) { PART(0, 0, 17); }
static void q2_k(byte *file, byte *record, int back) {
    PART(80, 0, 4);
    for (int u = 0; u < 2; u++) PART(8 * u, 4 + 40 * u, 8), PART(16 + 32 * u, 12 + 40 * u, 32);
}
static void q3_k(byte *file, byte *record, int back) {
    byte scale[16];
    PART(108, 0, 2);
    if (!back) widen_k3(file + 96, scale);
    for (int u = 0; u < 2; u++) {
        PART(32 + 32 * u, 26 + 56 * u, 32);
        if (back) memcpy(scale + 8 * u, record + 2 + 56 * u, 8);
        else memcpy(record + 2 + 56 * u, scale + 8 * u, 8);
    }
    if (back) narrow_k3(scale, file + 96);
    spread_bits(file, record + 10, 4, 56, back);
}
/* unit: record bytes of two parts, whose 8 dwords begin at dwords. */
static void q45_k(byte *file, byte *record, int low, int unit, int dwords, int back) {
    byte scale[8], min[8];
    PART(0, 0, 4);
    if (!back) widen_k4(file + 4, scale, min);
    for (int u = 0; u < 4; u++) {
        byte *const at = record + 4 + unit * u;
        PART(low + 32 * u, 4 + unit * u + dwords, 32);
        if (back) memcpy(scale + 2 * u, at, 2), memcpy(min + 2 * u, at + 2, 2);
        else memcpy(at, scale + 2 * u, 2), memcpy(at + 2, min + 2 * u, 2);
    }
    if (back) narrow_k4(scale, min, file + 4);
}
static void q4_k(byte *file, byte *record, int back) { q45_k(file, record, 16, 36, 4, back); }
static void q5_k(byte *file, byte *record, int back) {
    q45_k(file, record, 48, 44, 12, back);
    spread_bits(file + 16, record + 8, 2, 44, back);
}
static void q6_k(byte *file, byte *record, int back) {
    PART(208, 0, 2);
    for (int u = 0; u < 2; u++) {
        const int at = 2 + 104 * u;
        PART(192 + 8 * u, at, 8), PART(64 * u + 32, at + 72, 32);
        for (int g = 0; g < 8; g++) PART(64 * u + 4 * g, at + 8 + 8 * g, 4), PART(128 + 32 * u + 4 * g, at + 12 + 8 * g, 4);
    }
}

/* Runs of fields of a record, as how many of how many bytes; 0 ends. And the size of a block in the file. */
static const struct lane_format { int dtype; uint8_t form, block_bytes, run[18]; } formats[] = {
    {SWIGLU_Q8_0, SWIGLU_FORM_Q8_0, 34, {1, 2, 8, 4}},
    {SWIGLU_Q4_0, SWIGLU_FORM_Q4_0, 18, {1, 2, 4, 4}},
    {SWIGLU_Q4_1, SWIGLU_FORM_Q4_1, 20, {2, 2, 4, 4}},
    {SWIGLU_Q5_0, SWIGLU_FORM_Q5_0, 22, {1, 2, 5, 4}},
    {SWIGLU_Q5_1, SWIGLU_FORM_Q5_1, 24, {2, 2, 5, 4}},
    {SWIGLU_MXFP4, SWIGLU_FORM_MXFP4, 17, {1, 1, 4, 4}},
    {SWIGLU_Q2_K, SWIGLU_FORM_Q2_K, 84, {2, 2, 8, 1, 8, 4, 8, 1, 8, 4}},
    {SWIGLU_Q3_K, SWIGLU_FORM_Q3_K, 110, {1, 2, 8, 1, 12, 4, 8, 1, 12, 4}},
    {SWIGLU_Q4_K, SWIGLU_FORM_Q4_K, 144, {2, 2, 4, 1, 8, 4, 4, 1, 8, 4, 4, 1, 8, 4, 4, 1, 8, 4}},
    {SWIGLU_Q5_K, SWIGLU_FORM_Q5_K, 176, {2, 2, 4, 1, 10, 4, 4, 1, 10, 4, 4, 1, 10, 4, 4, 1, 10, 4}},
    {SWIGLU_Q6_K, SWIGLU_FORM_Q6_K, 210, {1, 2, 8, 1, 24, 4, 8, 1, 24, 4}},
};
enum { N_FORMATS = sizeof formats / sizeof formats[0], MOST_BYTES = 210, MOST_RUNS = sizeof formats[0].run };

static void convert(int form, byte *file, byte *record, int back, byte bias) {
    switch (form) {
    case SWIGLU_FORM_Q8_0: q8_0(file, record, back, bias); break;
    case SWIGLU_FORM_Q4_0: q4_0(file, record, back); break;
    case SWIGLU_FORM_Q4_1: q4_1(file, record, back); break;
    case SWIGLU_FORM_Q5_0: q5_0(file, record, back); break;
    case SWIGLU_FORM_Q5_1: q5_1(file, record, back); break;
    case SWIGLU_FORM_MXFP4: mxfp4(file, record, back); break;
    case SWIGLU_FORM_Q2_K: q2_k(file, record, back); break;
    case SWIGLU_FORM_Q3_K: q3_k(file, record, back); break;
    case SWIGLU_FORM_Q4_K: q4_k(file, record, back); break;
    case SWIGLU_FORM_Q5_K: q5_k(file, record, back); break;
    default: q6_k(file, record, back);
    }
}

int swiglu_lane_form(int dtype) {
    for (size_t i = 0; i < N_FORMATS; i++)
        if (formats[i].dtype == dtype) return formats[i].form;
    return -1;
}

int swiglu_lane_dtype(int form) {
    for (size_t i = 0; i < N_FORMATS; i++)
        if (formats[i].form == form) return formats[i].dtype;
    return -1;
}

static const struct lane_format *format_of(int form) {
    const struct lane_format *f = formats;
    while (f->form != form) f++;
    return f;
}

void swiglu_lane_pack(const struct swiglu_kern *kern, int form, const void *row, size_t n_blocks, size_t lane, char *panel) {
    const struct lane_format *const f = format_of(form);
    const size_t lanes = 2 * (size_t)kern->vl, bytes = lanes * swiglu_forms[form].lane_bytes;
    byte file[MOST_BYTES], record[MOST_BYTES];
    for (size_t b = 0; b < n_blocks; b++, panel += bytes) {
        memcpy(file, (const byte *)row + b * f->block_bytes, f->block_bytes);
        convert(form, file, record, 0, kern->dot4_bias);
        const byte *from = record;
        char *to = panel;
        for (size_t r = 0; r < MOST_RUNS && f->run[r]; r += 2) {
            const size_t n = f->run[r + 1];
            for (int i = 0; i < f->run[r]; i++, from += n, to += n * lanes)
                if (n == 4) memcpy(to + 4 * lane, from, 4);
                else memcpy(to + n * lane, from, n);
        }
    }
}

void swiglu_lane_unpack(const struct swiglu_kern *kern, int form, const char *panel, size_t lane, size_t n_blocks, void *row) {
    const struct lane_format *const f = format_of(form);
    const size_t lanes = 2 * (size_t)kern->vl, bytes = lanes * swiglu_forms[form].lane_bytes;
    byte file[MOST_BYTES], record[MOST_BYTES];
    for (size_t b = 0; b < n_blocks; b++, panel += bytes) {
        byte *to = record;
        const char *from = panel;
        for (size_t r = 0; r < MOST_RUNS && f->run[r]; r += 2) {
            const size_t n = f->run[r + 1];
            for (int i = 0; i < f->run[r]; i++, to += n, from += n * lanes) memcpy(to, from + n * lane, n);
        }
        convert(form, file, record, 1, kern->dot4_bias);
        memcpy((byte *)row + b * f->block_bytes, file, f->block_bytes);
    }
}
