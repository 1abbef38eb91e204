/* SPDX-License-Identifier: Apache-2.0 */
/* The scalars: coefficients of a step, the scale of gradients, and which table is given out. */
#include "support.h"

#include <errno.h>
#include <math.h>

static const struct hst_adam_hyper good = {1e-3, 0.9, 0.999, 1e-8, 0.01};

static void assert_refused(struct hst_adam_hyper hyper, uint64_t t, float grad_scale)
{
    struct hst_adam_coef coef, before;

    memset(&coef, 0x5a, sizeof coef);
    before = coef;
    assert_int_equal(hst_adam_coef_init(&hyper, t, grad_scale, &coef), -EINVAL);
    assert_memory_equal(&coef, &before, sizeof coef);
}

static void bad_values_are_refused_and_leave_the_output_alone(void **state)
{
    (void)state;
    assert_refused(good, 0, 1);
    assert_refused(good, 1, NAN);
    assert_refused(good, 1, INFINITY);

    const double bad[][5] = {
        /* lr */ {NAN, 0.9, 0.999, 1e-8, 0},
        {-1e-9, 0.9, 0.999, 1e-8, 0},
        {INFINITY, 0.9, 0.999, 1e-8, 0},
        {1e38, 0.9, 0.999, 1e-8, 0}, /* 1e38 / (1 - β1) is no f32 */
        /* β1 */ {1e-3, NAN, 0.999, 1e-8, 0},
        {1e-3, 1.0, 0.999, 1e-8, 0},
        {1e-3, -0.1, 0.999, 1e-8, 0},
        /* β2 */ {1e-3, 0.9, NAN, 1e-8, 0},
        {1e-3, 0.9, 1.0, 1e-8, 0},
        {1e-3, 0.9, -0.1, 1e-8, 0},
        /* eps */ {1e-3, 0.9, 0.999, NAN, 0},
        {1e-3, 0.9, 0.999, 0, 0},
        {1e-3, 0.9, 0.999, -1e-8, 0},
        {1e-3, 0.9, 0.999, 1e-60, 0}, /* 0 as f32 */
        {1e-3, 0.9, 0.999, INFINITY, 0},
        /* weight decay */ {1e-3, 0.9, 0.999, 1e-8, NAN},
        {1e-3, 0.9, 0.999, 1e-8, -0.1},
        {1e-3, 0.9, 0.999, 1e-8, INFINITY},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_refused(
            (struct hst_adam_hyper){bad[i][0], bad[i][1], bad[i][2], bad[i][3], bad[i][4]}, 1, 1);
}

static void assert_rounded(float got, long double want)
{
    /* Once rounded from a float64 that is itself off in the 13th digit at most. */
    long double ulp = fmaxl(fabsl(want) * 0x1p-23L, 0x1p-149L);
    assert_true(fabsl((long double)got - want) <= 0.50001L * ulp);
}

static void coefficients_match_extended_precision_for_any_step(void **state)
{
    static const uint64_t steps[] = {1, 2, 3, 10, 999, 1000, 65537, 1000000, UINT64_MAX};
    static const double betas[] = {0.0, 0.5, 0.9, 0.95, 0.999, 0.9999, 0.9999999999};
    (void)state;

    for (size_t s = 0; s < sizeof steps / sizeof steps[0]; s++)
        for (size_t b = 0; b < sizeof betas / sizeof betas[0]; b++) {
            struct hst_adam_hyper h = {1e-3, betas[b], betas[b], 1e-8, 0.1};
            struct hst_adam_coef c;
            long double beta = betas[b], bias = -expm1l((long double)steps[s] * log1pl(beta - 1));
            assert_int_equal(hst_adam_coef_init(&h, steps[s], 0.25f, &c), 0);
            assert_rounded(c.step_size, (long double)h.lr / bias);
            assert_rounded(c.decay, (long double)h.weight_decay * bias);
            assert_rounded(c.inv_sqrt_bias2, 1 / sqrtl(bias));
            assert_rounded(c.one_minus_beta1, 1 - beta);
            assert_rounded(c.one_minus_beta2, 1 - beta);
            assert_true(fabsl((long double)c.beta1_hi + (long double)c.beta1_lo - beta) <=
                        0x1p-48L);
            assert_true(c.beta2_hi == c.beta1_hi && c.beta2_lo == c.beta1_lo);
            assert_true(c.grad_scale == 0.25f && c.eps == 1e-8f && c.l2 == 0.1f);
        }
}

static float scale_of(double norm, double factor, double max_norm)
{
    const struct hst_grad_scale_in in = {norm, factor, max_norm};
    float scale;
    assert_int_equal(hst_grad_scale(&in, &scale), 0);
    return scale;
}

static void scale_clips_to_the_smaller_of_one_and_the_ratio(void **state)
{
    (void)state;
    assert_true(scale_of(0.5, 1, 1.0) == 1.0f);
    assert_true(scale_of(0.0, 1, 1.0) == 1.0f);
    assert_true(scale_of(4.0, 1, 1.0) == (float)(1.0 / 4.000001));
    assert_true(scale_of(1.0, 1, 1.0) == (float)(1.0 / 1.000001));
    assert_true(scale_of(1e18, 1, INFINITY) == 1.0f);
    assert_true(scale_of(1e300, 1, 1e-300) == 0.0f);
}

static void scale_undoes_the_loss_scale_before_it_clips(void **state)
{
    (void)state;
    assert_true(scale_of(0.5 * 1024, 1.0 / 1024, 1.0) == 1.0f / 1024);
    assert_true(scale_of(4.0 * 1024, 1.0 / 1024, 1.0) == (float)(1.0 / 4.000001) / 1024);
}

static void without_clipping_the_scale_is_the_factor_whatever_the_norm(void **state)
{
    (void)state;
    assert_true(scale_of(5.0, 1, 0.0) == 1.0f);
    assert_true(scale_of(5.0, 0.125, -1.0) == 0.125f);
    assert_true(scale_of(1e20, 0.125, 0.0) == 0.125f);
}

static void no_scale_is_given_for_values_that_are_not_finite(void **state)
{
    static const struct {
        struct hst_grad_scale_in in;
        int rc;
    } bad[] = {
        {{NAN, 1, 1}, -EOVERFLOW},      {{INFINITY, 1, 1}, -EOVERFLOW}, {{NAN, 1, 0}, -EOVERFLOW},
        {{INFINITY, 1, 0}, -EOVERFLOW}, {{1, 1, NAN}, -EINVAL},         {{1, NAN, 1}, -EINVAL},
        {{1, INFINITY, 1}, -EINVAL},    {{1, 0, 1}, -EINVAL},           {{1, -1, 1}, -EINVAL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        float scale = 42;
        assert_int_equal(hst_grad_scale(&bad[i].in, &scale), bad[i].rc);
        assert_true(scale == 42);
    }
}

static void no_scale_is_given_where_v_might_become_infinite(void **state)
{
    static const struct hst_grad_scale_in bad[] = {
        {0x1.fe0001p63, 1, 0},       {1e30, 1, INFINITY},        {1e300, 0.125, 0},
        {0x1.fe0001p73, 0x1p-10, 0}, {0x1.fe0001p53, 0x1p10, 0}, {1e30, 1, 1e20},
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        float scale = 42;
        assert_int_equal(hst_grad_scale(&bad[i], &scale), -EOVERFLOW);
        assert_true(scale == 42);
    }
    assert_true(scale_of(HST_GRAD_NORM_MOST, 1, 0) == 1.0f);
    assert_true(scale_of(0x1.fep73, 0x1p-10, 0) == 0x1p-10f);
    assert_true(scale_of(1e38, 1, 1e19) == 1e-19f); /* clipped, what counts is what is left */
}

/* Vigna's splitmix64.c, seeded with 1 and 2: prng.di.unimi.it/splitmix64.c */
static void the_hash_of_a_step_is_the_first_number_of_splitmix64(void **state)
{
    struct hst_adam_coef c;
    (void)state;
    assert_int_equal(hst_adam_coef_init(&good, 1, 1, &c), 0);
    assert_true(c.noise == 0x910a2dec89025cc1u);
    assert_int_equal(hst_adam_coef_init(&good, 2, 1, &c), 0);
    assert_true(c.noise == 0x975835de1c9756ceu);
}

static void tables_are_those_that_the_cpu_and_its_system_support(void **state)
{
    const struct hst_cpu_adam_ops *best = hst_cpu_adam_ops(HST_CPU_ISA_C);
    bool avx2 = false, avx512 = false, vbmi = false;
    (void)state;

#ifdef __x86_64__
    __builtin_cpu_init();
    avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    vbmi = avx512 && __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2");
#endif
    assert_string_equal(best->name, "c");
    assert_int_equal(hst_cpu_adam_ops(HST_CPU_ISA_AVX2) != NULL, avx2);
    assert_int_equal(hst_cpu_adam_ops(HST_CPU_ISA_AVX512) != NULL, avx512);
    assert_int_equal(hst_cpu_adam_ops(HST_CPU_ISA_AVX512VBMI) != NULL, vbmi);
    if (avx2) {
        best = hst_cpu_adam_ops(HST_CPU_ISA_AVX2);
        assert_string_equal(best->name, "avx2");
    }
    if (avx512) {
        best = hst_cpu_adam_ops(HST_CPU_ISA_AVX512);
        assert_string_equal(best->name, "avx512");
    }
    if (vbmi) {
        best = hst_cpu_adam_ops(HST_CPU_ISA_AVX512VBMI);
        assert_string_equal(best->name, "avx512vbmi");
    }
#ifdef __aarch64__
    best = hst_cpu_adam_ops(HST_CPU_ISA_NEON);
    assert_string_equal(best->name, "neon");
#else
    assert_null(hst_cpu_adam_ops(HST_CPU_ISA_NEON));
#endif
    assert_ptr_equal(hst_cpu_adam_ops(HST_CPU_ISA_AUTO), best);
    assert_null(hst_cpu_adam_ops((enum hst_cpu_isa)99));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_values_are_refused_and_leave_the_output_alone),
        cmocka_unit_test(coefficients_match_extended_precision_for_any_step),
        cmocka_unit_test(scale_clips_to_the_smaller_of_one_and_the_ratio),
        cmocka_unit_test(scale_undoes_the_loss_scale_before_it_clips),
        cmocka_unit_test(without_clipping_the_scale_is_the_factor_whatever_the_norm),
        cmocka_unit_test(no_scale_is_given_for_values_that_are_not_finite),
        cmocka_unit_test(no_scale_is_given_where_v_might_become_infinite),
        cmocka_unit_test(the_hash_of_a_step_is_the_first_number_of_splitmix64),
        cmocka_unit_test(tables_are_those_that_the_cpu_and_its_system_support),
    };
    return cmocka_run_group_tests_name("coef", tests, NULL, NULL);
}
