/* SPDX-License-Identifier: Apache-2.0 */
/* A card's arithmetic, where a mode asks for it (arithmetic.h). */
#include <cmath>
#include <cstdint>
#include <cstring>

#include "arithmetic.h"

bool hst::card_arithmetic;

enum { TERMS = 8, SUM_BITS = 26, ULPS = 2 };

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

float hst::card_exp2(float x)
{
    const float least = 0x1p-126f; /* below it numbers are 0, as arguments and as results */
    if (std::fabs(x) < least)
        return 1;
    float y = (float)std::exp2((double)x); /* the nearest */
    if (!std::isfinite(y))
        return y;
    uint32_t mixed = bits_of(x) * 0x9e3779b1u;
    mixed = (mixed ^ mixed >> 15) * 0x85ebca6bu;
    if (y >= least)
        y = float_of(bits_of(y) - ULPS + (mixed >> 8) % (2 * ULPS + 1));
    return y < least ? 0 : y;
}

/* To an f32 towards zero. */
static float cut(double x)
{
    float y = (float)x;
    return std::fabs((double)y) > std::fabs(x) ? std::nextafter(y, 0.0f) : y;
}

float hst::card_sum(const float *a, const float *b, int step, float c)
{
    double terms[TERMS + 1], greatest = std::fabs(c);
    terms[TERMS] = c;
    for (int i = 0; i < TERMS; i++) { /* exact: two elements of 16 bits */
        terms[i] = (double)a[i] * b[i * step];
        greatest = std::fmax(greatest, std::fabs(terms[i]));
    }
    double sum = 0;
    for (double term : terms)
        sum += term;
    if (greatest == 0 || !std::isfinite(sum))
        return (float)sum;
    int64_t whole = 0;
    int last = std::ilogb(greatest) - (SUM_BITS - 1); /* the place of the last bit that counts */
    for (double term : terms)
        whole += (int64_t)std::scalbn(term, -last);
    return cut(std::scalbn((double)whole, last));
}
