/* SPDX-License-Identifier: Apache-2.0 */
/* MXFP4: a lane has a byte e, then 4 dwords as Q4_0. Value 2^(e - 128) T, T twice an E2M1 value; the table holds T + 16. */
static const unsigned char fmt_mxfp4_table[16] = {16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4};
/* as a product of two powers of two: the smallest scales are denormal, and 255 is 2^127 */
SW_ALWAYS_INLINE V fmt_e8m0(VI e) {
    const VI half = vi_shr(e, 1), bias = vi_set1(63);
    return v_mul(v_from_bits(vi_shl(vi_add(half, bias), 23)), v_from_bits(vi_shl(vi_add(vi_sub(e, half), bias), 23)));
}
#define Q_NAME mxfp4
#define Q_FORM SWIGLU_FORM_MXFP4
#define Q_KIND Q_SYMMETRIC
#define Q_PARTS 1
#define Q_TURN 1
#define Q_PAIRED 1
#define Q_BYTES 17
#define Q_ZERO 16
#define Q_GROUP(p, j, part, g) vi_lookup16(Q_NIBBLE(Q_DWORD(p, 1, (g) % 4, j), (g) / 4), fmt_mxfp4_table)
#define Q_A(p, j, part) fmt_e8m0(Q_U8(p, 0, 0, j))
