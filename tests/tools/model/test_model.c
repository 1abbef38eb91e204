/* SPDX-License-Identifier: Apache-2.0 */
/* The description of a model: tensors, counts, what is refused. */
#include "base/fail.h"
#include "model/model.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <errno.h>
#include <string.h>

/* Llama 3.2 1B, whose numbers are public. */
static const struct llama_config llama_1b = {
    .hidden = 2048,
    .intermediate = 8192,
    .layers = 16,
    .heads = 32,
    .kv_heads = 8,
    .head_dim = 64,
    .vocab = 128256,
    .max_positions = 131072,
    .rms_norm_eps = 1e-5,
    .tied_embeddings = true,
    .rope = {ROPE_LLAMA3, 500000.0, 32.0, 1.0, 4.0, 8192.0},
};
/* Qwen3 8B. */
static const struct llama_config qwen3_8b = {
    .hidden = 4096,
    .intermediate = 12288,
    .layers = 36,
    .heads = 32,
    .kv_heads = 8,
    .head_dim = 128,
    .vocab = 151936,
    .max_positions = 40960,
    .rms_norm_eps = 1e-6,
    .qk_norm = true,
    .rope = {ROPE_DEFAULT, 1000000.0, 0, 0, 0, 0},
};
/* Qwen2.5 7B, whose number of parameters is public. */
static const struct llama_config qwen2_7b = {
    .hidden = 3584,
    .intermediate = 18944,
    .layers = 28,
    .heads = 28,
    .kv_heads = 4,
    .head_dim = 128,
    .vocab = 152064,
    .max_positions = 32768,
    .rms_norm_eps = 1e-6,
    .qkv_bias = true,
    .rope = {ROPE_DEFAULT, 1000000.0, 0, 0, 0, 0},
};
static const struct llama_run run = {
    .seq_len = 256, .batch_tokens = 4096, .micro_batch_tokens = 2048};

static void a_grain_is_whole_sequences_near_the_wish(void **state)
{
    (void)state;
    assert_int_equal(llama_micro_batch_tokens(LLAMA_MICRO_BATCH_HOST, 256, 4096), 2048);
    assert_int_equal(llama_micro_batch_tokens(LLAMA_MICRO_BATCH_HOST, 300, 6000), 1800);
    assert_int_equal(llama_micro_batch_tokens(LLAMA_MICRO_BATCH_HOST, 4096, 8192), 4096);
    assert_int_equal(llama_micro_batch_tokens(1, 32, 320), 32);
    assert_int_equal(llama_micro_batch_tokens(100, 32, 320), 96);
    assert_int_equal(llama_micro_batch_tokens(LLAMA_MICRO_BATCH_HOST, 256, 512), 512);
    assert_int_equal(llama_micro_batch_tokens(UINT64_MAX, 1, 5), 5);
}

static void a_public_model_has_its_published_size(void **state)
{
    (void)state;
    struct llama *model = NULL;
    assert_int_equal(llama_create(&llama_1b, &run, &model, NULL), 0);
    assert_int_equal(llama_parameter_count(model), 1235814400);
    /* Weights in GEMMs: all but the norms, the tied embedding once. */
    double gemms = 1235814400.0 - 33 * 2048;
    double attention = 6.0 * 257 * 2048 * 16;
    assert_true(llama_step_flops(model) == 4096 * (6.0 * gemms + attention));
    llama_destroy(&model);
    assert_null(model);
}

static void a_model_whose_heads_are_normed_has_two_vectors_more_in_a_layer(void **state)
{
    (void)state;
    struct llama *model = NULL;
    assert_int_equal(llama_create(&qwen3_8b, &run, &model, NULL), 0);
    assert_int_equal(llama_parameter_count(model), 8190735360);
    const struct llama_tensor *q = llama_tensor(model, 1 + 35 * 11 + 9);
    assert_string_equal(q->name, "model.layers.35.self_attn.q_norm.weight");
    assert_true(q->dim_count == 1 && q->dims[0] == 128 && q->count == 128);
    assert_string_equal(llama_tensor(model, 1 + 35 * 11 + 10)->name,
                        "model.layers.35.self_attn.k_norm.weight");
    assert_string_equal(llama_tensor(model, 1 + 36 * 11)->name, "model.norm.weight");
    assert_string_equal(llama_tensor(model, 2 + 36 * 11)->name, "lm_head.weight");
    llama_destroy(&model);
}

static void a_model_with_biases_has_three_vectors_more_in_a_layer(void **state)
{
    (void)state;
    struct llama *model = NULL;
    assert_int_equal(llama_create(&qwen2_7b, &run, &model, NULL), 0);
    assert_int_equal(llama_parameter_count(model), 7615616512);
    const struct llama_tensor *q = llama_tensor(model, 1 + 27 * 12 + 9);
    assert_string_equal(q->name, "model.layers.27.self_attn.q_proj.bias");
    assert_true(q->dim_count == 1 && q->dims[0] == 3584);
    assert_string_equal(llama_tensor(model, 1 + 27 * 12 + 11)->name,
                        "model.layers.27.self_attn.v_proj.bias");
    assert_true(llama_tensor(model, 1 + 27 * 12 + 11)->count == 512);
    assert_string_equal(llama_tensor(model, 1 + 28 * 12)->name, "model.norm.weight");
    llama_destroy(&model);
}

/* They are what a step computes, forward twice, but for attention's and a part of a block. */
static void products_are_those_of_a_step(void **state)
{
    (void)state;
    struct llama *model = NULL;
    struct hst_gemm gemms[HST_GEMMS_MAX];
    assert_int_equal(llama_create(&llama_1b, &run, &model, NULL), 0);
    uint32_t count = llama_gemms(model, HST_BF16, gemms);
    assert_int_equal(count, 16);
    double flops = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct hst_gemm *p = &gemms[i];
        flops +=
            2.0 * (double)p->m * (double)p->n * (double)p->k * p->times * (p->batch ? p->batch : 1);
        assert_int_equal(p->dtype, HST_BF16);
        assert_true(p->m <= 8192 && p->n <= 8192 && p->k <= 8192);
        bool twins = i / 3 == 1 || i / 3 == 3; /* k and v, gate and up */
        assert_true((p->batch == 2) == (twins && i % 3 != 1));
    }
    double layers = 1235814400.0 - 33 * 2048 - 128256.0 * 2048, head = 128256.0 * 2048;
    double step = 2048 * (8 * layers + 6 * head);
    assert_true(flops >= step && flops < 1.02 * step);
    llama_destroy(&model);
}

static void tensors_come_in_the_order_of_the_units(void **state)
{
    (void)state;
    struct llama *model = NULL;
    struct llama_config untied = llama_1b;
    untied.tied_embeddings = false;
    assert_int_equal(llama_create(&llama_1b, &run, &model, NULL), 0);
    assert_string_equal(llama_tensor(model, 0)->name, "model.embed_tokens.weight");
    assert_string_equal(llama_tensor(model, 1)->name, "model.layers.0.input_layernorm.weight");
    assert_int_equal(llama_tensor(model, 1)->dim_count, 1);
    const struct llama_tensor *k = llama_tensor(model, 1 + 15 * 9 + 2);
    assert_string_equal(k->name, "model.layers.15.self_attn.k_proj.weight");
    assert_true(k->dim_count == 2 && k->dims[0] == 512 && k->dims[1] == 2048 &&
                k->count == 1 << 20);
    assert_string_equal(llama_tensor(model, 145)->name, "model.norm.weight");
    assert_null(llama_tensor(model, 146));
    llama_destroy(&model);
    assert_int_equal(llama_create(&untied, &run, &model, NULL), 0);
    assert_string_equal(llama_tensor(model, 146)->name, "lm_head.weight");
    assert_null(llama_tensor(model, 147));
    assert_int_equal(llama_parameter_count(model), 1235814400 + 128256 * 2048);
    llama_destroy(&model);
}

static void assert_refused(const struct llama_config *config, const struct llama_run *r,
                           enum fail_code code, const char *words)
{
    struct llama *model = NULL;
    struct hst_error error = {0};
    assert_true(llama_create(config, r, &model, &error) < 0);
    assert_null(model);
    assert_int_equal(error.code, code);
    if (!strstr(error.message, words))
        fail_msg("\"%s\" lacks \"%s\"", error.message, words);
}

static void sizes_that_cannot_be_are_refused(void **state)
{
    (void)state;
    struct llama_config c = llama_1b;
    c.hidden = 0;
    assert_refused(&c, &run, FAIL_CONFIG_VALUE, "is 0");
    c = llama_1b;
    c.kv_heads = 5;
    assert_refused(&c, &run, FAIL_CONFIG_VALUE, "num_key_value_heads 5");
    c = llama_1b;
    c.head_dim = 63;
    assert_refused(&c, &run, FAIL_CONFIG_VALUE, "head_dim 63");
    c = llama_1b;
    c.layers = UINT32_MAX;
    assert_refused(&c, &run, FAIL_CONFIG_VALUE, "num_hidden_layers 4294967295");
    c = llama_1b;
    c.vocab = UINT32_MAX;
    assert_refused(&c, &run, FAIL_CONFIG_VALUE, "2^40");
    c = llama_1b;
    c.heads = UINT32_MAX;
    c.kv_heads = 1;
    c.head_dim = UINT32_MAX - 1;
    assert_refused(&c, &run, FAIL_CONFIG_VALUE, "2^40");
}

static void steps_that_cannot_be_are_refused(void **state)
{
    (void)state;
    struct llama_run r = run;
    r.batch_tokens = 4095;
    assert_refused(&llama_1b, &r, FAIL_VALUE, "--batch-tokens 4095");
    r = run;
    r.micro_batch_tokens = 100;
    assert_refused(&llama_1b, &r, FAIL_VALUE, "micro-batch of 100");
    r = run;
    r.seq_len = 0;
    assert_refused(&llama_1b, &r, FAIL_VALUE, "--seq-len 0");
    r.seq_len = r.batch_tokens = r.micro_batch_tokens = 131073;
    assert_refused(&llama_1b, &r, FAIL_VALUE, "--seq-len 131073");
    struct llama_config windowed = llama_1b;
    windowed.window = 255; /* sequences may be longer */
    windowed.windowless[0] = 1;
    struct llama *model = NULL;
    assert_int_equal(llama_create(&windowed, &run, &model, NULL), 0);
    assert_int_equal(llama_layer_window(model, 0), 0);
    assert_int_equal(llama_layer_window(model, 1), 255);
    llama_destroy(&model);
    windowed.window = 256;
    assert_int_equal(llama_create(&windowed, &run, &model, NULL), 0);
    assert_int_equal(llama_layer_window(model, 1), 0); /* where they fit there is none */
    llama_destroy(&model);
    r = run;
    r.batch_tokens = r.micro_batch_tokens = UINT64_C(1) << 50;
    assert_refused(&llama_1b, &r, FAIL_VALUE, "2^40");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_grain_is_whole_sequences_near_the_wish),
        cmocka_unit_test(a_public_model_has_its_published_size),
        cmocka_unit_test(a_model_whose_heads_are_normed_has_two_vectors_more_in_a_layer),
        cmocka_unit_test(a_model_with_biases_has_three_vectors_more_in_a_layer),
        cmocka_unit_test(products_are_those_of_a_step),
        cmocka_unit_test(tensors_come_in_the_order_of_the_units),
        cmocka_unit_test(sizes_that_cannot_be_are_refused),
        cmocka_unit_test(steps_that_cannot_be_are_refused),
    };
    return cmocka_run_group_tests_name("model/model", tests, NULL, NULL);
}
