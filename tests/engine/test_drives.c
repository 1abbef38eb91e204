/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine on drives that a test describes: in memory with a latency of its own for every
 * request, and with each request failing in turn. The in-memory run is the oracle: a run ends with
 * its bytes, or with the right code. Seeds are printed; `--seed N` replays.
 */
#include "session/engine_state.h"
#include "short.h"
#include "toy_client.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    STEPS = 2,
    FAULT_STEPS = 1, /* many runs; of two steps with every operation failing: test_faults.c */
    STORE_BYTES = 256,
    TEXT_BYTES = 160,
};

static unsigned long long seed;
static char directory[] = "hst-drives-XXXXXX";
static struct toy_saved oracle, found; /* large: not on the stack */

static const char jittery[] = "sim:read=3G,write=2G,lat=80us,jitter=2ms";

#define PLACED(...)                                                                                \
    hst_config(.durability = "none", .batch_tokens = 10, .micro_batch_tokens = 4,                  \
               .dram_bytes = 64u << 20, .threads = 2, __VA_ARGS__)
#define CONFIG(...) PLACED(.place = "states=nvme,weights=nvme", .tile_elements = 65536, __VA_ARGS__)

/* Loads, trains, saves into `found`. Returns the first code; *error says why. */
static int run_once(const struct hst_config *config, int steps, struct hst_error *error,
                    struct hst_aio_counters *counters)
{
    struct hst_config c = *config;
    struct hst_engine *engine = NULL;
    struct hst_step_stats stats;
    memset(error, 0, sizeof *error);
    c.error = error;
    alarm(60); /* a hang ends the test */
    int rc = hst_engine_create(&c, &engine);
    if (rc)
        return rc;
    rc = toy_seal_and_load(engine);
    for (int s = 0; s < steps && rc == 0; s++)
        rc = toy_step(engine, &stats);
    rc = rc ? rc : toy_save(engine, &found);
    rc = rc ? rc : hst_engine_drain(engine, NULL);
    *error = *hst_engine_error(engine);
    if (rc) { /* sticky */
        struct hst_step step;
        assert_int_equal(error->native, rc);
        assert_int_equal(hst_step_begin(engine,
                                        &(struct hst_step_in){.size = sizeof(struct hst_step_in)},
                                        &step),
                         rc);
    }
    if (counters && engine->drives[0].aio)
        hst_aio_counters(engine->drives[0].aio, counters);
    hst_engine_destroy(&engine);
    alarm(0);
    return rc;
}

/*
 * What an ordinary user may lock counts for all processes of that user together, and what a buffer
 * pool held comes back some time after it: where a buffer pool is refused for it, another one is in
 * a moment.
 */
static int run(const struct hst_config *config, int steps, struct hst_error *error,
               struct hst_aio_counters *counters)
{
    const struct timespec moment = {.tv_nsec = 100000000};
    int rc = run_once(config, steps, error, counters);
    for (int i = 0; i < 100 && rc == -ENOMEM && error->code == HST_E_IO_URING; i++) {
        nanosleep(&moment, NULL);
        rc = run_once(config, steps, error, counters);
    }
    return rc;
}

static void run_oracle(enum hst_precision precision, int steps)
{
    struct hst_error error;
    assert_int_equal(run(PLACED(.precision = precision, .place = "states=dram,weights=dram"), steps,
                         &error, NULL),
                     0);
    oracle = found;
}

static void check_same_bytes(const char *what)
{
    if (found.used != oracle.used || memcmp(found.bytes, oracle.bytes, oracle.used) != 0)
        fail_msg("%s: other weights", what);
}

/* `count` directories between commas. */
static void name_stores(char stores[STORE_BYTES], int count)
{
    int used = 0;
    for (int i = 0; i < count; i++)
        used += snprintf(stores + used, (size_t)(STORE_BYTES - used), "%s%s/%d", i ? "," : "",
                         directory, i);
}

/* ---- drives that answer when they like ---- */

static void check_order_does_not_matter(enum hst_precision precision)
{
    char stores[STORE_BYTES], model[TEXT_BYTES];
    struct hst_error error;
    run_oracle(precision, STEPS);
    const int step = test_is_short() ? 5 : 1; /* no divisor of what changes below */
    for (int i = (int)(seed % (unsigned)step); i < 12; i += step) {
        name_stores(stores, i % 4 == 0 ? 3 : 1);
        snprintf(model, sizeof model, "%s,seed=%llu", jittery, seed + (unsigned)i);
        const int rc = run(PLACED(.precision = precision, .store = stores, .io_model = model,
                                  .tile_elements = i % 2 ? 4096 : 65536,
                                  .place = i % 3 ? "states=nvme,weights=nvme" : "states=nvme"),
                           STEPS, &error, NULL);
        if (rc)
            fail_msg("%s: E%d %s", model, error.code, error.message);
        check_same_bytes(model);
    }
}

static void fp32_weights_do_not_depend_on_when_drives_answer(void **state)
{
    (void)state;
    check_order_does_not_matter(HST_PRECISION_FP32);
}

static void bf16_weights_do_not_depend_on_when_drives_answer(void **state)
{
    (void)state;
    check_order_does_not_matter(HST_PRECISION_BF16);
}

static void answers_that_come_late_or_out_of_turn_change_nothing(void **state)
{
    static const char *const plans[] = {
        "op=any times=all odds=3 late=5ms", "op=read times=all reordered=2",
        "op=write times=all odds=2 reordered", "op=any times=all odds=20 err=EAGAIN",
        "op=any times=all odds=4 short=half"};
    static const char *const models[] = {jittery, NULL};
    (void)state;
    char stores[STORE_BYTES], plan[TEXT_BYTES];
    struct hst_error error;
    run_oracle(HST_PRECISION_FP32, STEPS);
    name_stores(stores, 1);
    for (size_t m = 0; m < 2; m++)
        for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
            snprintf(plan, sizeof plan, "%s; seed=%llu", plans[i], seed);
            const int rc = run(CONFIG(.store = stores, .io_model = models[m], .io_fault = plan),
                               STEPS, &error, NULL);
            if (rc)
                fail_msg("%s: E%d %s", plan, error.code, error.message);
            check_same_bytes(plan);
        }
}

/* ---- every request fails in turn; in the short form, and under a sanitizer, every seventh ---- */

static unsigned thinned(void)
{
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
    return 7;
#else
    return test_is_short() ? 7 : 1;
#endif
}

static const struct fault_kind {
    const char *op, *plan; /* the plan comes after "op=… nth=…" */
    int native;            /* how the run ends; 0: with the oracle's bytes */
    int code, other_code;  /* which it may be; the other: of what was under way as well */
    unsigned stride;       /* every so many requests: what takes the same way as another kind */
} kinds[] = {
    {"read", "err=EIO", 0, 0, 0, 1},
    {"read", "err=EIO times=all", -EIO, HST_E_READ, HST_E_READ, 1},
    {"read", "err=ENODEV", -ENODEV, HST_E_READ, HST_E_WRITE, 1},
    {"read", "vanish", -ENODEV, HST_E_READ, HST_E_WRITE, 5},
    {"read", "err=EILSEQ times=all", -EILSEQ, HST_E_READ, HST_E_READ, 5},
    {"read", "err=EREMOTEIO times=all", -EREMOTEIO, HST_E_READ, HST_E_READ, 5},
    {"read", "err=ETIMEDOUT", -ETIMEDOUT, HST_E_READ, HST_E_READ, 5},
    {"read", "err=EINVAL", -EINVAL, HST_E_READ, HST_E_READ, 5},
    {"read", "short=half", 0, 0, 0, 1},
    {"read", "short=512", 0, 0, 0, 5},
    {"read", "short=0 times=all", -ENODATA, HST_E_READ, HST_E_READ, 5},
    {"write", "err=EIO", 0, 0, 0, 1},
    {"write", "err=EIO times=all", -EIO, HST_E_WRITE, HST_E_WRITE, 1},
    {"write", "err=ENOSPC", -ENOSPC, HST_E_DISK_SPACE, HST_E_DISK_SPACE, 1},
    {"write", "err=EDQUOT", -EDQUOT, HST_E_DISK_SPACE, HST_E_DISK_SPACE, 5},
    {"write", "err=EROFS", -EROFS, HST_E_WRITE, HST_E_WRITE, 5},
    {"write", "err=EFBIG", -EFBIG, HST_E_WRITE, HST_E_WRITE, 5},
    {"write", "err=EINVAL", -EINVAL, HST_E_WRITE, HST_E_WRITE, 5},
    {"write", "err=ETIMEDOUT", -ETIMEDOUT, HST_E_WRITE, HST_E_WRITE, 5},
    {"write", "err=ENODEV", -ENODEV, HST_E_WRITE, HST_E_READ, 1},
    {"write", "short=half", 0, 0, 0, 1},
    {"write", "short=0", -ENOSPC, HST_E_DISK_SPACE, HST_E_DISK_SPACE, 5},
    {"write", "torn", 0, 0, 0, 1},
    {"write", "torn err=ENOSPC", -ENOSPC, HST_E_DISK_SPACE, HST_E_DISK_SPACE, 5},
};

static void check_fault(const struct hst_config *config, const struct fault_kind *kind,
                        unsigned long long request)
{
    char plan[TEXT_BYTES];
    struct hst_config c = *config;
    struct hst_error error;
    snprintf(plan, sizeof plan, "op=%s nth=%llu %s; seed=%llu", kind->op, request, kind->plan,
             seed + request);
    c.io_fault = plan;
    const int rc = run(&c, FAULT_STEPS, &error, NULL);
    if (rc != kind->native || (rc && error.code != kind->code && error.code != kind->other_code))
        fail_msg("%s: %d, E%d %s", plan, rc, error.code, error.message);
    if (rc == 0)
        check_same_bytes(plan);
    else
        assert_non_null(strstr(error.message, "Fix:"));
}

/* Of every `stride`-th request. */
static void check_faults(const struct hst_config *config, unsigned long long stride)
{
    struct hst_error error;
    struct hst_aio_counters counters = {0};
    run_oracle(config->precision, FAULT_STEPS);
    assert_int_equal(run(config, FAULT_STEPS, &error, &counters), 0);
    check_same_bytes("no fault");
    assert_int_equal(counters.requests, counters.reads + counters.writes); /* one each */
    if (counters.reads < 20 || counters.writes < 20)
        fail_msg("%llu reads and %llu writes are too few to fail",
                 (unsigned long long)counters.reads, (unsigned long long)counters.writes);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const bool read = strcmp(kinds[i].op, "read") == 0;
        const unsigned long long all = read ? counters.reads : counters.writes;
        const unsigned long long step = stride * kinds[i].stride * thinned();
        for (unsigned long long n = 1 + seed % step; n <= all; n += step)
            check_fault(config, &kinds[i], n);
    }
}

static void a_run_with_any_request_failing_is_right_or_says_why_on_sim(void **state)
{
    (void)state;
    char stores[STORE_BYTES];
    name_stores(stores, 1);
    check_faults(CONFIG(.store = stores, .io_model = jittery), 1);
}

/* In virtual time two minutes take none. */
static void a_drive_that_never_answers_ends_the_run(void **state)
{
    (void)state;
    char stores[STORE_BYTES], plan[TEXT_BYTES];
    struct hst_error error;
    struct hst_aio_counters counters = {0};
    const unsigned drives[] = {1, 3};
    for (size_t i = 0; i < sizeof drives / sizeof *drives; i++) {
        name_stores(stores, drives[i]);
        struct hst_config c = *CONFIG(.store = stores, .io_model = jittery);
        assert_int_equal(run(&c, FAULT_STEPS, &error, &counters), 0);
        const unsigned long long all = counters.reads + counters.writes;
        const unsigned stride =
            (drives[i] > 1 ? 97 : 5) * thinned(); /* several are measured first */
        for (unsigned long long n = 1 + seed % stride; n <= all; n += stride) {
            snprintf(plan, sizeof plan, "nth=%llu late=1000s", n);
            c.io_fault = plan;
            const int rc = run(&c, FAULT_STEPS, &error, NULL);
            if (rc == 0 && drives[i] > 1)
                continue; /* a plan counts each drive's requests: it had fewer */
            const bool measured = strstr(error.message, "failed the measurement of its rate");
            if (rc != -ETIMEDOUT || (!measured && !strstr(error.message, "for 120 s. Fix:")))
                fail_msg("%s: %d, E%d %s", plan, rc, error.code, error.message);
        }
    }
}

static void a_run_with_some_requests_failing_is_right_or_says_why_on_threads(void **state)
{
    (void)state;
    char stores[STORE_BYTES];
    name_stores(stores, 1);
    check_faults(CONFIG(.store = stores, .io = HST_IO_THREADS), 7);
}

static void a_run_with_some_requests_failing_is_right_or_says_why_on_io_uring(void **state)
{
    (void)state;
    char stores[STORE_BYTES];
    struct hst_error error;
    name_stores(stores, 1);
    const struct hst_config *config = CONFIG(.store = stores, .io = HST_IO_URING);
    if (run(config, STEPS, &error, NULL) && error.code == HST_E_IO_URING) {
        print_message("skipped: %s\n", error.message);
        skip();
    }
    check_faults(config, 7);
}

/* ---- what is refused ---- */

static void check_refused(const struct hst_config *config, const char *what)
{
    struct hst_error error;
    assert_int_equal(run(config, STEPS, &error, NULL), -EINVAL);
    assert_int_equal(error.code, HST_E_VALUE);
    if (!strstr(error.message, what))
        fail_msg("%s", error.message);
}

static void models_and_plans_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    char stores[STORE_BYTES];
    name_stores(stores, 1);
    check_refused(CONFIG(.io_model = jittery), "need a store");
    check_refused(CONFIG(.io_fault = "err=EIO"), "need a store");
    check_refused(CONFIG(.store = stores, .io_model = jittery, .io = HST_IO_THREADS), "io must be");
    check_refused(CONFIG(.store = stores, .io_model = "sim:read=1G,write=0"), "write=0:");
    check_refused(CONFIG(.store = stores, .io_fault = "nth=0 err=EIO"), "nth=0:");
}

static void the_memory_table_says_that_drives_are_simulated(void **state)
{
    (void)state;
    char stores[STORE_BYTES];
    struct hst_engine *engine = NULL;
    struct hst_memory memory;
    name_stores(stores, 2);
    assert_int_equal(hst_engine_create(CONFIG(.store = stores, .io_model = jittery), &engine), 0);
    assert_int_equal(toy_seal_and_load(engine), 0);
    assert_int_equal(hst_engine_memory(engine, &memory), 0);
    assert_string_equal(memory.io, "sim");
    hst_engine_destroy(&engine);
}

static int make_directory(void **state)
{
    (void)state;
    return mkdtemp(directory) ? 0 : -1;
}

static int remove_directory(void **state)
{
    (void)state;
    return rmdir(directory); /* fails where a run left something behind */
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fp32_weights_do_not_depend_on_when_drives_answer),
        cmocka_unit_test(bf16_weights_do_not_depend_on_when_drives_answer),
        cmocka_unit_test(answers_that_come_late_or_out_of_turn_change_nothing),
        cmocka_unit_test(a_run_with_any_request_failing_is_right_or_says_why_on_sim),
        cmocka_unit_test(a_drive_that_never_answers_ends_the_run),
        cmocka_unit_test(a_run_with_some_requests_failing_is_right_or_says_why_on_threads),
        cmocka_unit_test(a_run_with_some_requests_failing_is_right_or_says_why_on_io_uring),
        cmocka_unit_test(models_and_plans_that_make_no_sense_are_refused),
        cmocka_unit_test(the_memory_table_says_that_drives_are_simulated),
    };
    seed = test_turn();
    if (argc == 3 && strcmp(argv[1], "--seed") == 0)
        seed = strtoull(argv[2], NULL, 10);
    printf("replay with --seed %llu\n", seed);
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
