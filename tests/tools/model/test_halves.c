/* SPDX-License-Identifier: Apache-2.0 */
/* A layer as two units: what each has, and that no bit depends on it. */
#include "harness.h"
#include "model/work.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <errno.h>
#include <math.h>
#include <string.h>

enum { TOKENS = 24, KINDS = 4, STEPS = 2, UNITS = 9, MOST_GRADIENTS = 1 << 17 };

static const struct llama_config small = {
    .hidden = 16,
    .intermediate = 24,
    .layers = 3,
    .heads = 4,
    .kv_heads = 2,
    .head_dim = 6,
    .vocab = 50,
    .max_positions = 8,
    .rms_norm_eps = 1e-5,
    .tied_embeddings = true,
    .rope = {.type = ROPE_LINEAR, .theta = 10000.0, .factor = 2.0},
};

/* Heads that are normed, biases, both or neither; the last has a head of its own, and a window that
 * its second layer has not. */
static struct llama_config kin_of(int kind)
{
    struct llama_config config = small;
    config.qk_norm = kind & 1;
    config.qkv_bias = kind & 2;
    config.window = kind == KINDS - 1 ? 3 : 0;
    config.windowless[0] = 1 << 1;
    config.tied_embeddings = kind != KINDS - 1;
    return config;
}

static struct llama_run run_of(bool halves)
{
    return (struct llama_run){
        .seq_len = 8, .batch_tokens = TOKENS, .micro_batch_tokens = 16, .halves = halves};
}

static int read_random(void *context, const struct hst_param_ref *param, uint64_t offset,
                       float *dst, size_t count)
{
    llama_init_random(context, &(struct llama_init){3, param->name, offset}, dst, count);
    return 0;
}

struct how {
    bool halves;
    uint32_t segment; /* units to a kept checkpoint */
    uint64_t saves;   /* units whose activations are kept */
    enum hst_precision precision;
};

static struct harness opened(const struct llama_config *config, struct how how)
{
    const struct llama_run run = run_of(how.halves);
    const struct hst_config engine = harness_engine(&run, how.precision);
    const struct hst_reader reader = {.read = read_random, .context = (void *)config};
    struct harness h = {0};
    assert_int_equal(llama_create(config, &run, &h.model, NULL), 0);
    assert_int_equal(hst_engine_create(&engine, &h.engine), 0);
    assert_int_equal(llama_add_units(h.model, h.engine), 0);
    fake_engine_segment(h.engine, how.segment);
    fake_engine_saves(h.engine, how.saves);
    assert_int_equal(hst_engine_seal(h.engine, HST_ORDER_FORWARD), 0);
    assert_int_equal(hst_engine_load(h.engine, &reader), 0);
    return h;
}

struct ids {
    uint32_t inputs[TOKENS], targets[TOKENS];
};

static struct llama_batch batch_of(struct ids *ids)
{
    for (uint32_t t = 0; t < TOKENS; t++) {
        ids->inputs[t] = t * 7 % small.vocab;
        ids->targets[t] = (t + 1) * 7 % small.vocab;
    }
    return (struct llama_batch){.inputs = ids->inputs, .targets = ids->targets};
}

static int step(struct harness *h, double *loss)
{
    struct ids ids;
    const struct hst_step_in in = {.size = sizeof in, .lr = 1e-2};
    const struct llama_batch batch = batch_of(&ids);
    struct hst_step_stats stats;
    return llama_step(h->model, h->engine, &in, &batch, loss, &stats);
}

/* What a run has told: all that may depend on how it was made. */
struct told {
    double losses[STEPS], evaluated;
    struct llama_choice choice;
    size_t count;
    float gradients[MOST_GRADIENTS]; /* of each step, tensor by tensor */
};

static void run(const struct llama_config *config, struct how how, struct told *told)
{
    struct harness h = opened(config, how);
    const struct llama_tensor *tensor;
    struct ids ids;
    struct llama_evaluation found;
    memset(told, 0, sizeof *told);
    for (int s = 0; s < STEPS; s++) {
        assert_int_equal(step(&h, &told->losses[s]), 0);
        for (size_t i = 0; (tensor = llama_tensor(h.model, i)); i++) {
            size_t count;
            const float *grad = fake_engine_grad(h.engine, tensor->name, &count);
            assert_true(grad && count == tensor->count);
            assert_true(told->count + count <= MOST_GRADIENTS);
            memcpy(told->gradients + told->count, grad, count * sizeof *grad);
            told->count += count;
        }
    }
    const struct llama_batch batch = batch_of(&ids);
    assert_int_equal(llama_evaluate(h.model, h.engine, &batch, 16, &found), 0);
    told->evaluated = found.loss_sum;
    told->choice.token = 13;
    assert_int_equal(llama_choose(h.model, h.engine, &batch, &told->choice, 1), 0);
    harness_close(&h);
}

static void check(const struct llama_config *config, struct how how, const struct told *want)
{
    static struct told got;
    run(config, how, &got);
    assert_int_equal(got.count, want->count);
    assert_memory_equal(got.losses, want->losses, sizeof got.losses);
    assert_memory_equal(got.gradients, want->gradients, got.count * sizeof *got.gradients);
    assert_true(got.evaluated == want->evaluated);
    assert_int_equal(got.choice.id, want->choice.id);
    assert_true(got.choice.logit == want->choice.logit);
}

/* Halves are units 1 to 6, the norm is the seventh: segments end within layers and between them. */
static void bits_are_those_of_whole_layers(void **state)
{
    (void)state;
    static struct told want;
    for (int kind = 0; kind < KINDS; kind++) {
        const struct llama_config config = kin_of(kind);
        for (int p = HST_PRECISION_FP32; p <= HST_PRECISION_BF16; p++) {
            struct how how = {.segment = 1, .precision = (enum hst_precision)p};
            run(&config, how, &want);
            assert_true(fabs(want.losses[0] - log(small.vocab)) < 0.2);
            how.halves = true;
            for (how.segment = 1; how.segment <= 5; how.segment++)
                check(&config, how, &want);
            how.segment = 1;
            for (uint64_t saves = 1; saves < 64; saves += 2 + (uint64_t)kind) {
                how.saves = saves << 1;
                check(&config, how, &want);
            }
        }
    }
}

static void halves_are_named_and_have_each_tensor_once(void **state)
{
    (void)state;
    static const char *const names[UNITS] = {
        "embedding",    "layers.0.self_attn", "layers.0.mlp", "layers.1.self_attn",
        "layers.1.mlp", "layers.2.self_attn", "layers.2.mlp", "norm",
        "head"};
    for (int kind = 0; kind < KINDS; kind++) {
        const struct llama_config config = kin_of(kind);
        struct harness h = opened(&config, (struct how){.halves = true, .segment = 1});
        const uint32_t optional = (kind & 1 ? 2 : 0) + (kind & 2 ? 3 : 0);
        assert_int_equal(llama_unit_count(h.model), UNITS);
        for (uint32_t u = 0; u < UNITS; u++) {
            uint32_t count = 0;
            const char *first = NULL;
            assert_string_equal(fake_engine_unit(h.engine, u, &count, &first), names[u]);
            if (u < 1 || u > 6)
                continue;
            assert_int_equal(count, u % 2 ? 5 + optional : 4);
            assert_non_null(strstr(first, u % 2 ? "input_layernorm" : "post_attention_layernorm"));
        }
        assert_null(fake_engine_unit(h.engine, UNITS, &(uint32_t){0}, &(const char *){NULL}));
        harness_close(&h);
    }
}

/* The engine is told of each unit its products and the pairs of a sequence of 8 that see each
 * other: with a window of 3 these are 1 + 2 + 6·3, without one 36. */
static void halves_are_charged_for_what_they_compute(void **state)
{
    (void)state;
    const struct llama_config config = kin_of(3);
    const uint64_t products = 2 * (2 * 16 * 24 + 2 * 16 * 12), pairs[3] = {21, 36, 21};
    struct harness h = opened(&config, (struct how){.halves = true, .segment = 1});
    struct harness whole = opened(&config, (struct how){.segment = 1});
    for (uint32_t layer = 0; layer < config.layers; layer++) {
        const uint64_t attention = fake_engine_flops(h.engine, 1 + 2 * layer);
        const uint64_t mlp = fake_engine_flops(h.engine, 2 + 2 * layer);
        assert_int_equal(attention, products + 4 * pairs[layer] * 24 / 8);
        assert_int_equal(mlp, 2 * 3 * 16 * 24);
        assert_int_equal(attention + mlp, fake_engine_flops(whole.engine, 1 + layer));
        assert_int_equal(attention + mlp, llama_layer_flops(whole.model, layer));
    }
    harness_close(&whole);
    harness_close(&h);
}

/* A unit holds what it uses. */
static void halves_share_what_a_layer_holds(void **state)
{
    (void)state;
    const struct llama_config config = kin_of(3);
    struct harness h = opened(&config, (struct how){.halves = true, .segment = 1});
    struct work_area of[3] = {{0}}, saved[3] = {{0}};
    for (int part = LAYER_WHOLE; part <= LAYER_MLP; part++) {
        struct layer_work work;
        layer_work_carve(h.model, (enum layer_part)part, &of[part], &work);
        layer_saved_carve(h.model, (enum layer_part)part, &saved[part], &work);
    }
    assert_true(of[LAYER_ATTENTION].size_bytes < of[LAYER_WHOLE].size_bytes);
    assert_true(of[LAYER_MLP].size_bytes < of[LAYER_WHOLE].size_bytes);
    /* the state between the halves is the second one's checkpoint: nobody saves it */
    assert_int_equal(saved[LAYER_WHOLE].size_bytes - 16 * 16 * sizeof(float),
                     saved[LAYER_ATTENTION].size_bytes + saved[LAYER_MLP].size_bytes);
    harness_close(&h);
}

static void the_first_failing_call_is_the_last(void **state)
{
    (void)state;
    const struct llama_config config = kin_of(1);
    const struct how how = {.halves = true, .segment = 2, .saves = 1 << 3 | 1 << 4};
    double loss = -1;
    struct harness h = opened(&config, how);
    assert_int_equal(step(&h, &loss), 0);
    const size_t calls = fake_engine_calls(h.engine);
    harness_close(&h);
    for (size_t call = 0; call < calls; call++) {
        h = opened(&config, how);
        fake_engine_fail_at(h.engine, call);
        loss = -1;
        assert_int_equal(step(&h, &loss), -EIO);
        assert_int_equal(fake_engine_calls(h.engine), call + 1);
        assert_true(loss == -1);
        harness_close(&h);
    }
}

/* Where activations are zeros in the backward, its gradients are others: it computes nothing again
 * that it was given. */
static void a_backward_of_a_half_uses_what_was_saved(void **state)
{
    (void)state;
    static const char *const tensors[2] = {"model.layers.1.self_attn.o_proj.weight",
                                           "model.layers.1.mlp.down_proj.weight"};
    const struct llama_config config = kin_of(0);
    for (int half = 0; half < 2; half++) {
        const struct how how = {.halves = true, .segment = 1, .saves = 1u << (3 + half)};
        struct harness h = opened(&config, how);
        double loss;
        size_t count;
        fake_engine_forgets(h.engine);
        assert_int_equal(step(&h, &loss), 0);
        const float *grad = fake_engine_grad(h.engine, tensors[half], &count);
        for (size_t i = 0; i < count; i++)
            assert_true(grad[i] == 0);
        harness_close(&h);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_are_those_of_whole_layers),
        cmocka_unit_test(halves_are_named_and_have_each_tensor_once),
        cmocka_unit_test(halves_are_charged_for_what_they_compute),
        cmocka_unit_test(halves_share_what_a_layer_holds),
        cmocka_unit_test(the_first_failing_call_is_the_last),
        cmocka_unit_test(a_backward_of_a_half_uses_what_was_saved),
    };
    return cmocka_run_group_tests_name("model/halves", tests, NULL, NULL);
}
