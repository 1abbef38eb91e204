/* SPDX-License-Identifier: Apache-2.0 */
/* The lines beside a version's bytes: what its bits depended on, apart from what must be equal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "ckpt/version_text.h"
#include <cmocka.h>
#include <string.h>

static void what_bits_depend_on_is_added_and_taken_out_again(void **state)
{
    (void)state;
    char settings[VERSION_SETTINGS_BYTES] = "precision fp32\nmathematics 1\n", math[64];
    const size_t before = strlen(settings);
    uint32_t length = version_math_write("OpenBLAS 1 Zen, glibc 2", settings, sizeof settings);
    assert_int_equal(length, strlen(settings));
    assert_int_equal(length, before + strlen("math OpenBLAS 1 Zen, glibc 2\n"));
    version_math_take(settings, math, sizeof math);
    assert_string_equal(math, "OpenBLAS 1 Zen, glibc 2");
    assert_string_equal(settings, "precision fp32\nmathematics 1\n");
    version_math_take(settings, math, sizeof math); /* of a version that says nothing */
    assert_string_equal(math, "");
    assert_string_equal(settings, "precision fp32\nmathematics 1\n");
}

static void it_may_stand_anywhere_and_be_too_long(void **state)
{
    (void)state;
    char settings[64] = "a 1\nmath one, two, three\nb 2\n", math[8];
    version_math_take(settings, math, sizeof math);
    assert_string_equal(math, "one, tw");
    assert_string_equal(settings, "a 1\nb 2\n");
    char last[32] = "a 1\nmath x"; /* cut */
    version_math_take(last, math, sizeof math);
    assert_string_equal(math, "x");
    assert_string_equal(last, "a 1\n");
}

static void differ(const char *was, const char *is, const char *was_from, const char *is_from)
{
    version_math_differ(&was, &is);
    assert_string_equal(was, was_from);
    assert_string_equal(is, is_from);
}

static void two_texts_are_told_from_the_first_item_that_differs(void **state)
{
    (void)state;
    differ("OpenBLAS 1 Zen, glibc 2", "OpenBLAS 1 Haswell, glibc 2", "OpenBLAS 1 Zen, glibc 2",
           "OpenBLAS 1 Haswell, glibc 2");
    differ("card, driver 1, x", "card, driver 2, x", "driver 1, x", "driver 2, x");
    differ("card, driver 1", "card, driver 1, TF32=0", "driver 1", "driver 1, TF32=0");
    differ("", "card", "", "card");
}

static void lines_that_stores_of_before_lack_are_taken_out_where_they_do(void **state)
{
    (void)state;
    static const struct {
        const char *was, *is, *left;
        unsigned news;
    } row[] = {
        {"clip 1\n", "clip 1\nnorm exact\nrounding index\n", "clip 1\n",
         VERSION_NEWS_NORM | VERSION_NEWS_ROUNDING},
        {"clip 1\nrounding index\n", "clip 1\nnorm exact\nrounding index\n",
         "clip 1\nrounding index\n", VERSION_NEWS_NORM},
        {"norm exact\n", "norm exact\nrounding index\n", "norm exact\n", VERSION_NEWS_ROUNDING},
        {"norm rough\n", "norm exact\n", "norm exact\n", 0},
        {"clip 1\n", "clip 2\n", "clip 2\n", 0},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        char is[64];
        strcpy(is, row[i].is);
        assert_int_equal(version_settings_take_news(row[i].was, is), row[i].news);
        assert_string_equal(is, row[i].left);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_bits_depend_on_is_added_and_taken_out_again),
        cmocka_unit_test(it_may_stand_anywhere_and_be_too_long),
        cmocka_unit_test(two_texts_are_told_from_the_first_item_that_differs),
        cmocka_unit_test(lines_that_stores_of_before_lack_are_taken_out_where_they_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
