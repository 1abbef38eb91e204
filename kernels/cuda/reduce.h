/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_CUDA_REDUCE_H
#define HST_CUDA_REDUCE_H
/*
 * Reductions over the threads of a warp and of a block's row of threads, in an order that the
 * number of threads alone decides. Every thread gets the result.
 */
#include "vector.h"

static __device__ __forceinline__ float warp_sum(float x)
{
    HST_UNROLL
    for (int distance = 16; distance > 0; distance /= 2)
        x += __shfl_xor_sync(HST_FULL_WARP, x, distance);
    return x;
}

static __device__ __forceinline__ float warp_max(float x)
{
    HST_UNROLL
    for (int distance = 16; distance > 0; distance /= 2)
        x = fmaxf(x, __shfl_xor_sync(HST_FULL_WARP, x, distance));
    return x;
}

/*
 * Over blockDim.x threads, a multiple of 32. Where that is one warp, rows of the block are apart
 * and need no barrier; where it is more, every thread of the block takes part, and the block is one
 * row. `scratch` (f32[32], shared) may be used again after the return.
 */
static __device__ __forceinline__ float row_sum(float x, float *scratch)
{
    x = warp_sum(x);
    if (blockDim.x == 32)
        return x;
    unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (lane == 0)
        scratch[warp] = x;
    __syncthreads();
    x = warp_sum(lane < blockDim.x / 32 ? scratch[lane] : 0.0f);
    __syncthreads();
    return x;
}

#endif
