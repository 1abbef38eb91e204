/* SPDX-License-Identifier: Apache-2.0 */
/* Which way of updating is taken, on steps whose seconds and clipping are given. */
#include "plan/search/update_choice.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

struct machine {
    double deferred_s, optimistic_s; /* of a step */
    uint32_t clips_every;            /* 0: never */
    uint64_t step, optimistic;       /* so far */
};

static void run(struct update_choice *choice, struct machine *m, uint64_t steps)
{
    for (uint64_t i = 0; i < steps; i++) {
        bool clips = m->clips_every && ++m->step % m->clips_every == 0;
        m->optimistic += choice->optimistic;
        update_choice_note(choice, choice->optimistic ? m->optimistic_s : m->deferred_s, clips);
    }
}

static void the_faster_one_is_kept(void **state)
{
    (void)state;
    for (int faster = 0; faster < 2; faster++) {
        struct machine m = {.deferred_s = 2, .optimistic_s = faster ? 1.5 : 2.5};
        struct update_choice choice;
        update_choice_init(&choice);
        run(&choice, &m, UPDATE_TRIAL_STEPS);
        assert_int_equal(m.optimistic, 0);
        run(&choice, &m, UPDATE_TRIAL_STEPS);
        assert_int_equal(m.optimistic, UPDATE_TRIAL_STEPS);
        run(&choice, &m, 100);
        assert_int_equal(m.optimistic, UPDATE_TRIAL_STEPS + faster * 100);
    }
}

/* A step that is slow once does not decide; nor one that is fast as it has no update behind it,
 * the first after a change. */
static void single_steps_do_not_decide(void **state)
{
    (void)state;
    struct update_choice choice;
    update_choice_init(&choice);
    for (uint32_t i = 0; i < 2 * UPDATE_TRIAL_STEPS; i++) {
        double seconds = choice.optimistic ? 1 : 2;
        uint32_t at = i % UPDATE_TRIAL_STEPS;
        update_choice_note(&choice, at == 0 ? 0.1 : at == 1 ? 10 : seconds, false);
    }
    assert_true(choice.optimistic);
}

static void what_clips_often_is_deferred(void **state)
{
    (void)state;
    struct machine m = {.deferred_s = 2, .optimistic_s = 1, .clips_every = 1};
    struct update_choice choice;
    update_choice_init(&choice);
    run(&choice, &m, 10);
    assert_int_equal(m.optimistic, 0);
    m.clips_every = 2;
    run(&choice, &m, 4 * UPDATE_TRIAL_EVERY);
    assert_in_range(m.optimistic, 0, UPDATE_TRIAL_STEPS);
    m.clips_every = 0; /* training has settled: it is tried, and kept */
    run(&choice, &m, 2 * UPDATE_TRIAL_EVERY);
    assert_true(choice.optimistic);
    m.clips_every = 1;
    m.optimistic = 0;
    run(&choice, &m, UPDATE_TRIAL_EVERY);
    assert_in_range(m.optimistic, 1, 6);
    assert_false(choice.optimistic);
}

static void both_are_tried_again(void **state)
{
    (void)state;
    struct machine m = {.deferred_s = 2, .optimistic_s = 1.9, .clips_every = 50};
    struct update_choice choice;
    update_choice_init(&choice);
    run(&choice, &m, UPDATE_TRIAL_EVERY);
    assert_true(choice.optimistic);
    m.deferred_s = 1.5;
    run(&choice, &m, 2 * UPDATE_TRIAL_EVERY);
    assert_false(choice.optimistic);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_faster_one_is_kept),
        cmocka_unit_test(single_steps_do_not_decide),
        cmocka_unit_test(what_clips_often_is_deferred),
        cmocka_unit_test(both_are_tried_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
