/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rounding of moments to bf16 by noise, seen from outside: elements whose numbers are all equal are
 * rounded up with the probability that their cut off bits say, and independently of their
 * neighbours, of the steps before, and m of v.
 *
 * What is to be rounded comes from the update with f32 moments, which gives the same numbers before
 * they are rounded. The noise depends on steps and indices alone, so these tests have one outcome;
 * a bound of 4 standard deviations is missed by chance in one of 16,000 sums.
 */
#include "support.h"

#include <math.h>

enum { COUNT = 4096, STEPS = 64, WAYS = 40 };

static const struct hst_update *rounded, *exact;
static const struct hst_adam_hyper usual = {1e-3, 0.9, 0.999, 1e-8, 0};

/* Equal elements. */
struct equals {
    uint16_t weights[COUNT], m[COUNT], v[COUNT];
    int16_t remainder[COUNT];
    float grads[COUNT];
};

static void set_equal(struct equals *e, uint16_t m, uint16_t v, float grad)
{
    memset(e, 0, sizeof *e);
    for (int i = 0; i < COUNT; i++) {
        e->weights[i] = 0x3f80;
        e->m[i] = m;
        e->v[i] = v;
        e->grads[i] = grad;
    }
}

static struct hst_adam_coef coef_at(uint64_t t)
{
    struct hst_adam_coef k;
    assert_int_equal(hst_adam_coef_init(&usual, t, 1, &k), 0);
    return k;
}

static void update(struct equals *e, uint64_t t, uint64_t index)
{
    const struct hst_adam_coef k = coef_at(t);
    const struct hst_update_arrays arrays = {.weights = e->weights,
                                             .master = e->remainder,
                                             .m = e->m,
                                             .v = e->v,
                                             .grads = e->grads,
                                             .index = index};
    assert_int_equal(hst_update_run(rounded, &k, &arrays, COUNT), 0);
}

struct moments {
    float m, v;
};

/* Of one such element, in f32. */
static struct moments unrounded(uint64_t t, uint16_t m_old, uint16_t v_old, float grad)
{
    const struct hst_adam_coef k = coef_at(t);
    struct moments x = {float_of((uint32_t)m_old << 16), float_of((uint32_t)v_old << 16)};
    uint16_t weight = 0x3f80;
    int16_t remainder = 0;
    const struct hst_update_arrays arrays = {
        .weights = &weight, .master = &remainder, .m = &x.m, .v = &x.v, .grads = &grad};
    assert_int_equal(hst_update_run(exact, &k, &arrays, 1), 0);
    return x;
}

/* +1 where x was rounded up, -1 where down, both being its neighbours. */
static int way_of(uint16_t stored, float x)
{
    uint32_t down = bits_of(x) >> 16;
    assert_true(stored == down || stored == down + 1);
    return stored == down ? -1 : 1;
}

/* Standard deviations between the number of those that were rounded up and that of independent
 * rounding. */
static double deviation(const uint16_t *stored, float x)
{
    double p = (bits_of(x) & 0xffff) / 65536.0;
    int up = 0;
    for (int i = 0; i < COUNT; i++)
        up += way_of(stored[i], x) > 0;
    return (up - COUNT * p) / sqrt(COUNT * p * (1 - p));
}

static void equal_weights_are_rounded_up_as_often_as_their_bits_say(void **state)
{
    static struct equals e;
    static const uint64_t indices[] = {0, 4096, 1234567, (UINT64_C(1) << 32) - 2048,
                                       UINT64_C(3) << 40};
    static const uint64_t steps[] = {1, 2, 3, 1000, 123456789, UINT64_C(1) << 33};
    uint64_t rng = 7;
    double squares = 0;
    int sums = 0;
    (void)state;

    for (size_t i = 0; i < sizeof indices / sizeof *indices; i++)
        for (size_t s = 0; s < sizeof steps / sizeof *steps; s++)
            for (int way = 0; way < WAYS; way++) {
                uint16_t m = (uint16_t)(0x3c00 + random_below(&rng, 0x180));
                uint16_t v = (uint16_t)(0x3900 + random_below(&rng, 0x180));
                float grad = 0.01f + 0.1f * fabsf(random_unit(&rng));
                struct moments x = unrounded(steps[s], m, v, grad);
                if ((bits_of(x.m) & 0xffff) % 0xf000 < 0x1000 ||
                    (bits_of(x.v) & 0xffff) % 0xf000 < 0x1000)
                    continue; /* a rare event is not distributed normally */
                set_equal(&e, m, v, grad);
                update(&e, steps[s], indices[i]);
                double off[] = {deviation(e.m, x.m), deviation(e.v, x.v)};
                for (int k = 0; k < 2; k++, sums++) {
                    squares += off[k] * off[k];
                    if (fabs(off[k]) > 4)
                        fail_msg("step %llu, index %llu: %s is off by %.2f standard deviations",
                                 (unsigned long long)steps[s], (unsigned long long)indices[i],
                                 k ? "v" : "m", off[k]);
                }
            }
    printf("%d sums, variance %.3f of independent rounding\n", sums, squares / sums);
    assert_true(sums > 1500);
    assert_true(fabs(squares / sums - 1) < 4 * sqrt(2.0 / sums));
}

/* Adam's v in float64 against the mean of 4,096, whose spread is that of independent rounding. */
static void the_mean_of_v_over_equal_weights_is_that_of_float64(void **state)
{
    static const float grads[] = {0.02f, 0.3f, 1.7f, 11.0f};
    static struct equals e;
    (void)state;

    for (size_t g = 0; g < sizeof grads / sizeof *grads; g++) {
        double want = 0, want_m = 0;
        set_equal(&e, 0, 0, grads[g]);
        for (uint64_t t = 1; t <= 1000; t++) {
            update(&e, t, 77 * COUNT);
            want = usual.beta2 * want + (1 - usual.beta2) * (double)grads[g] * (double)grads[g];
            want_m = usual.beta1 * want_m + (1 - usual.beta1) * (double)grads[g];
            if (t % 100)
                continue;
            double sum[2] = {0}, squares[2] = {0};
            for (int i = 0; i < COUNT; i++) {
                double ratio[] = {(double)float_of((uint32_t)e.v[i] << 16) / want - 1,
                                  (double)float_of((uint32_t)e.m[i] << 16) / want_m - 1};
                for (int k = 0; k < 2; k++) {
                    sum[k] += ratio[k];
                    squares[k] += ratio[k] * ratio[k];
                }
            }
            for (int k = 0; k < 2; k++) {
                double mean = sum[k] / COUNT, spread = sqrt(squares[k] / COUNT - mean * mean);
                if (fabs(mean) > 4 * spread / sqrt(COUNT) + 1e-6 ||
                    spread > 0.1) /* f32 rounds too */
                    fail_msg("gradient %g, step %llu: the mean of %s is off by %.4f %%, the "
                             "elements by %.2f %%",
                             (double)grads[g], (unsigned long long)t, k ? "m" : "v", 100 * mean,
                             100 * spread);
            }
        }
    }
}

static signed char ways[2][STEPS][COUNT]; /* of m, of v */

/* Mean of the products of two sequences of ±1, in standard deviations of independent ones. */
static double correlation(const signed char *a, const signed char *b, int n)
{
    int sum = 0;
    for (int i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum / sqrt(n);
}

static void expect_independent(const char *what, int lag, double sum, int terms)
{
    double deviations = sum / sqrt(terms);
    if (fabs(deviations) > 4)
        fail_msg("%s %d: correlated by %.2f standard deviations", what, lag, deviations);
}

static void roundings_are_independent_of_each_other(void **state)
{
    static const int lags[] = {1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 32, 63, 64, 128, 1024, 2048};
    static struct equals e;
    double both = 0;
    (void)state;

    for (int t = 0; t < STEPS; t++) {
        /* with these old moments and gradients, about a half of all are rounded up */
        struct moments x = unrounded((uint64_t)t + 100, 0x3f80, 0x3f80, 2.21f);
        set_equal(&e, 0x3f80, 0x3f80, 2.21f);
        update(&e, (uint64_t)t + 100, 5 * COUNT);
        for (int i = 0; i < COUNT; i++) {
            ways[0][t][i] = (signed char)way_of(e.m[i], x.m);
            ways[1][t][i] = (signed char)way_of(e.v[i], x.v);
        }
        both += correlation(ways[0][t], ways[1][t], COUNT);
    }
    expect_independent("m and v", 0, both, STEPS);
    for (int k = 0; k < 2; k++)
        for (size_t l = 0; l < sizeof lags / sizeof *lags; l++) {
            double near = 0, later = 0;
            for (int t = 0; t < STEPS; t++)
                near += correlation(ways[k][t], ways[k][t] + lags[l], COUNT - lags[l]);
            expect_independent(k ? "elements of v at a distance of"
                                 : "elements of m at a distance of",
                               lags[l], near, STEPS);
            for (int t = 0; t + lags[l] < STEPS; t++)
                later += correlation(ways[k][t], ways[k][t + lags[l]], COUNT);
            if (lags[l] < STEPS)
                expect_independent(k ? "steps of v at a distance of"
                                     : "steps of m at a distance of",
                                   lags[l], later, STEPS - lags[l]);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_weights_are_rounded_up_as_often_as_their_bits_say),
        cmocka_unit_test(the_mean_of_v_over_equal_weights_is_that_of_float64),
        cmocka_unit_test(roundings_are_independent_of_each_other),
    };
    struct hst_update_kind kind = {.weights = HST_CPU_BF16, .moments = HST_CPU_BF16};
    const struct hst_cpu_adam_ops *ops = hst_cpu_adam_ops(HST_CPU_ISA_AUTO);
    rounded = hst_update_find(ops, kind);
    kind.moments = HST_CPU_F32;
    exact = hst_update_find(ops, kind);
    return cmocka_run_group_tests_name("noise", tests, NULL, NULL);
}
