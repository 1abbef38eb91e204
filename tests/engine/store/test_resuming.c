/* SPDX-License-Identifier: Apache-2.0 */
/* What a client is told while a run is resumed, and that it can end that by what it is told. */
#include "toy_run.h"
#include "toy_states.h"

#include <errno.h>
#include <hoistway/ckpt.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct told {
    uint64_t calls, done_bytes, total_bytes;
    uint64_t end_at; /* the call after which it is ended; 0: none */
};

static void note(void *context, uint64_t done_bytes, uint64_t total_bytes)
{
    struct told *told = context;
    assert_true(told->calls == 0 || total_bytes == told->total_bytes);
    assert_true(done_bytes > told->done_bytes && done_bytes <= total_bytes);
    told->done_bytes = done_bytes;
    told->total_bytes = total_bytes;
    told->calls++;
}

static int has_enough(void *context)
{
    const struct told *told = context;
    return told->end_at > 0 && told->calls >= told->end_at;
}

static struct hst_config config_of(const char *place, struct told *told)
{
    const bool far = strstr(place, "hbm") != NULL;
    return *hst_config(.store = toy_store, .batch_tokens = 10, .micro_batch_tokens = 4,
                       .dram_bytes = 64u << 20, .threads = 2, .tile_elements = 8192,
                       .precision = HST_PRECISION_BF16, .durability = "step", .place = place,
                       .device = far ? "far" : NULL, .hbm_bytes = far ? 64u << 20 : 0,
                       .progress = note, .progress_context = told, .stopped = has_enough,
                       .stopped_context = told);
}

static struct hst_engine *sealed(const struct hst_config *config)
{
    struct hst_engine *engine = toy_created(config);
    toy_must(engine, toy_describe(engine));
    toy_must(engine, hst_engine_seal(engine, HST_ORDER_FORWARD));
    return engine;
}

/* What a version has, by its own tables. */
static struct hst_ckpt_info version(void)
{
    const struct hst_ckpt_config config = {
        .size = sizeof config, .store = toy_store, .step = HST_NO_VERSION};
    struct hst_ckpt *ckpt = NULL;
    struct hst_error error = {0};
    struct hst_ckpt_info info;
    assert_int_equal(hst_ckpt_open(&config, &ckpt, &error), 0);
    hst_ckpt_info(ckpt, &info);
    hst_ckpt_close(&ckpt);
    return info;
}

static int resume(const char *place, struct told *told)
{
    struct hst_config config = config_of(place, told);
    struct hst_engine *engine = sealed(&config);
    uint64_t step;
    size_t bytes;
    const int rc = hst_engine_resume(engine, &step, NULL, 0, &bytes);
    assert_int_equal(hst_engine_error(engine)->native, rc == -ECANCELED ? 0 : rc);
    hst_engine_destroy(&engine);
    return rc;
}

static void make_store(const char *place)
{
    struct told none = {0};
    struct hst_config config = config_of(place, &none);
    struct hst_engine *engine = sealed(&config);
    toy_must(engine, toy_load(engine));
    hst_engine_destroy(&engine);
    assert_int_equal(none.calls, 0);
}

static void clear_store(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -f '%s'/r0*", toy_store);
    assert_int_equal(system(command), 0);
}

static void what_is_read_into_memory_is_told_to_the_last_byte(void **state)
{
    (void)state;
    static const struct {
        const char *place;
        bool weights, states; /* at home in memory */
    } cases[] = {
        {"states=dram,weights=dram", true, true},
        {"states=nvme,weights=dram", true, false},
        {"states=dram,weights=nvme", false, true},
        {"states=nvme,weights=nvme", false, false},
        {"weights=hbm,grads=hbm,states=hbm", true, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct told told = {0};
        make_store(cases[i].place);
        const struct hst_ckpt_info info = version();
        const uint64_t bytes =
            (cases[i].weights ? info.weights_bytes : 0) + (cases[i].states ? info.states_bytes : 0);
        assert_int_equal(resume(cases[i].place, &told), 0);
        assert_int_equal(told.total_bytes, bytes);
        assert_int_equal(told.done_bytes, bytes);
        assert_true(bytes == 0 || told.calls >= info.tiles);
        clear_store();
    }
}

static void a_client_ends_it_and_the_store_is_as_it_was(void **state)
{
    (void)state;
    static const char *const places[] = {"states=dram,weights=dram",
                                         "weights=hbm,grads=hbm,states=hbm"};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        struct told told = {.end_at = 2};
        make_store(places[i]);
        assert_int_equal(resume(places[i], &told), -ECANCELED);
        assert_int_equal(told.calls, 2);
        assert_true(told.done_bytes < told.total_bytes);
        struct hst_config config = config_of(places[i], NULL);
        config.progress = NULL;
        config.stopped = NULL;
        struct hst_engine *engine = sealed(&config);
        uint64_t step;
        size_t bytes;
        toy_must(engine, hst_engine_resume(engine, &step, NULL, 0, &bytes));
        hst_engine_destroy(&engine);
        clear_store();
    }
}

/* A unit comes twice in each forward: no graph can follow that. */
static void step_of_its_own_order(struct hst_engine *engine, struct hst_step_stats *stats)
{
    const struct hst_unit_view *view;
    struct hst_stream *stream = hst_engine_stream(engine);
    struct hst_step_in in = {.size = sizeof in, .lr = TOY_LR};
    struct hst_step at;
    toy_must(engine, hst_step_begin(engine, &in, &at));
    for (int i = 0; i < 2; i++) {
        toy_must(engine, hst_unit_acquire(engine, 1, HST_FORWARD, stream, &view));
        toy_must(engine, hst_unit_release(engine, 1));
    }
    toy_must(engine, toy_sweep(engine, at.loss_scale));
    toy_must(engine, hst_step_end(engine, stats));
}

/* Four steps, drained: what the optimizer then keeps. */
static void four_steps(struct hst_engine *engine, bool leaves, struct toy_states *stood)
{
    struct hst_step_stats stats;
    toy_must(engine, toy_seal_and_load(engine));
    for (uint64_t s = 1; s <= 4; s++) {
        if (leaves)
            step_of_its_own_order(engine, &stats);
        else
            toy_must(engine, toy_step(engine, &stats));
        assert_true(!leaves || hst_engine_version(engine) == s - 1);
    }
    toy_must(engine, hst_engine_drain(engine, &stats));
    assert_int_equal(hst_engine_version(engine), 4);
    toy_must(engine, toy_states(engine, stood));
}

static void is_same(const struct toy_states *a, const struct toy_states *b)
{
    assert_int_equal(a->used, b->used);
    assert_memory_equal(a->bytes, b->bytes, b->used);
}

static void a_client_that_leaves_the_order_has_versions_too(void **state)
{
    static const char *const left[] = {
        "states=dram,weights=dram",
        "states=nvme,weights=dram",
        "states=dram,weights=nvme",
        "states=nvme,weights=nvme",
        "states=nvme,weights=nvme,grads=nvme,acts=nvme",
        "weights=hbm,grads=hbm,states=hbm",
        "weights=hbm,grads=hbm,states=hbm,acts=nvme",
    };
    static struct toy_states usual, stood, found;
    (void)state;
    for (size_t p = 0; p < sizeof left / sizeof *left; p++) {
        struct told told = {0};
        struct hst_config config = config_of(left[p], &told);
        uint64_t step;
        size_t bytes;
        config.progress = NULL;
        struct hst_engine *engine = toy_created(&config);
        four_steps(engine, false, &usual);
        hst_engine_destroy(&engine);
        clear_store();
        engine = toy_created(&config);
        four_steps(engine, true, &stood);
        is_same(&stood, &usual);
        hst_engine_destroy(&engine);

        engine = sealed(&config);
        toy_must(engine, hst_engine_resume(engine, &step, NULL, 0, &bytes));
        assert_int_equal(step, 4);
        toy_must(engine, toy_states(engine, &found));
        is_same(&found, &stood);
        hst_engine_destroy(&engine);
        clear_store();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_read_into_memory_is_told_to_the_last_byte),
        cmocka_unit_test(a_client_that_leaves_the_order_has_versions_too),
        cmocka_unit_test(a_client_ends_it_and_the_store_is_as_it_was),
    };
    return cmocka_run_group_tests(tests, toy_make_store, toy_remove_store);
}
