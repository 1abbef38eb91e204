/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_KERNELS_HOST_VEC_H
#define HST_KERNELS_HOST_VEC_H
/*
 * Vectors of the instruction set that a file is compiled for, written so that every set gives the
 * same bits:
 *   - Element-wise work is plain IEEE arithmetic. No fused multiply-add: a processor without one
 * would have to call a function for each, and these loops wait for memory more than for arithmetic.
 *   - A reduction has 16 lanes in every set: element i goes to lane i mod 16, one operation per
 * element in rising i; the lanes meet as a tree 8, 4, 2, 1. Loads and stores take the length of the
 * row and the place in it: what lies beyond the end reads as a given number and is not stored, so
 * that a tail needs no loop of its own.
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
typedef int32_t ivec __attribute__((vector_size(4 * VEC)));
typedef uint16_t half_vec __attribute__((vector_size(2 * VEC)));

VEC_INLINE vec vec_all(float x)
{
    return x - (vec){0}; /* minus keeps the sign of -0 */
}

/* first, first + 1, … */
VEC_INLINE uvec vec_count(uint32_t first)
{
    uvec x = {0};
    for (uint32_t i = 0; i < VEC; i++)
        x[i] = first + i;
    return x;
}

/* It picks a where mask is all ones, b where it is zero. */
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

/* Between 16 and 32 bits. Compilers make several instructions of what is one. */
VEC_INLINE uvec vec_widen(half_vec x)
{
#if defined(__AVX512F__)
    return (uvec)_mm512_cvtepu16_epi32((__m256i)x);
#elif defined(__AVX2__)
    return (uvec)_mm256_cvtepu16_epi32((__m128i)x);
#else
    return __builtin_convertvector(x, uvec);
#endif
}

/* The upper half of each. */
VEC_INLINE half_vec vec_upper(uvec x)
{
#if defined(__AVX512F__)
    return (half_vec)_mm512_cvtepi32_epi16((__m512i)(x >> 16));
#else
    return __builtin_convertvector(x >> 16, half_vec);
#endif
}

/* Round to nearest even; a NaN keeps its sign and upper payload and is made quiet. */
VEC_INLINE half_vec vec_to_bf16(vec x)
{
    uvec bits = (uvec)x;
    uvec rounded = bits + 0x7fff + ((bits >> 16) & 1);
    uvec result = vec_pick((uvec)(x != x), bits | 0x400000, rounded);
    return vec_upper(result);
}

VEC_INLINE vec vec_from_bf16(half_vec x)
{
    return (vec)(vec_widen(x) << 16);
}

/*
 * As vec_to_bf16, and what rounds beyond 65504 becomes an infinity. Where there is no instruction:
 * below 2^-14, the least normal f16, adding 0.5 leaves the number, rounded to f16's least step
 * 2^-24, in the low bits of the sum; above, the exponent's bias goes from 127 to 15 and a carry out
 * of the rounded fraction goes on into the exponent, up to infinity's.
 */
VEC_INLINE half_vec vec_to_f16(vec x)
{
#if defined(__AVX512F__)
    return (half_vec)_mm512_cvtps_ph((__m512)x, _MM_FROUND_TO_NEAREST_INT);
#elif defined(__F16C__)
    return (half_vec)_mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT);
#else
    uvec size = (uvec)x & 0x7fffffff, sign = (uvec)x >> 16 & 0x8000;
    uvec small = (uvec)((vec)size + 0.5f) - 0x3f000000;
    uvec normal = (size - (112 << 23) + 0xfff + (size >> 13 & 1)) >> 13;
    uvec result = vec_pick((uvec)((ivec)size < 113 << 23), small, normal);
    result = vec_pick((uvec)((ivec)size >= 143 << 23), (uvec){0} + 0x7c00, result);
    result = vec_pick((uvec)(x != x), (size >> 13 & 0x3ff) | 0x7e00, result);
    return __builtin_convertvector(result | sign, half_vec);
#endif
}

/* Exact; a NaN keeps its sign and payload and is made quiet. */
VEC_INLINE vec vec_from_f16(half_vec x)
{
#if defined(__AVX512F__)
    return (vec)_mm512_cvtph_ps((__m256i)x);
#elif defined(__F16C__)
    return (vec)_mm256_cvtph_ps((__m128i)x);
#else
    uvec bits = __builtin_convertvector(x, uvec), size = (bits & 0x7fff) << 13;
    uvec small = (uvec)((vec)(size + (113 << 23)) - 0x1p-14f); /* 2^-14 + it, without the 2^-14 */
    uvec result = vec_pick((uvec)((ivec)size < 1 << 23), small, size + (112 << 23));
    result = vec_pick((uvec)((ivec)size >= 31 << 23), size | 0x7f800000, result);
    result |= (uvec)((ivec)size > 31 << 23) & 0x400000;
    return (vec)(result | (bits & 0x8000) << 16);
#endif
}

/* The first `left` < VEC elements; no call to memcpy, which would empty the vector registers. */
VEC_INLINE vec vec_load_some(const float *from, size_t left, vec beyond)
{
#if defined(__AVX512F__)
    return (vec)_mm512_mask_loadu_ps((__m512)beyond, (__mmask16)((1u << left) - 1), from);
#else
    for (size_t i = 0; i < left; i++)
        beyond[i] = from[i];
    return beyond;
#endif
}

VEC_INLINE half_vec half_load_some(const uint16_t *from, size_t left, half_vec beyond)
{
#if defined(__AVX512F__)
    return (half_vec)_mm256_mask_loadu_epi16((__m256i)beyond, (__mmask16)((1u << left) - 1), from);
#else
    for (size_t i = 0; i < left; i++)
        beyond[i] = from[i];
    return beyond;
#endif
}

VEC_INLINE void vec_store_some(float *to, size_t left, vec x)
{
#if defined(__AVX512F__)
    _mm512_mask_storeu_ps(to, (__mmask16)((1u << left) - 1), (__m512)x);
#else
    for (size_t i = 0; i < left; i++)
        to[i] = x[i];
#endif
}

VEC_INLINE void half_store_some(uint16_t *to, size_t left, half_vec x)
{
#if defined(__AVX512F__)
    _mm256_mask_storeu_epi16(to, (__mmask16)((1u << left) - 1), (__m256i)x);
#else
    for (size_t i = 0; i < left; i++)
        to[i] = x[i];
#endif
}

/* A whole vector of f32. */
VEC_INLINE vec vec_at(const float *from)
{
    vec x;
    memcpy(&x, from, sizeof x);
    return x;
}

/* Elements [at, at + VEC) of a row of `count`; past its end `beyond`, which is 0 or an infinity. */
VEC_INLINE vec vec_load(const void *row, size_t at, size_t count, enum hst_dtype dtype,
                        float beyond)
{
    size_t left = at < count ? count - at : 0;
    if (dtype == HST_F32) {
        vec x = vec_all(beyond);
        const float *from = (const float *)row + at;
        if (left < VEC) return vec_load_some(from, left, x);
        memcpy(&x, from, sizeof x);
        return x;
    }
    bool bf16 = dtype == HST_BF16;
    half_vec h = bf16 ? vec_to_bf16(vec_all(beyond)) : vec_to_f16(vec_all(beyond));
    const uint16_t *from = (const uint16_t *)row + at;
    if (left < VEC)
        h = half_load_some(from, left, h);
    else
        memcpy(&h, from, sizeof h);
    return bf16 ? vec_from_bf16(h) : vec_from_f16(h);
}

VEC_INLINE void vec_store(void *row, size_t at, size_t count, enum hst_dtype dtype, vec x)
{
    size_t left = at < count ? count - at : 0;
    if (dtype == HST_F32) {
        float *to = (float *)row + at;
        if (left < VEC)
            vec_store_some(to, left, x);
        else
            memcpy(to, &x, sizeof x);
        return;
    }
    uint16_t *to = (uint16_t *)row + at;
    half_vec h = dtype == HST_BF16 ? vec_to_bf16(x) : vec_to_f16(x);
    if (left < VEC)
        half_store_some(to, left, h);
    else
        memcpy(to, &h, sizeof h);
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

/* Four lanes: what every set can split its vectors into, and where their trees end alike. */
typedef float quad __attribute__((vector_size(16)));
typedef uint32_t uquad __attribute__((vector_size(16)));

struct quads {
    quad of[LANES / 4];
};

VEC_INLINE struct quads lanes_split(struct lanes l)
{
    struct quads q;
    memcpy(&q, &l, sizeof q);
    return q;
}

VEC_INLINE float lanes_sum(struct lanes l)
{
    struct quads q = lanes_split(l);
    quad four = (q.of[0] + q.of[2]) + (q.of[1] + q.of[3]);
    return (four[0] + four[2]) + (four[1] + four[3]);
}

VEC_INLINE quad quad_above(quad a, quad b)
{
    uquad mask = (uquad)(a > b);
    return (quad)((mask & (uquad)a) | (~mask & (uquad)b));
}

VEC_INLINE float lanes_max(struct lanes l)
{
    struct quads q = lanes_split(l);
    quad four = quad_above(quad_above(q.of[0], q.of[2]), quad_above(q.of[1], q.of[3]));
    float even = four[0] > four[2] ? four[0] : four[2], odd = four[1] > four[3] ? four[1] : four[3];
    return even > odd ? even : odd;
}

/* y · 2^n for whole |n| ≤ 150, rounded once; shifted is n + 1.5·2^23, whose low bits are n. */
VEC_INLINE vec vec_scale(vec y, vec n, vec shifted)
{
#if defined(__AVX512F__)
    (void)shifted;
    return (vec)_mm512_scalef_ps((__m512)y, (__m512)n);
#else
    (void)n;
    uvec power = (uvec)shifted - 0x4b400000;
    uvec first = (uvec)((__typeof__((vec){0} > (vec){0})) power >> 1);
    return y * (vec)((first + 127) << 23) * (vec)((power - first + 127) << 23);
#endif
}

/*
 * e^x, within 1 ulp of the exact value over all floats (tested densely, subnormal results included;
 * NaN stays NaN). x = n·ln 2 + r with |r| ≤ ln 2 / 2: n by adding and taking away 1.5·2^23; ln 2 in
 * two parts, the first short enough that n times it is exact; e^r = 1 + (r + r²·p(r)), p fitted for
 * least relative error of the whole on that interval. 2^n is two factors where the processor
 * cannot scale by itself: n reaches beyond the exponents of one float.
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
    return vec_scale(y, n, shifted);
}

/* 1 / (1 + e^-x). */
VEC_INLINE vec vec_sigmoid(vec x)
{
    return 1.0f / (1.0f + vec_exp(-x));
}
#endif
