/* SPDX-License-Identifier: Apache-2.0 */
/* A read-only sum: READ_NAME(p, bytes) with READ_VECTORS vectors in flight. */
SW_KERNEL unsigned READ_NAME(const void *p, size_t bytes) {
    const char *s = p, *const end = s + bytes;
    uint32_t lanes[VL], sum = 0;
    VI acc[READ_VECTORS];
    SW_UNROLL for (int i = 0; i < READ_VECTORS; i++) acc[i] = vi_set1(0);
    for (; s < end; s += (size_t)READ_VECTORS * sizeof(V))
        SW_UNROLL for (int i = 0; i < READ_VECTORS; i++)
            acc[i] = vi_add(acc[i], v_bits(v_load(s + (size_t)i * sizeof(V))));
    for (int i = 0; i < READ_VECTORS; i++) {
        v_store(lanes, v_from_bits(acc[i]));
        for (int l = 0; l < VL; l++) sum += lanes[l];
    }
    return sum;
}
#undef READ_NAME
#undef READ_VECTORS
