/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Words of the fmt_*.h. A format defines, for a block at p, vector j of its lanes and a part of 32 k:
 *   Q_NAME, Q_FORM, Q_KIND, Q_PARTS (of a block), Q_TURN (parts that share dwords), Q_PAIRED (groups g and g + 4 do),
 *   Q_BYTES (of a lane and block)
 *   Q_GROUP(p, j, part, g)   the integers of k 4 g to 4 g + 3 plus Q_ZERO, a byte each: 0..127, or with Q_ANY any
 *   Q_A                      what an integer is multiplied with,
 *   Q_B                      what is added (Q_MINIMUM)
 *   Q_S(p, j, part, half)    integer scales of 16 k each (Q_HALVES), multiplied with Q_A
 *   Q_AM, Q_M                and integer minima, multiplied with Q_AM and subtracted (Q_HALVES_MIN)
 */
#define Q_SYMMETRIC 0
#define Q_MINIMUM 1
#define Q_HALVES 2
#define Q_HALVES_MIN 3

#define Q_FIELD(p, at, j, bytes) ((p) + (size_t)(at) * 2 * VL + (size_t)(j) * (bytes) * VL)
#define Q_F16(p, at, j) v_load_f16(Q_FIELD(p, at, j, 2))
#define Q_F32(p, at, j) v_load(Q_FIELD(p, at, j, 4))
#define Q_I32(p, at, j) v_bits(v_load(Q_FIELD(p, at, j, 4)))
#define Q_DWORD(p, at, i, j) v_bits(v_load(Q_FIELD(p, (at) + 4 * (i), j, 4)))
#define Q_U8(p, at, i, j) vi_load_u8(Q_FIELD(p, (at) + (i), j, 1))
#define Q_I8(p, at, i, j) vi_load_i8(Q_FIELD(p, (at) + (i), j, 1))
#define Q_BITS(v, n, mask) vi_and(q_shr(v, n), vi_set1(mask))
#define Q_NIBBLE(v, high) Q_BITS(v, 4 * (high), 0x0F0F0F0F)
#define Q_BLOCK_BYTES ((size_t)Q_BYTES * 2 * VL)

SW_ALWAYS_INLINE VI q_shr(VI v, int n) { return __builtin_constant_p(n) && n == 0 ? v : vi_shr(v, n); }
SW_ALWAYS_INLINE V v_neg(V a) { return v_from_bits(vi_xor(v_bits(a), vi_set1((int)0x80000000u))); }
/* What a sum starts from where weights carry zero, a power of two, too much: minus zero times the sum of the row. */
SW_ALWAYS_INLINE VI vi_mul_zero(VI sum, unsigned zero) {
    return zero ? vi_sub(vi_set1(0), vi_shl(sum, __builtin_ctz(zero))) : vi_set1(0);
}
