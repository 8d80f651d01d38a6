/* SPDX-License-Identifier: Apache-2.0 */
/* f32 weights: one broadcast and one fused multiply-add per k. */
#define W_LANE_BYTES 4
#define W_LOAD(p, s) v_load(p)
