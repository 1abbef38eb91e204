/* SPDX-License-Identifier: Apache-2.0 */
/* What a step does beside its numbers: errors, shapes at the edge, repeatability. */
#include "harness.h"
#include "model/model.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct llama_config small = {
    .hidden = 16,
    .intermediate = 24,
    .layers = 2,
    .heads = 4,
    .kv_heads = 2,
    .head_dim = 6,
    .vocab = 50,
    .max_positions = 8,
    .rms_norm_eps = 1e-5,
    .tied_embeddings = true,
    .rope = {.type = ROPE_LINEAR, .theta = 10000.0, .factor = 2.0},
};
static const struct llama_run two_grains = {
    .seq_len = 8, .batch_tokens = 24, .micro_batch_tokens = 16};

static int read_random(void *context, const struct hst_param_ref *param, uint64_t offset,
                       float *dst, size_t count)
{
    (void)context;
    llama_init_random(&small, &(struct llama_init){3, param->name, offset}, dst, count);
    return 0;
}
static const struct hst_reader reader = {.read = read_random};

struct outcome {
    int rc;
    double loss;
    struct hst_step_stats stats;
};

/* One step on ids t·stride mod vocab. */
static struct outcome step(struct harness *h, const struct llama_config *config,
                           const struct llama_run *run, uint32_t stride)
{
    struct outcome out = {.loss = -1.0};
    struct hst_step_in in = {.size = sizeof in, .lr = 1e-3};
    uint32_t inputs[256], targets[256];
    assert_true(run->batch_tokens <= 256);
    for (uint32_t t = 0; t < run->batch_tokens; t++) {
        inputs[t] = t * stride % config->vocab;
        targets[t] = (t + 1) * stride % config->vocab;
    }
    const struct llama_batch batch = {.inputs = inputs, .targets = targets};
    out.rc = llama_step(h->model, h->engine, &in, &batch, &out.loss, &out.stats);
    return out;
}

static void the_first_failing_call_is_the_last_and_its_error_is_returned(void **state)
{
    (void)state;
    struct hst_config engine = harness_engine(&two_grains, HST_PRECISION_FP32);
    struct harness h;
    harness_open(&h, &small, &two_grains, &engine, &reader);
    assert_int_equal(step(&h, &small, &two_grains, 7).rc, 0);
    size_t calls = fake_engine_calls(h.engine);
    harness_close(&h);
    for (size_t call = 0; call < calls; call++) {
        harness_open(&h, &small, &two_grains, &engine, &reader);
        fake_engine_fail_at(h.engine, call);
        struct outcome out = step(&h, &small, &two_grains, 7);
        assert_int_equal(out.rc, -EIO);
        assert_int_equal(fake_engine_calls(h.engine), call + 1);
        assert_true(out.loss == -1.0 && out.stats.step == 0);
        harness_close(&h);
    }
}

/* The mean over nothing is no number. Where a run has no documents it has no room for them. */
static void a_batch_that_is_none_is_refused_before_anything_begins(void **state)
{
    (void)state;
    struct hst_config engine = harness_engine(&two_grains, HST_PRECISION_FP32);
    struct hst_step_in in = {.size = sizeof in, .lr = 1e-3};
    struct hst_step_stats stats = {0};
    uint32_t ids[24] = {0}, none[24];
    for (size_t t = 0; t < 24; t++)
        none[t] = HST_NO_TARGET;
    const struct llama_batch bad[] = {
        {.inputs = ids, .targets = none},
        {.inputs = ids, .targets = ids, .first = ids},
        {.inputs = ids, .targets = ids, .position = ids},
        {.inputs = ids, .targets = ids, .first = ids, .position = ids},
    };
    struct harness h;
    harness_open(&h, &small, &two_grains, &engine, &reader);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        double loss = -1;
        assert_int_equal(llama_step(h.model, h.engine, &in, &bad[i], &loss, &stats), -EINVAL);
        assert_true(loss == -1 && stats.step == 0);
    }
    assert_int_equal(fake_engine_calls(h.engine), 0);
    none[23] = 1; /* one is enough */
    double loss = -1;
    assert_int_equal(llama_step(h.model, h.engine, &in, &bad[0], &loss, &stats), 0);
    assert_true(fabs(loss - log(50)) < 0.2);
    harness_close(&h);
}

static void an_error_of_the_device_is_returned(void **state)
{
    (void)state;
    struct hst_config engine = harness_engine(&two_grains, HST_PRECISION_FP32);
    struct llama_config lies = small;
    struct harness h;
    lies.vocab = 4000; /* ids beyond the model's 50 */
    harness_open(&h, &small, &two_grains, &engine, &reader);
    assert_int_equal(step(&h, &lies, &two_grains, 97).rc, -EDOM);
    harness_close(&h);
}

/* Ids t·stride mod vocab. The sum of the losses of the first `tokens`, or -1. */
static double evaluate(struct harness *h, const struct llama_run *run, uint64_t tokens,
                       uint32_t stride)
{
    uint32_t inputs[256], targets[256];
    struct llama_evaluation found = {0};
    const struct llama_batch batch = {.inputs = inputs, .targets = targets};
    for (uint32_t t = 0; t < run->batch_tokens; t++) {
        inputs[t] = t * stride % small.vocab;
        targets[t] = (t + 1) * stride % small.vocab;
    }
    for (uint64_t t = tokens; t < run->batch_tokens; t++)
        inputs[t] = targets[t] = 1; /* what is behind them is no matter */
    int rc = llama_evaluate(h->model, h->engine, &batch, tokens, &found);
    assert_true(rc || found.target_count == tokens);
    return rc ? -1 : found.loss_sum;
}

static void an_evaluation_gives_the_loss_that_a_step_would_and_changes_no_step(void **state)
{
    (void)state;
    for (int precision = HST_PRECISION_FP32; precision <= HST_PRECISION_BF16; precision++) {
        struct hst_config engine = harness_engine(&two_grains, (enum hst_precision)precision);
        double seen[2][3], evaluated[3], parts = 0;
        for (int with = 0; with < 2; with++) {
            struct harness h;
            harness_open(&h, &small, &two_grains, &engine, &reader);
            for (size_t i = 0; i < 3; i++) {
                evaluated[i] = with ? evaluate(&h, &two_grains, 24, 7) / 24 : 0;
                if (with && i == 2)
                    parts = evaluate(&h, &two_grains, 8, 7) - evaluate(&h, &two_grains, 16, 7);
                seen[with][i] = step(&h, &small, &two_grains, 7).loss;
            }
            harness_close(&h);
        }
        assert_memory_equal(seen[0], seen[1], sizeof seen[0]);
        assert_memory_equal(seen[1], evaluated, sizeof evaluated);
        assert_true(parts < 0 && parts > -8 * 8); /* of the second sequence alone */
    }
}

static void the_first_failing_call_of_an_evaluation_is_its_last(void **state)
{
    (void)state;
    struct hst_config engine = harness_engine(&two_grains, HST_PRECISION_FP32);
    struct harness h;
    harness_open(&h, &small, &two_grains, &engine, &reader);
    assert_true(evaluate(&h, &two_grains, 16, 7) > 0);
    size_t calls = fake_engine_calls(h.engine);
    harness_close(&h);
    for (size_t call = 0; call < calls; call++) {
        harness_open(&h, &small, &two_grains, &engine, &reader);
        fake_engine_fail_at(h.engine, call);
        assert_true(evaluate(&h, &two_grains, 16, 7) == -1);
        assert_int_equal(fake_engine_calls(h.engine), call + 1);
        harness_close(&h);
    }
}

/* The loss of an id is the greater the less likely it is. */
static uint32_t id_of_least_loss(struct harness *h, const struct llama_batch *batch, uint64_t token,
                                 uint32_t *targets)
{
    const uint64_t tokens = (token / two_grains.seq_len + 1) * two_grains.seq_len;
    double least = INFINITY;
    uint32_t found = 0;
    for (uint32_t id = 0; id < small.vocab; id++) {
        struct llama_evaluation one = {0};
        for (uint64_t t = 0; t < two_grains.batch_tokens; t++)
            targets[t] = t == token ? id : HST_NO_TARGET;
        assert_int_equal(llama_evaluate(h->model, h->engine, batch, tokens, &one), 0);
        found = one.loss_sum < least ? id : found;
        least = one.loss_sum < least ? one.loss_sum : least;
    }
    return found;
}

static void the_chosen_ids_are_those_of_the_least_loss(void **state)
{
    (void)state;
    uint32_t inputs[24], targets[24];
    const struct llama_batch batch = {.inputs = inputs, .targets = targets};
    for (uint32_t t = 0; t < 24; t++)
        inputs[t] = targets[t] = t * 7 % small.vocab;
    struct hst_config engine = harness_engine(&two_grains, HST_PRECISION_FP32);
    struct harness h;
    harness_open(&h, &small, &two_grains, &engine, &reader);
    struct llama_choice choices[] = {{.token = 17}, {.token = 0}, {.token = 7}, {.token = 23}};
    assert_int_equal(llama_choose(h.model, h.engine, &batch, choices, 4), 0);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(choices[i].id, id_of_least_loss(&h, &batch, choices[i].token, targets));
    assert_true(choices[0].id != choices[1].id || choices[0].id != choices[2].id);
    const struct llama_batch documents = {
        .inputs = inputs, .targets = targets, .first = inputs, .position = inputs};
    assert_int_equal(llama_choose(h.model, h.engine, &documents, choices, 4), -EINVAL);
    harness_close(&h);
}

static void the_first_failing_call_of_a_choice_is_its_last(void **state)
{
    (void)state;
    struct hst_config engine = harness_engine(&two_grains, HST_PRECISION_FP32);
    uint32_t ids[24] = {0};
    const struct llama_batch batch = {.inputs = ids, .targets = ids};
    size_t calls = 1;
    for (size_t call = 0; call < calls; call++) {
        struct llama_choice choice = {.token = 9};
        struct harness h;
        harness_open(&h, &small, &two_grains, &engine, &reader);
        if (call > 0)
            fake_engine_fail_at(h.engine, call - 1);
        const int rc = llama_choose(h.model, h.engine, &batch, &choice, 1);
        assert_int_equal(rc, call > 0 ? -EIO : 0);
        calls = call > 0 ? calls : fake_engine_calls(h.engine) + 1;
        assert_int_equal(fake_engine_calls(h.engine), call > 0 ? call : calls - 1);
        harness_close(&h);
    }
    assert_true(calls > 10);
}

static void a_repeated_run_gives_the_same_bits(void **state)
{
    (void)state;
    for (int precision = HST_PRECISION_FP32; precision <= HST_PRECISION_BF16; precision++) {
        struct hst_config engine = harness_engine(&two_grains, (enum hst_precision)precision);
        double seen[2][3];
        for (size_t r = 0; r < 2; r++) {
            struct harness h;
            harness_open(&h, &small, &two_grains, &engine, &reader);
            for (size_t i = 0; i < 3; i++) {
                struct outcome out = step(&h, &small, &two_grains, 7);
                assert_int_equal(out.rc, 0);
                seen[r][i] = out.loss + out.stats.grad_norm;
            }
            harness_close(&h);
        }
        assert_memory_equal(seen[0], seen[1], sizeof seen[0]);
        assert_true(seen[0][2] != seen[0][0]);
    }
}

static void the_first_loss_of_a_fresh_model_is_that_of_a_guess(void **state)
{
    (void)state;
    struct hst_config engine = harness_engine(&two_grains, HST_PRECISION_FP32);
    struct harness h;
    harness_open(&h, &small, &two_grains, &engine, &reader);
    assert_true(fabs(step(&h, &small, &two_grains, 7).loss - log(50)) < 0.05);
    harness_close(&h);
}

/* Each of the first and of the last ones is one matrix, or one vector, and nothing else. */
static void the_final_norm_is_a_unit_between_the_layers_and_the_head(void **state)
{
    (void)state;
    static const struct {
        const char *name, *param;
        uint32_t param_count;
    } expected[] = {
        {"embedding", "model.embed_tokens.weight", 1},
        {"layers.0", "model.layers.0.input_layernorm.weight", 9},
        {"layers.1", "model.layers.1.input_layernorm.weight", 9},
        {"norm", "model.norm.weight", 1},
        {"head", "lm_head.weight", 1},
    };
    struct hst_config engine = harness_engine(&two_grains, HST_PRECISION_FP32);
    for (int tied = 0; tied < 2; tied++) {
        struct llama_config config = small;
        config.tied_embeddings = tied;
        struct harness h;
        uint32_t count = 0, unit = 0;
        const char *param = NULL;
        harness_open(&h, &config, &two_grains, &engine, &reader);
        for (; unit < sizeof expected / sizeof expected[0]; unit++) {
            const char *name = fake_engine_unit(h.engine, unit, &count, &param);
            assert_non_null(name);
            assert_string_equal(name, expected[unit].name);
            assert_string_equal(param, expected[unit].param);
            assert_int_equal(count, expected[unit].param_count);
        }
        assert_null(fake_engine_unit(h.engine, unit, &count, &param));
        harness_close(&h);
    }
}

/* Gradients of every unit that has a checkpoint, in one row. */
struct gradients {
    float of[512];
    size_t count;
};

static void add_gradient(const struct hst_engine *engine, const char *name, struct gradients *g)
{
    size_t count = 0;
    const float *grad = fake_engine_grad(engine, name, &count);
    assert_true(grad && g->count + count <= sizeof g->of / sizeof g->of[0]);
    memcpy(g->of + g->count, grad, count * sizeof *grad);
    g->count += count;
}

/* units: to a kept checkpoint; saves: those that are given memory for their activations. */
static struct harness opened(const struct llama_config *config, uint32_t units, uint64_t saves,
                             enum hst_precision precision)
{
    struct hst_config engine = harness_engine(&two_grains, precision);
    struct harness h = {0};
    assert_int_equal(llama_create(config, &two_grains, &h.model, NULL), 0);
    assert_int_equal(hst_engine_create(&engine, &h.engine), 0);
    assert_int_equal(llama_add_units(h.model, h.engine), 0);
    fake_engine_segment(h.engine, units);
    fake_engine_saves(h.engine, saves);
    assert_int_equal(hst_engine_seal(h.engine, HST_ORDER_FORWARD), 0);
    assert_int_equal(hst_engine_load(h.engine, &reader), 0);
    return h;
}

static struct outcome step_in_segments(const struct llama_config *config, uint32_t units,
                                       uint64_t saves, enum hst_precision precision,
                                       size_t *visit_count, struct gradients *g)
{
    const struct hst_visit *visits = NULL;
    char name[64];
    struct harness h = opened(config, units, saves, precision);
    assert_int_equal(hst_engine_visits(h.engine, &visits, visit_count), 0);
    struct outcome out = step(&h, config, &two_grains, 7);
    assert_int_equal(out.rc, 0);
    add_gradient(h.engine, "model.norm.weight", g);
    for (uint32_t i = 0; i < config->layers; i++) {
        snprintf(name, sizeof name, "model.layers.%u.post_attention_layernorm.weight", i);
        add_gradient(h.engine, name, g);
        snprintf(name, sizeof name, "model.layers.%u.input_layernorm.weight", i);
        add_gradient(h.engine, name, g);
        snprintf(name, sizeof name, "model.layers.%u.self_attn.k_norm.weight", i);
        if (config->qk_norm)
            add_gradient(h.engine, name, g);
        snprintf(name, sizeof name, "model.layers.%u.self_attn.k_proj.bias", i);
        if (config->qkv_bias)
            add_gradient(h.engine, name, g);
    }
    harness_close(&h);
    return out;
}

/* Of three layers and the norm: it is the last of its segment in those of two and four, where its
 * checkpoint is the carry, and the first in those of one and three, where it keeps its own. */
static void bits_are_the_same_wherever_a_segment_ends(void **state)
{
    (void)state;
    static const size_t recomputes[] = {[2] = 2, [3] = 2, [4] = 3};
    struct llama_config config = small;
    config.layers = 3;
    for (int precision = HST_PRECISION_FP32; precision <= HST_PRECISION_BF16; precision++) {
        struct gradients all = {.count = 0};
        size_t visits = 0;
        struct outcome kept =
            step_in_segments(&config, 1, 0, (enum hst_precision)precision, &visits, &all);
        assert_int_equal(visits, 5 + 6); /* units: the head has no forward */
        for (uint32_t units = 2; units <= 4; units++) {
            struct gradients some = {.count = 0};
            struct outcome out =
                step_in_segments(&config, units, 0, (enum hst_precision)precision, &visits, &some);
            assert_int_equal(visits, 5 + 6 + recomputes[units]);
            assert_true(out.loss == kept.loss && out.stats.grad_norm == kept.stats.grad_norm);
            assert_memory_equal(some.of, all.of, all.count * sizeof *all.of);
        }
    }
}

/* A Llama, one whose heads are normed, one with biases, and one with both, which nobody made. */
enum { KINDS = 4 };

static struct llama_config kin_of(int kind)
{
    struct llama_config config = small;
    config.qk_norm = kind & 1;
    config.qkv_bias = kind & 2;
    return config;
}

/* Layers are units 1 to 3. */
static void check_saves(struct llama_config config, enum hst_precision precision)
{
    config.layers = 3;
    struct gradients none = {.count = 0};
    size_t visits = 0;
    struct outcome again = step_in_segments(&config, 1, 0, precision, &visits, &none);
    for (uint64_t saves = 1; saves < 8; saves++) {
        struct gradients some = {.count = 0};
        struct outcome out = step_in_segments(&config, 1, saves << 1, precision, &visits, &some);
        assert_true(out.loss == again.loss && out.stats.grad_norm == again.stats.grad_norm);
        assert_memory_equal(some.of, none.of, none.count * sizeof *none.of);
    }
}

static void bits_are_the_same_whatever_layers_save(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++)
        for (int precision = HST_PRECISION_FP32; precision <= HST_PRECISION_BF16; precision++)
            check_saves(kin_of(kind), (enum hst_precision)precision);
}

/* What was saved is not recomputed: else it would not matter that it is lost. Of attention that is
 * zeros O has no gradient. */
static void a_backward_uses_what_was_saved(void **state)
{
    static const char out[] = "model.layers.0.self_attn.o_proj.weight";
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        struct llama_config config = kin_of(kind);
        double norms[2];
        for (int forgets = 0; forgets < 2; forgets++) {
            struct harness h = opened(&config, 1, 2, HST_PRECISION_FP32);
            if (forgets)
                fake_engine_forgets(h.engine);
            norms[forgets] = step(&h, &config, &two_grains, 7).stats.grad_norm;
            size_t count = 0;
            const float *grad = fake_engine_grad(h.engine, out, &count);
            for (size_t i = 0; i < count && forgets; i++)
                assert_true(grad[i] == 0);
            harness_close(&h);
        }
        assert_true(norms[0] > 0 && norms[1] > 0 && norms[0] != norms[1]);
    }
}

/* More rows than a block in O and DOWN, whose inputs' gradients then need the f32 scratch in
 * bf16. */
static void a_hidden_size_of_several_blocks_trains_in_both_precisions(void **state)
{
    (void)state;
    struct llama_config wide = small;
    struct llama_run run = {.seq_len = 4, .batch_tokens = 8, .micro_batch_tokens = 4};
    wide.hidden = 8200;
    wide.layers = 1;
    wide.vocab = 16;
    struct outcome out[2];
    for (int i = 0; i < 2; i++) {
        struct hst_config engine =
            harness_engine(&run, i == 0 ? HST_PRECISION_FP32 : HST_PRECISION_BF16);
        struct harness h;
        harness_open(&h, &wide, &run, &engine, &reader);
        out[i] = step(&h, &wide, &run, 3);
        assert_int_equal(out[i].rc, 0);
        harness_close(&h);
    }
    assert_true(fabs(out[1].loss / out[0].loss - 1) < 0.01);
    assert_true(fabs(out[1].stats.grad_norm / out[0].stats.grad_norm - 1) < 0.01);
}

static void a_sequence_of_one_token_is_a_sequence(void **state)
{
    (void)state;
    struct llama_run run = {.seq_len = 1, .batch_tokens = 5, .micro_batch_tokens = 2};
    struct hst_config engine = harness_engine(&run, HST_PRECISION_FP32);
    struct harness h;
    harness_open(&h, &small, &run, &engine, &reader);
    assert_int_equal(step(&h, &small, &run, 7).rc, 0);
    harness_close(&h);
}

/* What nothing else in a layer needs as much of. */
static void workspace_is_enough_for_norms_of_heads_and_biases(void **state)
{
    (void)state;
    const struct llama_run run = {.seq_len = 1, .batch_tokens = 8192, .micro_batch_tokens = 8192};
    size_t bytes[KINDS], norms = 0, biases = 0;
    for (int kind = 0; kind < KINDS; kind++) {
        struct llama_config config = kin_of(kind);
        struct hst_config engine = harness_engine(&run, HST_PRECISION_FP32);
        struct harness h = {0};
        config.heads = 32;
        config.head_dim = 64;
        assert_int_equal(llama_create(&config, &run, &h.model, NULL), 0);
        assert_int_equal(hst_engine_create(&engine, &h.engine), 0);
        assert_int_equal(llama_add_units(h.model, h.engine), 0);
        bytes[kind] = h.model->layer_op_bytes;
        norms = hst_rmsnorm_backward_work_bytes(hst_engine_device(h.engine), 8192 * 32, 64);
        biases = hst_bias_backward_work_bytes(hst_engine_device(h.engine), 8192, 32 * 64);
        harness_close(&h);
    }
    assert_true(bytes[0] < biases && biases < norms);
    assert_int_equal(bytes[1], norms);
    assert_int_equal(bytes[2], biases);
    assert_int_equal(bytes[3], norms);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_failing_call_is_the_last_and_its_error_is_returned),
        cmocka_unit_test(a_batch_that_is_none_is_refused_before_anything_begins),
        cmocka_unit_test(an_error_of_the_device_is_returned),
        cmocka_unit_test(an_evaluation_gives_the_loss_that_a_step_would_and_changes_no_step),
        cmocka_unit_test(the_first_failing_call_of_an_evaluation_is_its_last),
        cmocka_unit_test(the_chosen_ids_are_those_of_the_least_loss),
        cmocka_unit_test(the_first_failing_call_of_a_choice_is_its_last),
        cmocka_unit_test(a_repeated_run_gives_the_same_bits),
        cmocka_unit_test(the_first_loss_of_a_fresh_model_is_that_of_a_guess),
        cmocka_unit_test(the_final_norm_is_a_unit_between_the_layers_and_the_head),
        cmocka_unit_test(bits_are_the_same_wherever_a_segment_ends),
        cmocka_unit_test(bits_are_the_same_whatever_layers_save),
        cmocka_unit_test(a_backward_uses_what_was_saved),
        cmocka_unit_test(a_hidden_size_of_several_blocks_trains_in_both_precisions),
        cmocka_unit_test(workspace_is_enough_for_norms_of_heads_and_biases),
        cmocka_unit_test(a_sequence_of_one_token_is_a_sequence),
    };
    return cmocka_run_group_tests_name("model/step", tests, NULL, NULL);
}
