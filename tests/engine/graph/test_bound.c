/* SPDX-License-Identifier: Apache-2.0 */
/* The bound on a step, and the known models: published sizes, terms by hand, inverses. */
#include <hoistway/hoistway.h>
#include <hoistway/plan.h>

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

/* Relative; the hand's figures are sums and quotients of a few doubles. */
#define EXACT 1e-12

static void assert_close(double got, double want)
{
    if (!(fabs(got - want) <= EXACT * fabs(want)))
        fail_msg("got %.17g, want %.17g", got, want);
}

/* ---- shapes ---- */

static void test_named_models_have_their_published_numbers_of_parameters(void **state)
{
    static const struct {
        const char *name;
        uint64_t params;
    } published[] = {
        {"1B", 1235814400},     {"3B", 3212749824},     {"7B", 6738415616},
        {"7.5B", 7467208704},   {"8B", 8030261248},     {"13B", 13015864320},
        {"14B", 14768307200},   {"17B", 17151599136},   {"33B", 32528943616},
        {"32B", 32762123264},   {"65B", 65285660672},   {"70B", 70553706496},
        {"176B", 176171964416}, {"405B", 405853388800}, {"530B", 529397575680},
        {"1T", 1008159974400},
    };
    size_t count;
    const struct hst_shape *all = hst_shapes(&count);
    (void)state;
    assert_int_equal(count, sizeof published / sizeof published[0]);
    for (size_t i = 0; i < count; i++) {
        const struct hst_shape *shape = hst_shape_find(published[i].name);
        assert_ptr_equal(shape, &all[i]);
        assert_true(hst_shape_params(shape) == published[i].params);
    }
}

/* Layers of a GPT have 12 h^2 parameters in matrices. An inner size is a multiple of 64, so that
 * one stands for another within 0.3 %. */
static void test_what_stands_for_a_gpt_has_as_many_parameters(void **state)
{
    size_t count, others = 0;
    const struct hst_shape *all = hst_shapes(&count);
    (void)state;
    for (size_t i = 0; i < count; i++) {
        const struct hst_shape *s = &all[i];
        const double h = s->hidden, gpt = 12 * h * h * s->layers + h * s->vocab;
        if (!s->stands_for)
            continue;
        others++;
        assert_int_equal(s->heads * s->head_dim, s->hidden);
        assert_true(fabs((double)hst_shape_params(s) / gpt - 1) < 0.003);
    }
    assert_int_equal(others, 5);
    assert_ptr_equal(hst_shape_find("mt-nlg-530b"), hst_shape_find("530B"));
    assert_null(hst_shape_find("8B")->stands_for);
}

/* Qwen3 8B and Qwen2.5 7B, as published. */
static void test_norms_of_heads_and_biases_count(void **state)
{
    (void)state;
    const struct hst_shape normed = {.hidden = 4096,
                                     .intermediate = 12288,
                                     .layers = 36,
                                     .heads = 32,
                                     .kv_heads = 8,
                                     .head_dim = 128,
                                     .vocab = 151936,
                                     .qk_norm = true};
    const struct hst_shape biased = {.hidden = 3584,
                                     .intermediate = 18944,
                                     .layers = 28,
                                     .heads = 28,
                                     .kv_heads = 4,
                                     .head_dim = 128,
                                     .vocab = 152064,
                                     .qkv_bias = true};
    assert_true(hst_shape_params(&normed) == 8190735360);
    assert_true(hst_shape_params(&biased) == 7615616512);
    /* three quarters of 2^63 without biases, which are as many */
    struct hst_shape narrow = {.hidden = 1,
                               .intermediate = 1,
                               .layers = 1,
                               .heads = 1u << 30,
                               .kv_heads = 1u << 30,
                               .head_dim = 3u << 29,
                               .vocab = 1};
    assert_true(hst_shape_params(&narrow) > 0);
    narrow.qkv_bias = true;
    assert_true(hst_shape_params(&narrow) == 0);
}

static void test_only_a_matrix_that_is_looked_up_is_not_multiplied(void **state)
{
    (void)state;
    const struct hst_shape *tied = hst_shape_find("1B"), *untied = hst_shape_find("8B");
    assert_true(hst_shape_matmul_params(tied) == hst_shape_params(tied));
    assert_true(hst_shape_params(untied) - hst_shape_matmul_params(untied) == 128256ull * 4096);
}

static void test_names_are_taken_in_any_case_and_in_full(void **state)
{
    (void)state;
    assert_ptr_equal(hst_shape_find("13b"), hst_shape_find("13B"));
    assert_ptr_equal(hst_shape_find("llama-3-8b"), hst_shape_find("8B"));
    assert_ptr_equal(hst_shape_find("LLAMA-3.1-405B"), hst_shape_find("405B"));
    assert_null(hst_shape_find("13"));
    assert_null(hst_shape_find("llama-2-8b"));
    assert_null(hst_shape_find(""));
}

static void test_precisions_have_the_bytes_of_the_store(void **state)
{
    struct hst_param_bytes b;
    (void)state;
    assert_true(hst_precision_bytes("bf16", &b) && b.weight + b.state == 12 && b.grad == 2);
    assert_true(hst_precision_bytes("fp32", &b) && b.weight + b.state == 12 && b.grad == 4);
    assert_true(hst_precision_bytes("fp16", &b) && b.weight + b.state == 14 && b.grad == 2);
    assert_false(hst_precision_bytes("fp8", &b));
    struct hst_config sgd = {.size = sizeof sgd, .optimizer = HST_OPTIMIZER_SGD};
    assert_true(hst_config_bytes(&sgd, &b) && b.weight == 4 && b.state == 4 && b.grad == 4);
    sgd.precision = HST_PRECISION_BF16;
    sgd.state = HST_STATE_BF16;
    assert_true(hst_config_bytes(&sgd, &b) && b.weight == 2 && b.state == 4 && b.grad == 2);
    sgd.precision = HST_PRECISION_FP32;
    assert_false(hst_config_bytes(&sgd, &b));
}

/* ---- the bound ---- */

/*
 * A model whose numbers can be followed by hand: h = 1, one head, inner 1, vocabulary 1, 4 layers.
 * Layer: 4 attention, 3 MLP, 2 norm = 9 parameters; N = 2 + 4·9 + 1 = 39, N_c = 38; attention at
 * 2 tokens per sequence: 4·1·2 = 8. bf16: w 2, S 10, g 2.
 */
static struct hst_bound_in toy(void)
{
    struct hst_bound_in in = {
        .shape = {.hidden = 1,
                  .intermediate = 1,
                  .layers = 4,
                  .heads = 1,
                  .kv_heads = 1,
                  .head_dim = 1,
                  .vocab = 1},
        .seq_len = 2,
        .states_on_nvme = 1,
        .flops_per_s = 46,
        .read = 78,
        .write = 39,
        .mixed = 78,
    };
    assert_true(hst_precision_bytes("bf16", &in.bytes));
    return in;
}

static struct hst_bound bound_of(const struct hst_bound_in *in, uint64_t tokens)
{
    struct hst_bound b;
    assert_int_equal(hst_bound(in, tokens, &b), 0);
    return b;
}

static void test_the_terms_are_those_worked_by_hand(void **state)
{
    struct hst_bound_in in = toy();
    struct hst_bound b = bound_of(&in, 3);
    (void)state;
    assert_close(b.flops, 6.0 * 46 * 3);
    assert_close(b.gpu_s, 18);
    assert_close(b.forward_s, 6);
    assert_close(b.backward_s, 12);
    assert_close(b.nvme_read_bytes, 10 * 39);  /* weights at home in memory are not read, */
    assert_close(b.nvme_write_bytes, 12 * 39); /* but are part of the version */
    assert_close(b.nvme_space_bytes, 24 * 39);
    assert_close(b.update_s, 12); /* mixed: 780/78 + 78/39; apart: 5 + 12 */
    assert_close(b.nvme_s, 12);
    assert_close(b.step_s,
                 12 + 6.0 / 4 + 12); /* forward waits for the update, backward runs free */
    assert_close(b.efficiency, 18 / 25.5);
    assert_int_equal(b.bound_by, HST_BOUND_GPU);
}

static void test_where_the_update_may_begin_in_backward_it_hides_under_the_whole_step(void **state)
{
    struct hst_bound_in in = toy();
    (void)state;
    in.overlap = true;
    assert_close(bound_of(&in, 3).step_s, 18 + 12.0 / 4);
    struct hst_bound b = bound_of(&in, 1); /* gpu 6 s under 12 s of drives */
    assert_close(b.step_s, 12 + 6.0 / 4);
    assert_int_equal(b.bound_by, HST_BOUND_NVME);
}

static void test_a_mixed_rate_worse_than_taking_turns_is_not_waited_for(void **state)
{
    struct hst_bound_in in = toy();
    (void)state;
    in.mixed = 20; /* 39 + 2 */
    assert_close(bound_of(&in, 3).update_s, 5 + 12);
    in.mixed = 0; /* not measured */
    assert_close(bound_of(&in, 3).update_s, 5 + 12);
}

static void test_recomputing_costs_two_more_and_only_in_backward(void **state)
{
    struct hst_bound_in in = toy();
    (void)state;
    in.recompute = true;
    struct hst_bound b = bound_of(&in, 3);
    assert_close(b.gpu_s, 24);
    assert_close(b.forward_s, 6);
}

static void test_weights_on_drives_are_read_once_in_each_sweep_and_written_once(void **state)
{
    struct hst_bound_in in = toy();
    (void)state;
    in.weights_on_nvme = 1;
    struct hst_bound b = bound_of(&in, 3);
    assert_close(b.nvme_read_bytes, (12 + 2) * 39); /* for update and forward; for backward */
    assert_close(b.nvme_write_bytes, 12 * 39);
    assert_close(b.update_s, 12); /* mixed: 936/78; apart: 6 + 12 */
    assert_close(b.nvme_s, 12 + 1);
    assert_close(b.step_s, (12 + 6.0 / 4) + (12 + 1.0 / 4));
    in.states_on_nvme = 0; /* then the update still writes weights */
    b = bound_of(&in, 3);
    assert_close(b.nvme_read_bytes, (2 + 2) * 39);
    assert_close(b.nvme_write_bytes, 2 * 39);
    assert_close(b.update_s, 2); /* mixed: 156/78; apart: 1 + 2 */
    assert_close(b.nvme_s, 2 + 1);
}

static void test_weights_are_written_with_their_states_and_read_where_they_live(void **state)
{
    struct hst_bound_in in = toy();
    (void)state;
    in.states_on_nvme = 0.5;
    in.weights_on_nvme = 0.25;
    struct hst_bound b = bound_of(&in, 3);
    assert_close(b.nvme_read_bytes, (5 + 0.5 + 0.5) * 39);
    assert_close(b.nvme_write_bytes, (5 + 1) * 39);
    assert_close(b.nvme_space_bytes, 2 * (5 + 1) * 39);
    assert_close(b.update_s, 5.5 + 0.5); /* mixed: 429/78 + 19.5/39; apart: 2.75 + 6 */
    assert_close(b.nvme_s, 6 + 0.25);
    in.weights_on_nvme = 1; /* of which half have their states in memory */
    b = bound_of(&in, 3);
    assert_close(b.nvme_read_bytes, (5 + 2 + 2) * 39);
    assert_close(b.nvme_write_bytes, (5 + 2) * 39);
    assert_close(b.update_s, 7); /* mixed: 546/78; apart: 3.5 + 7 */
}

static void test_half_the_states_move_half_the_bytes(void **state)
{
    struct hst_bound_in in = toy();
    (void)state;
    in.states_on_nvme = 0.5;
    assert_close(bound_of(&in, 3).nvme_write_bytes, 6 * 39);
    assert_close(bound_of(&in, 3).nvme_space_bytes, 12 * 39);
}

static void test_spilled_activations_are_written_then_read(void **state)
{
    struct hst_bound_in in = toy();
    (void)state;
    in.spill_bytes = 78;
    struct hst_bound b = bound_of(&in, 3);
    assert_close(b.nvme_s, 12 + 2 + 1);
    assert_close(b.update_s, 12);
    assert_close(b.nvme_read_bytes, 10 * 39 + 78);
    assert_close(b.nvme_write_bytes, 12 * 39 + 78);
}

static void test_link_and_memory_limit_where_their_rates_are_given(void **state)
{
    struct hst_bound_in in = toy();
    (void)state;
    in.link = 2;
    struct hst_bound b = bound_of(&in, 3);
    assert_close(b.link_s, 39 + 39);
    assert_close(b.step_s, (39 + (12 + 6) / 4.0) + (39 + 12 / 4.0));
    assert_int_equal(b.bound_by, HST_BOUND_LINK);
    in = toy();
    in.dram = 10; /* forward (24 + 2 + 2)·39 + 390 + 468, backward (2 + 2)·39 bytes */
    b = bound_of(&in, 3);
    assert_close(b.dram_s, (28 * 39 + 858 + 156) / 10.0);
    assert_close(b.step_s, (28 * 39 + 858) / 10.0 + 15.6);
    assert_int_equal(b.bound_by, HST_BOUND_DRAM);
    in.weights_on_nvme = 1; /* 78 bytes more come in, in each sweep; 39 are spilled and come back */
    in.spill_bytes = 39;
    b = bound_of(&in, 3);
    assert_close(b.dram_s, (28 * 39 + 936 + 39 + 156 + 78 + 39) / 10.0);
    assert_close(b.step_s, (28 * 39 + 936 + 39) / 10.0 + (156 + 78 + 39) / 10.0);
}

static void test_without_anything_on_drives_they_do_not_limit(void **state)
{
    struct hst_bound_in in = toy();
    (void)state;
    in.states_on_nvme = in.read = in.write = in.mixed = 0;
    struct hst_bound b = bound_of(&in, 3);
    assert_close(b.step_s, b.gpu_s);
    assert_close(b.efficiency, 1);
}

static void test_what_has_no_meaning_is_refused(void **state)
{
    struct hst_bound b = {.step_s = -1};
    struct hst_bound_in good = toy();
    struct hst_bound_in bad[8];
    (void)state;
    for (size_t i = 0; i < 8; i++)
        bad[i] = good;
    bad[0].flops_per_s = 0;
    bad[1].read = 0;
    bad[2].write = -1;
    bad[3].states_on_nvme = 1.5;
    bad[4].mixed = NAN;
    bad[5].shape.layers = 0;
    bad[6].seq_len = 0;
    bad[7].weights_on_nvme = NAN;
    for (size_t i = 0; i < 8; i++)
        assert_int_equal(hst_bound(&bad[i], 3, &b), -EINVAL);
    assert_int_equal(hst_bound(&good, 0, &b), -EINVAL);
    assert_true(b.step_s == -1);
}

/* Each number of a machine, at every magnitude: refused, or every term is finite and no step is
   faster than its GPU. */
static void test_terms_are_finite_or_refused(void **state)
{
    static const double values[] = {5e-324, 1e-300, 1e-30, 1, 1e30, 1e300, 1.7e308};
    size_t refused = 0, taken = 0;
    (void)state;
    for (size_t field = 0; field < 6; field++) {
        for (size_t i = 0; i < 2 * sizeof values / sizeof values[0]; i++) {
            struct hst_bound_in in = toy();
            double *const fields[] = {&in.read, &in.write, &in.mixed,
                                      &in.link, &in.dram,  &in.flops_per_s};
            struct hst_bound b;
            in.overlap = i % 2;
            *fields[field] = values[i / 2];
            in.spill_bytes = 1;
            if (hst_bound(&in, 3, &b)) {
                refused++;
                continue;
            }
            taken++;
            assert_true(isfinite(b.nvme_s) && isfinite(b.link_s) && isfinite(b.dram_s));
            assert_true(isfinite(b.step_s) && isfinite(b.update_s) && isfinite(b.gpu_s));
            assert_true(b.efficiency > 0 && b.efficiency <= 1);
        }
    }
    assert_true(refused == 10); /* the smallest, but for a mixed rate that is not waited for */
    assert_true(taken == 74);
}

static void test_rates_next_to_nothing_are_refused_by_the_inverses_too(void **state)
{
    struct hst_bound_in in = toy();
    uint64_t tokens = 77;
    uint32_t sets = 77;
    (void)state;
    in.read = in.write = in.mixed = 1e-310;
    assert_int_equal(hst_bound_tokens(&in, 0.9, &tokens), -EINVAL);
    assert_int_equal(hst_bound_drives(&in, 3, 0.9, &sets), -ERANGE); /* of which 2^20 are finite */
    assert_true(tokens == 77 && sets == 77);
}

static void test_a_step_is_never_shorter_than_its_computing(void **state)
{
    (void)state;
    for (uint64_t tokens = 1; tokens < 2000; tokens++) {
        struct hst_bound_in in = toy();
        in.states_on_nvme = 0;
        in.flops_per_s = 3e13 + (double)tokens;
        struct hst_bound b = bound_of(&in, tokens);
        assert_true(b.efficiency <= 1);
    }
}

static void test_more_parameters_than_can_be_counted_are_no_model(void **state)
{
    struct hst_bound_in in = toy();
    struct hst_bound b;
    (void)state;
    in.shape.hidden = UINT32_MAX;
    in.shape.intermediate = UINT32_C(1) << 27;
    assert_true(hst_shape_params(&in.shape) > UINT64_C(1) << 62);
    assert_int_equal(hst_bound(&in, 3, &b), 0);
    in.shape.layers = UINT32_MAX;
    assert_true(hst_shape_params(&in.shape) == 0 && hst_shape_matmul_params(&in.shape) == 0);
    assert_int_equal(hst_bound(&in, 3, &b), -EINVAL);
}

/* ---- inverses ---- */

static void test_the_tokens_found_reach_the_target_and_one_fewer_do_not(void **state)
{
    struct hst_bound_in in = toy();
    uint64_t tokens = 0;
    (void)state;
    for (int overlap = 0; overlap <= 1; overlap++) {
        in.overlap = overlap;
        for (double target = 0.05; target < 1; target += 0.05) {
            assert_int_equal(hst_bound_tokens(&in, target, &tokens), 0);
            assert_true(bound_of(&in, tokens).efficiency >= target);
            assert_true(tokens == 1 || bound_of(&in, tokens - 1).efficiency < target);
        }
    }
    /* By hand, clip off, 0.9: 6t / (6t + 12/4) ≥ 0.9 from t = 4.5 on. */
    assert_int_equal(hst_bound_tokens(&in, 0.9, &tokens), 0);
    assert_int_equal(tokens, 5);
}

static void test_the_drives_found_reach_the_target_and_one_fewer_do_not(void **state)
{
    struct hst_bound_in in = toy(), many;
    uint32_t sets = 0;
    (void)state;
    /* By hand, 3 tokens: two sets 18 / (6 + 6/4 + 12) = 0.923, three 18 / (6 + 4/4 + 12). */
    assert_int_equal(hst_bound_drives(&in, 3, 0.93, &sets), 0);
    for (uint32_t n = sets - 1; n <= sets; n++) {
        many = in;
        many.read *= n;
        many.write *= n;
        many.mixed *= n;
        assert_true((bound_of(&many, 3).efficiency >= 0.93) == (n == sets));
    }
    assert_int_equal(sets, 3);
}

static void test_what_no_number_reaches_is_said(void **state)
{
    struct hst_bound_in in = toy();
    uint32_t sets = 77;
    uint64_t tokens = 77;
    (void)state;
    in.link = 1;
    assert_int_equal(hst_bound_drives(&in, 3, 0.9, &sets), -ERANGE);
    assert_int_equal(sets, 77);
    in = toy();
    in.flops_per_s = 1e300;
    assert_int_equal(hst_bound_tokens(&in, 0.9, &tokens), -ERANGE);
    assert_int_equal(tokens, 77);
    assert_int_equal(hst_bound_tokens(&in, 1, &tokens), -EINVAL);
    assert_int_equal(hst_bound_drives(&in, 3, 0, &sets), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_named_models_have_their_published_numbers_of_parameters),
        cmocka_unit_test(test_what_stands_for_a_gpt_has_as_many_parameters),
        cmocka_unit_test(test_norms_of_heads_and_biases_count),
        cmocka_unit_test(test_only_a_matrix_that_is_looked_up_is_not_multiplied),
        cmocka_unit_test(test_names_are_taken_in_any_case_and_in_full),
        cmocka_unit_test(test_precisions_have_the_bytes_of_the_store),
        cmocka_unit_test(test_the_terms_are_those_worked_by_hand),
        cmocka_unit_test(test_where_the_update_may_begin_in_backward_it_hides_under_the_whole_step),
        cmocka_unit_test(test_a_mixed_rate_worse_than_taking_turns_is_not_waited_for),
        cmocka_unit_test(test_recomputing_costs_two_more_and_only_in_backward),
        cmocka_unit_test(test_weights_on_drives_are_read_once_in_each_sweep_and_written_once),
        cmocka_unit_test(test_weights_are_written_with_their_states_and_read_where_they_live),
        cmocka_unit_test(test_half_the_states_move_half_the_bytes),
        cmocka_unit_test(test_spilled_activations_are_written_then_read),
        cmocka_unit_test(test_link_and_memory_limit_where_their_rates_are_given),
        cmocka_unit_test(test_without_anything_on_drives_they_do_not_limit),
        cmocka_unit_test(test_what_has_no_meaning_is_refused),
        cmocka_unit_test(test_terms_are_finite_or_refused),
        cmocka_unit_test(test_rates_next_to_nothing_are_refused_by_the_inverses_too),
        cmocka_unit_test(test_a_step_is_never_shorter_than_its_computing),
        cmocka_unit_test(test_more_parameters_than_can_be_counted_are_no_model),
        cmocka_unit_test(test_the_tokens_found_reach_the_target_and_one_fewer_do_not),
        cmocka_unit_test(test_the_drives_found_reach_the_target_and_one_fewer_do_not),
        cmocka_unit_test(test_what_no_number_reaches_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
