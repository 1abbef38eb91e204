/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a client may do with units beside the declared order: use their activations, visit them in
 * an order of its own, evaluate between steps. Weights are those of a run that does none of it.
 */
#include "cases.h"
#include "session/engine_state.h"
#include "smallest_budget.h"
#include "toy_run.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static struct toy_result oracle, other; /* large: not on the stack */

static void check_activations(const struct hst_config *config)
{
    struct hst_engine *engine = toy_created(config);
    struct hst_stream *stream = hst_engine_stream(engine);
    const struct hst_unit_view *view;
    struct hst_step step;
    struct hst_act act;
    toy_must(engine, toy_seal_and_load(engine));
    toy_must(engine, hst_step_begin(
                         engine, &(struct hst_step_in){.size = sizeof(struct hst_step_in)}, &step));
    assert_int_equal(step.micro_count, 3);
    for (uint32_t u = 0; u < TOY_UNITS; u++) {
        toy_must(engine, hst_unit_acquire(engine, u, HST_FORWARD, stream, &view));
        for (uint32_t m = 0; m < 3; m++) {
            toy_must(engine,
                     hst_act_acquire(engine, u, m, HST_CHECKPOINT, HST_WRITE, stream, &act));
            assert_int_equal(act.tokens, m == 2 ? 2 : 4);
            assert_int_equal(act.size_bytes, act.tokens * 64);
            toy_must(engine, hst_stream_sync(stream));
            memset(act.data, (int)(u * 3 + m), act.size_bytes);
            toy_must(engine, hst_act_release(engine, u, m, HST_CHECKPOINT));
        }
        toy_must(engine, hst_unit_release(engine, u));
    }
    for (uint32_t u = TOY_UNITS; u-- > 0;) {
        toy_must(engine, hst_unit_acquire(engine, u, HST_BACKWARD, stream, &view));
        for (uint32_t m = 0; m < 3; m++) {
            toy_must(engine, hst_act_acquire(engine, u, m, HST_CHECKPOINT, HST_READ, stream, &act));
            for (uint64_t i = 0; i < act.size_bytes; i++)
                assert_int_equal(((unsigned char *)act.data)[i], u * 3 + m);
        }
        toy_must(engine, hst_unit_grad_ready(engine, u));
        toy_must(engine, hst_unit_release(engine, u));
    }
    hst_engine_destroy(&engine);
}

static void activations_have_a_place_per_unit_and_micro_batch_and_keep_their_bytes(void **state)
{
    (void)state;
    check_activations(TOY_CONFIG());
    check_activations(TOY_CONFIG(.place = "acts=nvme"));
    check_activations(TOY_CONFIG(.place = "acts=nvme,weights=nvme,grads=nvme", .clip = HST_NONE));
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
    {{0, 1, 2, 3, LAST}, {4, 3, 2, 1, 0, LAST}},
    {{0, 1, 2, 3, LAST}, {4, 3, 2, 0, 1, LAST}},       /* left where gradients are kept */
    {{0, 1, 0, 2, 3, 3, LAST}, {4, 3, 2, 1, 0, LAST}}, /* some twice: cannot be learned */
    {{LAST}, {2, 3, 4, 1, 0, LAST}},
};

static void fill_acts(struct hst_engine *engine, uint32_t unit)
{
    struct hst_stream *stream = hst_engine_stream(engine);
    struct hst_act act;
    for (uint32_t m = 0; m < 3; m++) {
        toy_must(engine, hst_act_acquire(engine, unit, m, HST_CHECKPOINT, HST_WRITE, stream, &act));
        toy_must(engine, hst_stream_sync(stream));
        memset(act.data, (int)(unit * 3 + m), act.size_bytes);
        toy_must(engine, hst_act_release(engine, unit, m, HST_CHECKPOINT));
    }
}

static void check_acts(struct hst_engine *engine, uint32_t unit)
{
    struct hst_stream *stream = hst_engine_stream(engine);
    struct hst_act act;
    for (uint32_t m = 0; m < 3; m++) {
        toy_must(engine, hst_act_acquire(engine, unit, m, HST_CHECKPOINT, HST_READ, stream, &act));
        for (uint64_t i = 0; i < act.size_bytes; i++)
            assert_int_equal(((unsigned char *)act.data)[i], unit * 3 + m);
        toy_must(engine, hst_act_release(engine, unit, m, HST_CHECKPOINT));
    }
}

/* What lanes have moved, by what their nodes say, and by what steps say. */
static struct {
    double work[LANE_COUNT];
    struct hst_step_bytes told;
    bool waited; /* for drives, behind the visit that left the order */
} moved;

static void add_traced(void *context, const struct hst_trace_event *event)
{
    (void)context;
    for (int l = 0; l < LANE_COUNT; l++)
        if (strcmp(event->lane, lane_name((enum lane)l)) == 0)
            moved.work[l] += event->work;
}

static void add_told(const struct hst_step_stats *stats)
{
    const double waited = stats->stall_s.nvme + stats->stall_s.copy + stats->stall_s.update;
    assert_true(waited >= 0 && waited <= stats->seconds);
    moved.told.nvme_read += stats->bytes.nvme_read;
    moved.told.nvme_write += stats->bytes.nvme_write;
    moved.told.h2d += stats->bytes.h2d;
    moved.told.d2h += stats->bytes.d2h;
}

/* Of a step: partials of the norm of units that are resident come home by no node of their own. */
static uint64_t resident_partials_bytes(const struct hst_engine *engine)
{
    uint64_t bytes = 0;
    for (uint32_t u = 0; u < engine->layout.unit_count; u++)
        if (placement_is_resident(&engine->placement, u))
            bytes += placement_partials_bytes(engine->layout.units[u].elements);
    return bytes;
}

static void check_moved(struct hst_engine *engine, unsigned steps)
{
    struct hst_step_stats drained;
    toy_must(engine, hst_engine_drain(engine, &drained));
    add_told(&drained);
    const uint64_t partials = steps * resident_partials_bytes(engine);
    assert_true(moved.work[LANE_READ] == (double)moved.told.nvme_read);
    assert_true(moved.work[LANE_WRITE] == (double)moved.told.nvme_write);
    assert_true(moved.work[LANE_H2D] == (double)moved.told.h2d);
    assert_true(moved.work[LANE_D2H] == (double)(moved.told.d2h - partials));
}

static void acquire(struct hst_engine *engine, uint32_t unit, enum hst_sweep sweep,
                    const struct hst_unit_view **view)
{
    const struct executor *exec = &engine->exec;
    const double before_s = exec->turn.on_demand ? exec->stalls.nvme_s : INFINITY;
    toy_must(engine, hst_unit_acquire(engine, unit, sweep, hst_engine_stream(engine), view));
    moved.waited = moved.waited || exec->stalls.nvme_s > before_s;
}

static int order_warnings;

static void count_warnings(void *context, enum hst_log_level level, const char *line)
{
    (void)context;
    order_warnings += level == HST_LOG_WARNING && strncmp(line, "W601", 4) == 0;
}

static void own_step(struct hst_engine *engine, const struct own_order *order)
{
    const struct hst_unit_view *view;
    struct hst_step_stats stats;
    struct hst_step step;
    bool filled[TOY_UNITS] = {false};
    toy_must(engine,
             hst_step_begin(engine,
                            &(struct hst_step_in){.size = sizeof(struct hst_step_in), .lr = 1e-3},
                            &step));
    for (const int *u = order->forward; *u != LAST; u++) {
        acquire(engine, (uint32_t)*u, HST_FORWARD, &view);
        fill_acts(engine, (uint32_t)*u);
        filled[*u] = true;
        toy_must(engine, hst_unit_release(engine, (uint32_t)*u));
    }
    for (const int *u = order->backward; *u != LAST; u++) {
        acquire(engine, (uint32_t)*u, HST_BACKWARD, &view);
        if (filled[*u])
            check_acts(engine, (uint32_t)*u);
        toy_must(engine, toy_add_gradients(engine, (uint32_t)*u, view, step.loss_scale));
        toy_must(engine, hst_unit_grad_ready(engine, (uint32_t)*u));
        toy_must(engine, hst_unit_release(engine, (uint32_t)*u));
    }
    toy_must(engine, hst_step_end(engine, &stats));
    add_told(&stats);
}

/* Each order for two steps: as it comes, then as it was learned. The weights are the oracle's, and
 * nodes move what steps tell. */
static void check_own_orders(const struct hst_config *config)
{
    struct hst_config traced = *config;
    enum { ORDERS = sizeof OWN_ORDERS / sizeof OWN_ORDERS[0] };
    struct hst_engine *engine = toy_created(config);
    struct hst_step_stats stats;
    toy_must(engine, toy_seal_and_load(engine));
    for (int s = 0; s < 2 * ORDERS; s++)
        toy_must(engine, toy_step(engine, &stats));
    toy_must(engine, toy_save(engine, &oracle.weights));
    hst_engine_destroy(&engine);
    order_warnings = 0;
    memset(&moved, 0, sizeof moved);
    traced.trace = add_traced;
    engine = toy_created(&traced);
    toy_must(engine, toy_seal_and_load(engine));
    for (size_t i = 0; i < ORDERS; i++) {
        own_step(engine, &OWN_ORDERS[i]);
        own_step(engine, &OWN_ORDERS[i]);
        assert_int_equal(engine->exec.turn.on_demand, i == 6);
    }
    check_moved(engine, 2 * ORDERS);
    assert_true(moved.waited || !config->place || !strstr(config->place, "weights=nvme"));
    toy_must(engine, toy_save(engine, &other.weights));
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
            check_own_orders(TOY_CONFIG(.place = places[i], .clip = clip ? 0.5 : HST_NONE,
                                        .threads = 2, .precision = HST_PRECISION_BF16,
                                        .log = count_warnings));
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) /* most of the steps overflow */
        check_own_orders(TOY_CONFIG(.place = places[i], .clip = 0.5, .threads = 2,
                                    .loss_scale = 0x1p28, .precision = HST_PRECISION_FP16,
                                    .log = count_warnings));
    check_own_orders(TOY_CONFIG(.device = "far", .log = count_warnings));
    check_own_orders(TOY_CONFIG(.device = "far", .clip = HST_NONE, .log = count_warnings));
    static const char *const offloaded[] = {
        "acts=dram",
        "weights=dram",
        "weights=dram,acts=dram",
        "states=nvme,weights=nvme,acts=nvme,grads=nvme",
    };
    for (size_t i = 0; i < sizeof offloaded / sizeof offloaded[0]; i++)
        for (int clip = 0; clip < 2; clip++)
            check_own_orders(TOY_CONFIG(.device = "far", .place = offloaded[i], .threads = 2,
                                        .clip = clip ? 0.5 : HST_NONE, .log = count_warnings));
    for (int clip = 0; clip < 2; clip++) {
        struct hst_config config =
            *TOY_CONFIG(.device = "far", .threads = 2, .clip = clip ? 0.5 : HST_NONE,
                        .place = "acts=dram", .log = count_warnings);
        share_units(&config, 64u << 20, toy_describe);
        check_own_orders(&config);
        lower_budget(&config, &config.dram_bytes, 64u << 20, toy_describe);
        check_own_orders(&config);
        config = *TOY_CONFIG(.device = "far", .threads = 2, .clip = clip ? 0.5 : HST_NONE,
                             .place = "weights=dram", .gpu_update = 0.5, .log = count_warnings);
        check_own_orders(&config);
    }
}

/* One unit, the gradient of which needs none of its weights. */
static void check_blind_backward(const struct hst_config *config)
{
    struct hst_engine *engine = toy_created(config);
    struct hst_stream *stream = hst_engine_stream(engine);
    const struct hst_param_desc param = {.name = "w", .dim_count = 1, .dims = {5000}};
    const struct hst_unit_desc desc = {
        .name = "blind", .params = &param, .param_count = 1, .flags = HST_UNIT_BLIND_BACKWARD};
    const struct hst_unit_view *view;
    struct hst_step_stats stats;
    struct hst_step step;
    uint32_t unit;
    toy_must(engine, hst_unit_add(engine, &desc, &unit));
    toy_must(engine, hst_engine_seal(engine, HST_ORDER_FORWARD));
    toy_must(engine, toy_load(engine));
    for (int s = 0; s < 3; s++) {
        const struct hst_step_in in = {.size = sizeof in, .lr = 1e-3};
        toy_must(engine, hst_step_begin(engine, &in, &step));
        toy_must(engine, hst_unit_acquire(engine, unit, HST_FORWARD, stream, &view));
        assert_true(view->param[0].data && !view->param[0].grad);
        toy_must(engine, hst_unit_release(engine, unit));
        toy_must(engine, hst_unit_acquire(engine, unit, HST_BACKWARD, stream, &view));
        assert_true(!view->param[0].data && view->param[0].grad);
        toy_must(engine, hst_stream_sync(stream));
        for (int i = 0; i < 5000; i++)
            view->param[0].grad[i] = (float)(i % 7 - 3);
        toy_must(engine, hst_unit_grad_ready(engine, unit));
        toy_must(engine, hst_unit_release(engine, unit));
        toy_must(engine, hst_step_end(engine, &stats));
        assert_true(stats.bytes.h2d <= 5000 * 4 + 4096 * 4);
    }
    toy_must(engine, toy_save(engine, &other.weights));
    hst_engine_destroy(&engine);
}

static void a_backward_that_reads_no_weights_gets_none_and_the_same_bytes(void **state)
{
    (void)state;
    check_blind_backward(TOY_CONFIG(.precision = HST_PRECISION_FP32));
    oracle.weights = other.weights;
    const struct hst_config *const configs[] = {
        TOY_CONFIG(.place = "weights=nvme,states=nvme,grads=nvme"),
        TOY_CONFIG(.device = "far", .precision = HST_PRECISION_FP32, .place = "weights=dram"),
        TOY_CONFIG(.device = "far", .precision = HST_PRECISION_FP32,
                   .place = "weights=nvme,states=nvme,grads=nvme"),
    };
    for (size_t i = 0; i < sizeof configs / sizeof configs[0]; i++) {
        check_blind_backward(configs[i]);
        assert_memory_equal(other.weights.bytes, oracle.weights.bytes, oracle.weights.used);
    }
}

static void check_evaluation(const struct hst_config *config)
{
    struct hst_engine *engine = toy_created(config);
    const struct hst_unit_view *view;
    struct hst_step_stats stats;
    toy_must(engine, toy_seal_and_load(engine));
    for (uint32_t u = 0; u < TOY_UNITS; u++) {
        toy_must(engine, hst_unit_acquire(engine, u, HST_EVAL, hst_engine_stream(engine), &view));
        assert_null(view->param[0].grad);
        for (uint64_t i = 0; i < toy_elements(&toy_units[u].params[0]); i++)
            assert_true(((const float *)view->param[0].data)[i] == toy_initial(u, i));
        toy_must(engine, hst_unit_release(engine, u));
    }
    for (int s = 0; s < TOY_STEPS; s++)
        toy_must(engine, toy_step(engine, &stats));
    toy_must(engine, toy_save(engine, &other.weights));
    hst_engine_destroy(&engine);
    toy_run(config, &oracle);
    assert_memory_equal(other.weights.bytes, oracle.weights.bytes, oracle.weights.used);
}

static void an_evaluation_sees_the_weights_between_steps_and_changes_nothing(void **state)
{
    (void)state;
    check_evaluation(TOY_CONFIG(.place = "states=nvme,weights=nvme"));
    check_evaluation(TOY_CONFIG(.device = "far", .precision = HST_PRECISION_FP32,
                                .place = "weights=dram,acts=dram", .hbm_bytes = 4u << 20));
    check_evaluation(TOY_CONFIG(.device = "far", .precision = HST_PRECISION_FP32,
                                .place = "weights=nvme,states=nvme,grads=nvme,acts=nvme"));
    struct hst_config config =
        *TOY_CONFIG(.device = "far", .precision = HST_PRECISION_FP32, .place = "acts=hbm");
    share_units(&config, 64u << 20, toy_describe);
    check_evaluation(&config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(activations_have_a_place_per_unit_and_micro_batch_and_keep_their_bytes),
        cmocka_unit_test(a_client_that_leaves_the_order_is_served_and_its_order_is_learned),
        cmocka_unit_test(a_backward_that_reads_no_weights_gets_none_and_the_same_bytes),
        cmocka_unit_test(an_evaluation_sees_the_weights_between_steps_and_changes_nothing),
    };
    return run_cases(tests, toy_make_store, toy_remove_store);
}
