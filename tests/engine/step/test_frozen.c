/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frozen tensors: which they are, what is refused and why; that they keep their bytes and have no
 * gradients, no states and no second slots; that what trains has the same bytes wherever it lives.
 */
#include "toy_run.h"

#include <hoistway/plan.h>
#include <hoistway/predict.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* The embedding and the first unit rest, the last one, tied to the embedding, does not. */
#define SOME .freeze = {"embed;a.*", "last"}

static struct hst_config config_of(const char *freeze, const char *only)
{
    return *TOY_CONFIG(.threads = 1, .freeze = {freeze}, .train_only = {only});
}

static int seal(const struct hst_config *config, struct hst_engine **engine)
{
    *engine = toy_created(config);
    assert_int_equal(toy_describe(*engine), 0);
    return hst_engine_seal(*engine, HST_ORDER_FORWARD);
}

/* ---- which ---- */

static void globs_name_what_is_frozen_or_what_is_not(void **state)
{
    (void)state;
    static const struct {
        const char *freeze, *only;
        struct hst_frozen want;
    } cases[] = {
        {"b.*", NULL, {2, 63 + 777 * 65, 1, 0}},
        {"a.*;b.*", NULL, {4, 64 + 64000 + 63 + 777 * 65, 2, 0}},
        {"he[a]d;last", NULL, {2, 64 + 2400 * 64, 2, 1}}, /* tied: the embedding, too */
        {NULL, "c.*", {6, 2400 * 64 + 64 + 64000 + 63 + 777 * 65 + 64, 4, 3}},
        {"b.*", "b.*;c.*", {6, 2400 * 64 + 64 + 64000 + 63 + 777 * 65 + 64, 4, 3}},
        {NULL, NULL, {0, 0, 0, 0}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct hst_config config = config_of(cases[i].freeze, cases[i].only);
        struct hst_engine *engine;
        struct hst_frozen frozen;
        assert_int_equal(seal(&config, &engine), 0);
        assert_int_equal(hst_engine_frozen(engine, &frozen), 0);
        assert_memory_equal(&frozen, &cases[i].want, sizeof frozen);
        hst_engine_destroy(&engine);
    }
}

static bool is_embed_or_c(const char *name)
{
    return strcmp(name, "embed") == 0 || strncmp(name, "c.", 2) == 0;
}

/* The flag of a tensor is as good as a glob, of which it needs none; globs add to it. */
static void a_flag_freezes_as_a_glob_does(void **state)
{
    (void)state;
    static struct toy_result want, got;
    const struct hst_config by_globs = config_of("embed;c.*;a.*;last", NULL);
    const struct hst_config by_flags = config_of("a.*;last", NULL);
    struct hst_engine *engine;
    struct hst_frozen frozen;
    toy_run(&by_globs, &want);
    toy_is_frozen = is_embed_or_c;
    toy_run(&by_flags, &got);
    assert_int_equal(seal(&by_flags, &engine), 0);
    toy_is_frozen = NULL;
    assert_int_equal(hst_engine_frozen(engine, &frozen), 0);
    assert_int_equal(frozen.params, 6);
    assert_true(hst_engine_is_frozen(engine, "c.w") && hst_engine_is_frozen(engine, "head"));
    assert_false(hst_engine_is_frozen(engine, "b.w") || hst_engine_is_frozen(engine, "none"));
    hst_engine_destroy(&engine);
    assert_int_equal(got.weights.used, want.weights.used);
    assert_memory_equal(got.weights.bytes, want.weights.bytes, want.weights.used);
    assert_memory_equal(got.norms, want.norms, sizeof got.norms);
}

static void what_cannot_be_frozen_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *freeze, *only, *why[2];
        enum hst_precision precision;
    } cases[] = {
        {"a.norms", NULL, {"--freeze 'a.norms': no tensor", "nearest is \"a.norm\""}, 0},
        {NULL, "*.nrom", {"--train-only '*.nrom': no tensor", ".norm\""}, 0},
        {"a.w", NULL, {"\"a.w\" is frozen and \"a.norm\" is not", "unit \"unit 1\""}, 0},
        {"embed", NULL, {"\"head\" is frozen and \"last\" is not", "unit \"unit 4\""}, 0},
        {NULL, "*.w", {"is frozen and \"", "globs that fit all tensors of a unit"}, 0},
        {"*", NULL, {"all tensors are frozen", "Fix: "}, 0},
        {"b.*", "b.*", {"all tensors are frozen", "Fix: "}, 0},
        {"b.*", NULL, {"--precision fp16 has no frozen tensors", "Fix: "}, HST_PRECISION_FP16},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hst_config config = config_of(cases[i].freeze, cases[i].only);
        struct hst_engine *engine;
        config.precision = cases[i].precision;
        assert_int_equal(seal(&config, &engine), -EINVAL);
        const struct hst_error *error = hst_engine_error(engine);
        assert_int_equal(error->code, HST_E_VALUE);
        for (int w = 0; w < 2; w++)
            if (!strstr(error->message, cases[i].why[w]))
                fail_msg("no %s in: %s", cases[i].why[w], error->message);
        hst_engine_destroy(&engine);
    }
}

static void globs_that_cannot_be_are_refused(void **state)
{
    (void)state;
    char text[256];
    memset(text, 'a', sizeof text);
    text[96] = '\0';
    const char *const cases[][2] = {{"", "no names"},       {"a b", "no names"},
                                    {"a;", "no names"},     {"it's", "no names"},
                                    {text, "more than 95"}, {"a;b;c;d;e;f;g;h;i", "more than 8"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hst_config config = config_of(NULL, cases[i][0]);
        struct hst_error error = {0};
        struct hst_engine *engine = NULL;
        config.error = &error;
        assert_int_equal(hst_engine_create(&config, &engine), -EINVAL);
        assert_int_equal(error.code, HST_E_VALUE);
        if (!strstr(error.message, cases[i][1]) || !strstr(error.message, "--train-only '"))
            fail_msg("'%s': %s", cases[i][0], error.message);
    }
}

static void a_group_of_frozen_tensors_is_refused(void **state)
{
    (void)state;
    struct hst_config config = config_of("b.*", NULL);
    struct hst_engine *engine;
    struct hst_group group;
    config.group[0] = "b.*:lr=2x";
    assert_int_equal(seal(&config, &engine), -EINVAL);
    assert_non_null(strstr(hst_engine_error(engine)->message,
                           "--group 'b.*:lr=2x': all its tensors are frozen"));
    hst_engine_destroy(&engine);
    config.group[0] = "[ab].*:lr=2x";
    assert_int_equal(seal(&config, &engine), 0);
    assert_int_equal(hst_engine_group(engine, 0, &group), 0);
    assert_int_equal(group.params, 2);
    hst_engine_destroy(&engine);
}

/* ---- a step ---- */

static void gradients_are_of_what_trains_and_the_first_units_have_no_backward(void **state)
{
    (void)state;
    const struct hst_config *config = TOY_CONFIG(.threads = 1, SOME);
    static const struct hst_visit want[] = {{0, HST_FORWARD},  {1, HST_FORWARD}, {2, HST_FORWARD},
                                            {3, HST_FORWARD},  {4, HST_FORWARD}, {4, HST_BACKWARD},
                                            {3, HST_BACKWARD}, {2, HST_BACKWARD}};
    struct hst_engine *engine = toy_created(config);
    struct hst_step_in in = {.size = sizeof in};
    struct hst_step step;
    const struct hst_visit *visits;
    const struct hst_unit_view *view;
    size_t count;
    toy_must(engine, toy_seal_and_load(engine));
    assert_int_equal(hst_engine_visits(engine, &visits, &count), 0);
    assert_int_equal(count, sizeof want / sizeof *want);
    assert_memory_equal(visits, want, sizeof want);
    toy_must(engine, hst_step_begin(engine, &in, &step));
    for (uint32_t u = TOY_UNITS; u-- > 2;) {
        toy_must(engine,
                 hst_unit_acquire(engine, u, HST_BACKWARD, hst_engine_stream(engine), &view));
        for (uint32_t i = 0; i < view->param_count; i++) {
            assert_non_null(view->param[i].data);
            assert_int_equal(view->param[i].grad == NULL, u == 4);
        }
        assert_int_equal(view->first_backward, u == 2); /* behind those that rest */
        toy_must(engine, hst_unit_grad_ready(engine, u));
        toy_must(engine, hst_unit_release(engine, u));
    }
    assert_int_equal(hst_unit_acquire(engine, 1, HST_BACKWARD, hst_engine_stream(engine), &view),
                     -EINVAL);
    hst_engine_destroy(&engine);
}

static uint64_t tiles_bytes(uint64_t elements, uint64_t each)
{
    return (elements + 4095) / 4096 * 4096 * each;
}

/* Of b and c alone: rows are whole blocks. */
static void memory_has_neither_states_nor_gradients_of_what_is_frozen(void **state)
{
    (void)state;
    static struct toy_result all, some;
    const uint64_t b = 64 + 777 * 65, c = 64 + 66000;
    toy_run(TOY_CONFIG(.threads = 1, .place = "weights=dram,states=dram"), &all);
    toy_run(TOY_CONFIG(.threads = 1, .place = "weights=dram,states=dram", SOME), &some);
    const struct hst_memory *a = &all.memory, *s = &some.memory;
    const uint64_t trained = tiles_bytes(b, 4) + tiles_bytes(c, 4);
    assert_int_equal(s->bytes[HST_CLASS_GRADS][HST_TIER_DRAM], trained);
    assert_int_equal(s->bytes[HST_CLASS_WEIGHTS][HST_TIER_DRAM],
                     a->bytes[HST_CLASS_WEIGHTS][HST_TIER_DRAM]);
    const uint64_t states = s->bytes[HST_CLASS_STATES][HST_TIER_DRAM];
    assert_true(states >= 2 * trained && states < 2 * trained + 8 * 4096);
    assert_true(states < a->bytes[HST_CLASS_STATES][HST_TIER_DRAM] / 2);
    /* the embedding's accumulator, which the tied one shares */
    assert_true(s->bytes[HST_CLASS_BUFFERS][HST_TIER_DRAM] + 2400 * 64 * 4 <=
                a->bytes[HST_CLASS_BUFFERS][HST_TIER_DRAM]);
    assert_true(s->bytes[HST_CLASS_ACTS][HST_TIER_DRAM] < a->bytes[HST_CLASS_ACTS][HST_TIER_DRAM]);
}

/* Optimistic updates have two slots of what is updated. */
static void what_is_frozen_has_no_second_slot(void **state)
{
    (void)state;
    static struct toy_result once, twice;
    const uint64_t trained = tiles_bytes(64 + 777 * 65, 4) + tiles_bytes(64 + 66000, 4);
    for (int nvme = 0; nvme < 2; nvme++) {
        const char *place = nvme ? "weights=nvme,states=nvme" : "weights=dram,states=dram";
        const enum hst_tier tier = nvme ? HST_TIER_NVME : HST_TIER_DRAM;
        toy_run(TOY_CONFIG(.threads = 1, .place = place, .update_time = HST_UPDATE_DEFERRED, SOME),
                &once);
        toy_run(
            TOY_CONFIG(.threads = 1, .place = place, .update_time = HST_UPDATE_OPTIMISTIC, SOME),
            &twice);
        assert_int_equal(twice.memory.bytes[HST_CLASS_WEIGHTS][tier],
                         once.memory.bytes[HST_CLASS_WEIGHTS][tier] + trained);
        assert_int_equal(twice.memory.bytes[HST_CLASS_STATES][tier],
                         2 * once.memory.bytes[HST_CLASS_STATES][tier]);
    }
}

/* ---- bytes ---- */

/* Elements of the embedding and of a are the first that are saved, that of `last` the last. */
static void assert_untouched(const struct toy_saved *saved)
{
    const float *at = (const float *)(const void *)saved->bytes;
    const size_t embed = 2400 * 64, count = saved->used / sizeof *at;
    for (size_t i = 0; i < embed; i++)
        assert_true(at[i] == toy_initial(0, i));
    for (size_t i = 0; i < 64; i++)
        assert_true(at[embed + i] == toy_initial(1, i) && at[count - 64 + i] == toy_initial(4, i));
    assert_true(at[embed + 64 + 64000] != toy_initial(2, 0)); /* this one trains */
}

static void empty_store(void)
{
    DIR *names = opendir(toy_store);
    assert_non_null(names);
    for (const struct dirent *e; (e = readdir(names)) != NULL;)
        (void)unlinkat(dirfd(names), e->d_name, 0);
    closedir(names);
}

static const char *const PLACES[] = {"weights=dram,states=dram", "weights=dram,states=nvme",
                                     "weights=nvme,states=dram",
                                     "weights=nvme,states=nvme,grads=nvme,acts=nvme"};
static const char *const FAR_PLACES[] = {"weights=hbm,acts=hbm",
                                         "weights=dram,states=dram,grads=dram,acts=dram",
                                         "weights=nvme,states=nvme,grads=nvme,acts=nvme"};

static void compare(const struct hst_config *config, const struct toy_result *want)
{
    static struct toy_result got;
    toy_run(config, &got);
    empty_store();
    assert_int_equal(got.weights.used, want->weights.used);
    if (memcmp(got.weights.bytes, want->weights.bytes, want->weights.used) != 0)
        fail_msg("other weights with %s, %s, update %d, clip %g, durability %s",
                 config->device ? config->device : "host", config->place, config->update_time,
                 config->clip, config->durability);
    assert_memory_equal(got.norms, want->norms, sizeof got.norms);
}

/* Everywhere, with a store and without. */
static void compare_places(const struct hst_config *of, const struct toy_result *want)
{
    struct hst_config config = *of;
    for (int stored = 0; stored < 2; stored++)
        for (size_t i = 0; i < 4 + 3; i++) {
            config.durability = stored ? "step" : "none";
            config.device = i < 4 ? NULL : "far";
            config.hbm_bytes = i < 4 ? 0 : 64u << 20;
            config.place = i < 4 ? PLACES[i] : FAR_PLACES[i - 4];
            const bool resident = i == 4, optimistic = config.update_time == HST_UPDATE_OPTIMISTIC;
            if (optimistic && (resident || stored))
                continue; /* what is resident has one slot; of a store all would be on drives */
            compare(&config, want);
        }
}

static void bytes_are_the_same_wherever_things_live(void **state)
{
    (void)state;
    static struct toy_result want;
    for (int i = 0; i < 2 * 3; i++) {
        struct hst_config config = *TOY_CONFIG(.threads = 2, .place = PLACES[0], SOME);
        config.precision = i % 2 ? HST_PRECISION_BF16 : HST_PRECISION_FP32;
        config.clip = i / 2 == 1 ? HST_NONE : 0.5;
        config.update_time = i / 2 == 1   ? HST_UPDATE_AUTO
                             : i / 2 == 2 ? HST_UPDATE_OPTIMISTIC
                                          : HST_UPDATE_DEFERRED;
        toy_run(&config, &want);
        if (config.precision == HST_PRECISION_FP32)
            assert_untouched(&want.weights);
        compare_places(&config, &want);
    }
}

/* ---- a store ---- */

static void a_resumed_run_goes_on_and_writes_nothing_that_is_frozen(void **state)
{
    (void)state;
    static struct toy_result whole;
    static struct toy_saved saved;
    struct hst_step_stats stats;
    for (size_t p = 0; p < 4; p++) {
        struct hst_config config = *TOY_CONFIG(.threads = 1, .place = PLACES[p], SOME);
        config.durability = "step";
        toy_run(&config, &whole);
        empty_store();
        struct hst_engine *engine = toy_created(&config);
        toy_must(engine, toy_seal_and_load(engine));
        for (int i = 0; i < TOY_STEPS / 2; i++)
            toy_must(engine, toy_step(engine, &stats));
        toy_must(engine, hst_engine_drain(engine, NULL));
        hst_engine_destroy(&engine);
        engine = toy_created(&config);
        uint64_t step;
        size_t bytes;
        toy_must(engine, toy_describe(engine));
        toy_must(engine, hst_engine_seal(engine, HST_ORDER_FORWARD));
        toy_must(engine, hst_engine_resume(engine, &step, NULL, 0, &bytes));
        assert_int_equal(step, TOY_STEPS / 2);
        for (int i = TOY_STEPS / 2; i < TOY_STEPS; i++)
            toy_must(engine, toy_step(engine, &stats));
        toy_must(engine, hst_engine_drain(engine, NULL));
        toy_must(engine, toy_save(engine, &saved));
        hst_engine_destroy(&engine);
        empty_store();
        assert_memory_equal(saved.bytes, whole.weights.bytes, saved.used);
        /* weights and states of b and c, in each step but the first */
        const uint64_t trained = tiles_bytes(64 + 777 * 65, 4) + tiles_bytes(64 + 66000, 4);
        assert_true(whole.nvme_write <= TOY_STEPS * (3 * trained + 16 * 4096) +
                                            TOY_STEPS * trained); /* and gradients */
    }
}

static void a_resume_with_other_globs_is_refused_with_both(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        {"embed;a.*;last", NULL, NULL}, /* as it was, though said otherwise */
        {"embed;last", NULL, "freeze 'a.*;embed;last', this run has freeze 'embed;last'"},
        {NULL, NULL, "trained with freeze 'a.*;embed;last', this run has less"},
        {NULL, "[bc].*", "freeze 'a.*;embed;last', this run has train-only '[bc].*'"}};
    struct hst_config config = *TOY_CONFIG(.threads = 1, SOME);
    static struct toy_result result;
    config.durability = "step";
    toy_run(&config, &result);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hst_engine *engine;
        uint64_t step;
        size_t bytes;
        config.freeze[0] = cases[i][0];
        config.freeze[1] = NULL;
        config.train_only[0] = cases[i][1];
        assert_int_equal(seal(&config, &engine), 0);
        const int rc = hst_engine_resume(engine, &step, NULL, 0, &bytes);
        const struct hst_error *error = hst_engine_error(engine);
        if (!cases[i][2])
            assert_int_equal(rc, 0);
        else if (error->code != HST_E_STORE_OTHER || !strstr(error->message, cases[i][2]))
            fail_msg("not '%s': E%d %s", cases[i][2], error->code, error->message);
        hst_engine_destroy(&engine);
    }
    empty_store();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(globs_name_what_is_frozen_or_what_is_not),
        cmocka_unit_test(a_flag_freezes_as_a_glob_does),
        cmocka_unit_test(what_cannot_be_frozen_is_refused),
        cmocka_unit_test(globs_that_cannot_be_are_refused),
        cmocka_unit_test(a_group_of_frozen_tensors_is_refused),
        cmocka_unit_test(gradients_are_of_what_trains_and_the_first_units_have_no_backward),
        cmocka_unit_test(memory_has_neither_states_nor_gradients_of_what_is_frozen),
        cmocka_unit_test(what_is_frozen_has_no_second_slot),
        cmocka_unit_test(bytes_are_the_same_wherever_things_live),
        cmocka_unit_test(a_resumed_run_goes_on_and_writes_nothing_that_is_frozen),
        cmocka_unit_test(a_resume_with_other_globs_is_refused_with_both),
    };
    return cmocka_run_group_tests(tests, toy_make_store, toy_remove_store);
}
