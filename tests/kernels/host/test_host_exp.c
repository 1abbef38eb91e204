/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host device's exponential against expl: every 251st float over the whole line, and every
 * float where the result is next to overflow, to subnormals and to zero. Built for the baseline
 * set; host_isa shows that the others give the same bytes.
 */
#include "host/ops/ops.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

/* |got − exact| in units of the last place of a float of that size, subnormals included. */
static double error_ulp(float x, float got)
{
    double exact = exp((double)x); /* 2^-29 of a float's ulp off */
    if (isinf(got))
        return exact >= 0x1.ffffffp127 ? 0 : INFINITY;
    if (exact >= 0x1.ffffffp127)
        return INFINITY;
    int exponent;
    frexp(exact, &exponent);
    if (exponent < -125)
        exponent = -125;
    return fabs((double)got - exact) / ldexp(1, exponent - 24);
}

/* Bits of floats [first, last] by step; returns the largest error. */
static double worst(uint32_t first, uint32_t last, uint32_t step)
{
    double most = 0;
    for (uint64_t bits = first; bits <= last; bits += (uint64_t)step * VEC) {
        float x[VEC], y[VEC];
        for (unsigned i = 0; i < VEC; i++) {
            uint64_t at = bits + (uint64_t)i * step;
            uint32_t own = at > last ? last : (uint32_t)at;
            memcpy(&x[i], &own, 4);
        }
        vec result = vec_exp(vec_load(x, 0, VEC, HST_F32, 0));
        memcpy(y, &result, sizeof y);
        for (unsigned i = 0; i < VEC; i++)
            if (error_ulp(x[i], y[i]) > most)
                most = error_ulp(x[i], y[i]);
    }
    return most;
}

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return bits;
}

static void the_exponential_is_within_one_ulp(void **state)
{
    (void)state;
    double positive = worst(0, bits_of(INFINITY), 251),
           negative = worst(0x80000000u, bits_of(-INFINITY), 251);
    double overflow = worst(bits_of(88.7f), bits_of(88.8f), 1);
    double subnormal = worst(bits_of(-87.3f), bits_of(-87.4f), 1),
           zero = worst(bits_of(-103.9f), bits_of(-104.1f), 1);
    printf("largest error: %.3f ulp above 0, %.3f below, %.3f at overflow, %.3f at subnormals, "
           "%.3f at zero\n",
           positive, negative, overflow, subnormal, zero);
    assert_true(positive <= 1 && negative <= 1 && overflow <= 1 && subnormal <= 1 && zero <= 1);
}

static void the_exponential_keeps_nan_and_exact_values(void **state)
{
    (void)state;
    assert_true(isnan(vec_exp(vec_all(NAN))[0]));
    assert_true(vec_exp(vec_all(0))[0] == 1 && vec_exp(vec_all(-0.0f))[0] == 1);
    assert_true(vec_exp(vec_all(-INFINITY))[0] == 0 && isinf(vec_exp(vec_all(INFINITY))[0]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_exponential_is_within_one_ulp),
        cmocka_unit_test(the_exponential_keeps_nan_and_exact_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
