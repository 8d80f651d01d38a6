/* SPDX-License-Identifier: Apache-2.0 */
/* One lane of a panel of a block format: a row of a matrix, as it lies in the file, and back. No bit is lost. */
#ifndef SWIGLU_LANE_H
#define SWIGLU_LANE_H

#include "kern/kern.h"

/* The form of panels of a block format, or -1. */
int swiglu_lane_form(int dtype);

/* The block format of such a form, or -1. */
int swiglu_lane_dtype(int form);

/* n_blocks blocks of row into lane `lane` of `lanes`. */
void swiglu_lane_pack(const struct swiglu_kern *kern, int form, const void *row, size_t n_blocks, size_t lane, char *panel);
void swiglu_lane_unpack(const struct swiglu_kern *kern, int form, const char *panel, size_t lane, size_t n_blocks, void *row);

#endif
