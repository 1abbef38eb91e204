/* SPDX-License-Identifier: Apache-2.0 */
/* Which directories of --store are a rank's. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <hoistway/hoistway.h>

#include <cmocka.h>

static const struct hst_store_place PLACE = {.rank = 65535, .local = 7, .node = 12};

static void each_word_becomes_its_number(void **state)
{
    (void)state;
    static const struct {
        const char *store, *filled;
        int words;
    } rows[] = {
        {"/a{local}/s,/b{local}/s", "/a7/s,/b7/s", 2},
        {"{rank}", "65535", 1},
        {"n{node}-{local}{rank}x", "n12-765535x", 3},
        /* what are no words stays: a brace alone, or one that a directory's name ends in */
        {"/a/directory,b", "/a/directory,b", 0},
        {"{{local}}", "{7}", 1},
        {"a{/{local}", "a{/7", 1},
        {"a{,}{node}", "a{,}12", 1},
        {"a}b{c{rank}", "a}b{c65535", 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char filled[64];
        assert_int_equal(hst_store_words(rows[i].store, &PLACE, filled, sizeof filled, NULL),
                         rows[i].words);
        assert_string_equal(filled, rows[i].filled);
        assert_int_equal(hst_store_words(rows[i].store, &PLACE, NULL, 0, NULL), rows[i].words);
    }
}

static void another_word_is_refused_by_its_name(void **state)
{
    (void)state;
    static const char *const stores[] = {"a{host}", "{rank},b{host}", "{local}{host}"};
    static const char *const empty[] = {"{}", "{Rank}", "{rank }", "{locals}"};
    struct hst_error error;
    for (size_t i = 0; i < sizeof stores / sizeof stores[0]; i++) {
        assert_int_equal(hst_store_words(stores[i], &PLACE, NULL, 0, &error), -EINVAL);
        assert_int_equal(error.code, HST_E_VALUE);
        assert_non_null(strstr(error.message, "--store has {host}, "));
        assert_non_null(strstr(error.message, "{rank}, {local} and {node}"));
    }
    for (size_t i = 0; i < sizeof empty / sizeof empty[0]; i++)
        assert_int_equal(hst_store_words(empty[i], &PLACE, NULL, 0, &error), -EINVAL);
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    char filled[9];
    struct hst_error error;
    assert_int_equal(hst_store_words("a/{rank}/", &PLACE, filled, 9, NULL), 1);
    assert_string_equal(filled, "a/65535/");
    assert_int_equal(hst_store_words("a/{rank}/", &PLACE, filled, 8, &error), -ENAMETOOLONG);
    assert_int_equal(error.code, HST_E_VALUE);
    assert_non_null(strstr(error.message, "--store has 8 characters, more than 7"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_word_becomes_its_number),
        cmocka_unit_test(another_word_is_refused_by_its_name),
        cmocka_unit_test(what_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests_name("engine/store_words", tests, NULL, NULL);
}
