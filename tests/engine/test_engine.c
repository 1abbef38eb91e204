/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine through its public calls (toy_client.h). The in-memory run on one thread is the oracle
 * of every other placement, budget, tile size and width.
 */
#include "engine_state.h"
#include "toy_client.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define STEPS 4

static struct hst_engine *created(const struct hst_config *config)
{
    struct hst_error error = {0};
    struct hst_config c = *config;
    struct hst_engine *engine = NULL;
    c.error = &error;
    if (hst_engine_create(&c, &engine))
        fail_msg("E%d %s", error.code, error.message);
    return engine;
}

static void must(struct hst_engine *engine, int rc)
{
    if (rc)
        fail_msg("returned %d: E%d %s", rc, hst_engine_error(engine)->code,
                 hst_engine_error(engine)->message);
}

struct result {
    struct toy_saved weights;
    double norms[STEPS];
    struct hst_memory memory;
    struct hst_step_stats stats;    /* of the last step */
    uint64_t nvme_read, nvme_write; /* of all, the drain included */
};

static void run(const struct hst_config *config, struct result *result)
{
    struct hst_engine *engine = created(config);
    struct hst_step_stats drained;
    result->nvme_read = result->nvme_write = 0;
    must(engine, toy_seal_and_load(engine));
    for (int s = 0; s < STEPS; s++) {
        must(engine, toy_step(engine, &result->stats));
        assert_int_equal(result->stats.step, s + 1);
        result->norms[s] = result->stats.grad_norm;
        result->nvme_read += result->stats.bytes.nvme_read;
        result->nvme_write += result->stats.bytes.nvme_write;
    }
    must(engine, hst_engine_drain(engine, &drained));
    result->nvme_read += drained.bytes.nvme_read;
    result->nvme_write += drained.bytes.nvme_write;
    must(engine, toy_save(engine, &result->weights));
    must(engine, hst_engine_memory(engine, &result->memory));
    hst_engine_destroy(&engine);
    assert_null(engine);
}

static struct result oracle, other; /* large: not on the stack */

static char store[] = "hst-engine-XXXXXX";

static int make_store(void **state)
{
    (void)state;
    return mkdtemp(store) ? 0 : -1;
}

static int remove_store(void **state)
{
    (void)state;
    return rmdir(store); /* fails where a run left something behind */
}

#define SMALL(...)  hst_config(.store = store, .batch_tokens = 10, .grain_tokens = 4, __VA_ARGS__)
#define CONFIG(...) SMALL(.dram_bytes = 64u << 20, __VA_ARGS__)

static void check_placements(enum hst_precision precision, enum hst_state state, double clip,
                             double scale)
{
    run(CONFIG(.precision = precision, .state = state, .clip = clip, .loss_scale = scale,
               .threads = 1, .place = "states=dram,weights=dram"),
        &oracle);
    assert_int_equal(oracle.memory.total[HST_TIER_NVME], 0);
    uint64_t all = oracle.memory.total[HST_TIER_DRAM];
    const struct hst_config *others[] = {
        CONFIG(.precision = precision, .state = state, .clip = clip, .loss_scale = scale,
               .threads = 3, .place = "states=nvme"),
        CONFIG(.precision = precision, .state = state, .clip = clip, .loss_scale = scale,
               .threads = 2, .place = "states=nvme,weights=nvme"),
        CONFIG(.precision = precision, .state = state, .clip = clip, .loss_scale = scale,
               .threads = 2, .place = "states=nvme,weights=nvme", .io = HST_IO_THREADS),
        CONFIG(.precision = precision, .state = state, .clip = clip, .loss_scale = scale,
               .threads = 2, .place = "states=dram,weights=nvme", .tile_elements = 4096),
        CONFIG(.precision = precision, .state = state, .clip = clip, .loss_scale = scale,
               .threads = 1, .place = "states=nvme,weights=nvme", .tile_elements = 4096),
        CONFIG(.precision = precision, .state = state, .clip = clip, .loss_scale = scale,
               .threads = 2, .place = "grads=nvme", .tile_elements = 65536),
        CONFIG(.precision = precision, .state = state, .clip = clip, .loss_scale = scale,
               .threads = 2, .tile_elements = 8192,
               .place = "grads=nvme,acts=nvme,states=nvme,weights=nvme"),
        /* Budgets too small for everything: some tiles leave, then more, then weights too. */
        SMALL(.precision = precision, .state = state, .clip = clip, .loss_scale = scale,
              .threads = 2, .tile_elements = 8192, .dram_bytes = all - (all >> 3)),
        SMALL(.precision = precision, .state = state, .clip = clip, .loss_scale = scale,
              .threads = 2, .tile_elements = 8192, .dram_bytes = all - (all >> 2)),
        SMALL(.precision = precision, .state = state, .clip = clip, .loss_scale = scale,
              .threads = 2, .tile_elements = 4096, .dram_bytes = all / 2 + (all >> 4)),
    };
    const struct hst_config *far[] = {
        CONFIG(.precision = precision, .state = state, .clip = clip, .loss_scale = scale,
               .threads = 2, .device = "far"),
        CONFIG(.precision = precision, .state = state, .clip = clip, .loss_scale = scale,
               .threads = 1, .device = "far", .tile_elements = 4096),
        CONFIG(.precision = precision, .state = state, .clip = clip, .loss_scale = scale,
               .threads = 2, .device = "far", .tile_elements = 8192),
    };
    for (size_t i = 0; i < sizeof far / sizeof far[0] && state != HST_STATE_BF16; i++) {
        run(far[i], &other);
        assert_true(other.memory.total[HST_TIER_HBM] > other.memory.total[HST_TIER_DRAM]);
        assert_int_equal(other.memory.total[HST_TIER_NVME], 0);
        assert_memory_equal(other.weights.bytes, oracle.weights.bytes, oracle.weights.used);
        assert_memory_equal(other.norms, oracle.norms, sizeof oracle.norms);
    }
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        run(others[i], &other);
        bool homeless = others[i]->place && strcmp(others[i]->place, "grads=nvme") == 0 &&
                        clip < 0 && precision != HST_PRECISION_FP16;
        assert_int_equal(other.memory.total[HST_TIER_NVME] == 0, homeless);
        assert_true(other.memory.total[HST_TIER_DRAM] <= others[i]->dram_bytes);
        assert_int_equal(other.weights.used, oracle.weights.used);
        assert_memory_equal(other.weights.bytes, oracle.weights.bytes, oracle.weights.used);
        assert_memory_equal(other.norms, oracle.norms, sizeof oracle.norms);
    }
}

static void weights_are_the_same_bytes_wherever_they_live_in_fp32(void **state)
{
    (void)state;
    check_placements(HST_PRECISION_FP32, HST_STATE_FP32, 0.5, 0);
    check_placements(HST_PRECISION_FP32, HST_STATE_FP32, HST_NONE, 0);
}

static void weights_are_the_same_bytes_wherever_they_live_in_bf16(void **state)
{
    (void)state;
    check_placements(HST_PRECISION_BF16, HST_STATE_FP32, 0.5, 0);
    check_placements(HST_PRECISION_BF16, HST_STATE_FP32, HST_NONE, 0);
    check_placements(HST_PRECISION_BF16, HST_STATE_BF16, 0.5, 0);
}

/* The first two steps overflow at 2^20 and 2^19, in the gradient of the tied tensor. */
static void weights_are_the_same_bytes_wherever_they_live_in_fp16(void **state)
{
    (void)state;
    check_placements(HST_PRECISION_FP16, HST_STATE_FP32, 0.5, 0x1p20);
    assert_true(isinf(oracle.norms[1]) && isfinite(oracle.norms[2]));
    check_placements(HST_PRECISION_FP16, HST_STATE_FP32, HST_NONE, 0);
    assert_true(isfinite(oracle.norms[0]));
}

static void the_norm_counts_a_tied_gradient_once_as_the_sum_of_its_users(void **state)
{
    (void)state;
    run(CONFIG(.threads = 2), &other);
    double sum = 0;
    for (uint32_t u = 0; u < TOY_UNITS; u++)
        for (uint32_t p = 0; p < toy_units[u].count; p++) {
            const struct hst_param_desc *param = &toy_units[u].params[p];
            for (uint64_t i = 0; i < toy_elements(param) && !param->alias_of; i++) {
                double gradient = (double)toy_initial(u, i) * (u == 0 ? 2 : 1);
                sum += gradient * gradient;
            }
        }
    assert_true(fabs(other.norms[0] - sqrt(sum)) <= 1e-6 * sqrt(sum));
}

static void traffic_is_what_the_placement_says(void **state)
{
    (void)state;
    run(CONFIG(.place = "states=nvme"), &other);
    uint64_t states = other.memory.bytes[HST_CLASS_STATES][HST_TIER_NVME];
    assert_int_equal(other.nvme_read, STEPS * states);
    assert_int_equal(other.nvme_write, STEPS * states);
    run(CONFIG(.device = "far", .precision = HST_PRECISION_FP32), &other);
    uint64_t elements = other.memory.bytes[HST_CLASS_WEIGHTS][HST_TIER_HBM] / sizeof(float);
    assert_int_equal(other.stats.bytes.d2h, elements / 4096 * sizeof(double)); /* norm partials */
    assert_int_equal(other.stats.bytes.h2d, 0);
    assert_int_equal(other.stats.bytes.nvme_read + other.stats.bytes.nvme_write, 0);
}

static void calls_out_of_order_are_refused_and_harmless(void **state)
{
    (void)state;
    struct hst_engine *engine = created(CONFIG(.place = "states=nvme,weights=nvme"));
    struct hst_stream *stream = hst_engine_stream(engine);
    const struct hst_unit_view *view;
    struct hst_step step;
    struct hst_step_stats stats;
    struct hst_step_in in = {.size = sizeof in, .lr = 1e-3};
    struct hst_act act;
    uint32_t unit;
    assert_int_equal(hst_step_begin(engine, &in, &step), -EINVAL);
    assert_int_equal(hst_engine_seal(engine, HST_ORDER_FORWARD), -EINVAL); /* no unit */
    must(engine, toy_seal_and_load(engine));
    assert_int_equal(hst_unit_add(engine, &(struct hst_unit_desc){.name = "late"}, &unit), -EBUSY);
    assert_int_equal(hst_unit_acquire(engine, 0, HST_FORWARD, stream, &view),
                     -EINVAL); /* no step */
    assert_int_equal(hst_step_end(engine, &stats), -EINVAL);
    in.lr = NAN;
    assert_int_equal(hst_step_begin(engine, &in, &step), -EINVAL);
    in.lr = 1e-3;
    must(engine, hst_step_begin(engine, &in, &step));
    assert_int_equal(hst_step_begin(engine, &in, &step), -EINVAL);
    assert_int_equal(hst_unit_acquire(engine, TOY_UNITS, HST_FORWARD, stream, &view), -EINVAL);
    assert_int_equal(hst_unit_acquire(engine, 0, HST_BACKWARD, stream, &view),
                     -EINVAL); /* what the head is tied to comes after it */
    assert_int_equal(hst_unit_release(engine, 0), -EINVAL);
    must(engine, hst_unit_acquire(engine, 1, HST_FORWARD, stream, &view));
    assert_int_equal(hst_unit_acquire(engine, 2, HST_FORWARD, stream, &view),
                     -EINVAL); /* not released */
    assert_int_equal(hst_act_acquire(engine, 0, 0, HST_CARRY, HST_READ, stream, &act), -EINVAL);
    assert_int_equal(hst_act_acquire(engine, 1, 3, HST_CARRY, HST_READ, stream, &act), -EINVAL);
    assert_int_equal(hst_unit_grad_ready(engine, 1), -EINVAL);
    must(engine, hst_unit_release(engine, 1));
    must(engine, hst_unit_acquire(engine, TOY_UNITS - 1, HST_BACKWARD, stream, &view));
    assert_int_equal(hst_unit_release(engine, TOY_UNITS - 1), -EINVAL); /* gradients not complete */
    must(engine, hst_unit_grad_ready(engine, TOY_UNITS - 1));
    assert_int_equal(hst_unit_grad_ready(engine, TOY_UNITS - 1), -EINVAL);
    must(engine, hst_unit_release(engine, TOY_UNITS - 1));
    assert_int_equal(hst_step_end(engine, &stats), -EINVAL); /* four units are missing */
    assert_int_equal(hst_engine_error(engine)->code, 0);
    hst_engine_destroy(&engine);
}

static void check_activations(const struct hst_config *config)
{
    struct hst_engine *engine = created(config);
    struct hst_stream *stream = hst_engine_stream(engine);
    const struct hst_unit_view *view;
    struct hst_step step;
    struct hst_act act;
    must(engine, toy_seal_and_load(engine));
    must(engine,
         hst_step_begin(engine, &(struct hst_step_in){.size = sizeof(struct hst_step_in)}, &step));
    assert_int_equal(step.micro_count, 3);
    for (uint32_t u = 0; u < TOY_UNITS; u++) {
        must(engine, hst_unit_acquire(engine, u, HST_FORWARD, stream, &view));
        for (uint32_t m = 0; m < 3; m++) {
            must(engine, hst_act_acquire(engine, u, m, HST_CHECKPOINT, HST_WRITE, stream, &act));
            assert_int_equal(act.tokens, m == 2 ? 2 : 4);
            assert_int_equal(act.size_bytes, act.tokens * 64);
            must(engine, hst_stream_sync(stream));
            memset(act.data, (int)(u * 3 + m), act.size_bytes);
            must(engine, hst_act_release(engine, u, m, HST_CHECKPOINT));
        }
        must(engine, hst_unit_release(engine, u));
    }
    for (uint32_t u = TOY_UNITS; u-- > 0;) {
        must(engine, hst_unit_acquire(engine, u, HST_BACKWARD, stream, &view));
        for (uint32_t m = 0; m < 3; m++) {
            must(engine, hst_act_acquire(engine, u, m, HST_CHECKPOINT, HST_READ, stream, &act));
            for (uint64_t i = 0; i < act.size_bytes; i++)
                assert_int_equal(((unsigned char *)act.data)[i], u * 3 + m);
        }
        must(engine, hst_unit_grad_ready(engine, u));
        must(engine, hst_unit_release(engine, u));
    }
    hst_engine_destroy(&engine);
}

static void activations_have_a_place_per_unit_and_micro_batch_and_keep_their_bytes(void **state)
{
    (void)state;
    check_activations(CONFIG());
    check_activations(CONFIG(.place = "acts=nvme"));
    check_activations(CONFIG(.place = "acts=nvme,weights=nvme,grads=nvme", .clip = HST_NONE));
}

/* ---- a client with an order of its own ---- */

enum { LAST = -1 };

/* Units of a step's visits; every sweep ends with LAST. */
struct own_order {
    int forward[2 * TOY_UNITS + 1], backward[TOY_UNITS + 1];
};

static const struct own_order OWN_ORDERS[] = {
    {{0, 1, 2, 3, LAST}, {4, 3, 2, 1, 0, LAST}},    /* the declared one */
    {{0, 1, 2, 3, 4, LAST}, {4, 3, 2, 1, 0, LAST}}, /* the head too */
    {{3, 0, 2, 1, LAST}, {1, 2, 4, 0, 3, LAST}},
    {{0, 1, 2, 3, LAST}, {4, 0, 1, 2, 3, LAST}},
    {{0, 1, 0, 2, 3, 3, LAST}, {4, 3, 2, 1, 0, LAST}}, /* some twice: can not be learned */
    {{LAST}, {2, 3, 4, 1, 0, LAST}},
};

static void fill_acts(struct hst_engine *engine, uint32_t unit)
{
    struct hst_stream *stream = hst_engine_stream(engine);
    struct hst_act act;
    for (uint32_t m = 0; m < 3; m++) {
        must(engine, hst_act_acquire(engine, unit, m, HST_CHECKPOINT, HST_WRITE, stream, &act));
        must(engine, hst_stream_sync(stream));
        memset(act.data, (int)(unit * 3 + m), act.size_bytes);
        must(engine, hst_act_release(engine, unit, m, HST_CHECKPOINT));
    }
}

static void check_acts(struct hst_engine *engine, uint32_t unit)
{
    struct hst_stream *stream = hst_engine_stream(engine);
    struct hst_act act;
    for (uint32_t m = 0; m < 3; m++) {
        must(engine, hst_act_acquire(engine, unit, m, HST_CHECKPOINT, HST_READ, stream, &act));
        for (uint64_t i = 0; i < act.size_bytes; i++)
            assert_int_equal(((unsigned char *)act.data)[i], unit * 3 + m);
        must(engine, hst_act_release(engine, unit, m, HST_CHECKPOINT));
    }
}

static int order_warnings;

static void count_warnings(void *context, enum hst_log_level level, const char *line)
{
    (void)context;
    order_warnings += level == HST_LOG_WARNING && strncmp(line, "W601", 4) == 0;
}

static void own_step(struct hst_engine *engine, const struct own_order *order)
{
    struct hst_stream *stream = hst_engine_stream(engine);
    const struct hst_unit_view *view;
    struct hst_step_stats stats;
    struct hst_step step;
    bool filled[TOY_UNITS] = {false};
    must(engine,
         hst_step_begin(
             engine, &(struct hst_step_in){.size = sizeof(struct hst_step_in), .lr = 1e-3}, &step));
    for (const int *u = order->forward; *u != LAST; u++) {
        must(engine, hst_unit_acquire(engine, (uint32_t)*u, HST_FORWARD, stream, &view));
        fill_acts(engine, (uint32_t)*u);
        filled[*u] = true;
        must(engine, hst_unit_release(engine, (uint32_t)*u));
    }
    for (const int *u = order->backward; *u != LAST; u++) {
        must(engine, hst_unit_acquire(engine, (uint32_t)*u, HST_BACKWARD, stream, &view));
        if (filled[*u])
            check_acts(engine, (uint32_t)*u);
        must(engine, toy_add_gradients(engine, (uint32_t)*u, view, step.loss_scale));
        must(engine, hst_unit_grad_ready(engine, (uint32_t)*u));
        must(engine, hst_unit_release(engine, (uint32_t)*u));
    }
    must(engine, hst_step_end(engine, &stats));
}

/* Each order for two steps: as it comes, then as it was learned. The weights are the oracle's. */
static void check_own_orders(const struct hst_config *config)
{
    enum { ORDERS = sizeof OWN_ORDERS / sizeof OWN_ORDERS[0] };
    struct hst_engine *engine = created(config);
    struct hst_step_stats stats;
    must(engine, toy_seal_and_load(engine));
    for (int s = 0; s < 2 * ORDERS; s++)
        must(engine, toy_step(engine, &stats));
    must(engine, toy_save(engine, &oracle.weights));
    hst_engine_destroy(&engine);
    order_warnings = 0;
    engine = created(config);
    must(engine, toy_seal_and_load(engine));
    for (size_t i = 0; i < ORDERS; i++) {
        own_step(engine, &OWN_ORDERS[i]);
        own_step(engine, &OWN_ORDERS[i]);
        assert_int_equal(engine->run.on_demand, i == 4);
    }
    must(engine, toy_save(engine, &other.weights));
    hst_engine_destroy(&engine);
    assert_int_equal(order_warnings, 1);
    assert_memory_equal(other.weights.bytes, oracle.weights.bytes, oracle.weights.used);
}

static void a_client_that_leaves_the_order_is_served_and_its_order_is_learned(void **state)
{
    (void)state;
    static const char *const places[] = {
        NULL,
        "states=nvme",
        "states=nvme,weights=nvme",
        "acts=nvme,grads=nvme",
        "states=nvme,weights=nvme,acts=nvme,grads=nvme",
    };
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
        for (int clip = 0; clip < 2; clip++)
            check_own_orders(CONFIG(.place = places[i], .clip = clip ? 0.5 : HST_NONE, .threads = 2,
                                    .precision = HST_PRECISION_BF16, .log = count_warnings));
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) /* most of the steps overflow */
        check_own_orders(CONFIG(.place = places[i], .clip = 0.5, .threads = 2, .loss_scale = 0x1p28,
                                .precision = HST_PRECISION_FP16, .log = count_warnings));
    check_own_orders(CONFIG(.device = "far", .log = count_warnings));
    check_own_orders(CONFIG(.device = "far", .clip = HST_NONE, .log = count_warnings));
}

static void an_evaluation_sees_the_weights_between_steps_and_changes_nothing(void **state)
{
    (void)state;
    const struct hst_config *config = CONFIG(.place = "states=nvme,weights=nvme");
    struct hst_engine *engine = created(config);
    const struct hst_unit_view *view;
    struct hst_step_stats stats;
    must(engine, toy_seal_and_load(engine));
    for (uint32_t u = 0; u < TOY_UNITS; u++) {
        must(engine, hst_unit_acquire(engine, u, HST_EVAL, hst_engine_stream(engine), &view));
        assert_null(view->param[0].grad);
        for (uint64_t i = 0; i < toy_elements(&toy_units[u].params[0]); i++)
            assert_true(((const float *)view->param[0].data)[i] == toy_initial(u, i));
        must(engine, hst_unit_release(engine, u));
    }
    for (int s = 0; s < STEPS; s++)
        must(engine, toy_step(engine, &stats));
    must(engine, toy_save(engine, &other.weights));
    hst_engine_destroy(&engine);
    run(config, &oracle);
    assert_memory_equal(other.weights.bytes, oracle.weights.bytes, oracle.weights.used);
}

static void defaults_are_those_of_the_header(void **state)
{
    (void)state;
    run(CONFIG(.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01, .clip = 1.0),
        &oracle);
    run(CONFIG(), &other);
    assert_memory_equal(other.weights.bytes, oracle.weights.bytes, oracle.weights.used);
    run(CONFIG(.weight_decay = HST_NONE), &other);
    assert_memory_not_equal(other.weights.bytes, oracle.weights.bytes, oracle.weights.used);
    run(CONFIG(.clip = HST_NONE), &other);
    assert_memory_not_equal(other.weights.bytes, oracle.weights.bytes, oracle.weights.used);
    run(CONFIG(.eps = 1e-3), &other);
    assert_memory_not_equal(other.weights.bytes, oracle.weights.bytes, oracle.weights.used);
}

static void a_gradient_that_is_not_finite_stops_the_run_before_any_update(void **state)
{
    (void)state;
    struct hst_engine *engine = created(CONFIG());
    struct hst_stream *stream = hst_engine_stream(engine);
    const struct hst_unit_view *view;
    struct hst_step step;
    struct hst_step_stats stats;
    must(engine, toy_seal_and_load(engine));
    must(engine,
         hst_step_begin(
             engine, &(struct hst_step_in){.size = sizeof(struct hst_step_in), .lr = 1.0}, &step));
    static float infinite;
    infinite = INFINITY;
    for (uint32_t u = TOY_UNITS; u-- > 0;) {
        must(engine, hst_unit_acquire(engine, u, HST_BACKWARD, stream, &view));
        if (u == 2)
            must(engine, hst_stream_copy(stream, view->param[0].grad, &infinite, sizeof infinite));
        must(engine, hst_unit_grad_ready(engine, u));
        must(engine, hst_unit_release(engine, u));
    }
    assert_int_equal(hst_step_end(engine, &stats), -EOVERFLOW);
    assert_int_equal(hst_engine_error(engine)->code, 701);
    assert_int_equal(
        hst_step_begin(engine, &(struct hst_step_in){.size = sizeof(struct hst_step_in)}, &step),
        -EOVERFLOW);
    hst_engine_destroy(&engine);
}

static void expect_create(int code, int native, const struct hst_config *config)
{
    struct hst_error error = {0};
    struct hst_config c = *config;
    struct hst_engine *engine = NULL;
    c.error = &error;
    assert_int_equal(hst_engine_create(&c, &engine), native);
    assert_null(engine);
    assert_int_equal(error.code, code);
    assert_true(strlen(error.message) > 10);
}

static void wrong_configurations_are_refused_with_code_and_message(void **state)
{
    (void)state;
    expect_create(402, -EINVAL, hst_config(.batch_tokens = 0, .grain_tokens = 1));
    expect_create(402, -EINVAL, hst_config(.batch_tokens = 4, .grain_tokens = 5));
    expect_create(402, -EINVAL, CONFIG(.tile_elements = 1000));
    expect_create(402, -EINVAL, CONFIG(.beta1 = 1.0));
    expect_create(402, -EINVAL, CONFIG(.weight_decay = -0.5));
    expect_create(402, -EINVAL, CONFIG(.clip = -2));
    expect_create(402, -EINVAL, CONFIG(.place = "states=disk"));
    expect_create(402, -EINVAL, CONFIG(.loss_scale = 1024));
    expect_create(402, -EINVAL, CONFIG(.precision = HST_PRECISION_FP16, .loss_scale = 0.5));
    expect_create(402, -EINVAL, CONFIG(.precision = HST_PRECISION_FP16, .state = HST_STATE_BF16));
    expect_create(402, -EINVAL, CONFIG(.threads = 5000));
    expect_create(105, -ENOENT,
                  hst_config(.store = "no/such/parent", .batch_tokens = 4, .grain_tokens = 4));
    expect_create(105, -ENOTDIR,
                  hst_config(.store = "/dev/null", .batch_tokens = 4, .grain_tokens = 4));
    struct hst_config much = *CONFIG();
    much.dram_bytes = 1ull << 60;
    expect_create(302, -ENOMEM, &much);
    struct {
        struct hst_config known;
        uint64_t newer;
    } later = {*CONFIG(), 1};
    later.known.size = sizeof later;
    struct hst_engine *engine = NULL;
    assert_int_equal(hst_engine_create(&later.known, &engine), -EINVAL);
}

static void a_plan_that_does_not_fit_is_refused_with_the_smallest_that_would(void **state)
{
    (void)state;
    struct hst_engine *engine = created(SMALL(.dram_bytes = 1u << 20));
    must(engine, toy_describe(engine));
    assert_int_equal(hst_engine_seal(engine, HST_ORDER_FORWARD), -ENOSPC);
    assert_int_equal(hst_engine_error(engine)->code, 302);
    assert_non_null(strstr(hst_engine_error(engine)->message, "smallest needs"));
    hst_engine_destroy(&engine);
}

static int fail_late(void *context, const struct hst_param_ref *param, uint64_t offset, float *dst,
                     size_t count)
{
    (void)context;
    (void)offset;
    memset(dst, 0, count * sizeof *dst);
    return param->unit == 3 ? -EIO : 0;
}

static void a_reader_that_fails_ends_the_load(void **state)
{
    (void)state;
    struct hst_engine *engine = created(CONFIG(.place = "states=nvme,weights=nvme"));
    must(engine, toy_describe(engine));
    must(engine, hst_engine_seal(engine, HST_ORDER_FORWARD));
    assert_int_equal(hst_engine_load(engine, &(struct hst_reader){fail_late, NULL}), -EIO);
    assert_int_equal(hst_engine_error(engine)->code, 106);
    assert_non_null(strstr(hst_engine_error(engine)->message, "c.norm"));
    hst_engine_destroy(&engine);
}

static void a_store_directory_that_the_engine_made_is_removed_again(void **state)
{
    (void)state;
    char path[64];
    snprintf(path, sizeof path, "%s/made", store);
    struct hst_engine *engine = created(
        hst_config(.store = path, .batch_tokens = 4, .grain_tokens = 4, .dram_bytes = 64u << 20));
    assert_int_equal(access(path, F_OK), 0);
    hst_engine_destroy(&engine);
    assert_int_equal(access(path, F_OK), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_are_the_same_bytes_wherever_they_live_in_fp32),
        cmocka_unit_test(weights_are_the_same_bytes_wherever_they_live_in_bf16),
        cmocka_unit_test(weights_are_the_same_bytes_wherever_they_live_in_fp16),
        cmocka_unit_test(the_norm_counts_a_tied_gradient_once_as_the_sum_of_its_users),
        cmocka_unit_test(traffic_is_what_the_placement_says),
        cmocka_unit_test(calls_out_of_order_are_refused_and_harmless),
        cmocka_unit_test(activations_have_a_place_per_unit_and_micro_batch_and_keep_their_bytes),
        cmocka_unit_test(a_client_that_leaves_the_order_is_served_and_its_order_is_learned),
        cmocka_unit_test(an_evaluation_sees_the_weights_between_steps_and_changes_nothing),
        cmocka_unit_test(defaults_are_those_of_the_header),
        cmocka_unit_test(a_gradient_that_is_not_finite_stops_the_run_before_any_update),
        cmocka_unit_test(wrong_configurations_are_refused_with_code_and_message),
        cmocka_unit_test(a_plan_that_does_not_fit_is_refused_with_the_smallest_that_would),
        cmocka_unit_test(a_reader_that_fails_ends_the_load),
        cmocka_unit_test(a_store_directory_that_the_engine_made_is_removed_again),
    };
    return cmocka_run_group_tests(tests, make_store, remove_store);
}
