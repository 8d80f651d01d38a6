/* SPDX-License-Identifier: Apache-2.0 */
/* Multiply-adds on registers alone: PEAK_NAME(rounds), each round PEAK_ACCS times PEAK_DOT(acc, a, b) on one vector.
 * 12 accumulators cover a latency of 6 at two a cycle and fit 16 registers. */
SW_KERNEL void PEAK_NAME(size_t rounds) {
    V acc[PEAK_ACCS], a = v_set1(0.0f), b = v_set1(1.0f);
    SW_UNROLL for (int i = 0; i < PEAK_ACCS; i++) acc[i] = v_set1(0.0f);
    V_KEEP(a);
    V_KEEP(b);
    while (rounds--) {
        SW_UNROLL for (int i = 0; i < PEAK_ACCS; i++) acc[i] = PEAK_DOT(acc[i], a, b);
        SW_UNROLL for (int i = 0; i < PEAK_ACCS; i++) V_PIN(acc[i]); /* or the loop would be dead */
    }
}
#undef PEAK_NAME
#undef PEAK_DOT
