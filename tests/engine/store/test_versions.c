/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs that end at any step and are resumed, against one that did not end: the same bytes and
 * norms, wherever the bytes live. And what is refused. Every precision with every second placement,
 * with `--all` each with each, in the short form one in five and a third of the other rows.
 */
#include "session/engine_state.h"
#include "session/store/versions.h"
#include "short.h"
#include "smallest_budget.h"
#include "toy_run.h"
#include "toy_states.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { STEPS = 5 };

struct ran {
    struct toy_saved weights;
    struct toy_states states;
    double norms[STEPS + 1]; /* by step, from 1 on */
};
static struct ran oracle, found; /* large: not on the stack */

static const char *const PLACES[] = {
    "states=dram,weights=dram",
    "states=nvme,weights=dram",
    "states=dram,weights=nvme",
    "states=nvme,weights=nvme",
    "states=nvme,weights=nvme,grads=nvme,acts=nvme",
    "weights=hbm,grads=hbm,states=hbm",
    "weights=hbm,grads=hbm,states=hbm,acts=nvme", /* beside a file of its own */
    "carry=hbm",                                  /* some units in HBM, the others not */
};
enum { PLACE_COUNT = sizeof PLACES / sizeof *PLACES };

#define KEPT(...)                                                                                  \
    hst_config(.store = toy_store, .batch_tokens = 10, .micro_batch_tokens = 4,                    \
               .dram_bytes = 64u << 20, .threads = 2, .tile_elements = 8192, __VA_ARGS__)

static int tell_step_4 = -1; /* where to; it then waits to be killed */
static int turn, nth;        /* which row, and one in so many is tried */
static int start;            /* other rows than placements with precisions: from here on, */
static int stride;           /* one in so many */

static void place(struct hst_config *config, int p)
{
    const bool hbm = strstr(PLACES[p], "hbm") != NULL;
    config->place = PLACES[p];
    config->device = hbm ? "far" : NULL;
    config->hbm_bytes = hbm ? 64u << 20 : 0;
    if (config->precision == HST_PRECISION_DEFAULT) /* which is another one on each device */
        config->precision = HST_PRECISION_FP32;
    if (strcmp(PLACES[p], "carry=hbm") == 0 && config->state != HST_STATE_BF16)
        share_units(config, 64u << 20, toy_describe);
}

static void clear_store(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -f '%s'/r0*", toy_store);
    assert_int_equal(system(command), 0);
}

/* From load or from the last version to `last`; then it ends there, drained or not. Returns the
 * step that it began after. */
static uint64_t run(const struct hst_config *config, bool resume, uint64_t last, bool drain,
                    struct ran *ran)
{
    struct hst_engine *engine = toy_created(config);
    struct hst_step_stats stats;
    uint64_t began = 0, cursor = 0;
    size_t bytes = 0;
    toy_must(engine, toy_describe(engine));
    toy_must(engine, hst_engine_seal(engine, HST_ORDER_FORWARD));
    if (resume) {
        toy_must(engine, hst_engine_resume(engine, &began, &cursor, sizeof cursor, &bytes));
        assert_int_equal(bytes, began > 0 ? sizeof cursor : 0);
        assert_int_equal(cursor, began * 10);
    } else {
        toy_must(engine, toy_load(engine));
    }
    for (uint64_t s = began + 1; s <= last; s++) {
        struct hst_step at;
        uint64_t position = s * 10;
        struct hst_step_in in = {
            .size = sizeof in, .lr = TOY_LR, .cursor = &position, .cursor_bytes = sizeof position};
        toy_must(engine, hst_step_begin(engine, &in, &at));
        assert_int_equal(at.number, s);
        if (tell_step_4 >= 0 && s == 4) {
            assert_int_equal(write(tell_step_4, &s, sizeof s), sizeof s);
            pause();
        }
        toy_must(engine, toy_sweep(engine, at.loss_scale));
        toy_must(engine, hst_step_end(engine, &stats));
        ran->norms[s] = stats.grad_norm;
    }
    if (drain) {
        toy_must(engine, hst_engine_drain(engine, &stats));
        ran->weights.used = 0;
        toy_must(engine, toy_save(engine, &ran->weights));
        toy_must(engine, toy_states(engine, &ran->states));
    }
    hst_engine_destroy(&engine);
    return began;
}

static void check_same(const char *place, const char *what)
{
    if (found.weights.used != oracle.weights.used ||
        memcmp(found.weights.bytes, oracle.weights.bytes, oracle.weights.used) != 0)
        fail_msg("%s, %s: other weights", place, what);
    if (found.states.used != oracle.states.used ||
        memcmp(found.states.bytes, oracle.states.bytes, oracle.states.used) != 0)
        fail_msg("%s, %s: other states", place, what);
    for (int s = 1; s <= STEPS; s++)
        if (!(found.norms[s] == oracle.norms[s]))
            fail_msg("%s, %s: norm %.17g of step %d, %.17g without a break", place, what,
                     found.norms[s], s, oracle.norms[s]);
}

/* Ends after each step in turn, and goes on. */
static void check_breaks(struct hst_config config)
{
    config.durability = "none";
    config.place = "states=dram,weights=dram";
    run(&config, false, STEPS, true, &oracle);
    for (int p = 0; p < PLACE_COUNT; p++) {
        if (strstr(PLACES[p], "hbm") && config.state == HST_STATE_BF16)
            continue; /* it has no such update: the host makes it */
        if (turn++ % nth)
            continue;
        place(&config, p);
        found = (struct ran){0};
        config.durability = "step";
        run(&config, false, 1, true, &found);
        for (uint64_t last = 2; last <= STEPS; last++)
            assert_int_equal(run(&config, true, last, true, &found), last - 1);
        check_same(PLACES[p], "drained after each step");
        assert_int_equal(run(&config, true, STEPS, true, &found), STEPS);
        check_same(PLACES[p], "nothing more to do");
        clear_store();
        found = (struct ran){0};
        run(&config, false, 3, false, &found);
        /* The version of step 2 was begun in step 3, and may not have been made; steps that are
           skipped wait for none. */
        uint64_t least = config.loss_scale > 0 ? 0 : 1;
        assert_in_range(run(&config, true, 4, false, &found), least, 2);
        assert_in_range(run(&config, true, STEPS, true, &found), 2 * least, 3);
        check_same(PLACES[p], "left in the middle");
        clear_store();
    }
}

static void a_run_that_ends_is_resumed_exactly_in_fp32(void **state)
{
    (void)state;
    check_breaks(*KEPT(.precision = HST_PRECISION_FP32));
    check_breaks(*KEPT(.precision = HST_PRECISION_FP32, .clip = HST_NONE));
}

static void a_run_that_ends_is_resumed_exactly_in_bf16(void **state)
{
    (void)state;
    check_breaks(*KEPT(.precision = HST_PRECISION_BF16));
    check_breaks(*KEPT(.precision = HST_PRECISION_BF16, .state = HST_STATE_BF16));
    check_breaks(*KEPT(.precision = HST_PRECISION_BF16, .state = HST_STATE_8BIT));
}

static void a_run_that_ends_is_resumed_exactly_in_fp16(void **state)
{
    (void)state;
    check_breaks(*KEPT(.precision = HST_PRECISION_FP16));
    check_breaks(*KEPT(.precision = HST_PRECISION_FP16, .loss_scale = 0x1p32)); /* skips some */
}

static void versions_come_as_often_as_asked_for(void **state)
{
    (void)state;
    found = (struct ran){0};
    run(KEPT(.durability = "none", .place = PLACES[0]), false, STEPS, true, &oracle);
    for (int p = 1 + start; p < PLACE_COUNT; p += stride) {
        const int other = 1 + p % (PLACE_COUNT - 1);
        struct hst_config config = *KEPT(.durability = "3");
        place(&config, p);
        run(&config, false, STEPS, false, &found);
        place(&config, other);
        assert_int_equal(run(&config, true, STEPS, true, &found), 3);
        check_same(PLACES[other], "every third, resumed with other homes");
        clear_store();
    }
}

/* A device that updates likes larger tiles than the host: those of the store count. */
static void the_store_says_how_large_tiles_are(void **state)
{
    (void)state;
    struct hst_config config = *KEPT(.durability = "step");
    config.tile_elements = 0;
    for (int first = 0; first <= 5; first += 5) {
        place(&config, first);
        config.durability = "none";
        run(&config, false, STEPS, true, &oracle);
        config.durability = "step";
        found = (struct ran){0};
        run(&config, false, 2, true, &found);
        place(&config, 5 - first);
        assert_int_equal(run(&config, true, STEPS, true, &found), 2);
        check_same(config.place, "with the tiles of the store");
        clear_store();
    }
}

/* What is in a device's memory is copied for a version when it has been updated, and not before. */
static void updates_that_are_late_are_in_the_version(void **state)
{
    (void)state;
    struct hst_config config = *KEPT(.durability = "step", .precision = HST_PRECISION_BF16);
    place(&config, 0);
    config.durability = "none";
    run(&config, false, STEPS, true, &oracle);
    config.durability = "step";
    for (unsigned seed = 1 + (unsigned)start; seed <= 4; seed += (unsigned)stride) {
        char words[32];
        snprintf(words, sizeof words, "delay:%u", seed);
        assert_int_equal(setenv("HOISTWAY_FAR", words, 1), 0);
        place(&config, 5 + (int)seed % 2);
        found = (struct ran){0};
        run(&config, false, 3, false, &found);
        assert_in_range(run(&config, true, STEPS, true, &found), 1, 2);
        check_same(config.place, "updates that are late");
        clear_store();
    }
    unsetenv("HOISTWAY_FAR");
}

/* The child goes on from the last version, says when it has begun step 4, and is killed in it. */
static void run_until_killed(const struct hst_config *config)
{
    int ends[2], status;
    uint64_t told;
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        tell_step_4 = ends[1];
        run(config, true, STEPS, false, &found);
        _exit(0);
    }
    assert_int_equal(read(ends[0], &told, sizeof told), sizeof told);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    close(ends[0]);
    close(ends[1]);
}

static int chosen; /* notes of how often there is a version */

static void note_interval(void *context, enum hst_log_level level, const char *line)
{
    (void)context;
    (void)level;
    chosen += strncmp(line, "I620 a version every ", 21) == 0;
}

/* Left to the engine: at every step where that costs nothing, else as often as is told. */
static void versions_come_by_themselves(void **state)
{
    (void)state;
    found = (struct ran){0};
    run(KEPT(.place = PLACES[3], .log = note_interval), false, 4, false, &found);
    assert_in_range(run(KEPT(.place = PLACES[3]), true, 4, false, &found), 2, 3);
    assert_int_equal(chosen, 0);
    clear_store();
    run(KEPT(.place = PLACES[0], .log = note_interval), false, 4, false, &found);
    assert_int_equal(chosen, 1);
    clear_store();
}

/* Seconds of a step of which a version every so many steps takes 1 %. */
static void the_interval_is_the_least_that_takes_one_per_cent(void **state)
{
    (void)state;
    static const struct {
        double save_s, step_s;
        uint64_t every;
    } ROWS[] = {{0, 1, 1},        {0.0099, 1, 1}, {0.0101, 1, 2},         {0.5, 1, 50},
                {0.5, 0.25, 200}, {30, 2, 1500},  {1e9, 1e-9, 1000000000}};
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++)
        assert_int_equal(versions_interval(ROWS[i].save_s, ROWS[i].step_s), ROWS[i].every);
    struct hst_engine *engine = toy_created(KEPT(.place = PLACES[0]));
    struct hst_step_stats stats;
    toy_must(engine, toy_seal_and_load(engine));
    while (engine->versions.every == 0)
        toy_must(engine, toy_step(engine, &stats));
    assert_int_equal(stats.step, 2); /* the first one warms up */
    assert_int_equal(engine->versions.every,
                     versions_interval(engine->versions.save_s, stats.seconds));
    assert_int_equal(hst_engine_version(engine), 0);
    engine->versions.every = 4;
    for (uint64_t s = 3; s <= 9; s++) { /* that of step 4 comes in step 5, or soon after */
        toy_must(engine, toy_step(engine, &stats));
        assert_int_equal(hst_engine_version(engine) % 4, 0);
        assert_in_range(hst_engine_version(engine), s < 8 ? 0 : 4, s < 5 ? 0 : s < 9 ? 4 : 8);
    }
    hst_engine_destroy(&engine);
    clear_store();
}

static void several_drives_are_one_store(void **state)
{
    (void)state;
    char stores[128], command[128];
    snprintf(stores, sizeof stores, "%s/a,%s/b", toy_store, toy_store);
    struct hst_config config = *KEPT(.durability = "step");
    config.store = stores;
    run(KEPT(.durability = "none", .place = PLACES[0]), false, STEPS, true, &oracle);
    for (int p = 2 * start; p < PLACE_COUNT; p += 2 * stride) {
        found = (struct ran){0};
        place(&config, p);
        run(&config, false, 2, true, &found);
        assert_int_equal(run(&config, true, STEPS, true, &found), 2);
        check_same(PLACES[p], "on two drives");
        snprintf(command, sizeof command, "rm -r '%s'/a '%s'/b", toy_store, toy_store);
        assert_int_equal(system(command), 0);
    }
}

static uint64_t file_bytes(const char *directory, uint32_t drive)
{
    char path[160];
    struct stat status;
    snprintf(path, sizeof path, "%s/r00000.d%u.blk", directory, drive);
    assert_int_equal(stat(path, &status), 0);
    return (uint64_t)status.st_size;
}

/* Of a new store what its files will be; of one that is there what they are. */
static void check_table(const struct hst_config *config, bool resume, const char *first,
                        const char *second)
{
    struct hst_engine *engine = toy_created(config);
    struct hst_memory memory;
    uint64_t step;
    size_t bytes;
    toy_must(engine, toy_describe(engine));
    toy_must(engine, hst_engine_seal(engine, HST_ORDER_FORWARD));
    toy_must(engine, hst_engine_memory(engine, &memory));
    toy_must(engine, resume ? hst_engine_resume(engine, &step, NULL, 0, &bytes) : toy_load(engine));
    hst_engine_destroy(&engine);
    const uint64_t files = file_bytes(first, 0) + (second ? file_bytes(second, 1) : 0);
    uint64_t sum = 0;
    for (int c = 0; c < HST_CLASS_COUNT; c++)
        sum += memory.bytes[c][HST_TIER_NVME];
    /* what is there is counted in blocks of the file system, its own tables of them too */
    const uint64_t slack = resume ? 64u << 10 : 0;
    assert_in_range(memory.total[HST_TIER_NVME], files, files + slack);
    assert_int_equal(sum, memory.total[HST_TIER_NVME]);
    assert_true(memory.bytes[HST_CLASS_BUFFERS][HST_TIER_NVME] >= 20u << 20); /* tables alone */
}

static void the_memory_table_counts_every_byte_of_the_store(void **state)
{
    (void)state;
    static const enum hst_precision PRECISIONS[] = {HST_PRECISION_FP32, HST_PRECISION_BF16,
                                                    HST_PRECISION_FP16};
    char stores[128], a[64], b[64], command[160];
    snprintf(a, sizeof a, "%s/a", toy_store);
    snprintf(b, sizeof b, "%s/b", toy_store);
    snprintf(stores, sizeof stores, "%s,%s", a, b);
    for (int i = 0; i < 3; i++) {
        struct hst_config config = *KEPT(.precision = PRECISIONS[i], .place = PLACES[i]);
        config.durability = "step";
        check_table(&config, false, toy_store, NULL);
        check_table(&config, true, toy_store, NULL);
        clear_store();
        config.store = stores;
        check_table(&config, false, a, b);
        check_table(&config, true, a, b);
        snprintf(command, sizeof command, "rm -r '%s' '%s'", a, b);
        assert_int_equal(system(command), 0);
    }
}

static void the_loss_scale_goes_on_counting(void **state)
{
    (void)state;
    const struct hst_config *config =
        KEPT(.durability = "step", .place = PLACES[1], .precision = HST_PRECISION_FP16);
    for (uint64_t last = 1; last <= 2; last++) {
        struct hst_engine *engine = toy_created(config);
        struct hst_step_stats stats;
        uint64_t began = 0;
        size_t bytes;
        toy_must(engine, toy_describe(engine));
        toy_must(engine, hst_engine_seal(engine, HST_ORDER_FORWARD));
        if (last == 1)
            toy_must(engine, toy_load(engine));
        else
            toy_must(engine, hst_engine_resume(engine, &began, NULL, 0, &bytes));
        assert_int_equal(engine->standing.scale.good_steps, began);
        toy_must(engine, toy_step(engine, &stats));
        assert_int_equal(engine->standing.scale.good_steps, last);
        toy_must(engine, hst_engine_drain(engine, &stats));
        hst_engine_destroy(&engine);
    }
    clear_store();
}

static void a_killed_run_is_resumed_exactly(void **state)
{
    (void)state;
    run(KEPT(.durability = "none", .place = PLACES[0]), false, STEPS, true, &oracle);
    for (int p = start; p < PLACE_COUNT; p += stride) {
        found = (struct ran){0};
        struct hst_config config = *KEPT(.durability = "step");
        place(&config, p);
        run(&config, false, 1, true, &found);
        run_until_killed(&config);
        uint64_t began = run(&config, true, STEPS, true, &found);
        assert_in_range(began, 1,
                        2); /* that of step 3 comes in step 4, that of 2 may be on its way */
        for (uint64_t s = 2; s <= began; s++)
            found.norms[s] = oracle.norms[s]; /* the child's */
        check_same(PLACES[p], "killed");
        clear_store();
    }
}

static void visit_backward(struct hst_engine *engine, uint32_t unit)
{
    const struct hst_unit_view *view;
    toy_must(engine,
             hst_unit_acquire(engine, unit, HST_BACKWARD, hst_engine_stream(engine), &view));
    toy_must(engine, toy_add_gradients(engine, unit, view, 1));
    toy_must(engine, hst_unit_grad_ready(engine, unit));
    toy_must(engine, hst_unit_release(engine, unit));
}

/* Without clipping a backward's update follows at once: when the client then leaves the order, and
 * a version of the step before is due, its bytes are gone. */
static void a_version_has_nothing_of_the_next_step(void **state)
{
    (void)state;
    const struct hst_step_in in = {.size = sizeof in, .lr = TOY_LR};
    for (int i = 0; i < 3; i++) {
        struct hst_config config = *KEPT(.durability = "1000", .clip = HST_NONE);
        struct hst_step_stats stats;
        struct hst_step at;
        place(&config, i == 1 ? 5 : 0);
        if (i == 2) { /* the device updates all that is in host memory */
            config.device = "far";
            config.hbm_bytes = 64u << 20;
            config.gpu_update = 1;
        }
        struct hst_engine *engine = toy_created(&config);
        toy_must(engine, toy_seal_and_load(engine));
        toy_must(engine, toy_step(engine, &stats));
        toy_must(engine, toy_step(engine, &stats));
        toy_must(engine, hst_step_begin(engine, &in, &at));
        engine->versions.every = 1; /* the step window has no version, and now one is due */
        visit_backward(engine, TOY_UNITS - 1);
        visit_backward(engine, 1);
        hst_engine_destroy(&engine);
        assert_int_equal(run(&config, true, 0, false, &found), 0);
        clear_store();
    }
}

static void refuse(const struct hst_config *config, bool resume, int code, const char *what)
{
    struct hst_engine *engine = NULL;
    struct hst_error error = {0};
    struct hst_config c = *config;
    uint64_t step;
    size_t bytes;
    c.error = &error;
    int rc = hst_engine_create(&c, &engine);
    if (rc == 0) {
        toy_must(engine, toy_describe(engine));
        rc = hst_engine_seal(engine, HST_ORDER_FORWARD);
        rc = rc       ? rc
             : resume ? hst_engine_resume(engine, &step, NULL, 0, &bytes)
                      : toy_load(engine);
        error = *hst_engine_error(engine);
        hst_engine_destroy(&engine);
    }
    assert_true(rc < 0);
    if (error.code != code || !strstr(error.message, what))
        fail_msg("%d, E%d %s; want E%d with \"%s\"", rc, error.code, error.message, code, what);
}

static bool accept_none(void *context, uint64_t step, const void *cursor, size_t cursor_bytes)
{
    uint64_t position = 0;
    assert_null(context);
    assert_int_equal(step, 1);
    assert_int_equal(cursor_bytes, sizeof position);
    memcpy(&position, cursor, sizeof position);
    assert_int_equal(position, 10);
    return false;
}

static void what_does_not_belong_together_is_refused_by_name(void **state)
{
    (void)state;
    struct hst_config config = *KEPT(.durability = "step", .place = PLACES[1]);
    clear_store();
    refuse(&config, true, 0, ""); /* nothing was ever committed: no sticky error */
    run(&config, false, 1, true, &found);
    refuse(&config, false, HST_E_STORE_TAKEN, "resume");
    refuse(KEPT(.durability = "step", .beta1 = 0.8), true, HST_E_STORE_OTHER,
           "trained with betas 0.9,0.999, this run has betas 0.8,0.999.");
    refuse(KEPT(.durability = "step", .clip = 2), true, HST_E_STORE_OTHER, "clip 1, this run has");
    refuse(KEPT(.durability = "step", .precision = HST_PRECISION_BF16), true, HST_E_STORE_OTHER,
           "trained with precision fp32, this run has precision bf16.");
    struct hst_config cut = config;
    cut.tile_elements = 4096;
    refuse(&cut, true, HST_E_STORE_OTHER,
           "trained with tile-elements 8192, this run has tile-elements 4096.");
    config.accept = accept_none;
    refuse(&config, true, HST_E_STORE_OTHER, "step 1 is refused by the program");
    config.accept = NULL;
    config.state = HST_STATE_FP32; /* what the default is */
    assert_int_equal(run(&config, true, 1, true, &found), 1);
    refuse(KEPT(.durability = "none"), true, HST_E_VALUE, "no store to resume from");
    refuse(KEPT(.durability = "often"), false, HST_E_VALUE, "(got 'often'");
    refuse(KEPT(.durability = "0"), false, HST_E_VALUE, "(got '0', want a whole number from 1");
    clear_store();
}

int main(int argc, char **argv)
{
    const bool all = argc > 1 && strcmp(argv[1], "--all") == 0;
    const bool is_short = !all && test_is_short();
    const unsigned today = is_short ? test_turn() : 0;
    nth = all ? 1 : is_short ? 5 : 2;
    turn = (int)(today % (unsigned)nth);
    stride = is_short ? 3 : 1;
    start = (int)(today % (unsigned)stride);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_that_ends_is_resumed_exactly_in_fp32),
        cmocka_unit_test(a_run_that_ends_is_resumed_exactly_in_bf16),
        cmocka_unit_test(a_run_that_ends_is_resumed_exactly_in_fp16),
        cmocka_unit_test(versions_come_as_often_as_asked_for),
        cmocka_unit_test(updates_that_are_late_are_in_the_version),
        cmocka_unit_test(the_store_says_how_large_tiles_are),
        cmocka_unit_test(versions_come_by_themselves),
        cmocka_unit_test(the_interval_is_the_least_that_takes_one_per_cent),
        cmocka_unit_test(several_drives_are_one_store),
        cmocka_unit_test(the_memory_table_counts_every_byte_of_the_store),
        cmocka_unit_test(the_loss_scale_goes_on_counting),
        cmocka_unit_test(a_killed_run_is_resumed_exactly),
        cmocka_unit_test(a_version_has_nothing_of_the_next_step),
        cmocka_unit_test(what_does_not_belong_together_is_refused_by_name),
    };
    alarm(200); /* a hang ends the test */
    return cmocka_run_group_tests(tests, toy_make_store, toy_remove_store);
}
