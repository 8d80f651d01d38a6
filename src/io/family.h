/* SPDX-License-Identifier: Apache-2.0 */
/* The table of architectures (family.def). */
#ifndef SWIGLU_FAMILY_H
#define SWIGLU_FAMILY_H

enum swiglu_form { SWIGLU_FORM_GATED, SWIGLU_FORM_PACKED, SWIGLU_FORM_PLAIN, SWIGLU_FORM_NONE };
enum swiglu_norm { SWIGLU_FFN_NORM, SWIGLU_ATTN_NORM, SWIGLU_POST_ATTN_NORM, SWIGLU_EITHER, SWIGLU_NO_NORM };
enum swiglu_extra { SWIGLU_NOTHING, SWIGLU_HALF, SWIGLU_SPARSITY, SWIGLU_XIELU };

struct swiglu_family {
    const char *architecture, *activation;
    enum swiglu_form form;
    enum swiglu_norm norm;
    enum swiglu_extra extra;
    const char *left_out; /* why it is never evaluated, or NULL */
};

const struct swiglu_family *swiglu_family_find(const char *architecture); /* NULL: unknown */

#endif
