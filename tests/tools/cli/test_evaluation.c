/* SPDX-License-Identifier: Apache-2.0 */
/* When a run evaluates, and which of its versions is the best one. */
#include "cli/evaluation.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

static void steps_are(const struct evaluation_times *times, const char *expected)
{
    char due[64] = "";
    uint64_t left = 0;
    for (uint64_t step = 0; step <= times->steps; step++) {
        due[step] = evaluation_due(times, step) ? '1' : '0';
        left += evaluation_due(times, step);
    }
    assert_string_equal(due, expected);
    for (uint64_t step = 0; step <= times->steps; step++) {
        assert_int_equal(evaluation_count(times, step), left);
        left -= evaluation_due(times, step);
    }
    assert_int_equal(evaluation_count(times, times->steps + 1), 1);
}

static void without_a_number_of_steps_it_is_after_each_pass(void **state)
{
    (void)state;
    steps_are(&(struct evaluation_times){9, 0, 8, 2}, "1000100011"); /* 4 steps a pass */
    steps_are(&(struct evaluation_times){7, 0, 5, 2}, "10010101");   /* 2.5 */
    steps_are(&(struct evaluation_times){3, 0, 2, 5}, "1111");       /* passes in each step */
    steps_are(&(struct evaluation_times){1, 0, 100, 1}, "11");
}

static void with_one_it_is_every_so_many_and_at_both_ends(void **state)
{
    (void)state;
    steps_are(&(struct evaluation_times){7, 3, 2, 1}, "10010011");
    steps_are(&(struct evaluation_times){6, 3, 2, 1}, "1001001");
    steps_are(&(struct evaluation_times){2, 50, 2, 1}, "101");
}

static void the_best_has_the_least_loss_and_the_first_of_two_that_are_equal(void **state)
{
    (void)state;
    struct evaluation_best best = {0};
    assert_false(evaluation_take(&best, 0, 1.0)); /* of the model that it began with */
    assert_false(evaluation_take(&best, 5, NAN));
    assert_int_equal(best.step, 0);
    assert_true(evaluation_take(&best, 10, 3.0));
    assert_false(evaluation_take(&best, 20, 3.0));
    assert_false(evaluation_take(&best, 30, INFINITY));
    assert_int_equal(best.step, 10);
    assert_int_equal(best.waited, 2);
    assert_true(evaluation_take(&best, 40, 2.5));
    assert_int_equal(best.waited, 0);
    assert_int_equal(best.step, 40);
}

static void its_line_of_a_cursor_is_read_again_to_the_bit(void **state)
{
    (void)state;
    char text[200] = "model x\n";
    const struct evaluation_line line = {{123456789012, 1.0 / 3, 7}, 0xfedcba9876543210, true};
    struct evaluation_line read = {0};
    assert_false(evaluation_read(text, &read));
    const size_t at = strlen(text);
    evaluation_write(&line, text + at, sizeof text - at);
    strcat(text, "lr 1\n");
    assert_true(evaluation_read(text, &read));
    assert_true(read.best.loss == line.best.loss && read.data == line.data && read.due);
    assert_int_equal(read.best.step, line.best.step);
    assert_int_equal(read.best.waited, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_number_of_steps_it_is_after_each_pass),
        cmocka_unit_test(with_one_it_is_every_so_many_and_at_both_ends),
        cmocka_unit_test(the_best_has_the_least_loss_and_the_first_of_two_that_are_equal),
        cmocka_unit_test(its_line_of_a_cursor_is_read_again_to_the_bit),
    };
    return cmocka_run_group_tests_name("tools/cli_evaluation", tests, NULL, NULL);
}
