/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints that are not kept but recomputed. The client's carry says which unit of which
 * step it is the input of, and each visit checks that it has the input and the weights it should
 * have: wherever bytes live, the trained weights are those of the run in memory that keeps all.
 */
#include "session/engine_state.h"
#include "smallest_budget.h"
#include "toy_run.h"

#include <errno.h>
#include <hoistway/predict.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { UNITS = 16, STEPS = 3, AMPLE = 64 << 20, TILE = 4096, ELEMENTS = 100 * 64, BYTES = 64 };

static char directory[] = "hst-recompute-XXXXXX", store[sizeof directory + 8];
static bool flagged; /* units may be recomputed */

/* ---- the client: units in a row, the last tied to the first; a weight is its own gradient ---- */

static struct hst_param_desc param_of(uint32_t unit, char name[16])
{
    snprintf(name, 16, "w%u", unit);
    return (struct hst_param_desc){.name = name,
                                   .dim_count = 2,
                                   .dims = {100, 64},
                                   .flags = HST_PARAM_DECAY,
                                   .alias_of = unit == UNITS - 1 ? "w0" : NULL};
}

static int describe(struct hst_engine *engine)
{
    int rc = hst_hidden_set(engine, BYTES);
    for (uint32_t u = 0; u < UNITS && rc == 0; u++) {
        char unit_name[16], name[16];
        uint32_t unit;
        struct hst_param_desc param = param_of(u, name);
        snprintf(unit_name, sizeof unit_name, "unit %u", u);
        rc = hst_unit_add(engine,
                          &(struct hst_unit_desc){.name = unit_name,
                                                  .params = &param,
                                                  .param_count = 1,
                                                  .act_bytes_per_token = BYTES,
                                                  .work_bytes = 100,
                                                  .flags = flagged ? HST_UNIT_RECOMPUTE : 0},
                          &unit);
    }
    return rc;
}

static int read_initial(void *context, const struct hst_param_ref *param, uint64_t offset,
                        float *dst, size_t count)
{
    (void)context;
    for (size_t i = 0; i < count; i++)
        dst[i] = (float)((offset + i) % 251 + param->unit) / 1000;
    return 0;
}

struct ran {
    unsigned char weights[UNITS * ELEMENTS * sizeof(float)];
    size_t used;
    double norms[STEPS];
    uint32_t segment;
    uint64_t acts[HST_TIER_COUNT]; /* bytes */
};
static struct ran oracle, other; /* large: not on the stack */

static int collect(void *context, const struct hst_param_ref *param, uint64_t offset,
                   const void *src, size_t count, enum hst_dtype dtype)
{
    struct ran *ran = context;
    (void)param;
    (void)offset;
    assert_int_equal(dtype, HST_F32);
    memcpy(ran->weights + ran->used, src, count * sizeof(float));
    ran->used += count * sizeof(float);
    return 0;
}

/* ---- a visit ---- */

struct visit_turn {
    struct hst_engine *engine;
    struct hst_step step;
    struct hst_visit visit;
    const struct hst_unit_view *view;
};

static uint64_t sums[UNITS]; /* of the weights, as the forward had them */

static uint64_t sum_of(const struct hst_unit_view *view)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < ELEMENTS; i++) {
        uint32_t bits;
        memcpy(&bits, (const float *)view->param[0].data + i, sizeof bits);
        sum = sum * 31 + bits;
    }
    return sum;
}

/* The input of a unit: bytes that no other unit, step or micro-batch has. */
static int input_of(const struct visit_turn *t, uint32_t unit, uint32_t micro)
{
    return (int)((t->step.number * 89 + unit * 7 + micro) & 255);
}

static unsigned char *act(const struct visit_turn *t, uint32_t micro, enum hst_act_kind kind,
                          unsigned access, size_t *bytes)
{
    struct hst_stream *stream = hst_engine_stream(t->engine);
    struct hst_act a;
    toy_must(t->engine, hst_act_acquire(t->engine, t->visit.unit, micro, kind, access, stream, &a));
    toy_must(t->engine, hst_stream_sync(stream));
    *bytes = a.size_bytes;
    return a.data;
}

static void check_input(const struct visit_turn *t, uint32_t micro, const unsigned char *data,
                        size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (data[i] != input_of(t, t->visit.unit, micro))
            fail_msg("step %llu: sweep %d of unit %u has not its own input",
                     (unsigned long long)t->step.number, t->visit.sweep, t->visit.unit);
}

static void forward(const struct visit_turn *t, uint32_t micro)
{
    size_t bytes;
    unsigned char *checkpoint = NULL, *carry = act(t, micro, HST_HIDDEN, HST_WRITE, &bytes);
    if (t->visit.unit == 0 && t->visit.sweep == HST_FORWARD)
        memset(carry, input_of(t, 0, micro), bytes);
    if (t->view->checkpoint)
        checkpoint = act(t, micro, HST_CHECKPOINT, t->view->checkpoint, &bytes);
    if (t->view->checkpoint == HST_READ)
        memcpy(carry, checkpoint, bytes);
    check_input(t, micro, carry, bytes);
    if (t->view->checkpoint == HST_WRITE)
        memcpy(checkpoint, carry, bytes);
    memset(carry, input_of(t, t->visit.unit + 1, micro), bytes);
}

static int add_gradients(const struct visit_turn *t)
{
    struct hst_add add = {ELEMENTS, HST_F32, t->view->param[0].grad, t->view->param[0].data,
                          t->view->param[0].grad};
    int rc = hst_op_add(hst_engine_stream(t->engine), &add);
    return rc ? rc : hst_unit_grad_ready(t->engine, t->visit.unit);
}

static void visit(struct visit_turn *t)
{
    struct hst_stream *stream = hst_engine_stream(t->engine);
    uint32_t unit = t->visit.unit;
    toy_must(t->engine, hst_unit_acquire(t->engine, unit, t->visit.sweep, stream, &t->view));
    toy_must(t->engine, hst_stream_sync(stream));
    if (t->visit.sweep == HST_FORWARD)
        sums[unit] = sum_of(t->view);
    assert_true(sums[unit] == sum_of(t->view));
    for (uint32_t m = 0; m < t->step.micro_count; m++) {
        if (t->visit.sweep != HST_BACKWARD) {
            forward(t, m);
            continue;
        }
        size_t bytes;
        const unsigned char *checkpoint = act(t, m, HST_CHECKPOINT, HST_READ, &bytes);
        check_input(t, m, checkpoint, bytes);
    }
    if (t->visit.sweep == HST_BACKWARD)
        toy_must(t->engine, add_gradients(t));
    toy_must(t->engine, hst_unit_release(t->engine, unit));
}

/* ---- a run ---- */

static struct hst_engine *created(const struct hst_config *config)
{
    struct hst_engine *engine = toy_created(config);
    toy_must(engine, describe(engine));
    return engine;
}

static void train(struct hst_engine *engine, struct ran *ran)
{
    struct visit_turn t = {.engine = engine};
    const struct hst_visit *visits;
    size_t count;
    struct hst_step_in in = {.size = sizeof in, .lr = 1e-3};
    toy_must(engine, hst_engine_visits(engine, &visits, &count));
    for (int s = 0; s < STEPS; s++) {
        struct hst_step_stats stats;
        toy_must(engine, hst_step_begin(engine, &in, &t.step));
        for (size_t i = 0; i < count; i++) {
            t.visit = visits[i];
            visit(&t);
        }
        toy_must(engine, hst_step_end(engine, &stats));
        ran->norms[s] = stats.grad_norm;
    }
}

static void run(const struct hst_config *config, struct ran *ran)
{
    struct hst_engine *engine = created(config);
    alarm(60); /* a hang ends the test */
    *ran = (struct ran){0};
    toy_must(engine, hst_engine_seal(engine, HST_ORDER_FORWARD));
    toy_must(engine, hst_engine_load(engine, &(struct hst_reader){.read = read_initial}));
    train(engine, ran);
    toy_must(engine, hst_engine_save(engine, &(struct hst_writer){collect, ran}));
    ran->segment = engine->placement.segment;
    memcpy(ran->acts, engine->placement.table[HST_CLASS_ACTS], sizeof ran->acts);
    hst_engine_destroy(&engine);
    alarm(0);
}

static struct hst_config config_of(const char *device, const char *place, double clip)
{
    return *hst_config(.device = device, .place = place, .durability = "none", .batch_tokens = 10,
                       .micro_batch_tokens = 4, .clip = clip, .tile_elements = TILE,
                       .dram_bytes = AMPLE, .hbm_bytes = device ? AMPLE : 0, .threads = 2,
                       .precision = HST_PRECISION_FP32);
}

/* ---- the same bytes ---- */

#define SLOW "sim:read=3G,write=2G,mixed=3G,lat=80us,jitter=2ms"

/* Where nothing else can leave memory checkpoints are left out: in a budget as small as may be, or
 * with so many pages more, of DRAM or, where drives are full, of those. */
static const struct {
    const char *device, *place, *model;
    bool store, optimistic; /* the update, which takes a version of every step */
    unsigned pages;
    uint32_t segment; /* units to a checkpoint */
} ROWS[] = {
    {NULL, NULL, NULL, false, false, 0, 4},
    {NULL, NULL, NULL, false, false, 1, 3},
    {NULL, NULL, NULL, false, false, 2, 2},
    {NULL, "states=nvme,weights=nvme,grads=nvme", NULL, true, false, 0, 2},
    {NULL, "states=nvme,weights=nvme,grads=nvme", SLOW, true, false, 2, 4},
    {NULL, "states=nvme,weights=nvme,grads=nvme", NULL, true, true, 1, 3},
    {"far", "weights=hbm", NULL, false, false, 0, 2},
    {"far", "weights=hbm", NULL, false, false, 2, 4},
    {"far", "weights=dram", NULL, false, false, 0, 2},
    {"far", "weights=dram", NULL, false, false, 2, 4},
    {"far", "states=nvme,weights=nvme,grads=nvme", NULL, true, false, 1, 3},
    {"far", "states=nvme,weights=nvme,grads=dram", SLOW, true, false, 2, 4},
};

/* What a run with versions leaves. */
static void remove_store(void)
{
    char command[sizeof store + 8];
    snprintf(command, sizeof command, "rm -r %s", store);
    assert_int_equal(system(command), 0);
}

static void check_row(size_t i, double clip)
{
    struct hst_config c = config_of(ROWS[i].device, ROWS[i].place, clip);
    uint64_t *near = c.device ? &c.hbm_bytes : &c.dram_bytes;
    c.store = ROWS[i].store ? store : NULL;
    c.io_model = ROWS[i].model;
    if (ROWS[i].optimistic) {
        c.durability = "step";
        c.update_time = HST_UPDATE_OPTIMISTIC;
    }
    lower_budget(&c, near, AMPLE, describe);
    *near += ROWS[i].pages * 4096;
    if (c.device)
        lower_budget(&c, &c.dram_bytes, AMPLE, describe);
    if (c.store)
        lower_budget(&c, &c.nvme_bytes, AMPLE, describe);
    run(&c, &other);
    if (ROWS[i].optimistic)
        remove_store();
    /* Each unit's takes a page. What lies between the first and the last of a segment, too. */
    uint32_t segment = ROWS[i].segment, kept = (UNITS + segment - 1) / segment;
    assert_int_equal(other.segment, segment);
    assert_int_equal(other.acts[HST_TIER_HBM] + other.acts[HST_TIER_DRAM] +
                         other.acts[HST_TIER_NVME],
                     4096 * (kept + segment - 2));
    if (other.used != oracle.used || memcmp(other.weights, oracle.weights, oracle.used) != 0)
        fail_msg("row %zu: other bytes", i);
    assert_memory_equal(other.norms, oracle.norms, sizeof oracle.norms);
}

static void the_bytes_are_those_of_the_run_that_keeps_all_checkpoints(void **state)
{
    (void)state;
    static const double clips[] = {0.5, HST_NONE};
    for (size_t k = 0; k < 2; k++) {
        struct hst_config memory = config_of(NULL, NULL, clips[k]);
        flagged = false;
        run(&memory, &oracle);
        flagged = true;
        run(&memory, &other); /* there is room: nothing is recomputed */
        assert_int_equal(other.segment, 1);
        assert_memory_equal(other.weights, oracle.weights, sizeof oracle.weights);
        for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++)
            if (k == (ROWS[i].optimistic ? 0 : i % 2)) /* without a clip no update is */
                check_row(i, clips[k]);
    }
}

/* ---- the visits, and what is refused ---- */

/* On the host, with no store, in the smallest budget: segments of four. */
static struct hst_engine *loaded(void)
{
    struct hst_config c = config_of(NULL, NULL, 0.5);
    flagged = true;
    lower_budget(&c, &c.dram_bytes, AMPLE, describe);
    struct hst_engine *engine = created(&c);
    toy_must(engine, hst_engine_seal(engine, HST_ORDER_FORWARD));
    toy_must(engine, hst_engine_load(engine, &(struct hst_reader){.read = read_initial}));
    assert_int_equal(engine->placement.segment, 4);
    return engine;
}

static void a_segment_goes_up_again_before_it_comes_down(void **state)
{
    (void)state;
    struct hst_engine *engine = loaded();
    const struct hst_visit *visits, *v;
    size_t count;
    assert_int_equal(hst_engine_visits(engine, &visits, NULL), -EINVAL);
    toy_must(engine, hst_engine_visits(engine, &visits, &count));
    assert_int_equal(count, UNITS + UNITS / 4 * (3 + 4));
    v = visits;
    for (uint32_t u = 0; u < UNITS; u++, v++)
        assert_true(v->unit == u && v->sweep == HST_FORWARD);
    for (uint32_t first = UNITS; first > 0;) {
        first -= 4;
        for (uint32_t u = first; u < first + 3; u++, v++)
            assert_true(v->unit == u && v->sweep == HST_RECOMPUTE);
        for (uint32_t u = first + 4; u-- > first; v++)
            assert_true(v->unit == u && v->sweep == HST_BACKWARD);
    }
    hst_engine_destroy(&engine);
}

static void expect_refused(struct visit_turn *t, uint32_t unit, enum hst_sweep sweep)
{
    struct hst_stream *stream = hst_engine_stream(t->engine);
    assert_int_equal(hst_unit_acquire(t->engine, unit, sweep, stream, &t->view), -EINVAL);
}

/* Visits of a row that are not the next ones, and checkpoints that are not there: the step goes on
 * as if they had not been asked for. */
static void what_the_visits_do_not_list_is_refused_and_harmless(void **state)
{
    (void)state;
    struct hst_engine *engine = loaded();
    struct hst_stream *stream = hst_engine_stream(engine);
    struct visit_turn t = {.engine = engine};
    const struct hst_visit *visits;
    size_t count;
    struct hst_act a;
    struct hst_step_in in = {.size = sizeof in, .lr = 1e-3};
    struct hst_step_stats stats;
    toy_must(engine, hst_engine_visits(engine, &visits, &count));
    toy_must(engine, hst_step_begin(engine, &in, &t.step));
    for (size_t i = 0; i < count; i++) {
        t.visit = visits[i];
        visit(&t);
        if (i == UNITS - 1) { /* 12 comes next, once more */
            expect_refused(&t, 15, HST_BACKWARD);
            expect_refused(&t, 13, HST_RECOMPUTE);
            expect_refused(&t, 15, HST_RECOMPUTE);
            expect_refused(&t, 3, HST_FORWARD);
        }
    }
    toy_must(engine, hst_step_end(engine, &stats));
    toy_must(engine, hst_step_begin(engine, &in, &t.step));
    toy_must(engine, hst_unit_acquire(engine, 1, HST_FORWARD, stream, &t.view));
    assert_int_equal(t.view->checkpoint, 0);
    assert_int_equal(hst_act_acquire(engine, 1, 0, HST_CHECKPOINT, HST_WRITE, stream, &a), -EINVAL);
    toy_must(engine, hst_unit_release(engine, 1));
    hst_engine_destroy(&engine);
}

static void an_evaluation_is_a_forward_without_checkpoints(void **state)
{
    (void)state;
    struct hst_engine *engine = loaded();
    struct hst_stream *stream = hst_engine_stream(engine);
    const struct hst_unit_view *view;
    struct hst_act a;
    train(engine, &other);
    for (uint32_t u = 0; u < UNITS; u += 3) { /* some are left out */
        toy_must(engine, hst_unit_acquire(engine, u, HST_EVAL, stream, &view));
        assert_int_equal(view->checkpoint, 0);
        assert_int_equal(hst_act_acquire(engine, u, 0, HST_CHECKPOINT, HST_WRITE, stream, &a),
                         u % 4 == 0 ? 0 : -EINVAL);
        toy_must(engine, hst_unit_release(engine, u));
    }
    train(engine, &other);
    hst_engine_destroy(&engine);
}

/* Of the first three units in four; told to have taken a second each. */
static void a_prediction_has_the_time_that_it_takes(void **state)
{
    (void)state;
    struct hst_engine *engine = loaded();
    struct measure_visit *again = engine->exec.measure.visits[MEASURE_RECOMPUTE];
    struct hst_prediction p;
    struct hst_decision decision;
    train(engine, &other);
    for (uint32_t u = 0; u < UNITS; u++) {
        assert_int_equal(again[u].count, u % 4 < 3 ? STEPS - 1 : 0);
        again[u].seconds = again[u].count;
    }
    assert_int_equal(hst_engine_predict(engine, NULL, &p), 0);
    assert_true(p.step_s > UNITS / 4 * 3);
    assert_int_equal(hst_engine_decision(engine, &decision), 0);
    assert_int_equal(decision.checkpoint_every, 4);
    hst_engine_destroy(&engine);
}

static void expect_not_sealed(const struct hst_unit_desc *desc, uint64_t hidden_bytes,
                              const char *why)
{
    struct hst_config c = config_of(NULL, NULL, 0.5);
    struct hst_engine *engine = NULL;
    uint32_t unit;
    assert_int_equal(hst_engine_create(&c, &engine), 0);
    toy_must(engine, hst_hidden_set(engine, hidden_bytes));
    int rc = hst_unit_add(engine, desc, &unit);
    assert_int_equal(rc ? rc : hst_engine_seal(engine, HST_ORDER_FORWARD), -EINVAL);
    assert_int_equal(hst_engine_error(engine)->code, HST_E_VALUE);
    assert_non_null(strstr(hst_engine_error(engine)->message, why));
    hst_engine_destroy(&engine);
}

static void only_the_carry_can_be_computed_again(void **state)
{
    (void)state;
    struct hst_unit_desc desc = {
        .name = "u", .act_bytes_per_token = 32, .flags = HST_UNIT_RECOMPUTE};
    expect_not_sealed(&desc, 64, "32 bytes per token");
    desc.act_bytes_per_token = 0;
    expect_not_sealed(&desc, 0, "0 bytes per token");
    desc.act_bytes_per_token = 64;
    desc.flags |= HST_UNIT_NO_FORWARD;
    expect_not_sealed(&desc, 64, "has no forward");
}

static void where_all_is_kept_nothing_can_be_computed_again(void **state)
{
    (void)state;
    struct hst_config c = config_of(NULL, NULL, 0.5);
    struct visit_turn t = {.engine = NULL};
    const struct hst_visit *visits;
    size_t count;
    struct hst_step_in in = {.size = sizeof in, .lr = 1e-3};
    flagged = true;
    t.engine = created(&c);
    assert_int_equal(hst_engine_visits(t.engine, &visits, &count), -EINVAL); /* before seal */
    toy_must(t.engine, hst_engine_seal(t.engine, HST_ORDER_FORWARD));
    toy_must(t.engine, hst_engine_load(t.engine, &(struct hst_reader){.read = read_initial}));
    toy_must(t.engine, hst_engine_visits(t.engine, &visits, &count));
    assert_int_equal(count, 2 * UNITS);
    toy_must(t.engine, hst_step_begin(t.engine, &in, &t.step));
    expect_refused(&t, 0, HST_RECOMPUTE);
    t.visit = visits[0];
    visit(&t);
    hst_engine_destroy(&t.engine);
    /* The same budget, but with a home for all checkpoints: they are there, or it is refused. */
    c = config_of(NULL, NULL, 0.5);
    lower_budget(&c, &c.dram_bytes, AMPLE, describe);
    c.place = "acts=dram";
    assert_false(seals(&c, describe));
}

static int make_directory(void **state)
{
    (void)state;
    return mkdtemp(directory) && snprintf(store, sizeof store, "%s/store", directory) > 0 ? 0 : -1;
}

static int remove_directory(void **state)
{
    (void)state;
    return rmdir(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bytes_are_those_of_the_run_that_keeps_all_checkpoints),
        cmocka_unit_test(a_segment_goes_up_again_before_it_comes_down),
        cmocka_unit_test(what_the_visits_do_not_list_is_refused_and_harmless),
        cmocka_unit_test(an_evaluation_is_a_forward_without_checkpoints),
        cmocka_unit_test(a_prediction_has_the_time_that_it_takes),
        cmocka_unit_test(only_the_carry_can_be_computed_again),
        cmocka_unit_test(where_all_is_kept_nothing_can_be_computed_again),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
