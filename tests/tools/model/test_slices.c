/* SPDX-License-Identifier: Apache-2.0 */
/* A vocabulary in slices: losses, gradients and norms are those of whole units, to the bit. */
#include "../../short.h"
#include "harness.h"
#include "model/model.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <errno.h>
#include <string.h>

#define STEPS 2
/* Two whole blocks and some of a third. */
#define VOCAB (2 * WEIGHT_BLOCK_ROWS + 3000)

static const struct llama_config config = {
    .hidden = 16,
    .intermediate = 24,
    .layers = 1,
    .heads = 2,
    .kv_heads = 1,
    .head_dim = 8,
    .vocab = VOCAB,
    .max_positions = 1024,
    .rms_norm_eps = 1e-5,
    .rope = {.type = ROPE_LINEAR, .theta = 10000.0, .factor = 1.0},
};
/* A grain of more than a chunk of logits, and a shorter one. */
static const struct llama_run run = {
    .seq_len = 768, .batch_tokens = 2304, .micro_batch_tokens = 1536};

static int read_random(void *context, const struct hst_param_ref *param, uint64_t offset,
                       float *dst, size_t count)
{
    (void)context;
    llama_init_random(&config, &(struct llama_init){3, param->name, offset}, dst, count);
    return 0;
}

struct outcome {
    double losses[STEPS], norms[STEPS];
    struct llama_evaluation evaluated;
    struct llama_choice chosen[4]; /* in both grains, and in two chunks of logits of one */
    float embedding[VOCAB * 16], head[VOCAB * 16], norm[16];
    size_t calls; /* of the engine's */
};
static struct outcome whole, cut; /* large: not on the stack */
static unsigned turn;

static void take_grad(const struct hst_engine *engine, const char *name, float *grad)
{
    size_t count;
    const float *from = fake_engine_grad(engine, name, &count);
    if (from)
        memcpy(grad, from, count * sizeof *grad);
}

/* Tokens of all blocks, among them the first and the last row of each. */
static uint32_t token(uint32_t i)
{
    static const uint32_t edges[] = {0,
                                     WEIGHT_BLOCK_ROWS - 1,
                                     WEIGHT_BLOCK_ROWS,
                                     2 * WEIGHT_BLOCK_ROWS - 1,
                                     2 * WEIGHT_BLOCK_ROWS,
                                     VOCAB - 1};
    return i % 7 < 6 ? edges[i % 7] : i * 2654435761u % VOCAB;
}

static int train(bool tied, enum hst_precision precision, uint64_t slice_rows, size_t fail_at,
                 struct outcome *out)
{
    static uint32_t inputs[2304], targets[2304];
    struct llama_config c = config;
    struct hst_config engine = harness_engine(&run, precision);
    struct hst_step_in in = {.size = sizeof in, .lr = 1e-3};
    struct hst_step_stats stats;
    struct harness h;
    int rc = 0;
    c.tied_embeddings = tied;
    for (uint32_t i = 0; i < run.batch_tokens; i++) {
        inputs[i] = token(i);
        targets[i] = i % 5 ? token(3 * i + 1) : HST_NO_TARGET;
    }
    harness_slice_rows = slice_rows;
    harness_open(&h, &c, &run, &engine, &(struct hst_reader){.read = read_random});
    if (fail_at != SIZE_MAX)
        fake_engine_fail_at(h.engine, fail_at);
    *out = (struct outcome){0};
    const struct llama_batch batch = {.inputs = inputs, .targets = targets};
    for (int s = 0; rc == 0 && s < STEPS; s++) {
        rc = llama_step(h.model, h.engine, &in, &batch, &out->losses[s], &stats);
        out->norms[s] = stats.grad_norm;
    }
    if (rc == 0)
        rc = llama_evaluate(h.model, h.engine, &batch, run.seq_len, &out->evaluated);
    static const uint64_t asked[] = {2303, 5, 1500, 6};
    for (size_t i = 0; i < 4; i++)
        out->chosen[i].token = asked[i];
    rc = rc ? rc : llama_choose(h.model, h.engine, &batch, out->chosen, 4);
    take_grad(h.engine, "model.embed_tokens.weight", out->embedding);
    take_grad(h.engine, "lm_head.weight", out->head);
    take_grad(h.engine, "model.norm.weight", out->norm);
    out->calls = fake_engine_calls(h.engine);
    harness_close(&h);
    harness_slice_rows = 0;
    return rc;
}

static void slices_have_the_bits_of_the_whole(void **state)
{
    (void)state;
    for (int tied = 0; tied < 2; tied++) {
        if (test_is_short() && turn % 2 != (unsigned)tied)
            continue;
        for (int precision = HST_PRECISION_FP32; precision <= HST_PRECISION_BF16; precision++) {
            enum hst_precision of = (enum hst_precision)precision;
            assert_int_equal(train(tied, of, 0, SIZE_MAX, &whole), 0);
            assert_true(whole.losses[0] > whole.losses[1]);
            for (uint64_t blocks = 1; blocks <= 2; blocks++) {
                assert_int_equal(train(tied, of, blocks * WEIGHT_BLOCK_ROWS, SIZE_MAX, &cut), 0);
                assert_true(cut.calls > whole.calls);
                assert_memory_equal(&cut, &whole, offsetof(struct outcome, calls));
            }
        }
    }
}

static void a_failure_in_a_slice_ends_the_step(void **state)
{
    (void)state;
    const size_t every = test_is_short() ? 33 : 11; /* odd: all kinds of calls have a turn */
    size_t calls = 0;
    assert_int_equal(train(false, HST_PRECISION_FP32, WEIGHT_BLOCK_ROWS, SIZE_MAX, &cut), 0);
    for (size_t call = 2 + turn % every; call < cut.calls / STEPS; call += every, calls++)
        assert_int_equal(train(false, HST_PRECISION_FP32, WEIGHT_BLOCK_ROWS, call, &whole), -EIO);
    assert_true(calls > 110 / every); /* of all sweeps */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_have_the_bits_of_the_whole),
        cmocka_unit_test(a_failure_in_a_slice_ends_the_step),
    };
    turn = test_is_short() ? test_turn() : 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
