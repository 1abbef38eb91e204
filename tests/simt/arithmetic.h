/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_SIMT_ARITHMETIC_H
#define HST_SIMT_ARITHMETIC_H
/*
 * Arithmetic as a card's, where it is less exact than the host's: within what PTX allows and what
 * has been measured of tensor cores, not the bits of any one card.
 */
#include <math.h>

namespace hst
{

/** HST_FAKE_CUDA's arithmetic=card. Kernels and warps look at it each time. */
extern bool card_arithmetic;

/** ex2.approx.ftz.f32: up to 2 ulp away, as x's bits have it; 2^0 is exactly 1. */
float card_exp2(float x);

/** c and 8 products, of a[i] and b[i * step]: aligned to the largest of them, cut off behind 26
 * bits, added, and cut off again to an f32. */
float card_sum(const float *a, const float *b, int step, float c);

inline float exp2_approx(float x)
{
    return card_arithmetic ? card_exp2(x) : exp2f(x);
}

inline float exp_approx(float x)
{
    return card_arithmetic ? card_exp2(x * 1.44269504f) : expf(x);
}

} // namespace hst

#endif
