/* SPDX-License-Identifier: Apache-2.0 */
/* What a client is told while a run is resumed, and that it can end that by what it is told. */
#include "toy_run.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_read_into_memory_is_told_to_the_last_byte),
        cmocka_unit_test(a_client_ends_it_and_the_store_is_as_it_was),
    };
    return cmocka_run_group_tests(tests, toy_make_store, toy_remove_store);
}
