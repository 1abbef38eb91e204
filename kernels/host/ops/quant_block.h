/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_KERNELS_HOST_QUANT_BLOCK_H
#define HST_KERNELS_HOST_QUANT_BLOCK_H
/*
 * A block of 512 values in f32, its scale and its integers (hoistway/quantise.h). A quotient of two
 * f32 numbers is no tie in f64 unless it is one exactly, and adding 1.5·2^52 to it there rounds it
 * to nearest even: so the integers are those of the exact quotient in every instruction set.
 */
#include "vec.h"

#define QUANT_ROUNDS      0x1.8p52
#define QUANT_SCALE_LEAST 0x1p-126f

enum { QUANT_HALF = VEC / 2 /* f64 in a vector */ };
typedef double quant_double __attribute__((vector_size(8 * QUANT_HALF)));
typedef float quant_float __attribute__((vector_size(4 * QUANT_HALF)));
typedef int64_t quant_long __attribute__((vector_size(8 * QUANT_HALF)));
typedef int8_t quant_byte __attribute__((vector_size(QUANT_HALF)));

static inline float quant_most(enum hst_quant bits)
{
    return bits == HST_INT8 ? 127 : 7;
}

/* A scale whose greatest product is no number any more is the next smaller one, so that what a
 * block gives back always has that scale again. */
static inline float quant_divide(float absmax, float most)
{
    const float scale = absmax / most;
    if (isinf(scale * most))
        return nextafterf(scale, 0);
    return scale < QUANT_SCALE_LEAST ? 0 : scale;
}

/* These are bits without the sign: those of a NaN are above an infinity's, as integers. */
static inline float quant_scale(const float *wide, float most)
{
    ivec above = {0};
    int32_t lane[VEC], absmax = 0;
    for (size_t i = 0; i < HST_QUANT_BLOCK; i += VEC) {
        const ivec size = (ivec)((uvec)vec_at(wide + i) & 0x7fffffff);
        above = (ivec)vec_pick((uvec)(size > above), (uvec)size, (uvec)above);
    }
    memcpy(lane, &above, sizeof lane);
    for (int i = 0; i < VEC; i++)
        absmax = lane[i] > absmax ? lane[i] : absmax;
    if (absmax >= 0x7f800000)
        return NAN;
    float size;
    memcpy(&size, &absmax, sizeof size);
    return quant_divide(size, most);
}

static inline void quant_round(const float *wide, float scale, int8_t *code)
{
    for (size_t i = 0; i < HST_QUANT_BLOCK; i += QUANT_HALF) {
        quant_float narrow;
        memcpy(&narrow, wide + i, sizeof narrow);
        const quant_double x =
            __builtin_convertvector(narrow, quant_double) / (double)scale + QUANT_ROUNDS;
        const quant_byte q = __builtin_convertvector((quant_long)x, quant_byte);
        memcpy(code + i, &q, sizeof q);
    }
}

/* The values of integers. NaN times whatever is NaN, whose bits are then those that are written. */
VEC_INLINE vec quant_times(const float *code, float scale)
{
    const vec x = vec_at(code) * scale;
    return (vec)vec_pick((uvec)(x != x), (uvec){0} + 0x7fc00000, (uvec)x);
}

#endif
