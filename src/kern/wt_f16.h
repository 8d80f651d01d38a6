/* SPDX-License-Identifier: Apache-2.0 */
/* f16 weights in f32 compute: widened exactly in registers, then as f32. */
#define W_LANE_BYTES 2
#define W_LOAD(p, s) v_load_f16(p)
