/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for work that another thread has already taken. */
#ifndef SWIGLU_POOL_H
#define SWIGLU_POOL_H

#include <stdatomic.h>
#include <stddef.h>

/* Returns when *counter >= target: spins, then yields. Acquire. */
void swiglu_wait_for(atomic_size_t *counter, size_t target);

#endif
