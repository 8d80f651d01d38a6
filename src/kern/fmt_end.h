/* SPDX-License-Identifier: Apache-2.0 */
/* Ends a fmt_*.h. */
#undef Q_NAME
#undef Q_FORM
#undef Q_KIND
#undef Q_PARTS
#undef Q_TURN
#undef Q_PAIRED
#undef Q_BYTES
#undef Q_ZERO
#undef Q_ANY
#undef Q_GROUP
#undef Q_A
#undef Q_B
#undef Q_S
#undef Q_AM
#undef Q_M
