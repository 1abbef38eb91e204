/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who asks an engine to stop while it starts: at each question in turn it begins nothing more, and
 * what the store held is there for the next run. Later nobody is asked, as a stopped run ends with
 * a version. And a probe that is ended measures no further.
 */
#include "toy_run.h"
#include "toy_states.h"

#include <errno.h>
#include <hoistway/machine.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { STEPS = 2, QUESTIONS_MOST = 5000 };

static struct toy_states alone, found; /* large: not on the stack */
static unsigned asked, stop_at;        /* 0: never */

static int stopped(void *context)
{
    (void)context;
    asked++;
    return stop_at > 0 && asked >= stop_at;
}

#define DRAM "states=dram,weights=dram"
#define NVME "states=nvme,weights=nvme"
#define HBM  "weights=hbm,grads=hbm,states=hbm"

static struct hst_engine *started(const char *place, enum hst_precision precision, unsigned at)
{
    struct hst_config config =
        *hst_config(.store = toy_store, .batch_tokens = 10, .micro_batch_tokens = 4,
                    .dram_bytes = 64u << 20, .threads = 2, .tile_elements = 32768,
                    .precision = precision, .durability = "1000", .place = place,
                    .stopped = stopped);
    if (strstr(place, "hbm")) {
        config.device = "far";
        config.hbm_bytes = 64u << 20;
    }
    struct hst_engine *engine = toy_created(&config);
    toy_must(engine, toy_describe(engine));
    toy_must(engine, hst_engine_seal(engine, HST_ORDER_FORWARD));
    asked = 0;
    stop_at = at;
    return engine;
}

static void clear_store(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -f '%s'/r0*", toy_store);
    assert_int_equal(system(command), 0);
}

static int resume(struct hst_engine *engine)
{
    size_t bytes;
    uint64_t step = HST_NO_VERSION;
    int rc = hst_engine_resume(engine, &step, NULL, 0, &bytes);
    if (rc == 0)
        assert_int_equal(step, STEPS);
    return rc;
}

/* STEPS steps and their version, whoever asks for an end from the first step on. */
static void make_version(const char *place, enum hst_precision precision)
{
    struct hst_step_stats stats;
    struct hst_engine *engine = started(place, precision, 0);
    toy_must(engine, toy_load(engine));
    assert_true(asked > 0);
    stop_at = 1;
    for (int i = 0; i < STEPS; i++)
        toy_must(engine, toy_step(engine, &stats));
    toy_must(engine, hst_engine_drain(engine, &stats));
    assert_int_equal(hst_engine_version(engine), STEPS);
    toy_must(engine, toy_states(engine, &alone));
    hst_engine_destroy(&engine);
}

static unsigned resume_and_stop(const char *place, enum hst_precision precision)
{
    unsigned at = 1;
    for (; at < QUESTIONS_MOST; at += at < 3 ? 1 : 3) {
        struct hst_engine *engine = started(place, precision, at);
        int rc = resume(engine);
        if (rc == 0) {
            toy_must(engine, toy_states(engine, &found));
            hst_engine_destroy(&engine);
            break;
        }
        assert_int_equal(rc, -ECANCELED);
        assert_int_equal(asked, at); /* it then asks no more */
        assert_int_equal(hst_engine_error(engine)->code, 0);
        assert_int_equal(resume(engine), -EINVAL);
        assert_int_equal(toy_load(engine), -EINVAL);
        hst_engine_destroy(&engine);
    }
    assert_true(found.used == alone.used && memcmp(found.bytes, alone.bytes, alone.used) == 0);
    return at - 1;
}

static void a_resume_stops_at_each_question_and_the_next_one_finds_the_version(void **state)
{
    (void)state;
    static const struct {
        const char *place;
        enum hst_precision precision;
        bool moves; /* something into memory */
    } rows[] = {
        {DRAM, HST_PRECISION_FP32, true},
        {HBM, HST_PRECISION_FP32, true},
        {NVME, HST_PRECISION_FP32, false},
        {NVME, HST_PRECISION_FP16, true}, /* weights are made from their masters */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        make_version(rows[i].place, rows[i].precision);
        unsigned questions = resume_and_stop(rows[i].place, rows[i].precision);
        assert_true(rows[i].moves ? questions > 3 : questions == 0);
        clear_store();
    }
}

/* A run that is killed after its version: the next one compares every byte. */
static void make_version_and_die(const char *place)
{
    int status;
    make_version(place, HST_PRECISION_FP32);
    clear_store();
    pid_t pid = fork();
    if (pid == 0) {
        struct hst_step_stats stats;
        struct hst_engine *engine = started(place, HST_PRECISION_FP32, 0);
        toy_must(engine, toy_load(engine));
        for (int i = 0; i < STEPS; i++)
            toy_must(engine, toy_step(engine, &stats));
        toy_must(engine, hst_engine_drain(engine, &stats));
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void a_comparison_of_all_bytes_stops_at_each_question(void **state)
{
    (void)state;
    unsigned at = 1;
    int rc = -ECANCELED;
    make_version_and_die(NVME); /* nothing moves into memory */
    for (; rc && at < QUESTIONS_MOST; at += at < 3 ? 1 : 9) {
        struct hst_engine *engine = started(NVME, HST_PRECISION_FP32, at);
        rc = resume(engine);
        assert_true(rc == 0 || rc == -ECANCELED);
        assert_true(rc ? asked == at : asked < at);
        assert_int_equal(hst_engine_error(engine)->code, 0);
        if (rc == 0)
            toy_must(engine, toy_states(engine, &found));
        hst_engine_destroy(&engine);
    }
    assert_true(asked > 5 && rc == 0);
    assert_true(found.used == alone.used && memcmp(found.bytes, alone.bytes, alone.used) == 0);
    clear_store();
}

static void a_load_stops_at_each_question_and_leaves_no_store(void **state)
{
    (void)state;
    unsigned at = 1;
    for (; at < QUESTIONS_MOST; at += at < 3 ? 1 : 4) {
        struct hst_engine *engine = started(DRAM, HST_PRECISION_FP32, at);
        int rc = toy_load(engine);
        hst_engine_destroy(&engine);
        if (rc == 0)
            break;
        assert_int_equal(rc, -ECANCELED);
        engine = started(DRAM, HST_PRECISION_FP32, 0);
        assert_int_equal(resume(engine), -ENOENT);
        hst_engine_destroy(&engine);
    }
    assert_true(at > 5 && at < QUESTIONS_MOST);
    clear_store();
}

/* ---- probes ---- */

static void a_probe_stops_at_each_question_and_is_not_remembered(void **state)
{
    (void)state;
    static const struct hst_gemm product = {.m = 64, .n = 64, .k = 64, .dtype = HST_F32};
    const struct hst_probe_drive drive = {.directory = toy_store};
    const struct hst_probe probe = {.size = sizeof probe,
                                    .threads = 1,
                                    .drives = &drive,
                                    .drive_count = 1,
                                    .gemms = &product,
                                    .gemm_count = 1,
                                    .memory_bytes = 24u << 20,
                                    .drive_bytes = 20u << 20,
                                    .stopped = stopped};
    static const struct hst_rates none;
    static struct hst_rates rates;
    char cache[128];
    snprintf(cache, sizeof cache, "%s/cache", toy_store);
    for (unsigned at = 1; at < 40; at += at < 6 ? 1 : 9) {
        asked = 0;
        stop_at = at;
        rates.seconds = 1;
        assert_int_equal(hst_rates_get(&probe, cache, 3600, &rates), -ECANCELED);
        assert_true(rates.seconds == 1);
        asked = 0;
        assert_int_equal(hst_probe(&probe, &rates), -ECANCELED);
        assert_memory_equal(&rates, &none, sizeof rates);
        assert_int_equal(hst_rates_find(&probe, cache, 3600, &rates), -ENOENT);
    }
    stop_at = 0;
    assert_int_equal(hst_rates_get(&probe, cache, 3600, &rates), 0);
    assert_true(rates.figures[HST_RATE_READ].value > 0);
    assert_int_equal(hst_rates_find(&probe, cache, 3600, &rates), 0);
    char command[160];
    snprintf(command, sizeof command, "rm -r '%s'", cache);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_resume_stops_at_each_question_and_the_next_one_finds_the_version),
        cmocka_unit_test(a_comparison_of_all_bytes_stops_at_each_question),
        cmocka_unit_test(a_load_stops_at_each_question_and_leaves_no_store),
        cmocka_unit_test(a_probe_stops_at_each_question_and_is_not_remembered),
    };
    return cmocka_run_group_tests(tests, toy_make_store, toy_remove_store);
}
