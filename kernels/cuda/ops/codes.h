/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_CUDA_CODES_H
#define HST_CUDA_CODES_H
/*
 * Moments in codes of 8 bits, to the bit what the host makes of them: hoistway/cpu_adam.h states
 * the map. The host looks lines up in tables, here they are computed, since a table that each
 * thread of a warp reads elsewhere is read in turns. Lines differ by powers of two alone, and those
 * change no rounding.
 */
#include "vector.h"

/* A code's bits below a sign: of m one less than of v. */
enum { M_BITS = 7, V_BITS = 8 };

#define CODE_BLOCK  256
#define V_LEAST     0x1p-25f                           /* what v's code 0 stands for */
#define M_TO_SCALE  ((float)(1 / (1.0 - 7.0 / 8 / 128))) /* 1 over what m's code 127 does */
#define V_TO_SCALE  ((float)(1 / (1.0 - 7.0 / 8 / 256))) /* 1 over what v's code 255 does */
#define LINE_SLOPE  ((float)(8.0 / 7))
#define LINE_START  ((float)(6.0 / 7))

/*
 * This is what a code stands for, as a part of the scale: 0 for code 0. With 2^i the code's highest
 * bit it is 8^(i-BITS+1)·(1/8 + 7/8·(code + 1/2 - 2^i) / 2^i), each operation of which is exact.
 */
template <int BITS> static __device__ __forceinline__ float part_of_code(uint32_t code)
{
    const float x = (float)code, power = __uint_as_float(__float_as_uint(x) & 0x7f800000u);
    const float least = 1.0f / (float)(1u << 3 * (BITS - 1));
    const float middle = __fmaf_rn(0.875f, x, __fmaf_rn(-0.75f, power, 0.4375f));
    return __fmul_rn(__fmul_rn(__fmul_rn(least, power), power), middle);
}

static __device__ __forceinline__ float m_of_code(uint32_t code, float scale)
{
    const float m = __fmul_rn(part_of_code<M_BITS>(code & 0x7fu), scale);
    return __uint_as_float(__float_as_uint(m) ^ (code & 0x80u) << 24);
}

static __device__ __forceinline__ float v_of_code(uint32_t code, float scale)
{
    return __fmul_rn(fmaxf(part_of_code<V_BITS>(code), V_LEAST), scale);
}

/* The code of a magnitude: 1 over the scale is `inverse`. A segment has three exponents. */
template <int BITS> static __device__ __forceinline__ uint32_t code_of(uint32_t bits, float inverse)
{
    const float y = __fmaf_rn(__uint_as_float(bits & 0x7fffffffu), inverse, 0x1p-31f);
    const int below = 126 - (int)(__float_as_uint(y) >> 23); /* y is less than 2^-below */
    const int segment = BITS - 1 - below / 3, i = segment > 0 ? segment : 0;
    const uint32_t slope =
        __float_as_uint(LINE_SLOPE) + ((uint32_t)(3 * (BITS - 1) - 2 * i) << 23);
    const uint32_t start = __float_as_uint(LINE_START) + ((uint32_t)i << 23);
    return (uint32_t)__fmaf_rn(__uint_as_float(slope), y, __uint_as_float(start));
}

static __device__ __forceinline__ uint32_t code_of_m(float m, float inverse)
{
    const uint32_t bits = __float_as_uint(m);
    return code_of<M_BITS>(bits, inverse) | (bits >> 24 & 0x80u);
}

static __device__ __forceinline__ uint32_t code_of_v(float v, float inverse)
{
    return code_of<V_BITS>(__float_as_uint(v), inverse);
}

/* A block's scale, and 1 over it; 0 there: all codes are 0. */
struct code_scale {
    float value, inverse;
};

/* It goes by the bits of a block's largest magnitude: a NaN's are beyond infinity's, those beyond
   all. */
static __device__ __forceinline__ struct code_scale scale_of(uint32_t largest, float to_scale)
{
    const float scale = __fmul_rn(__uint_as_float(largest), to_scale);
    if (!(scale <= 0x1.fffffep127f))
        return {__uint_as_float(0x7fc00000u), 0};
    if (scale < 0x1p-126f)
        return {0, 0};
    return {scale, __fdiv_rn(1.0f, scale)};
}

static __device__ __forceinline__ uint32_t larger_magnitude(uint32_t largest, float x)
{
    const uint32_t bits = __float_as_uint(x) & 0x7fffffffu;
    return bits > largest ? bits : largest;
}

static __device__ __forceinline__ uint32_t warp_largest(uint32_t x)
{
    HST_UNROLL
    for (int distance = 16; distance > 0; distance /= 2) {
        const uint32_t other = __shfl_xor_sync(HST_FULL_WARP, x, distance);
        x = other > x ? other : x;
    }
    return x;
}

#endif
