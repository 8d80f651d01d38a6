/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel checker. Every function that a kernel table names is called on the shapes around its edges, with guard
 * pages on each side of its memory in turn, and must give the bits of the plain loops of oracle.c: generic first, then
 * each level this CPU can run. Then deliberately wrong kernels are put into a copy of the generic table, and each must
 * be caught by the same checks (wrong.c).
 */
#ifndef SWIGLU_CHECK_H
#define SWIGLU_CHECK_H

#include <stddef.h>
#include <stdint.h>

#include "kern/kern.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* ---- harness (check.c) ---- */

/* Runs fn(arg); 0 when it crashed, which counts as a failure of the kernel in it. */
int check_survives(void (*fn)(void *), void *arg);

/* Says what differs, unless a wrong kernel is expected to; returns 0, as a verdict. */
int check_differs(const char *format, ...) __attribute__((format(printf, 1, 2)));

uint64_t check_random(void);
float check_normal(void);

/* Memory next to an unmapped page: side 0 begins after one, side 1 ends before one. Slots are reused, at most
 * CHECK_SLOT_BYTES each; contents are filled with 0xA5. */
enum { CHECK_SLOTS = 6, CHECK_SLOT_BYTES = 4 << 20 };
void *check_memory(int slot, int side, size_t bytes);

/* The same float bits, or both NaN. */
int check_same(float a, float b);

/* Whether f, rounded as stored values are, lies there. */
int check_stored(const char *at, int dtype, float f);

/* Values of a kind: ordinary; with NaN, infinities, huge, tiny and denormal ones strewn in; with products near 2^-126;
 * mostly zero. */
enum check_data { CHECK_NORMAL, CHECK_SPECIAL, CHECK_TINY, CHECK_ZERO, CHECK_N_DATA };
float check_value(enum check_data kind);

/* The special ones in turn; 0 after the last. */
int check_special(size_t i, float *value);

/* How often a call is repeated with other numbers: one lane sees fewer of them than 16 do. */
unsigned check_repeats(const struct swiglu_kern *kern);

/* ---- the plain loops (oracle.c) ---- */

/* One output of a product: chunks of SWIGLU_CHUNK, as docs/numerics.md defines it. total is that of earlier chunks. */
float oracle_chain(int arith, const float *x, const float *w, size_t k, int add, float total);

/* The activation and clamps of one hidden unit, from its totals with bias added; gated: h = a * u. */
float oracle_hidden(const struct swiglu_act *act, int gated, float gate, float up);

/* What a hidden unit gives back: h, and the gradients of gate (or the only product) and up before their clamps. */
struct oracle_grad { float h, dg, du; };
struct oracle_grad oracle_grad(const struct swiglu_act *act, int gated, float dh, float gate, float up);

/* ---- the checks: 1 = every call gave the right bits ---- */

int check_tile(const struct swiglu_kern *kern, const struct swiglu_path *path, int arith, struct swiglu_shape shape);
int check_hidden(const struct swiglu_kern *kern, int kind, int x);
int check_store(const struct swiglu_kern *kern, int dtype);
int check_stage(const struct swiglu_kern *kern, int dtype, int x);
int check_act(const struct swiglu_kern *kern, int kind, int derivative);
int check_pack(const struct swiglu_kern *kern, int by_rows, int dtype);
int check_quant(const struct swiglu_kern *kern, int dtype); /* a block format: lanes, slices, int8 tiles */
int check_stage_int8(const struct swiglu_kern *kern, int dtype);
int check_turn(const struct swiglu_kern *kern, int x);
int check_grad(const struct swiglu_kern *kern, int kind, int bf16);
int check_read_sum(const struct swiglu_kern *kern, size_t which);
int check_prim(const struct swiglu_kern *kern, size_t which);
const char *check_prim_name(size_t which); /* NULL after the last */

/* Wrong kernels: runs all, returns how many were not caught and adds those that were to *n_caught. */
size_t check_wrong_kernels(size_t *n_caught);

/* An activation of the kind with all its parameters in play; variant 0 has no clamps. */
enum { CHECK_ACT_VARIANTS = 4 };
struct swiglu_act check_act_of(int kind, int variant);

#endif
