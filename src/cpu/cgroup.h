/* SPDX-License-Identifier: Apache-2.0 */
/* What the control groups of Linux grant a process. */
#ifndef SWIGLU_CGROUP_H
#define SWIGLU_CGROUP_H

/* The smallest CPU quota of the process's groups and of all groups above them that can be seen, versions 1 and 2: whole
 * CPUs, rounded down, at least 1; 0 where none is set. root stands before every path: "" on a running system. */
unsigned swiglu_cgroup_cpus(const char *root);

#endif
