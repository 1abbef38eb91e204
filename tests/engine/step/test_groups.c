/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of tensors: what their texts mean, which tensors they have, what is refused and why. */
#include "optimizer/optimizer.h"
#include "toy_client.h"

#include <hoistway/plan.h>
#include <hoistway/predict.h>

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct hst_config config_of(const char *group, const char *other)
{
    return (struct hst_config){.size = sizeof(struct hst_config),
                               .batch_tokens = 4,
                               .micro_batch_tokens = 4,
                               .dram_bytes = 64u << 20,
                               .threads = 1,
                               .group = {group, other}};
}

static void numbers_are_those_of_all_but_for_what_a_group_says(void **state)
{
    (void)state;
    struct hst_config c = config_of("z:decay=0.5,lr=0.10x;*.norm:beta2=0.5", "b[:x]c:eps=1e-3");
    struct optimizer_groups groups;
    char text[HST_OPTION_TEXTS_BYTES], why[HST_WHY_BYTES];
    optimizer_resolve(&c);
    assert_true(optimizer_groups_read(&c, &groups, why));
    assert_int_equal(groups.count, 4);
    const struct optimizer_group *all = &groups.list[0].numbers, *norm = &groups.list[1].numbers;
    const struct optimizer_group *colon = &groups.list[2].numbers, *z = &groups.list[3].numbers;
    assert_true(all->lr_factor == 1 && all->beta2 == 0.999 && !all->decays_all);
    assert_true(norm->lr_factor == 1 && norm->beta2 == 0.5 && !norm->decays_all);
    assert_true(norm->weight_decay == 0.01);
    assert_string_equal(groups.list[2].glob, "b[:x]c");
    assert_true(colon->eps == 1e-3 && colon->beta1 == 0.9);
    assert_true(z->lr_factor == 0.1 && z->weight_decay == 0.5 && z->decays_all);
    optimizer_groups_say(&groups, &c);
    (void)optimizer_settings_write(&c, text, sizeof text);
    assert_string_equal(text, "betas 0.9,0.999\neps 1e-08\nweight-decay 0.01\n"
                              "group '*.norm:beta2=0.5;b[:x]c:eps=0.001;z:lr=0.1x,decay=0.5'\n");
}

static void coefficients_are_each_groups_own(void **state)
{
    (void)state;
    struct hst_config c = config_of("a:lr=0.5x", "b:decay=0.2");
    struct optimizer_groups groups;
    char why[HST_WHY_BYTES];
    struct optimizer_coefs coefs, halved;
    const struct optimizer *row =
        optimizer_find(HST_OPTIMIZER_ADAMW, HST_PRECISION_FP32, HST_STATE_FP32);
    const struct optimizer_step step = {.lr = 0.01, .t = 3, .grad_scale = 1};
    const struct optimizer_step half = {.lr = 0.005, .t = 3, .grad_scale = 1};
    optimizer_resolve(&c);
    assert_true(optimizer_groups_read(&c, &groups, why));
    assert_int_equal(optimizer_coefs_init(row, &groups, &step, &coefs), 0);
    assert_int_equal(optimizer_coefs_init(row, &groups, &half, &halved), 0);
    for (int decays = 0; decays < 2; decays++)
        assert_memory_equal(optimizer_coef(&coefs, 1, decays), optimizer_coef(&halved, 0, decays),
                            sizeof(struct optimizer_coef));
    assert_memory_equal(optimizer_coef(&coefs, 2, true), optimizer_coef(&coefs, 2, false),
                        sizeof(struct optimizer_coef));
    assert_true(optimizer_coef(&coefs, 0, false)->host.decay == 0);
}

static void texts_that_mean_no_group_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *why;
        enum hst_optimizer optimizer;
    } cases[] = {
        {"*.norm", "no names and numbers", 0},
        {":lr=1x", "no names and numbers", 0},
        {"a b:lr=1x", "no names and numbers", 0},
        {"a:", "'': no number of a group", 0},
        {"a:lr=1x,", "'': no number of a group", 0},
        {"a:lr", "'lr': no number", 0},
        {"a:rate=1", "'rate=1': no number", 0},
        {"a:lr=1e-4", "it is a factor of --lr. Fix: lr=0.1x", 0},
        {"a:lr=x", "'lr=x': ", 0},
        {"a:lr=0.1x,lr=1x", "twice", 0},
        {"a:lr=-1x", "'lr=-1x': ", 0},
        {"a:beta1=1", "out of range", 0},
        {"a:eps=0", "out of range", 0},
        {"a:decay=nan", "not understood", 0},
        {"a:momentum=0.5", "--optimizer has no such number", 0},
        {"a:eps=1e-3", "--optimizer has no such number", HST_OPTIMIZER_LION},
        {"a:lr=1x;", "no names and numbers", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hst_config c = config_of(cases[i].text, NULL);
        char why[HST_WHY_BYTES];
        c.optimizer = cases[i].optimizer;
        if (hst_config_optimizer(&c, why))
            fail_msg("'%s' is taken", cases[i].text);
        if (!strstr(why, cases[i].why))
            fail_msg("'%s': %s", cases[i].text, why);
    }
}

static void too_many_or_too_long_ones_are_refused(void **state)
{
    (void)state;
    char why[HST_WHY_BYTES], text[256];
    struct hst_config c = config_of("a:lr=1x;b:lr=1x;c:lr=1x;d:lr=1x", "e:lr=1x;f:lr=1x;g:lr=1x");
    assert_true(hst_config_optimizer(&c, why));
    c.group[2] = "h:lr=1x";
    assert_true(hst_config_optimizer(&c, why));
    c.group[2] = "h:lr=1x;i:lr=1x";
    assert_false(hst_config_optimizer(&c, why));
    assert_non_null(strstr(why, "more than 8"));
    memset(text, 'a', sizeof text);
    strcpy(text + 95, ":lr=1x,beta1=0.123456789,beta2=0.123456789");
    c = config_of(text, NULL);
    assert_false(hst_config_optimizer(&c, why));
    assert_non_null(strstr(why, "more than 127 characters"));
    memset(text, 'a', sizeof text);
    strcpy(text + 96, ":lr=1x");
    assert_false(hst_config_optimizer(&c, why));
    assert_non_null(strstr(why, "more than 95 characters"));
}

static void seal(const char *group, const char *other, struct hst_engine **engine)
{
    const struct hst_config c = config_of(group, other);
    assert_int_equal(hst_engine_create(&c, engine), 0);
    assert_int_equal(toy_describe(*engine), 0);
}

static void a_group_has_the_tensors_that_its_glob_fits(void **state)
{
    (void)state;
    struct hst_engine *engine = NULL;
    struct hst_group group;
    seal("head:lr=0.5x", "[ab].*:decay=0", &engine);
    assert_int_equal(hst_engine_group(engine, 0, &group), -EINVAL);
    assert_int_equal(hst_engine_seal(engine, HST_ORDER_FORWARD), 0);
    assert_int_equal(hst_engine_group(engine, 0, &group), 0);
    assert_string_equal(group.text, "[ab].*:decay=0");
    assert_int_equal(group.params, 4);
    assert_int_equal(group.elements, 64 + 1000 * 64 + 63 + 777 * 65);
    assert_int_equal(hst_engine_group(engine, 1, &group), 0); /* it is tied: the embedding */
    assert_int_equal(group.params, 1);
    assert_int_equal(group.elements, 2400 * 64);
    assert_int_equal(hst_engine_group(engine, 2, &group), -ENOENT);
    hst_engine_destroy(&engine);
}

static void globs_that_share_a_tensor_or_have_none_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *group, *other, *why[3];
    } cases[] = {
        {"*.norm:lr=2x", "a.*:lr=3x", {"'*.norm:lr=2x'", "'a.*:lr=3x'", "tensor \"a.norm\""}},
        {"embed:lr=2x", "head:lr=3x", {"'embed:lr=2x'", "'head:lr=3x'", "tensor \"embed\""}},
        {"a.w:lr=2x", "a.w:lr=3x", {"'a.w:lr=2x'", "'a.w:lr=3x'", "tensor \"a.w\""}},
        {"a.norms:lr=2x", NULL, {"no tensor", "'a.norms'", "nearest is \"a.norm\""}},
        {"*.nrom:lr=2x", NULL, {"no tensor", "'*.nrom'", ".norm\""}},
        {"he?t:lr=2x", NULL, {"no tensor", "'he?t'", "nearest is \"head\""}},
        {"*tq:lr=2x", NULL, {"no tensor", "'*tq'", "nearest is \"last\""}},
        {"??????q:lr=2x", NULL, {"no tensor", "'??????q'", "nearest is \"a.norm\""}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hst_engine *engine = NULL;
        seal(cases[i].group, cases[i].other, &engine);
        assert_int_equal(hst_engine_seal(engine, HST_ORDER_FORWARD), -EINVAL);
        const struct hst_error *error = hst_engine_error(engine);
        assert_int_equal(error->code, HST_E_VALUE);
        for (int w = 0; w < 3; w++)
            if (!strstr(error->message, cases[i].why[w]))
                fail_msg("no %s in: %s", cases[i].why[w], error->message);
        hst_engine_destroy(&engine);
    }
}

static void saved_with(const char *group, struct toy_saved *saved)
{
    struct hst_engine *engine = NULL;
    struct hst_step_stats stats;
    seal(group, NULL, &engine);
    assert_int_equal(hst_engine_seal(engine, HST_ORDER_FORWARD), 0);
    assert_int_equal(toy_load(engine), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(toy_step(engine, &stats), 0);
    assert_int_equal(toy_save(engine, saved), 0);
    hst_engine_destroy(&engine);
}

static void a_group_with_the_numbers_of_all_changes_no_bit(void **state)
{
    (void)state;
    static struct toy_saved plain, same, other;
    saved_with(NULL, &plain);
    saved_with("*.w:lr=1x,beta1=0.9,beta2=0.999,eps=1e-8,decay=0.01", &same);
    saved_with("*.w:lr=1x,beta1=0.9,beta2=0.999,eps=1e-8,decay=0", &other);
    assert_int_equal(plain.used, same.used);
    assert_memory_equal(plain.bytes, same.bytes, plain.used);
    assert_int_not_equal(memcmp(plain.bytes, other.bytes, plain.used), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_those_of_all_but_for_what_a_group_says),
        cmocka_unit_test(coefficients_are_each_groups_own),
        cmocka_unit_test(texts_that_mean_no_group_are_refused),
        cmocka_unit_test(too_many_or_too_long_ones_are_refused),
        cmocka_unit_test(a_group_has_the_tensors_that_its_glob_fits),
        cmocka_unit_test(globs_that_share_a_tensor_or_have_none_are_refused),
        cmocka_unit_test(a_group_with_the_numbers_of_all_changes_no_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
