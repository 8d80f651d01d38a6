/* SPDX-License-Identifier: Apache-2.0 */
/* Little-endian loads and stores at any address, and the bits of a float. */
#ifndef SWIGLU_BYTES_H
#define SWIGLU_BYTES_H

#include <stdint.h>
#include <string.h>

static inline uint16_t swiglu_le16(const void *p) { uint16_t v; memcpy(&v, p, sizeof v); return v; }
static inline uint32_t swiglu_le32(const void *p) { uint32_t v; memcpy(&v, p, sizeof v); return v; }
static inline uint64_t swiglu_le64(const void *p) { uint64_t v; memcpy(&v, p, sizeof v); return v; }
static inline void swiglu_put_le16(void *p, uint16_t v) { memcpy(p, &v, sizeof v); }
static inline void swiglu_put_le32(void *p, uint32_t v) { memcpy(p, &v, sizeof v); }
static inline uint32_t swiglu_f32_bits(float f) { uint32_t u; memcpy(&u, &f, sizeof u); return u; }
static inline float swiglu_f32_from_bits(uint32_t u) { float f; memcpy(&f, &u, sizeof f); return f; }

#endif
