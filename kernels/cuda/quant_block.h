/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_CUDA_QUANT_BLOCK_H
#define HST_CUDA_QUANT_BLOCK_H
/*
 * A block of 512 values in the registers of a warp, 16 to a lane, its scale and its integers
 * (hoistway/quantise.h): for the quantisers and for sums.
 *
 * A quotient in f64 would take longer than the memory does on most cards. So a product with the
 * reciprocal proposes an integer, and what it leaves of the value, which is exact wherever it
 * decides anything, corrects that by one.
 */
#include "vector.h"

#include <hoistway/kernels.h>

enum { QUANT_EACH = HST_QUANT_BLOCK / 32 };

/* Lane l has the vectors l, l + 32, … of a block; elements past `left` are 0. */
template <typename T>
static __device__ __forceinline__ void quant_read(const T *from, size_t left,
                                                  float (&v)[QUANT_EACH])
{
    constexpr int W = WIDE<T>;
    const unsigned lane = threadIdx.x % 32;
    HST_UNROLL
    for (int k = 0; k < QUANT_EACH; k += W) {
        const unsigned at = (k / W * 32 + lane) * W;
        float some[W];
        HST_UNROLL
        for (int i = 0; i < W; i++)
            some[i] = 0;
        if (at + W <= left) {
            load_f32(from + at, some);
        } else {
            for (int i = 0; i < W; i++) {
                float one[1] = {0};
                if (at + i < left)
                    load_f32(from + at + i, one);
                some[i] = one[0];
            }
        }
        HST_UNROLL
        for (int i = 0; i < W; i++)
            v[k + i] = some[i];
    }
}

/* The block's scale, for all lanes. A NaN's bits are above an infinity's, as integers. */
static __device__ __forceinline__ float quant_scale(const float (&v)[QUANT_EACH], bool four)
{
    unsigned most = 0;
    HST_UNROLL
    for (int i = 0; i < QUANT_EACH; i++)
        most = max(most, __float_as_uint(v[i]) & 0x7fffffffu);
    HST_UNROLL
    for (int distance = 16; distance > 0; distance /= 2)
        most = max(most, __shfl_xor_sync(HST_FULL_WARP, most, distance));
    if (most >= 0x7f800000u)
        return __uint_as_float(0x7fc00000u);
    const float greatest = four ? 7.0f : 127.0f;
    const float scale = __fdiv_rn(__uint_as_float(most), greatest);
    if (__float_as_uint(__fmul_rn(scale, greatest)) >= 0x7f800000u)
        return __uint_as_float(__float_as_uint(scale) - 1); /* the next smaller number */
    return scale < 0x1p-126f ? 0.0f : scale;
}

/* What quant_integer takes beside the scale. */
static __device__ __forceinline__ float quant_reciprocal(float scale)
{
    return scale > 0 ? __frcp_rn(scale) : 0.0f;
}

/* The nearest integer to x / scale, to even; 0 where the scale is none. */
static __device__ __forceinline__ int quant_integer(float x, float scale, float reciprocal)
{
    if (!(scale > 0))
        return 0;
    float q = rintf(__fmul_rn(x, reciprocal));
    const float left = 2.0f * __fmaf_rn(-q, scale, x);
    const bool odd = (int)q & 1;
    if (left > scale || (left == scale && odd))
        q += 1.0f;
    else if (left < -scale || (left == -scale && odd))
        q -= 1.0f;
    return (int)q;
}

/* The value of an integer. */
static __device__ __forceinline__ float quant_times(float q, float scale)
{
    const float x = __fmul_rn(q, scale);
    return isnan(x) ? __uint_as_float(0x7fc00000u) : x;
}
#endif
