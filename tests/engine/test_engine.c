/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine through its public calls (toy_client.h). The in-memory run on one thread is the oracle
 * of every other placement, budget, tile size and width.
 */
#include "cases.h"
#include "session/engine_state.h"
#include "smallest_budget.h"
#include "toy_run.h"

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

static struct toy_result oracle, other; /* large: not on the stack */

/* On a device with memory of its own, whose weights, gradients and states are elsewhere. */
static void check_away(enum hst_precision precision, enum hst_state state, double clip,
                       double scale)
{
    uint64_t all = oracle.memory.total[HST_TIER_DRAM];
    const struct hst_config *offloaded[] = {
        TOY_CONFIG(.precision = precision, .state = state, .clip = clip, .loss_scale = scale,
                   .threads = 2, .device = "far", .place = "weights=dram", .tile_elements = 8192),
        TOY_CONFIG(.precision = precision, .state = state, .clip = clip, .loss_scale = scale,
                   .threads = 2, .device = "far", .place = "weights=dram,states=nvme,acts=dram"),
        TOY_CONFIG(.precision = precision, .state = state, .clip = clip, .loss_scale = scale,
                   .threads = 1, .device = "far", .tile_elements = 4096,
                   .place = "weights=nvme,states=dram,acts=nvme"),
        TOY_CONFIG(.precision = precision, .state = state, .clip = clip, .loss_scale = scale,
                   .threads = 2, .device = "far", .tile_elements = 8192,
                   .place = "grads=nvme,acts=nvme,states=nvme,weights=nvme"),
        /* two units' weights in HBM, some of the rest on NVMe */
        TOY_SMALL(.precision = precision, .state = state, .clip = clip, .loss_scale = scale,
                  .threads = 2, .device = "far", .tile_elements = 8192, .hbm_bytes = 4u << 20,
                  .dram_bytes = all - (all >> 3)),
    };
    for (size_t i = 0; i < sizeof offloaded / sizeof offloaded[0]; i++) {
        toy_run(offloaded[i], &other);
        if (offloaded[i]->place)
            assert_int_equal(other.memory.bytes[HST_CLASS_STATES][HST_TIER_HBM], 0);
        assert_true(other.memory.total[HST_TIER_HBM] <= other.memory.budget[HST_TIER_HBM]);
        assert_true(other.memory.total[HST_TIER_DRAM] <= other.memory.budget[HST_TIER_DRAM]);
        assert_memory_equal(other.weights.bytes, oracle.weights.bytes, oracle.weights.used);
        assert_memory_equal(other.norms, oracle.norms, sizeof oracle.norms);
    }
}

/* Some units are resident and updated by the device, the others by the host, in memory or not. */
static void check_shared(enum hst_precision precision, double clip, double scale)
{
    for (int small = 0; small < 2; small++) {
        struct hst_config config =
            *TOY_CONFIG(.precision = precision, .clip = clip, .loss_scale = scale, .threads = 2,
                        .device = "far", .tile_elements = 8192);
        share_units(&config, 64u << 20, toy_describe);
        if (small)
            lower_budget(&config, &config.dram_bytes, config.dram_bytes, toy_describe);
        toy_run(&config, &other);
        const uint64_t *states = other.memory.bytes[HST_CLASS_STATES];
        assert_true(states[HST_TIER_HBM] > 0 && states[small ? HST_TIER_NVME : HST_TIER_DRAM] > 0);
        assert_true(other.memory.bytes[HST_CLASS_WEIGHTS][HST_TIER_HBM] > 0);
        assert_memory_equal(other.weights.bytes, oracle.weights.bytes, oracle.weights.used);
        assert_memory_equal(other.norms, oracle.norms, sizeof oracle.norms);
    }
}

static void check_placements(enum hst_precision precision, enum hst_state state, double clip,
                             double scale)
{
    toy_run(TOY_CONFIG(.precision = precision, .state = state, .clip = clip, .loss_scale = scale,
                       .threads = 1, .place = "states=dram,weights=dram"),
            &oracle);
    assert_int_equal(oracle.memory.total[HST_TIER_NVME], 0);
    uint64_t all = oracle.memory.total[HST_TIER_DRAM];
    const struct hst_config *others[] = {
        TOY_CONFIG(.precision = precision, .state = state, .clip = clip, .loss_scale = scale,
                   .threads = 3, .place = "states=nvme"),
        TOY_CONFIG(.precision = precision, .state = state, .clip = clip, .loss_scale = scale,
                   .threads = 2, .place = "states=nvme,weights=nvme"),
        TOY_CONFIG(.precision = precision, .state = state, .clip = clip, .loss_scale = scale,
                   .threads = 2, .place = "states=nvme,weights=nvme", .io = HST_IO_THREADS),
        TOY_CONFIG(.precision = precision, .state = state, .clip = clip, .loss_scale = scale,
                   .threads = 2, .place = "states=dram,weights=nvme", .tile_elements = 4096),
        TOY_CONFIG(.precision = precision, .state = state, .clip = clip, .loss_scale = scale,
                   .threads = 1, .place = "states=nvme,weights=nvme", .tile_elements = 4096),
        TOY_CONFIG(.precision = precision, .state = state, .clip = clip, .loss_scale = scale,
                   .threads = 2, .place = "grads=nvme", .tile_elements = 65536),
        TOY_CONFIG(.precision = precision, .state = state, .clip = clip, .loss_scale = scale,
                   .threads = 2, .tile_elements = 8192,
                   .place = "grads=nvme,acts=nvme,states=nvme,weights=nvme"),
        /* Budgets too small for everything: some tiles leave, then more, then weights too. */
        TOY_SMALL(.precision = precision, .state = state, .clip = clip, .loss_scale = scale,
                  .threads = 2, .tile_elements = 8192, .dram_bytes = all - (all >> 3)),
        TOY_SMALL(.precision = precision, .state = state, .clip = clip, .loss_scale = scale,
                  .threads = 2, .tile_elements = 8192, .dram_bytes = all - (all >> 2)),
        TOY_SMALL(.precision = precision, .state = state, .clip = clip, .loss_scale = scale,
                  .threads = 2, .tile_elements = 4096, .dram_bytes = all / 2 + (all >> 4)),
    };
    check_away(precision, state, clip, scale);
    if (state <= HST_STATE_FP32) /* others the host updates */
        check_shared(precision, clip, scale);
    const struct hst_config *far[] = {
        TOY_CONFIG(.precision = precision, .state = state, .clip = clip, .loss_scale = scale,
                   .threads = 2, .device = "far"),
        TOY_CONFIG(.precision = precision, .state = state, .clip = clip, .loss_scale = scale,
                   .threads = 1, .device = "far", .tile_elements = 4096),
        TOY_CONFIG(.precision = precision, .state = state, .clip = clip, .loss_scale = scale,
                   .threads = 2, .device = "far", .tile_elements = 8192),
    };
    for (size_t i = 0; i < sizeof far / sizeof far[0] && state <= HST_STATE_FP32; i++) {
        toy_run(far[i], &other);
        assert_true(other.memory.total[HST_TIER_HBM] > other.memory.total[HST_TIER_DRAM]);
        assert_int_equal(other.memory.total[HST_TIER_NVME], 0);
        assert_memory_equal(other.weights.bytes, oracle.weights.bytes, oracle.weights.used);
        assert_memory_equal(other.norms, oracle.norms, sizeof oracle.norms);
    }
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        toy_run(others[i], &other);
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
    check_placements(HST_PRECISION_BF16, HST_STATE_8BIT, 0.5, 0);
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
    toy_run(TOY_CONFIG(.threads = 2), &other);
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
    toy_run(TOY_CONFIG(.place = "states=nvme"), &other);
    uint64_t states = other.memory.bytes[HST_CLASS_STATES][HST_TIER_NVME];
    assert_int_equal(other.nvme_read, TOY_STEPS * states);
    assert_int_equal(other.nvme_write, TOY_STEPS * states);
    toy_run(TOY_CONFIG(.device = "far", .precision = HST_PRECISION_FP32), &other);
    uint64_t elements = other.memory.bytes[HST_CLASS_WEIGHTS][HST_TIER_HBM] / sizeof(float);
    assert_int_equal(other.stats.bytes.d2h, elements / 4096 * sizeof(double)); /* norm partials */
    assert_int_equal(other.stats.bytes.h2d, 0);
    assert_int_equal(other.stats.bytes.nvme_read + other.stats.bytes.nvme_write, 0);
}

/* What nothing waits for needs no home, and so no drive: a bit less memory than all is enough. */
static void without_drives_gradients_that_are_not_kept_leave_memory(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct hst_config config =
            *hst_config(.batch_tokens = 10, .micro_batch_tokens = 4, .dram_bytes = 64u << 20,
                        .clip = HST_NONE, .tile_elements = 8192,
                        .precision = i / 2 ? HST_PRECISION_BF16 : HST_PRECISION_FP32,
                        .device = i % 2 ? "far" : NULL, .place = "weights=dram");
        toy_run(&config, &oracle);
        uint64_t all = oracle.memory.bytes[HST_CLASS_GRADS][HST_TIER_DRAM];
        config.dram_bytes = oracle.memory.total[HST_TIER_DRAM] - 4096;
        toy_run(&config, &other);
        assert_true(other.memory.bytes[HST_CLASS_GRADS][HST_TIER_DRAM] < all);
        assert_int_equal(other.memory.total[HST_TIER_NVME], 0);
        assert_memory_equal(other.weights.bytes, oracle.weights.bytes, oracle.weights.used);
        assert_memory_equal(other.norms, oracle.norms, sizeof oracle.norms);
        config.clip = 1; /* these are kept */
        struct hst_engine *engine = toy_created(&config);
        toy_must(engine, toy_describe(engine));
        assert_int_equal(hst_engine_seal(engine, HST_ORDER_FORWARD), -ENOSPC);
        hst_engine_destroy(&engine);
    }
}

/* Of the version that load makes each byte is written once, from wherever it is. */
static void a_load_writes_all_bytes_once(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        struct hst_config config =
            *hst_config(.store = toy_store, .durability = "step", .batch_tokens = 10,
                        .micro_batch_tokens = 4, .dram_bytes = 64u << 20, .threads = 2,
                        .tile_elements = 8192, .place = i == 1 ? "states=nvme" : NULL,
                        .device = i > 1 ? "far" : NULL);
        if (i > 2) /* some units are resident, and then little of the others is in memory */
            share_units(&config, 64u << 20, toy_describe);
        if (i > 3)
            lower_budget(&config, &config.dram_bytes, 64u << 20, toy_describe);
        struct hst_engine *engine = toy_created(&config);
        uint64_t bytes = 0, one;
        toy_must(engine, toy_seal_and_load(engine));
        for (uint32_t t = 0; t < engine->layout.tile_count; t++)
            for (int kind = EXTENT_WEIGHTS; kind <= EXTENT_STATES; kind++, bytes += one)
                placement_extent(&engine->placement, (enum extent_kind)kind, t, &one);
        assert_int_equal(engine->extents->counters.written_bytes, bytes);
        hst_engine_destroy(&engine);
        char command[128];
        snprintf(command, sizeof command, "rm -f '%s'/r0*", toy_store);
        assert_int_equal(system(command), 0);
    }
}

static void a_host_that_computes_copies_nothing(void **state)
{
    (void)state;
    struct hst_engine *engine = toy_created(TOY_CONFIG(.place = "states=nvme,acts=nvme"));
    toy_must(engine, toy_seal_and_load(engine));
    assert_null(engine->exec.streams.copying[LANE_H2D]); /* each is a thread */
    assert_null(engine->exec.streams.copying[LANE_D2H]);
    hst_engine_destroy(&engine);
}

/* Where a GPU updates any; but not where they pass through the drives' buffer pool. */
static void tiles_are_large_for_a_gpu_and_small_for_drives(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) { /* some units are resident; the others' states leave; none is */
        struct hst_config config = *TOY_CONFIG(.device = "far", .threads = 1);
        struct hst_memory memory;
        share_units(&config, 64u << 20, toy_describe);
        config.place = i == 2 ? "weights=dram" : NULL;
        if (i == 1)
            lower_budget(&config, &config.dram_bytes, 64u << 20, toy_describe);
        struct hst_engine *engine = toy_created(&config);
        toy_must(engine, toy_describe(engine));
        toy_must(engine, hst_engine_seal(engine, HST_ORDER_FORWARD));
        assert_int_equal(hst_engine_memory(engine, &memory), 0);
        assert_int_equal(memory.tile_elements, i == 0 ? 4u << 20 : 262144);
        hst_engine_destroy(&engine);
    }
}

static void calls_out_of_order_are_refused_and_harmless(void **state)
{
    (void)state;
    struct hst_engine *engine = toy_created(TOY_CONFIG(.place = "states=nvme,weights=nvme"));
    struct hst_stream *stream = hst_engine_stream(engine);
    const struct hst_unit_view *view;
    struct hst_step step;
    struct hst_step_stats stats;
    struct hst_step_in in = {.size = sizeof in, .lr = 1e-3};
    struct hst_act act;
    uint32_t unit;
    assert_int_equal(hst_step_begin(engine, &in, &step), -EINVAL);
    assert_int_equal(hst_engine_seal(engine, HST_ORDER_FORWARD), -EINVAL); /* no unit */
    toy_must(engine, toy_seal_and_load(engine));
    assert_int_equal(hst_unit_add(engine, &(struct hst_unit_desc){.name = "late"}, &unit), -EBUSY);
    assert_int_equal(hst_unit_acquire(engine, 0, HST_FORWARD, stream, &view),
                     -EINVAL); /* no step */
    assert_int_equal(hst_step_end(engine, &stats), -EINVAL);
    in.lr = NAN;
    assert_int_equal(hst_step_begin(engine, &in, &step), -EINVAL);
    in.lr = 1e-3;
    toy_must(engine, hst_step_begin(engine, &in, &step));
    assert_int_equal(hst_step_begin(engine, &in, &step), -EINVAL);
    assert_int_equal(hst_unit_acquire(engine, TOY_UNITS, HST_FORWARD, stream, &view), -EINVAL);
    assert_int_equal(hst_unit_acquire(engine, 0, HST_BACKWARD, stream, &view),
                     -EINVAL); /* what the head is tied to comes after it */
    assert_int_equal(hst_unit_release(engine, 0), -EINVAL);
    toy_must(engine, hst_unit_acquire(engine, 1, HST_FORWARD, stream, &view));
    assert_int_equal(hst_unit_acquire(engine, 2, HST_FORWARD, stream, &view),
                     -EINVAL); /* not released */
    assert_int_equal(hst_act_acquire(engine, 0, 0, HST_HIDDEN, HST_READ, stream, &act), -EINVAL);
    assert_int_equal(hst_act_acquire(engine, 1, 3, HST_HIDDEN, HST_READ, stream, &act), -EINVAL);
    assert_int_equal(hst_unit_grad_ready(engine, 1), -EINVAL);
    toy_must(engine, hst_unit_release(engine, 1));
    toy_must(engine, hst_unit_acquire(engine, TOY_UNITS - 1, HST_BACKWARD, stream, &view));
    assert_int_equal(hst_unit_release(engine, TOY_UNITS - 1), -EINVAL); /* gradients not complete */
    toy_must(engine, hst_unit_grad_ready(engine, TOY_UNITS - 1));
    assert_int_equal(hst_unit_grad_ready(engine, TOY_UNITS - 1), -EINVAL);
    toy_must(engine, hst_unit_release(engine, TOY_UNITS - 1));
    assert_int_equal(hst_step_end(engine, &stats), -EINVAL); /* four units are missing */
    assert_int_equal(hst_engine_error(engine)->code, 0);
    hst_engine_destroy(&engine);
}

/* Also one that is served in an order of its own, by a graph of one unit. */
static void what_an_evaluation_holds_is_neither_drained_nor_saved(void **state)
{
    (void)state;
    struct hst_engine *engine = toy_created(TOY_CONFIG(.place = "weights=nvme"));
    const struct hst_unit_view *view;
    toy_must(engine, toy_seal_and_load(engine));
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t unit = 3 - i;
        toy_must(engine,
                 hst_unit_acquire(engine, unit, HST_EVAL, hst_engine_stream(engine), &view));
        assert_int_equal(hst_engine_drain(engine, NULL), -EINVAL);
        assert_int_equal(toy_save(engine, &other.weights), -EINVAL);
        toy_must(engine, hst_unit_release(engine, unit));
    }
    toy_must(engine, hst_engine_drain(engine, NULL));
    hst_engine_destroy(&engine);
}

static void defaults_are_those_of_the_header(void **state)
{
    (void)state;
    toy_run(
        TOY_CONFIG(.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01, .clip = 1.0),
        &oracle);
    toy_run(TOY_CONFIG(), &other);
    assert_memory_equal(other.weights.bytes, oracle.weights.bytes, oracle.weights.used);
    toy_run(TOY_CONFIG(.weight_decay = HST_NONE), &other);
    assert_memory_not_equal(other.weights.bytes, oracle.weights.bytes, oracle.weights.used);
    toy_run(TOY_CONFIG(.clip = HST_NONE), &other);
    assert_memory_not_equal(other.weights.bytes, oracle.weights.bytes, oracle.weights.used);
    toy_run(TOY_CONFIG(.eps = 1e-3), &other);
    assert_memory_not_equal(other.weights.bytes, oracle.weights.bytes, oracle.weights.used);
}

static void a_gradient_that_is_not_finite_stops_the_run_before_any_update(void **state)
{
    (void)state;
    struct hst_engine *engine = toy_created(TOY_CONFIG());
    struct hst_stream *stream = hst_engine_stream(engine);
    const struct hst_unit_view *view;
    struct hst_step step;
    struct hst_step_stats stats;
    toy_must(engine, toy_seal_and_load(engine));
    toy_must(engine,
             hst_step_begin(engine,
                            &(struct hst_step_in){.size = sizeof(struct hst_step_in), .lr = 1.0},
                            &step));
    static float infinite;
    infinite = INFINITY;
    for (uint32_t u = TOY_UNITS; u-- > 0;) {
        toy_must(engine, hst_unit_acquire(engine, u, HST_BACKWARD, stream, &view));
        if (u == 2)
            toy_must(engine,
                     hst_stream_copy(stream, view->param[0].grad, &infinite, sizeof infinite));
        toy_must(engine, hst_unit_grad_ready(engine, u));
        toy_must(engine, hst_unit_release(engine, u));
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
    expect_create(402, -EINVAL, hst_config(.batch_tokens = 0, .micro_batch_tokens = 1));
    expect_create(402, -EINVAL, hst_config(.batch_tokens = 4, .micro_batch_tokens = 5));
    expect_create(402, -EINVAL, TOY_CONFIG(.tile_elements = 1000));
    expect_create(402, -EINVAL, TOY_CONFIG(.beta1 = 1.0));
    expect_create(402, -EINVAL, TOY_CONFIG(.weight_decay = -0.5));
    expect_create(402, -EINVAL, TOY_CONFIG(.clip = -2));
    expect_create(402, -EINVAL, TOY_CONFIG(.place = "states=disk"));
    expect_create(402, -EINVAL, TOY_CONFIG(.loss_scale = 1024));
    expect_create(402, -EINVAL, TOY_CONFIG(.precision = HST_PRECISION_FP16, .loss_scale = 0.5));
    expect_create(402, -EINVAL,
                  TOY_CONFIG(.precision = HST_PRECISION_FP16, .state = HST_STATE_BF16));
    expect_create(402, -EINVAL, TOY_CONFIG(.threads = 5000));
    expect_create(
        105, -ENOENT,
        hst_config(.store = "no/such/parent", .batch_tokens = 4, .micro_batch_tokens = 4));
    expect_create(105, -ENOTDIR,
                  hst_config(.store = "/dev/null", .batch_tokens = 4, .micro_batch_tokens = 4));
    struct hst_config much = *TOY_CONFIG();
    much.dram_bytes = 1ull << 60;
    expect_create(302, -ENOMEM, &much);
    struct {
        struct hst_config known;
        uint64_t newer;
    } later = {*TOY_CONFIG(), 1};
    later.known.size = sizeof later;
    struct hst_engine *engine = NULL;
    assert_int_equal(hst_engine_create(&later.known, &engine), -EINVAL);
}

static void a_plan_that_does_not_fit_is_refused_with_the_smallest_that_would(void **state)
{
    (void)state;
    struct hst_engine *engine = toy_created(TOY_SMALL(.dram_bytes = 1u << 20));
    toy_must(engine, toy_describe(engine));
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
    struct hst_engine *engine = toy_created(TOY_CONFIG(.place = "states=nvme,weights=nvme"));
    toy_must(engine, toy_describe(engine));
    toy_must(engine, hst_engine_seal(engine, HST_ORDER_FORWARD));
    assert_int_equal(hst_engine_load(engine, &(struct hst_reader){.read = fail_late}), -EIO);
    assert_int_equal(hst_engine_error(engine)->code, 106);
    assert_non_null(strstr(hst_engine_error(engine)->message, "c.norm"));
    hst_engine_destroy(&engine);
}

static void a_store_directory_that_the_engine_made_is_removed_again(void **state)
{
    (void)state;
    char path[64];
    snprintf(path, sizeof path, "%s/made", toy_store);
    struct hst_engine *engine =
        toy_created(hst_config(.store = path, .durability = "none", .batch_tokens = 4,
                               .micro_batch_tokens = 4, .dram_bytes = 64u << 20));
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
        cmocka_unit_test(without_drives_gradients_that_are_not_kept_leave_memory),
        cmocka_unit_test(a_load_writes_all_bytes_once),
        cmocka_unit_test(a_host_that_computes_copies_nothing),
        cmocka_unit_test(tiles_are_large_for_a_gpu_and_small_for_drives),
        cmocka_unit_test(calls_out_of_order_are_refused_and_harmless),
        cmocka_unit_test(what_an_evaluation_holds_is_neither_drained_nor_saved),
        cmocka_unit_test(defaults_are_those_of_the_header),
        cmocka_unit_test(a_gradient_that_is_not_finite_stops_the_run_before_any_update),
        cmocka_unit_test(wrong_configurations_are_refused_with_code_and_message),
        cmocka_unit_test(a_plan_that_does_not_fit_is_refused_with_the_smallest_that_would),
        cmocka_unit_test(a_reader_that_fails_ends_the_load),
        cmocka_unit_test(a_store_directory_that_the_engine_made_is_removed_again),
    };
    return run_cases(tests, toy_make_store, toy_remove_store);
}
