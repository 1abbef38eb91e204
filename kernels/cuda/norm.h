/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_CUDA_NORM_H
#define HST_CUDA_NORM_H
/*
 * A partial of a norm, to the bit what hst_cpu_adam_ops.norm2 states: 16 chains of sums of squares
 * of a block of 4,096 elements, which meet as a tree. Half a warp has a chain per lane.
 */
#include "vector.h"

enum { NORM_BLOCK = 4096, NORM_LANES = 16 };

/* Lane j ← lane j + lane j+8, then +4, +2, +1: lane 0 of each 16 has the sum. */
static __device__ __forceinline__ double norm_of_lanes(double lane)
{
    HST_UNROLL
    for (int distance = NORM_LANES / 2; distance > 0; distance /= 2)
        lane = __dadd_rn(lane, __shfl_down_sync(HST_FULL_WARP, lane, distance, NORM_LANES));
    return isnan(lane) ? __longlong_as_double(0x7ff8000000000000ll) : lane;
}
#endif
