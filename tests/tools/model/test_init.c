/* SPDX-License-Identifier: Apache-2.0 */
/* Values of --init random. */
#include "model/llama.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NAME "model.layers.0.mlp.up_proj.weight"

static void random_of(uint64_t seed, const char *name, uint64_t offset, float *dst, size_t count)
{
    static const struct llama_config config = {.hidden = 8};
    llama_init_random(&config, &(struct llama_init){seed, name, offset}, dst, count);
}

static void weights_are_normal_with_deviation_0_02(void **state)
{
    (void)state;
    enum { COUNT = 400000 };
    float *x = malloc(COUNT * sizeof *x);
    assert_non_null(x);
    random_of(7, NAME, 0, x, COUNT);
    double sum = 0, square = 0, fourth = 0;
    for (size_t i = 0; i < COUNT; i++) {
        double z = (double)x[i] / 0.02;
        sum += z;
        square += z * z;
        fourth += z * z * z * z;
    }
    /* Five standard errors of each moment. */
    assert_true(fabs(sum / COUNT) < 5 * sqrt(1.0 / COUNT));
    assert_true(fabs(square / COUNT - 1) < 5 * sqrt(2.0 / COUNT));
    assert_true(fabs(fourth / COUNT - 3) < 5 * sqrt(96.0 / COUNT));
    free(x);
}

static void any_part_of_a_tensor_is_the_same_by_itself(void **state)
{
    (void)state;
    float whole[64], part[64];
    random_of(1, NAME, 0, whole, 64);
    for (size_t first = 0; first < 8; first++)
        for (size_t count = 0; first + count <= 64; count++) {
            random_of(1, NAME, first, part, count);
            assert_memory_equal(part, whole + first, count * sizeof *part);
        }
    random_of(1, NAME, UINT64_C(1) << 39, part, 64);
    assert_memory_not_equal(part, whole, sizeof whole);
}

static void seeds_and_names_give_different_values(void **state)
{
    (void)state;
    float a[64], b[64];
    random_of(1, NAME, 0, a, 64);
    random_of(2, NAME, 0, b, 64);
    for (size_t i = 0; i < 64; i++)
        assert_true(a[i] != b[i]);
    random_of(1, "model.layers.1.mlp.up_proj.weight", 0, b, 64);
    for (size_t i = 0; i < 64; i++)
        assert_true(a[i] != b[i]);
}

static void the_deviation_is_that_of_the_configuration(void **state)
{
    (void)state;
    static const struct llama_config wide = {.hidden = 8, .initializer_range = 0.5};
    float x[64], y[64];
    random_of(1, NAME, 3, x, 64);
    llama_init_random(&wide, &(struct llama_init){1, NAME, 3}, y, 64);
    for (size_t i = 0; i < 64; i++)
        assert_true(fabsf(y[i] - 25 * x[i]) <= 4e-7f * fabsf(y[i]));
}

static void the_row_for_padding_is_zero_in_the_embedding_alone(void **state)
{
    (void)state;
    static const struct llama_config padded = {.hidden = 8, .has_pad = true, .pad = 2};
    static const char *const names[] = {"model.embed_tokens.weight", "lm_head.weight"};
    for (uint64_t offset = 0; offset < 20; offset++)
        for (size_t n = 0; n < 2; n++) {
            float x[16], y[16];
            random_of(1, names[n], offset, x, 16);
            llama_init_random(&padded, &(struct llama_init){1, names[n], offset}, y, 16);
            for (size_t i = 0; i < 16; i++) {
                bool pad = n == 0 && offset + i >= 16 && offset + i < 24;
                assert_true(y[i] == (pad ? 0 : x[i]));
            }
        }
}

static void norms_are_one_and_biases_zero(void **state)
{
    (void)state;
    static const char *const norms[] = {"model.norm.weight",
                                        "model.layers.3.input_layernorm.weight",
                                        "model.layers.3.post_attention_layernorm.weight"};
    float x[3];
    for (size_t i = 0; i < 3; i++) {
        random_of(1, norms[i], 5, x, 3);
        assert_true(x[0] == 1 && x[1] == 1 && x[2] == 1);
    }
    random_of(1, "model.layers.0.self_attn.q_proj.bias", 5, x, 3);
    assert_true(x[0] == 0 && x[1] == 0 && x[2] == 0);
}

static void the_numbers_of_a_seed_never_change(void **state)
{
    (void)state;
    static const float expected[4] = {0.00353421603f, 0.017036149f, -0.00780120446f, 0.0292833652f};
    float x[4];
    random_of(0, "lm_head.weight", 0, x, 4);
    for (size_t i = 0; i < 4; i++) /* the last bits are the C library's */
        assert_true(fabsf(x[i] - expected[i]) < 1e-8f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_are_normal_with_deviation_0_02),
        cmocka_unit_test(any_part_of_a_tensor_is_the_same_by_itself),
        cmocka_unit_test(seeds_and_names_give_different_values),
        cmocka_unit_test(the_deviation_is_that_of_the_configuration),
        cmocka_unit_test(the_row_for_padding_is_zero_in_the_embedding_alone),
        cmocka_unit_test(norms_are_one_and_biases_zero),
        cmocka_unit_test(the_numbers_of_a_seed_never_change),
    };
    return cmocka_run_group_tests_name("model/init", tests, NULL, NULL);
}
