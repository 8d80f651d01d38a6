/* SPDX-License-Identifier: Apache-2.0 */
/* Multiply-adds on registers alone: PEAK_NAME(rounds), each round PEAK_ACCS times PEAK_DOT(acc, a, b) on one vector, whose
 * products are 1 where a and b are PEAK_ONE. So the sum that it returns counts them: a probe that does less is wrong.
 * PEAK_VALUE(acc) is an accumulator as f32. 12 accumulators cover a latency of 6 at two a cycle and fit 16 registers. */
SW_KERNEL float PEAK_NAME(size_t rounds) {
    float lanes[VL], sum = 0;
    V acc[PEAK_ACCS], a = v_from_bits(vi_set1(PEAK_ONE)), b = a;
    SW_UNROLL for (int i = 0; i < PEAK_ACCS; i++) {
        acc[i] = v_set1(0.0f);
        V_KEEP(acc[i]); /* or equal chains would become one */
    }
    for (size_t round = 0; round < rounds; round++) {
        SW_UNROLL for (int i = 0; i < PEAK_ACCS; i++) acc[i] = PEAK_DOT(acc[i], a, b);
        V_KEEP(a); /* opaque in each round, or the compiler would see that nothing changes */
        V_KEEP(b);
    }
    acc[0] = PEAK_VALUE(acc[0]);
    SW_UNROLL for (int i = 1; i < PEAK_ACCS; i++) acc[0] = v_add(acc[0], PEAK_VALUE(acc[i]));
    v_store(lanes, acc[0]);
    for (int i = 0; i < VL; i++) sum += lanes[i];
    return sum;
}
#undef PEAK_NAME
#undef PEAK_ONE
#undef PEAK_DOT
#undef PEAK_VALUE
