/* SPDX-License-Identifier: Apache-2.0 */
/* AVX-512 with the bf16 pair dot: the level of avx512 otherwise (and DQ, which every such CPU has). */
#include <math.h>
#include <string.h>

#include "base/attr.h"
#include "kern/isa.h"

#if SWIGLU_HAVE_X86
#define LEVEL avx512bf16
#define LEVEL_ISA SWIGLU_ISA_AVX512BF16
#define ROWS_MANY_A 6
#define ROWS_MANY_B 4
#define MANY_PANELS 2
#define LEVEL_TARGET "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512bf16,fma,f16c"
#define V_DOT4_BIAS 128

#include "kern/vec_avx512.h"

SW_ALWAYS_INLINE V v_bf16_pair(V a, V b) { /* one conversion of both, then the halves of each lane are brought together */
    static const int16_t halves[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                       8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    return v_from_bits(_mm512_permutexvar_epi16(_mm512_loadu_si512(halves), (__m512i)_mm512_cvtne2ps_pbh(b, a)));
}

/* vdpbf16ps eats the odd k first and flushes after each of its two additions, whatever MXCSR says (measured on Zen 4). */
#define V_DOT_PAIR(acc, w, x) _mm512_dpbf16_ps(acc, (__m512bh)(w), (__m512bh)(x))
/* The conversion flushes denormals and keeps payloads of NaN; stored values do neither (classes: quiet 0x01, denormal 0x20,
 * signalling 0x80). */
#define V_BF16_ODD(a, b) (_mm512_fpclass_ps_mask(a, 0xA1) | _mm512_fpclass_ps_mask(b, 0xA1))
#define V_BF16_TWO(a, b) v_from_bits((__m512i)_mm512_cvtne2ps_pbh(b, a))
#define V_BF16_STAGING(a) v_from_bits(vi_shl(_mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(a)), 16))
#define V_BF16_PAIR(a, b) v_bf16_pair(a, b)
#define V_STORE_BF16_STAGING(p, a) _mm256_storeu_si256((void *)(p), (__m256i)_mm512_cvtneps_pbh(a))

#include "kern/inst.tmpl.h"
SW_TARGET_END
#endif
