/* SPDX-License-Identifier: Apache-2.0 */
#include "io/family.h"

#include <string.h>

static const struct swiglu_family families[] = {
#define FAMILY(architecture, activation, form, norm, extra, left_out) \
    {architecture, activation, SWIGLU_FORM_##form, SWIGLU_##norm, SWIGLU_##extra, left_out},
#include "io/family.def"
#undef FAMILY
};

static const struct swiglu_hf_family hf_families[] = {
#define FAMILY(type, activation, key, form, scheme, in_out, extra, left_out, ...)                             \
    {{type, activation, SWIGLU_FORM_##form, SWIGLU_EITHER, SWIGLU_##extra, left_out}, key, SWIGLU_SCHEME_##scheme, \
     in_out, {__VA_ARGS__}},
#include "io/hf_family.def"
};

const struct swiglu_family *swiglu_family_find(const char *architecture) {
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        if (!strcmp(families[i].architecture, architecture)) return &families[i];
    return NULL;
}

bool swiglu_hf_is_stacked(const char *model_type) {
    static const char *const types[] = {
#define STACKED(type) type,
#include "io/hf_family.def"
    };
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (!strcmp(types[i], model_type)) return true;
    return false;
}

const struct swiglu_hf_family *swiglu_hf_family_at(size_t i) {
    return i < sizeof hf_families / sizeof hf_families[0] ? &hf_families[i] : NULL;
}
