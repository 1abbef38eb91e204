/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_KERNELS_HOST_VEC_H
#define HST_KERNELS_HOST_VEC_H
/*
 * Vectors of the instruction set that a file is compiled for, written so that every set gives the same bits:
 *   - Element-wise work is plain IEEE arithmetic. No fused multiply-add: a processor without one would have
 *     to emulate it, fifty times slower, and these loops wait for memory or for exp anyway.
 *   - A reduction has 16 lanes in every set: element i goes to lane i mod 16, one operation per element in
 *     rising i; the lanes meet as a tree 8, 4, 2, 1.
 * Loads and stores take the length of the row and the place in it: what lies beyond the end reads as a given
 * number and is not stored, so that a tail needs no loop of its own.
 */
#include <hoistway/kernels.h>
#include <math.h>
#include <string.h>

#if defined(__AVX512F__)
#include <immintrin.h>
enum { VEC = 16 };
#elif defined(__AVX2__)
#include <immintrin.h>
enum { VEC = 8 };
#else
enum { VEC = 4 };
#endif
enum { LANES = 16, PARTS = LANES / VEC };

#define VEC_INLINE static inline __attribute__((always_inline))

typedef float vec __attribute__((vector_size(4 * VEC)));
typedef uint32_t uvec __attribute__((vector_size(4 * VEC)));
typedef uint16_t half_vec __attribute__((vector_size(2 * VEC)));

VEC_INLINE vec vec_all(float x)
{
    return x - (vec){0}; /* minus keeps the sign of -0 */
}

/* Where mask is all ones a, where it is zero b. */
VEC_INLINE uvec vec_pick(uvec mask, uvec a, uvec b)
{
    return (mask & a) | (~mask & b);
}

/* a > b ? a : b, so b where either is a NaN. */
VEC_INLINE vec vec_above(vec a, vec b)
{
#if defined(__AVX512F__)
    return (vec)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (vec)_mm256_max_ps((__m256)a, (__m256)b);
#else
    return (vec)vec_pick((uvec)(a > b), (uvec)a, (uvec)b);
#endif
}

/* a < b ? a : b, so b where either is a NaN. */
VEC_INLINE vec vec_below(vec a, vec b)
{
#if defined(__AVX512F__)
    return (vec)_mm512_min_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (vec)_mm256_min_ps((__m256)a, (__m256)b);
#else
    return (vec)vec_pick((uvec)(a < b), (uvec)a, (uvec)b);
#endif
}

/* Round to nearest even; a NaN keeps its sign and upper payload and is made quiet. */
VEC_INLINE half_vec vec_to_bf16(vec x)
{
    uvec bits = (uvec)x;
    uvec rounded = bits + 0x7fff + ((bits >> 16) & 1);
    uvec result = vec_pick((uvec)(x != x), bits | 0x400000, rounded);
    return __builtin_convertvector(result >> 16, half_vec);
}

VEC_INLINE vec vec_from_bf16(half_vec x)
{
    return (vec)(__builtin_convertvector(x, uvec) << 16);
}

/* Elements [at, at + VEC) of a row of `count`; `beyond` past its end. */
VEC_INLINE vec vec_load(const void *row, size_t at, size_t count, enum hst_dtype dtype,
                        float beyond)
{
    vec x;
    half_vec h;
    if (dtype == HST_F32) {
        const float *from = (const float *)row + at;
        if (at + VEC <= count) {
            memcpy(&x, from, sizeof x);
            return x;
        }
        x = vec_all(beyond);
        if (at < count) memcpy(&x, from, (count - at) * 4);
        return x;
    }
    const uint16_t *from = (const uint16_t *)row + at;
    if (at + VEC <= count) {
        memcpy(&h, from, sizeof h);
        return vec_from_bf16(h);
    }
    h = vec_to_bf16(vec_all(beyond)); /* only 0 and infinities are asked for: exact */
    if (at < count) memcpy(&h, from, (count - at) * 2);
    return vec_from_bf16(h);
}

VEC_INLINE void vec_store(void *row, size_t at, size_t count, enum hst_dtype dtype, vec x)
{
    size_t left = at < count ? count - at : 0;
    if (dtype == HST_F32) {
        float *to = (float *)row + at;
        if (left >= VEC)
            memcpy(to, &x, sizeof x);
        else if (left)
            memcpy(to, &x, left * 4);
        return;
    }
    uint16_t *to = (uint16_t *)row + at;
    half_vec h = vec_to_bf16(x);
    if (left >= VEC)
        memcpy(to, &h, sizeof h);
    else if (left)
        memcpy(to, &h, left * 2);
}

struct lanes {
    vec part[PARTS];
};

VEC_INLINE struct lanes lanes_all(float x)
{
    struct lanes l;
    for (int p = 0; p < PARTS; p++)
        l.part[p] = vec_all(x);
    return l;
}

VEC_INLINE float lanes_sum(struct lanes l)
{
    float lane[LANES];
    memcpy(lane, &l, sizeof lane);
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] += lane[i + half];
    return lane[0];
}

VEC_INLINE float lanes_max(struct lanes l)
{
    float lane[LANES];
    memcpy(lane, &l, sizeof lane);
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] = lane[i] > lane[i + half] ? lane[i] : lane[i + half];
    return lane[0];
}

/*
 * e^x, within 1 ulp of the exact value over all floats (tested densely, subnormal results included; NaN stays
 * NaN). x = n·ln 2 + r with |r| ≤ ln 2 / 2: n by adding and taking away 1.5·2^23; ln 2 in two parts, the first
 * short enough that n times it is exact; e^r = 1 + (r + r²·p(r)), p fitted for least relative error of the
 * whole on that interval; 2^n in two factors, since n reaches beyond the exponents of one float.
 */
VEC_INLINE vec vec_exp(vec x)
{
    const float magic = 12582912.0f;
    x = vec_above(vec_all(-104.0f), x); /* e^-104 rounds to 0 */
    x = vec_below(vec_all(89.0f), x);   /* e^89 rounds to infinity */
    vec shifted = x * 0x1.715476p+0f + magic;
    vec n = shifted - magic;
    vec r = (x - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;
    vec p = vec_all(0x1.6b6e1ap-10f);
    p = p * r + 0x1.122fc2p-7f;
    p = p * r + 0x1.555688p-5f;
    p = p * r + 0x1.5554a4p-3f;
    p = p * r + 0.5f;
    vec y = (r * r * p + r) + 1.0f;
    uvec power = (uvec)shifted - 0x4b400000; /* n as an integer */
    uvec first = (uvec)((__typeof__((vec){0} > (vec){0})) power >> 1);
    vec scale_first = (vec)((first + 127) << 23);
    vec scale_second = (vec)((power - first + 127) << 23);
    return y * scale_first * scale_second;
}

/* 1 / (1 + e^-x). */
VEC_INLINE vec vec_sigmoid(vec x)
{
    return 1.0f / (1.0f + vec_exp(-x));
}
#endif
