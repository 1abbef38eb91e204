/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An exact sum of doubles. The smallest double is 2^-1074, the largest below 2^1024: 2,098 bits,
 * and 78 bits of room for carries. A double has 53 bits, which fall into three limbs at most. A
 * limb takes 2^30 additions of 32 bits before its carry has to go on.
 */
#include "comm/exact.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { NANS = EXACT_LIMBS, PLUS, MINUS }; /* behind the limbs */
#define SETTLE_AFTER (1u << 30)

__extension__ typedef unsigned __int128 wide_bits; /* 128 of them; gcc and clang have it */

static void add_non_finite(struct exact_sum *sum, uint64_t bits)
{
    const bool nan = bits << 12 != 0;
    sum->number[nan ? NANS : bits >> 63 ? MINUS : PLUS]++;
}

void exact_add(struct exact_sum *sum, double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    const unsigned exponent = bits >> 52 & 0x7ff;
    uint64_t mantissa = bits & 0xfffffffffffffull;
    if (exponent == 0x7ff) {
        add_non_finite(sum, bits);
        return;
    }
    if (exponent)
        mantissa |= 1ull << 52;
    const unsigned place = exponent ? exponent - 1 : 0; /* of the mantissa's last bit */
    const wide_bits wide = (wide_bits)mantissa << place % 32;
    const int64_t sign = bits >> 63 ? -1 : 1;
    int64_t *limb = &sum->number[place / 32];
    for (int i = 0; i < 3; i++)
        limb[i] += sign * (int64_t)(uint32_t)(wide >> 32 * i);
    if (++sum->unsettled == SETTLE_AFTER)
        exact_settle(sum);
}

void exact_settle(struct exact_sum *sum)
{
    int64_t carry = 0;
    for (int i = 0; i < EXACT_LIMBS - 1; i++) {
        const int64_t limb = sum->number[i] + carry;
        sum->number[i] = limb & 0xffffffff;
        carry = (limb - sum->number[i]) / ((int64_t)1 << 32);
    }
    sum->number[EXACT_LIMBS - 1] += carry;
    sum->unsettled = 0;
}

void exact_join(struct exact_sum *sum, struct exact_sum *other)
{
    exact_settle(sum);
    exact_settle(other);
    for (int i = 0; i < EXACT_NUMBERS; i++)
        sum->number[i] += other->number[i];
    exact_settle(sum);
}

/* The limbs are settled and not negative. */
static double round_limbs(const int64_t *limb)
{
    int top = EXACT_LIMBS - 1;
    while (top >= 0 && !limb[top])
        top--;
    if (top < 0)
        return 0;
    wide_bits high = 0; /* 128 bits from the first limb that is not 0 */
    bool below = false; /* whether there is anything behind them */
    for (int i = 0; i < 4; i++)
        high = high << 32 | (top - i >= 0 ? (uint64_t)limb[top - i] : 0);
    for (int i = top - 4; i >= 0; i--)
        below |= limb[i] != 0;
    int exponent = (top - 3) * 32 - 1074;
    for (; !(high >> 127); exponent--)
        high <<= 1;
    const wide_bits half = (wide_bits)1 << 74;
    const wide_bits rest = high & (2 * half - 1);
    uint64_t mantissa = (uint64_t)(high >> 75);
    if (rest > half || (rest == half && (below || mantissa & 1)))
        mantissa++;
    /* Below 2^-1022 the mantissa ends in as many zeros as a double has fewer bits there. */
    return ldexp((double)mantissa, exponent + 75);
}

double exact_value(const struct exact_sum *sum)
{
    const int64_t *counts = sum->number;
    if (counts[NANS] || (counts[PLUS] && counts[MINUS]))
        return NAN;
    if (counts[PLUS] || counts[MINUS])
        return counts[PLUS] ? INFINITY : -INFINITY;
    struct exact_sum settled = *sum;
    exact_settle(&settled);
    const bool negative = settled.number[EXACT_LIMBS - 1] < 0;
    if (negative) {
        for (int i = 0; i < EXACT_LIMBS; i++)
            settled.number[i] = -settled.number[i];
        exact_settle(&settled);
    }
    const double value = round_limbs(settled.number);
    return negative ? -value : value;
}
