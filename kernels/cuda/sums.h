/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_CUDA_SUMS_H
#define HST_CUDA_SUMS_H
/*
 * The second half of a sum over tokens: blocks of a first kernel have left a row of sums each in
 * the workspace, f32[rows, width], and these are added to out f32[width] in an order that their
 * number alone decides.
 */
#include "vector.h"

enum { SUM_SLICES = 32 }; /* of the rows, added up beside each other */

/* 32 columns a block, each of 32 slices in order, then the slices. */
static __global__ void __launch_bounds__(32 * SUM_SLICES)
    k_add_sums(const float *sums, size_t rows, size_t width, float *out)
{
    __shared__ float part[SUM_SLICES][33];
    const size_t slice = (rows + SUM_SLICES - 1) / SUM_SLICES, begin = threadIdx.y * slice;
    const size_t end = begin + slice < rows ? begin + slice : rows;
    for (size_t first = blockIdx.x * (size_t)32; first < width; first += gridDim.x * (size_t)32) {
        size_t column = first + threadIdx.x;
        float sum = 0;
        HST_UNROLL_BY(8)
        for (size_t r = begin; r < end && column < width; r++)
            sum += sums[r * width + column];
        part[threadIdx.y][threadIdx.x] = sum;
        __syncthreads();
        if (threadIdx.y == 0 && column < width) {
            sum = 0;
            for (int s = 0; s < SUM_SLICES; s++)
                sum += part[s][threadIdx.x];
            out[column] += sum;
        }
        __syncthreads();
    }
}

static inline cudaError_t add_sums(cudaStream_t stream, const float *sums, size_t rows,
                                   size_t width, float *out)
{
    HST_LAUNCH(k_add_sums, grid_of(width, 32), dim3(32, SUM_SLICES), 0, stream, sums, rows, width,
               out);
    return cudaGetLastError();
}
#endif
