/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Part of vec_avx2.h and vec_avx512.h: FTZ and DAZ for the length of a bf16 chain. Compilers move arithmetic across a change
 * of MXCSR: V_PIN passes accumulators through a value that the change produces, so that chains stay between the two. Several
 * at once, and not volatile, or GCC 12 unrolls none of the loops.
 */
#define V_FLUSH_ENTER()                                           \
    unsigned csr_ = _mm_getcsr(), flush_ = csr_ | 0x8040, order_; \
    __asm__ volatile("ldmxcsr %1" : "=r"(order_) : "m"(flush_))
#define V_FLUSH_LEAVE() __asm__ volatile("ldmxcsr %1" : "+r"(order_) : "m"(csr_))
#define V_PIN2(a, b) __asm__("" : "+v"(a), "+v"(b), "+r"(order_))
#define V_PIN4(a, b, c, d) __asm__("" : "+v"(a), "+v"(b), "+v"(c), "+v"(d), "+r"(order_))
