/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_BENCH_GEMM_H
#define HOISTWAY_TOOLS_BENCH_GEMM_H
/* The ceiling of training on the host: what single-threaded sgemm calls on all threads at once
   reach. */
#include <stdbool.h>
#include <stddef.h>

/** A product C m×n = op(A) m×k · op(B) k×n as one block of the model makes it, and how often. */
struct gemm_shape {
    size_t m, n, k, times;
    bool a_transposed, b_transposed, accumulate;
};

struct gemm_timer;

/**
 * Every thread will multiply its m/threads rows of each shape, straight through the BLAS. Null
 * where memory or threads cannot be had.
 */
struct gemm_timer *gemm_timer_create(const struct gemm_shape *shapes, size_t count,
                                     unsigned threads);
/**
 * FLOP/s of one round over all shapes on all threads; operands lie in memory as a model's do, each
 * product with its own.
 */
double gemm_timer_round(struct gemm_timer *timer);
void gemm_timer_destroy(struct gemm_timer *timer);

#endif
