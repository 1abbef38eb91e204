/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_BENCH_GEMM_H
#define HOISTWAY_TOOLS_BENCH_GEMM_H
/* The ceiling of training on the host: what single-threaded sgemm calls on all threads at once reach. */
#include <stddef.h>

/** A product m×k by k×n as a layer makes it, and how often per layer. */
struct gemm_shape {
    size_t m, n, k, times;
};

/**
 * FLOP/s over all shapes (each weighted by its FLOPs × times): every thread multiplies its m/threads rows of each shape, straight
 * through the BLAS, operands warm. The best of `rounds`. 0 where memory or threads could not be had.
 */
double gemm_rate(const struct gemm_shape *shapes, size_t count, unsigned threads, unsigned rounds);

#endif
