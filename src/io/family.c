/* SPDX-License-Identifier: Apache-2.0 */
#include "io/family.h"

#include <stddef.h>
#include <string.h>

static const struct swiglu_family families[] = {
#define FAMILY(architecture, activation, form, norm, extra, left_out) \
    {architecture, activation, SWIGLU_FORM_##form, SWIGLU_##norm, SWIGLU_##extra, left_out},
#include "io/family.def"
#undef FAMILY
};

const struct swiglu_family *swiglu_family_find(const char *architecture) {
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        if (!strcmp(families[i].architecture, architecture)) return &families[i];
    return NULL;
}
