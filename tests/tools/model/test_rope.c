/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary frequencies of the three dialect types. Expected values: the published formula in
 * numpy's float64, checked against transformers 5.23. */
#include "model/layer/rope.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <math.h>

static void assert_close(double got, double expected)
{
    if (fabs(got - expected) > 1e-12 * fabs(expected))
        fail_msg("%.17g, not %.17g", got, expected);
}

static void default_frequencies_are_powers_of_theta(void **state)
{
    (void)state;
    struct rope_config config = {.type = ROPE_DEFAULT, .theta = 10000.0};
    assert_close(rope_frequency(&config, 128, 0), 1.0);
    assert_close(rope_frequency(&config, 128, 32), 0.01);
    assert_close(rope_frequency(&config, 128, 16), 0.1);
}

static void linear_scaling_divides_every_frequency(void **state)
{
    (void)state;
    struct rope_config plain = {.type = ROPE_DEFAULT, .theta = 5e5};
    struct rope_config linear = {.type = ROPE_LINEAR, .theta = 5e5, .factor = 4.0};
    for (uint32_t i = 0; i < 32; i++)
        assert_close(rope_frequency(&linear, 64, i), rope_frequency(&plain, 64, i) / 4.0);
}

/* Llama 3.1's own values: head_dim 128, theta 500,000, 8,192 positions stretched eight times. */
static void llama3_scaling_keeps_fast_stretches_slow_and_blends_between(void **state)
{
    (void)state;
    struct rope_config config = {
        .type = ROPE_LLAMA3,
        .theta = 500000.0,
        .factor = 8.0,
        .low_freq_factor = 1.0,
        .high_freq_factor = 4.0,
        .original_max_positions = 8192.0,
    };
    assert_close(rope_frequency(&config, 128, 0), 1.0);
    assert_close(rope_frequency(&config, 128, 28), 0.0032114459947525909);
    assert_close(rope_frequency(&config, 128, 30), 0.0013718935677611381);
    assert_close(rope_frequency(&config, 128, 34), 0.00017850781276799641);
    assert_close(rope_frequency(&config, 128, 36), 7.7846552739324498e-05);
    assert_close(rope_frequency(&config, 128, 63), 3.0689259889145111e-07);
}

static void tables_hold_the_angle_of_each_position(void **state)
{
    (void)state;
    struct rope_config config = {.type = ROPE_DEFAULT, .theta = 10000.0};
    float cos_table[5 * 4], sin_table[5 * 4];
    rope_tables(&config, 8, 5, cos_table, sin_table);
    for (size_t t = 0; t < 5; t++)
        for (uint32_t i = 0; i < 4; i++) {
            double angle = (double)t * pow(10000.0, -(double)i / 4.0);
            assert_true(fabs(cos_table[t * 4 + i] - cos(angle)) < 1e-7);
            assert_true(fabs(sin_table[t * 4 + i] - sin(angle)) < 1e-7);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(default_frequencies_are_powers_of_theta),
        cmocka_unit_test(linear_scaling_divides_every_frequency),
        cmocka_unit_test(llama3_scaling_keeps_fast_stretches_slow_and_blends_between),
        cmocka_unit_test(tables_hold_the_angle_of_each_position),
    };
    return cmocka_run_group_tests_name("model/rope", tests, NULL, NULL);
}
