/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The head with more tokens than a chunk of logits and more rows than a block of weights, against
 * float64. The one layer of the model has zeros for its output weights, so that it passes
 * everything on, and what is left is embedding, norm, softmax.
 */
#include "harness.h"
#include "model/model.h"

#include <setjmp.h>
#include <stdarg.h>

#include <assert.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { HIDDEN = 8, VOCAB = 8200, SEQ = 16, TOKENS = 129 * SEQ, EPS_INVERSE = 100000 };
static_assert(TOKENS > LOGIT_CHUNK_TOKENS && VOCAB > WEIGHT_BLOCK_ROWS,
              "more than a chunk and than a block");

static const struct llama_config config = {
    .hidden = HIDDEN,
    .intermediate = 4,
    .layers = 1,
    .heads = 2,
    .kv_heads = 1,
    .head_dim = 4,
    .vocab = VOCAB,
    .max_positions = SEQ,
    .rms_norm_eps = 1.0 / EPS_INVERSE,
    .rope = {.type = ROPE_DEFAULT, .theta = 10000.0},
};

/* Multiples of 1/64 below 2: exact in bf16. */
static float value_of(const char *name, uint64_t i)
{
    if (strstr(name, "o_proj") || strstr(name, "down_proj"))
        return 0.0f;
    uint32_t hash = (uint32_t)(i + strlen(name) * 1000) * 2654435761u;
    return (float)((int)(hash >> 25) - 64) / 64.0f;
}

static int read_value(void *context, const struct hst_param_ref *param, uint64_t offset, float *dst,
                      size_t count)
{
    (void)context;
    for (size_t i = 0; i < count; i++)
        dst[i] = value_of(param->name, offset + i);
    return 0;
}

struct reference {
    size_t targets;
    double loss;
    double dweight[VOCAB * HIDDEN], dembed[VOCAB * HIDDEN], dnorm[HIDDEN];
};

static uint32_t input_of(size_t t)
{
    return (uint32_t)(t * 7919 % VOCAB);
}

static uint32_t target_of(size_t t)
{
    return (uint32_t)(t * 104729 % VOCAB);
}

/* What is learned where not everything is: more of the first grain than of the second. */
static bool is_learned(size_t t)
{
    return t < (size_t)3 * SEQ || (t % 5 == 0 && t < (size_t)56 * SEQ);
}

static void add_token(struct reference *r, const float *weight, size_t t)
{
    static double p[VOCAB];
    double x[HIDDEN], n[HIDDEN], dn[HIDDEN] = {0}, square = 0, sum = 0, dot = 0;
    for (size_t i = 0; i < HIDDEN; i++) {
        x[i] = value_of("model.embed_tokens.weight", input_of(t) * HIDDEN + i);
        square += x[i] * x[i];
    }
    double rstd = 1 / sqrt(square / HIDDEN + 1.0 / EPS_INVERSE);
    for (size_t i = 0; i < HIDDEN; i++)
        n[i] = x[i] * rstd * value_of("model.norm.weight", i);
    for (size_t v = 0; v < VOCAB; v++) {
        double logit = 0;
        for (size_t i = 0; i < HIDDEN; i++)
            logit += n[i] * weight[v * HIDDEN + i];
        sum += p[v] = exp(logit);
    }
    r->loss -= log(p[target_of(t)] / sum) / (double)r->targets;
    for (size_t v = 0; v < VOCAB; v++) {
        double g = (p[v] / sum - (v == target_of(t))) / (double)r->targets;
        for (size_t i = 0; i < HIDDEN; i++) {
            r->dweight[v * HIDDEN + i] += g * n[i];
            dn[i] += g * weight[v * HIDDEN + i];
        }
    }
    for (size_t i = 0; i < HIDDEN; i++)
        dot += dn[i] * value_of("model.norm.weight", i) * x[i] / HIDDEN;
    for (size_t i = 0; i < HIDDEN; i++) {
        double g = dn[i] * value_of("model.norm.weight", i);
        r->dnorm[i] += dn[i] * x[i] * rstd;
        r->dembed[input_of(t) * HIDDEN + i] += rstd * (g - x[i] * rstd * rstd * dot);
    }
}

enum { ALL, SOME, REFERENCES }; /* of the tokens are learned */

static int set_up(void **state)
{
    struct reference *r = calloc(REFERENCES, sizeof *r);
    float *weight = malloc(VOCAB * HIDDEN * sizeof *weight);
    if (!r || !weight) {
        free(r);
        free(weight);
        return -1;
    }
    for (size_t i = 0; i < VOCAB * HIDDEN; i++)
        weight[i] = value_of("lm_head.weight", i);
    r[ALL].targets = TOKENS;
    for (size_t t = 0; t < TOKENS; t++)
        r[SOME].targets += is_learned(t);
    for (size_t t = 0; t < TOKENS; t++) {
        add_token(&r[ALL], weight, t);
        if (is_learned(t))
            add_token(&r[SOME], weight, t);
    }
    free(weight);
    *state = r;
    return 0;
}

static int tear_down(void **state)
{
    free(*state);
    return 0;
}

/* ‖got − expected‖ / ‖expected‖ */
static double distance(const struct hst_engine *engine, const char *name, const double *expected)
{
    size_t count = 0;
    const float *got = fake_engine_grad(engine, name, &count);
    assert_non_null(got);
    double off = 0, size = 0;
    for (size_t i = 0; i < count; i++) {
        off += (got[i] - expected[i]) * (got[i] - expected[i]);
        size += expected[i] * expected[i];
    }
    return sqrt(off / size);
}

static void assert_step(const struct reference *r, uint64_t micro_batch_tokens,
                        enum hst_precision precision, double tolerance)
{
    struct llama_run run = {
        .seq_len = SEQ, .batch_tokens = TOKENS, .micro_batch_tokens = micro_batch_tokens};
    struct hst_config engine = harness_engine(&run, precision);
    struct hst_reader reader = {.read = read_value};
    struct hst_step_in in = {.size = sizeof in, .lr = 0.0};
    struct hst_step_stats stats;
    uint32_t inputs[TOKENS], targets[TOKENS];
    double loss = NAN;
    struct harness h;
    for (size_t t = 0; t < TOKENS; t++) {
        inputs[t] = input_of(t);
        targets[t] = r->targets == TOKENS || is_learned(t) ? target_of(t) : HST_NO_TARGET;
    }
    harness_open(&h, &config, &run, &engine, &reader);
    const struct llama_batch batch = {.inputs = inputs, .targets = targets};
    assert_int_equal(llama_step(h.model, h.engine, &in, &batch, &loss, &stats), 0);
    double off[4] = {
        fabs(loss / r->loss - 1),
        distance(h.engine, "lm_head.weight", r->dweight),
        distance(h.engine, "model.norm.weight", r->dnorm),
        distance(h.engine, "model.embed_tokens.weight", r->dembed),
    };
    print_message("off by %.1e %.1e %.1e %.1e\n", off[0], off[1], off[2], off[3]);
    for (size_t i = 0; i < 4; i++)
        assert_true(off[i] < tolerance);
    harness_close(&h);
}

static void one_grain_of_two_chunks_matches_in_f32(void **state)
{
    assert_step(*state, TOKENS, HST_PRECISION_FP32, 2e-6);
}

static void grains_of_less_than_a_chunk_match_in_f32(void **state)
{
    assert_step(*state, 40 * SEQ, HST_PRECISION_FP32, 2e-6);
}

/* Each target counts the same, whichever grain it is in. */
static void what_is_not_learned_counts_nowhere(void **state)
{
    const struct reference *some = (const struct reference *)*state + SOME;
    assert_step(some, TOKENS, HST_PRECISION_FP32, 2e-6);
    assert_step(some, (uint64_t)40 * SEQ, HST_PRECISION_FP32, 2e-6);
    assert_step(some, SEQ, HST_PRECISION_FP32, 2e-6); /* a last grain without a target */
    assert_step(some, (uint64_t)40 * SEQ, HST_PRECISION_BF16, 1e-2);
}

static void one_grain_of_two_chunks_is_near_in_bf16(void **state)
{
    assert_step(*state, TOKENS, HST_PRECISION_BF16, 1e-2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_grain_of_two_chunks_matches_in_f32),
        cmocka_unit_test(grains_of_less_than_a_chunk_match_in_f32),
        cmocka_unit_test(what_is_not_learned_counts_nowhere),
        cmocka_unit_test(one_grain_of_two_chunks_is_near_in_bf16),
    };
    return cmocka_run_group_tests_name("model/head", tests, set_up, tear_down);
}
