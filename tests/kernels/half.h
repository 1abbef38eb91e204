/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_TESTS_KERNELS_HALF_H
#define HST_TESTS_KERNELS_HALF_H
/*
 * bf16 and f16 by their definition, in float64 arithmetic: what conversions that work on bits, or
 * are instructions, are compared with.
 */
#include <hoistway/kernels.h>
#include <math.h>

struct half_format {
    int fraction_bits, bias;
};

static inline struct half_format half_format_of(enum hst_dtype dtype)
{
    return dtype == HST_BF16 ? (struct half_format){7, 127} : (struct half_format){10, 15};
}

/** The number that a pattern is. */
static inline double half_value(enum hst_dtype dtype, uint16_t bits)
{
    struct half_format f = half_format_of(dtype);
    int exponent = (bits & 0x7fff) >> f.fraction_bits, hidden = 1 << f.fraction_bits;
    int fraction = bits & (hidden - 1);
    double size = exponent ? ldexp(hidden + fraction, exponent - f.bias - f.fraction_bits)
                           : ldexp(fraction, 1 - f.bias - f.fraction_bits);
    if (exponent == 2 * f.bias + 1)
        size = fraction ? NAN : INFINITY;
    return bits & 0x8000 ? -size : size;
}

/** The pattern of the nearest number, ties to even; a NaN becomes the positive one, no payload. */
static inline uint16_t half_round(enum hst_dtype dtype, double value)
{
    struct half_format f = half_format_of(dtype);
    int least = 1 - f.bias - f.fraction_bits, exponent;
    uint32_t infinity = (2u * (uint32_t)f.bias + 1) << f.fraction_bits;
    if (isnan(value))
        return (uint16_t)(infinity | 1u << (f.fraction_bits - 1));
    uint32_t bits = value == 0 ? 0 : infinity;
    if (value != 0 && !isinf(value)) {
        (void)frexp(value, &exponent); /* |value| in [2^(exponent−1), 2^exponent) */
        int step = exponent - 1 - f.fraction_bits;
        step = step < least ? least : step;
        double steps = nearbyint(ldexp(fabs(value), -step));
        if (step - least <= 2 * f.bias) /* a carry into the exponent is part of the sum */
            bits = ((uint32_t)(step - least) << f.fraction_bits) + (uint32_t)steps;
    }
    bits = bits < infinity ? bits : infinity;
    return (uint16_t)(bits | (signbit(value) ? 0x8000u : 0));
}

enum { F16_BOUNDARIES = 0x7c00 * 10 };

/**
 * Numbers at and beside every place where rounding to f16 turns, of both signs, and what becomes of
 * each: f16 number h itself and its neighbours; the middle between it and the next, which is h's or
 * the next's as h is even or odd; and the middle's neighbours. After the last number comes 65536,
 * whose pattern is infinity's.
 */
static inline void f16_boundaries(float *x, uint16_t *want)
{
    for (unsigned h = 0; h < 0x7c00; h++) {
        float low = (float)half_value(HST_F16, (uint16_t)h);
        float high = h == 0x7bff ? 65536 : (float)half_value(HST_F16, (uint16_t)(h + 1));
        float middle = (low + high) / 2;
        const float places[5] = {low, nextafterf(low, high), nextafterf(middle, low), middle,
                                 nextafterf(middle, high)};
        const unsigned rounded[5] = {h, h, h, h + h % 2, h + 1};
        for (unsigned i = 0; i < 5; i++, x += 2, want += 2) {
            x[0] = places[i];
            x[1] = -places[i];
            want[0] = (uint16_t)rounded[i];
            want[1] = (uint16_t)(rounded[i] | 0x8000);
        }
    }
}
#endif
