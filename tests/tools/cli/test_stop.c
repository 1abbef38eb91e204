/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run that a signal has stopped while it starts; and one whose drive then fails, at each request
 * in turn: test_stop MODEL. There the signal comes after the second step, and from there on only
 * the last version is written. And a run whose first steps are not as predicted, until a signal.
 */
#include "verbs/train/train.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <hoistway/machine.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STOPPED_AFTER = 2, REQUESTS_MOST = 2000, AGAIN_AFTER = 7 };

static char folder[] = "/tmp/hoistway-stop-XXXXXX";
static char model[4096], tokens[4200];
static volatile sig_atomic_t stopped;
static unsigned steps, steps_most = STOPPED_AFTER;

int __real_data_read(struct data *data, uint64_t index, size_t count,
                     const struct data_batch *batch, struct hst_error *error);
int __wrap_data_read(struct data *data, uint64_t index, size_t count,
                     const struct data_batch *batch, struct hst_error *error);

/* Each step reads once. */
int __wrap_data_read(struct data *data, uint64_t index, size_t count,
                     const struct data_batch *batch, struct hst_error *error)
{
    if (++steps == steps_most)
        stopped = SIGTERM;
    return __real_data_read(data, index, count, batch, error);
}

/* Where a signal comes while something takes its time: in a probe, or once there is an engine. */
static enum moment { AFTER_STEPS = 0, IN_PROBE, IN_ENGINE } moment;
static unsigned asked;        /* whether to stop, and told so */
static unsigned probes, anew; /* questions for rates; those that take none of the cache */
static bool drives_fill_up;   /* until rates are measured anew */

static void come(enum moment here, int (*is_stopped)(void *context), void *context)
{
    if (moment != here)
        return;
    assert_non_null(is_stopped);
    assert_int_equal(is_stopped(context), 0);
    stopped = SIGTERM;
    asked += is_stopped(context) != 0;
}

int __real_hst_rates_get(const struct hst_probe *probe, const char *cache, double max_age_s,
                         struct hst_rates *rates);
int __wrap_hst_rates_get(const struct hst_probe *probe, const char *cache, double max_age_s,
                         struct hst_rates *rates);
int __real_hst_engine_predict(struct hst_engine *engine, const struct hst_rates *rates,
                              struct hst_prediction *prediction);
int __wrap_hst_engine_predict(struct hst_engine *engine, const struct hst_rates *rates,
                              struct hst_prediction *prediction);
int __real_hst_engine_decision(const struct hst_engine *engine, struct hst_decision *decision);
int __wrap_hst_engine_decision(const struct hst_engine *engine, struct hst_decision *decision);
int __real_hst_engine_create(const struct hst_config *config, struct hst_engine **engine);
int __wrap_hst_engine_create(const struct hst_config *config, struct hst_engine **engine);

int __wrap_hst_rates_get(const struct hst_probe *probe, const char *cache, double max_age_s,
                         struct hst_rates *rates)
{
    come(IN_PROBE, probe->stopped, probe->stopped_context);
    probes++;
    anew += max_age_s == 0; /* NOLINT(clang-diagnostic-float-equal): as it was given */
    const int rc = __real_hst_rates_get(probe, cache, max_age_s, rates);
    if (drives_fill_up && max_age_s <= 0)
        rates->figures[HST_RATE_WRITE] = (struct hst_figure){.how = "the drive is full"};
    return rc;
}

int __wrap_hst_engine_create(const struct hst_config *config, struct hst_engine **engine)
{
    come(IN_ENGINE, config->stopped, config->stopped_context);
    return __real_hst_engine_create(config, engine);
}

/* What a run is made to believe of its steps; 0: what was predicted. */
static double predicted_s, planned_s;
static unsigned predictions;

int __wrap_hst_engine_predict(struct hst_engine *engine, const struct hst_rates *rates,
                              struct hst_prediction *prediction)
{
    int rc = __real_hst_engine_predict(engine, rates, prediction);
    predictions++;
    if (predicted_s > 0)
        *prediction = (struct hst_prediction){.step_s = predicted_s, .bound_s = predicted_s / 2};
    return rc;
}

int __wrap_hst_engine_decision(const struct hst_engine *engine, struct hst_decision *decision)
{
    int rc = __real_hst_engine_decision(engine, decision);
    decision->step_s = planned_s;
    return rc;
}

static int set_up(void **state)
{
    (void)state;
    return mkdtemp(folder) && chdir(folder) == 0 ? setenv("XDG_CACHE_HOME", folder, 1) : -1;
}

static int tear_down(void **state)
{
    (void)state;
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return chdir("/") == 0 ? system(command) : -1;
}

struct outcome {
    int native;
    struct train_result result;
    struct hst_error error;
    char told[4096]; /* on stderr */
};

static void read_told(char told[4096])
{
    FILE *file = fopen("stderr", "r");
    assert_non_null(file);
    told[fread(told, 1, 4095, file)] = '\0';
    fclose(file);
}

static uint64_t dram_bytes; /* 0: what is free */

static void run(const char *fault, struct outcome *outcome)
{
    struct train_options options;
    train_options_init(&options);
    options.engine.device = "host";
    options.engine.threads = 1;
    options.engine.store = "store";
    options.engine.io = HST_IO_THREADS;
    options.engine.batch_tokens = 48;
    options.engine.durability = "1000000"; /* at the beginning and the end alone */
    options.engine.io_fault = fault;
    options.model = model;
    options.data = tokens;
    options.init = TRAIN_INIT_RANDOM;
    options.seq_len = 24;
    options.steps = 1000000;
    options.quiet = moment == AFTER_STEPS && predicted_s <= 0; /* else rates are measured */
    const bool drives = moment == IN_PROBE || predicted_s > 0;
    options.engine.place = drives ? "states=nvme,weights=nvme" : NULL;
    options.engine.dram_bytes = dram_bytes;
    options.stopped = &stopped;
    stopped = 0;
    steps = asked = probes = anew = predictions = 0;
    *outcome = (struct outcome){0};
    assert_int_equal(system("rm -rf store"), 0);
    fflush(stderr);
    int saved = dup(STDERR_FILENO), file = open("stderr", O_CREAT | O_TRUNC | O_WRONLY, 0600);
    assert_true(saved >= 0 && dup2(file, STDERR_FILENO) >= 0);
    outcome->native = train_run(&options, &outcome->result, &outcome->error);
    fflush(stderr);
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(file);
    read_told(outcome->told);
}

static void without_a_failure_it_is_resumable_from_its_last_step(void **state)
{
    (void)state;
    struct outcome outcome;
    run(NULL, &outcome);
    assert_int_equal(outcome.native, -ECANCELED);
    assert_true(outcome.result.resumable);
    assert_non_null(strstr(outcome.told, "after 2 of 1000000 steps: the store holds step 2, "));
}

static void a_drive_that_fails_after_the_signal_is_told_and_is_not_resumable(void **state)
{
    (void)state;
    struct outcome outcome;
    unsigned after = 0, n = 1;
    for (; n < REQUESTS_MOST; n++) {
        char fault[64];
        snprintf(fault, sizeof fault, "nth=%u vanish err=EIO", n);
        run(fault, &outcome);
        if (outcome.native == -ECANCELED)
            break;
        assert_true(outcome.native < 0 && outcome.error.code > 0 && outcome.error.message[0]);
        assert_false(outcome.result.resumable);
        if (!stopped)
            continue;
        after++;
        assert_non_null(strstr(outcome.told, "stopped (Terminated) after 2 of 1000000 steps: the "
                                             "store holds step 0, "));
    }
    assert_true(n < REQUESTS_MOST && after >= 3);
    assert_non_null(strstr(outcome.told, "the store holds step 2, "));
}

static void who_measures_and_the_engine_ask_whether_to_stop(void **state)
{
    (void)state;
    struct outcome outcome;
    for (moment = IN_PROBE; moment <= IN_ENGINE; moment++) {
        run(NULL, &outcome);
        assert_int_equal(asked, 1);
        assert_int_equal(outcome.native, -ECANCELED);
        assert_true(outcome.result.resumable);
        assert_non_null(strstr(outcome.told, "before its first step: the store holds no version"));
    }
    moment = AFTER_STEPS;
}

/* A run of AGAIN_AFTER steps that was to take a second of each, and of a million. */
static void run_until_again(double predicted, double planned, struct outcome *outcome)
{
    predicted_s = predicted;
    planned_s = planned;
    steps_most = AGAIN_AFTER;
    run(NULL, outcome);
    predicted_s = planned_s = 0;
    steps_most = STOPPED_AFTER;
    assert_int_equal(outcome->native, -ECANCELED);
    assert_non_null(strstr(outcome->told, " after 7 of 1000000 steps"));
}

static void what_first_steps_refute_is_measured_again_once(void **state)
{
    (void)state;
    struct outcome outcome;
    run_until_again(1000, 0, &outcome);
    assert_int_equal(predictions, 2);
    assert_int_equal(anew, 1); /* the drives */
    const char *said = strstr(outcome.told, "note[I108] a step took ");
    assert_non_null(said);
    assert_non_null(strstr(said, ", 1e+03 s were predicted: rates were measured again in "));
    assert_null(strstr(said + 1, "note[I108]"));
    unsigned drives = probes;
    run_until_again(1000, 1000, &outcome); /* by what the plan knew: all of it */
    assert_int_equal(predictions, 2);
    assert_true(anew >= 3 && probes > drives);
    dram_bytes = UINT64_C(64) << 20;
    run_until_again(1000, 0, &outcome);
    dram_bytes = 0;
    assert_int_equal(predictions, 1);
    assert_int_equal(anew, 0);
    assert_non_null(strstr(outcome.told, "Rates are not measured again, as the budgets leave no "));
}

static void rates_that_know_less_are_thrown_away_and_it_is_said(void **state)
{
    (void)state;
    struct outcome outcome;
    drives_fill_up = true;
    run_until_again(1000, 0, &outcome);
    drives_fill_up = false;
    assert_int_equal(anew, 1);
    assert_int_equal(predictions, 1);
    assert_non_null(strstr(outcome.told, "but not all (write: the drive is full). The prediction "
                                         "stays that of the rates of before. Fix: "));
    assert_null(strstr(outcome.told, "are predicted. Homes"));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_measures_and_the_engine_ask_whether_to_stop),
        cmocka_unit_test(what_first_steps_refute_is_measured_again_once),
        cmocka_unit_test(rates_that_know_less_are_thrown_away_and_it_is_said),
        cmocka_unit_test(without_a_failure_it_is_resumable_from_its_last_step),
        cmocka_unit_test(a_drive_that_fails_after_the_signal_is_told_and_is_not_resumable),
    };
    if (argc != 2)
        return 2;
    snprintf(model, sizeof model, "%s", argv[1]);
    snprintf(tokens, sizeof tokens, "%s/tokens.bin", argv[1]);
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
