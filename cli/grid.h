/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel grid of `swiglu check`: each axis is swept completely, the others held, not the full product. */
#ifndef CLI_GRID_H
#define CLI_GRID_H

/* Prints the counts of each axis; the number of failures. */
void cli_grid_run(int json, unsigned long *n_passed, unsigned long *n_failed);

#endif
