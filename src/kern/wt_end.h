/* SPDX-License-Identifier: Apache-2.0 */
/* Ends a wt_*.h. */
#undef W_K_STEP
#undef W_SUBSTEPS
#undef W_LANE_BYTES
#undef W_LOAD
#undef W_DOT
#undef W_ENTER
#undef W_LEAVE
#undef W_PIN2
#undef W_PIN4
