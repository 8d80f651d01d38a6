/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One safetensors file: 8 bytes of header length, a JSON header, the tensors. Every rule of the format's reference reader is
 * checked: the tensors fill the file from the header to its end, without a hole and without overlap; alignment is not one
 * of them.
 */
#ifndef SWIGLU_SAFETENSORS_H
#define SWIGLU_SAFETENSORS_H

#include "io/catalog.h"

/* Reads the header of the catalog's file and adds its tensors. */
enum swiglu_status swiglu_safetensors_read(struct swiglu_catalog *catalog, size_t file, struct swiglu_error *error);

/* The name of a type that GGUF lacks; NULL: no such type. */
const char *swiglu_safetensors_type_name(uint32_t type);

#endif
