/* SPDX-License-Identifier: Apache-2.0 */
/* The one order in which squares are added, against a literal transcription; what non-finite
 * elements do. */
#include "support.h"

#include <math.h>

enum { COUNT = 2 * HST_NORM_BLOCK + 100, PARTIALS = 3 };

static const struct hst_cpu_adam_ops *ops;
static uint64_t rng;

/*
 * "norm² partials in float64 per 4,096 elements; inside: 16 float64 lanes, element i in lane i mod
 * 16, one addition per element in rising i, then lanes added as a tree 8, 4, 2, 1"
 */
static void literal_norm2(const float *x, size_t n, double *partial)
{
    for (size_t block = 0; block * 4096 < n; block++) {
        double lane[16] = {0};
        for (size_t i = 0; i < 4096 && block * 4096 + i < n; i++) {
            double square = (double)x[block * 4096 + i] * (double)x[block * 4096 + i];
            lane[i % 16] = lane[i % 16] + square;
        }
        for (int j = 0; j < 8; j++)
            lane[j] = lane[j] + lane[j + 8];
        for (int j = 0; j < 4; j++)
            lane[j] = lane[j] + lane[j + 4];
        for (int j = 0; j < 2; j++)
            lane[j] = lane[j] + lane[j + 2];
        partial[block] = lane[0] + lane[1];
    }
}

static void check(const float *x, const uint16_t *half, size_t n)
{
    static float widened[COUNT];
    double got[PARTIALS] = {-1, -1, -1}, want[PARTIALS] = {-1, -1, -1};

    literal_norm2(x, n, want);
    ops->norm2[HST_CPU_F32](x, n, got);
    assert_memory_equal(got, want, sizeof got);

    ops->f32_from_bf16(half, widened, n);
    literal_norm2(widened, n, want);
    ops->norm2[HST_CPU_BF16](half, n, got);
    assert_memory_equal(got, want, sizeof got);
}

static void sums_follow_the_documented_order(void **state)
{
    static const size_t sizes[] = {0, 1, 15, 16, 17, 31, 33, 4095, 4096, 4097, 4113, 8192, COUNT};
    static float x[COUNT];
    static uint16_t half[COUNT];
    (void)state;

    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < COUNT; i++) { /* magnitudes that make the order of additions show */
            x[i] = ldexpf(random_unit(&rng), (int)random_below(&rng, 40) - 20);
            half[i] = (uint16_t)(bits_of(x[i]) >> 16);
        }
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
            check(x, half, sizes[s]);
    }
}

static void extreme_elements_neither_overflow_nor_vanish(void **state)
{
    const float greatest = 0x1.fffffep127f, least = 0x1p-149f;
    double partial;
    (void)state;

    ops->norm2[HST_CPU_F32](&greatest, 1, &partial);
    assert_true(partial == (double)greatest * (double)greatest);
    ops->norm2[HST_CPU_F32](&least, 1, &partial);
    assert_true(partial == 0x1p-298);
}

static void a_non_finite_element_poisons_its_own_partial(void **state)
{
    static const uint32_t poison[] = {0x7f800000, 0xff800000, 0x7fc00000, 0xffc12345, 0x7f800001};
    static float x[COUNT];
    static uint16_t half[COUNT];
    const double nan_wanted = (double)float_of(0x7fc00000);
    (void)state;

    for (size_t k = 0; k < sizeof poison / sizeof poison[0]; k++) {
        size_t at = 4096 + random_below(&rng, 4096);
        double partial[2][PARTIALS];
        memset(x, 0, sizeof x);
        memset(half, 0, sizeof half);
        x[at] = float_of(poison[k]);
        half[at] = (uint16_t)(poison[k] >> 16 | (poison[k] & 1) << 6);
        ops->norm2[HST_CPU_F32](x, COUNT, partial[0]);
        ops->norm2[HST_CPU_BF16](half, COUNT, partial[1]);
        for (int type = 0; type < 2; type++) {
            assert_true(partial[type][0] == 0 && partial[type][2] == 0);
            if (k < 2)
                assert_true(partial[type][1] == INFINITY);
            else
                assert_memory_equal(&partial[type][1], &nan_wanted, sizeof nan_wanted);
            assert_false(isfinite(hst_norm2_sum(partial[type], PARTIALS)));
        }
    }
}

static void partials_are_added_in_rising_order(void **state)
{
    const double rising[] = {0x1p53, 1, 1}, falling[] = {1, 1, 0x1p53};
    (void)state;

    assert_true(hst_norm2_sum(rising, 3) == 0x1p53);
    assert_true(hst_norm2_sum(falling, 3) == 0x1p53 + 2);
    assert_true(hst_norm2_sum(NULL, 0) == 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_follow_the_documented_order),
        cmocka_unit_test(extreme_elements_neither_overflow_nor_vanish),
        cmocka_unit_test(a_non_finite_element_poisons_its_own_partial),
        cmocka_unit_test(partials_are_added_in_rising_order),
    };
    ops = hst_cpu_adam_ops(HST_CPU_ISA_AUTO);
    rng = seed_begin(argc, argv);
    return cmocka_run_group_tests_name("norm", tests, NULL, NULL);
}
