/* SPDX-License-Identifier: Apache-2.0 */
/* A batch in ways, and a rank's part of it: what ranks compute is what one rank computes alone. */
#include "harness.h"
#include "model/model.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <errno.h>
#include <hoistway/ranks.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Two blocks of rows: the head may be cut. */
#define VOCAB (WEIGHT_BLOCK_ROWS + 60)
#define BATCH 96u
#define WAYS  4u

static const struct llama_config config = {
    .hidden = 16,
    .intermediate = 24,
    .layers = 1,
    .heads = 2,
    .kv_heads = 1,
    .head_dim = 8,
    .vocab = VOCAB,
    .max_positions = 8,
    .rms_norm_eps = 1e-5,
    .rope = {.type = ROPE_LINEAR, .theta = 10000.0, .factor = 1.0},
};
/* A way is 24 tokens: a whole micro-batch and a shorter one. */
static const struct llama_run run = {
    .seq_len = 8, .batch_tokens = BATCH, .micro_batch_tokens = 16, .ways = WAYS};
#define WAY_MICROS 2u

static int read_random(void *context, const struct hst_param_ref *param, uint64_t offset,
                       float *dst, size_t count)
{
    (void)context;
    llama_init_random(&config, &(struct llama_init){3, param->name, offset}, dst, count);
    return 0;
}
static const struct hst_reader reader = {.read = read_random};

struct batch {
    uint32_t inputs[BATCH], targets[BATCH];
};

static void fill(struct batch *batch)
{
    for (uint32_t t = 0; t < BATCH; t++) {
        batch->inputs[t] = t * 8191u % VOCAB;
        batch->targets[t] = t % 7 ? (t + 1) * 4099u % VOCAB : HST_NO_TARGET;
    }
}

static uint64_t count_targets(const struct batch *batch)
{
    uint64_t count = 0;
    for (uint32_t t = 0; t < BATCH; t++)
        count += batch->targets[t] != HST_NO_TARGET;
    return count;
}

struct rank {
    struct hst_launch launch;
    struct llama_run run;
    struct harness h;
    struct hst_part part;
};

static void open_rank(uint32_t rank, uint32_t ranks, enum hst_precision precision, struct rank *r)
{
    r->launch = (struct hst_launch){.ranks = ranks, .rank = rank};
    r->run = run;
    r->run.ranks = ranks;
    struct hst_config engine = harness_engine(&run, precision);
    engine.ways = WAYS;
    engine.launch = &r->launch;
    harness_open(&r->h, &config, &r->run, &engine, &reader);
    assert_int_equal(hst_engine_part(r->h.engine, &r->part), 0);
}

static struct llama_batch part_of(const struct batch *batch, const struct rank *r)
{
    return (struct llama_batch){.inputs = batch->inputs + r->part.first_token,
                                .targets = batch->targets + r->part.first_token,
                                .target_count = count_targets(batch)};
}

/* Of a step and an evaluation of the batch's first `tokens`: what all ranks together add to the sum
 * of losses, and their gradients' sum of one tensor. */
struct seen {
    double added[2 * WAYS * WAY_MICROS];
    size_t added_count;
    double grad[16];
    double sums, losses; /* of ranks: losses times targets */
};

static void take_added(const struct rank *r, size_t from, struct seen *seen)
{
    size_t count;
    const double *added = fake_engine_added(r->h.engine, &count);
    assert_true(seen->added_count + count - from <= sizeof seen->added / sizeof *seen->added);
    memcpy(seen->added + seen->added_count, added + from, (count - from) * sizeof *added);
    seen->added_count += count - from;
}

static void take_grad(const struct rank *r, struct seen *seen)
{
    size_t count;
    const float *grad = fake_engine_grad(r->h.engine, "model.norm.weight", &count);
    assert_int_equal(count, 16);
    for (size_t i = 0; i < count; i++)
        seen->grad[i] += (double)grad[i];
}

static void step_of(struct rank *r, const struct batch *batch, struct seen *seen)
{
    const struct llama_batch part = part_of(batch, r);
    const struct hst_step_in in = {.size = sizeof in, .lr = 1e-3};
    struct hst_step_stats stats;
    double loss = 0;
    assert_int_equal(llama_step(r->h.model, r->h.engine, &in, &part, &loss, &stats), 0);
    assert_true(loss == stats.sums[0] / (double)count_targets(batch));
    seen->losses += loss * (double)count_targets(batch);
    take_grad(r, seen);
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void evaluation_of(struct rank *r, const struct batch *batch, uint64_t tokens,
                          struct seen *seen)
{
    const uint64_t first = r->part.first_token;
    const uint64_t here = tokens > first ? least(tokens - first, r->part.tokens) : 0;
    const struct llama_batch part = part_of(batch, r);
    struct llama_evaluation found = {0};
    assert_int_equal(hst_sum_add(r->h.engine, 1, 0.5), 0);
    assert_int_equal(llama_evaluate(r->h.model, r->h.engine, &part, here, &found), 0);
    assert_int_equal(found.target_count, count_targets(batch));
    assert_true(found.second_sum == 0.5);
    seen->sums += found.loss_sum;
}

static void ranks_of(uint32_t ranks, enum hst_precision precision, uint64_t evaluated,
                     struct seen *seen)
{
    struct batch batch;
    fill(&batch);
    *seen = (struct seen){0};
    for (uint32_t i = 0; i < ranks; i++) {
        struct rank r = {0};
        size_t before = 0;
        open_rank(i, ranks, precision, &r);
        if (evaluated)
            evaluation_of(&r, &batch, evaluated, seen);
        else
            step_of(&r, &batch, seen);
        take_added(&r, before, seen);
        harness_close(&r.h);
    }
}

static void ranks_add_the_losses_of_one_rank(void **state)
{
    (void)state;
    for (uint64_t slice = 0; slice <= WEIGHT_BLOCK_ROWS; slice += WEIGHT_BLOCK_ROWS)
        for (int p = HST_PRECISION_FP32; p <= HST_PRECISION_BF16; p++) {
            struct seen alone, apart;
            harness_slice_rows = slice;
            ranks_of(1, (enum hst_precision)p, 0, &alone);
            assert_int_equal(alone.added_count, WAYS * WAY_MICROS);
            for (uint32_t ranks = 2; ranks <= WAYS; ranks *= 2) {
                ranks_of(ranks, (enum hst_precision)p, 0, &apart);
                assert_int_equal(apart.added_count, alone.added_count);
                assert_memory_equal(apart.added, alone.added, sizeof alone.added);
                assert_true(fabs(apart.losses / alone.losses - 1) < 1e-12);
            }
        }
    harness_slice_rows = 0;
}

/* Each target has the weight of one in their number on all ranks. */
static void gradients_of_ranks_add_up_to_that_of_one_rank(void **state)
{
    (void)state;
    struct seen alone, apart;
    ranks_of(1, HST_PRECISION_FP32, 0, &alone);
    ranks_of(4, HST_PRECISION_FP32, 0, &apart);
    for (size_t i = 0; i < 16; i++)
        assert_true(fabs(apart.grad[i] - alone.grad[i]) < 1e-6 * fabs(alone.grad[0]) + 1e-9);
    assert_true(fabs(alone.grad[0]) > 1e-6);
}

/* The end is in a micro-batch, between two, between ways, between ranks, behind the last one. */
static void an_evaluation_is_parted_as_a_batch_is(void **state)
{
    (void)state;
    static const struct {
        uint64_t tokens;
        size_t micros;
    } ends[] = {{8, 1}, {16, 1}, {24, 2}, {40, 3}, {48, 4}, {56, 5}, {BATCH, 8}};
    double before = 0;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        struct seen alone, apart;
        ranks_of(1, HST_PRECISION_FP32, ends[i].tokens, &alone);
        assert_int_equal(alone.added_count, ends[i].micros);
        assert_true(alone.sums > before + 8); /* nats, of a sequence at least */
        before = alone.sums;
        for (uint32_t ranks = 2; ranks <= WAYS; ranks *= 2) {
            ranks_of(ranks, HST_PRECISION_FP32, ends[i].tokens, &apart);
            assert_int_equal(apart.added_count, alone.added_count);
            assert_memory_equal(apart.added, alone.added, alone.added_count * sizeof(double));
            assert_true(fabs(apart.sums / alone.sums - 1) < 1e-12);
        }
    }
}

static void a_rank_may_have_no_target_of_its_own(void **state)
{
    (void)state;
    struct batch batch;
    struct rank r = {0};
    const struct hst_step_in in = {.size = sizeof in, .lr = 1e-3};
    struct hst_step_stats stats;
    double loss = -1;
    fill(&batch);
    open_rank(1, 2, HST_PRECISION_FP32, &r);
    for (uint32_t t = BATCH / 2; t < BATCH; t++)
        batch.targets[t] = HST_NO_TARGET;
    struct llama_batch part = part_of(&batch, &r);
    assert_int_equal(llama_step(r.h.model, r.h.engine, &in, &part, &loss, &stats), 0);
    assert_true(loss == 0);
    part.target_count = 0; /* nobody has one */
    assert_int_equal(llama_step(r.h.model, r.h.engine, &in, &part, &loss, &stats), -EINVAL);
    harness_close(&r.h);
}

/* It is asked for when all is computed: what is added then is this step's. */
static void a_step_in_two_halves_leaves_room_for_a_sum_of_the_callers(void **state)
{
    (void)state;
    struct batch batch;
    struct rank r = {0};
    const struct hst_step_in in = {.size = sizeof in, .lr = 1e-3};
    struct hst_step_stats stats;
    double loss = -1;
    fill(&batch);
    open_rank(0, 1, HST_PRECISION_FP32, &r);
    const struct llama_batch part = part_of(&batch, &r);
    assert_int_equal(llama_step_compute(r.h.model, r.h.engine, &in, &part), 0);
    assert_int_equal(hst_sum_add(r.h.engine, 1, 1.0), 0);
    assert_int_equal(llama_step_end(r.h.model, r.h.engine, &loss, &stats), 0);
    assert_true(stats.sums[1] == 1.0 && loss > 0);
    harness_close(&r.h);
}

static void ways_are_whole_sequences_and_hold_a_micro_batch(void **state)
{
    (void)state;
    assert_int_equal(llama_micro_batch_tokens(2048, 8, 24), 24);
    assert_int_equal(llama_micro_batch_tokens(17, 8, 24), 16);
    struct llama_run odd = run;
    struct llama *model = NULL;
    odd.ways = 12; /* of one sequence each, and a micro-batch has two */
    assert_int_equal(llama_create(&config, &odd, &model, NULL), -EINVAL);
    odd.micro_batch_tokens = 8;
    odd.ways = 8; /* of a sequence and a half */
    assert_int_equal(llama_create(&config, &odd, &model, NULL), -EINVAL);
    odd.ways = 11; /* of a sequence, and one is left over */
    assert_int_equal(llama_create(&config, &odd, &model, NULL), -EINVAL);
    odd.ways = 12;
    assert_int_equal(llama_create(&config, &odd, &model, NULL), 0);
    assert_int_equal(llama_way_tokens(model), 8);
    llama_destroy(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_add_the_losses_of_one_rank),
        cmocka_unit_test(gradients_of_ranks_add_up_to_that_of_one_rank),
        cmocka_unit_test(an_evaluation_is_parted_as_a_batch_is),
        cmocka_unit_test(a_rank_may_have_no_target_of_its_own),
        cmocka_unit_test(a_step_in_two_halves_leaves_room_for_a_sum_of_the_callers),
        cmocka_unit_test(ways_are_whole_sequences_and_hold_a_micro_batch),
    };
    return cmocka_run_group_tests_name("model/ways", tests, NULL, NULL);
}
