/* SPDX-License-Identifier: Apache-2.0 */
/* One line of the next weights and one of what comes out. */
SW_PREFETCH_L2(next_w);
SW_PREFETCH_L1(next_out); /* one at a time: a burst of misses keeps the loads of the loop waiting */
next_out += 64;
if (next_out >= out_end) {
    next_out = out_end + out->stride - out->bytes;
    if (--out_rows == 0) out += out != t->out_last, next_out = out->at, out_rows = out->rows;
    out_end = next_out + out->bytes;
}
next_w += next_w_stride;
