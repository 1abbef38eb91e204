/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Learning rates: those of transformers, from the file that make_schedules.py has made; and what
 * holds for every schedule. Also what shares and epochs are in steps, and when a loss is told.
 */
#include "cli/loss_watch.h"
#include "cli/schedule.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TOLERANCE 1e-12 /* of the peak */
#define LR        3e-4
#define MOST      UINT64_C(1000000000000) /* steps of a run */

static const char *golden_path;

static enum schedule_shape shape_of(const char *name)
{
    for (int i = 0; SCHEDULE_NAMES[i]; i++)
        if (strcmp(SCHEDULE_NAMES[i], name) == 0)
            return (enum schedule_shape)(SCHEDULE_CONSTANT + i);
    fail_msg("no schedule %s", name);
    return SCHEDULE_CONSTANT;
}

static void rates_are_those_of_transformers(void **state)
{
    (void)state;
    char line[256], shape[16];
    unsigned long long n, warmup, decay, step;
    double end, rate;
    size_t rates = 0, of_shape[SCHEDULE_WSD + 1] = {0};
    FILE *file = fopen(golden_path, "re");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        if (line[0] == '#')
            continue;
        assert_int_equal(sscanf(line, "%15s %llu %llu %llu %lf %llu %lf", shape, &n, &warmup,
                                &decay, &end, &step, &rate),
                         7);
        const struct schedule s = {shape_of(shape), LR, end, warmup, decay, n};
        const double got = schedule_lr(&s, step);
        if (!(fabs(got - LR * rate) <= TOLERANCE * LR))
            fail_msg("%s: %.17g, transformers has %.17g", line, got / LR, rate);
        of_shape[s.shape]++;
        rates++;
    }
    fclose(file);
    assert_true(rates > 2000);
    for (int shape_index = SCHEDULE_CONSTANT; shape_index <= SCHEDULE_WSD; shape_index++)
        assert_true(of_shape[shape_index] > 50);
}

/* Numbers from a seed, the same in each run. */
static uint64_t draw(uint64_t below)
{
    static uint64_t x = 88172645463325252u;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return x % below;
}

static struct schedule random_schedule(enum schedule_shape shape, uint64_t most)
{
    struct schedule s = {.shape = shape, .lr = LR, .steps = 1 + draw(most)};
    s.lr_end = draw(3) == 0 ? 0 : (double)draw(1000001) / 1e6;
    s.warmup_steps = draw(3) == 0 ? 0 : draw(s.steps + 1);
    const uint64_t w = s.warmup_steps > 0 ? s.warmup_steps : 1;
    s.decay_steps = 1 + draw(s.steps - w + 1);
    return s;
}

/* Each rate of a window of steps: above 0, never above the peak, rising to step w alone. */
static void check_window(const struct schedule *s, uint64_t first, uint64_t count)
{
    const uint64_t w = s->warmup_steps > 0 ? s->warmup_steps : 1;
    double before = first > 1 ? schedule_lr(s, first - 1) : 0;
    for (uint64_t step = first; step < first + count && step <= s->steps; step++) {
        const double now = schedule_lr(s, step);
        const bool right = step <= w ? now > before : now <= before;
        if (!(now > 0) || now > s->lr || !right || (step > w && now < s->lr * s->lr_end))
            fail_msg("%s w %llu d %llu e %g: step %llu of %llu has %.17g behind %.17g",
                     SCHEDULE_NAMES[s->shape - SCHEDULE_CONSTANT],
                     (unsigned long long)s->warmup_steps, (unsigned long long)s->decay_steps,
                     s->lr_end, (unsigned long long)step, (unsigned long long)s->steps, now,
                     before);
        before = now;
    }
    assert_true(schedule_lr(s, w) == s->lr);
}

static void every_rate_is_above_0_and_only_the_warmup_rises(void **state)
{
    (void)state;
    for (int shape = SCHEDULE_CONSTANT; shape <= SCHEDULE_WSD; shape++)
        for (int i = 0; i < 2000; i++) {
            const struct schedule s = random_schedule((enum schedule_shape)shape, 200);
            check_window(&s, 1, s.steps);
        }
}

static void a_run_of_a_million_million_steps_is_no_other(void **state)
{
    (void)state;
    for (int shape = SCHEDULE_CONSTANT; shape <= SCHEDULE_WSD; shape++)
        for (int i = 0; i < 500; i++) {
            struct schedule s = random_schedule((enum schedule_shape)shape, MOST);
            s.steps = i % 2 ? s.steps : MOST;
            s.lr_end = i % 3 ? 0 : s.lr_end;
            check_window(&s, 1, 20);
            check_window(&s, 1 + draw(s.steps), 20);
            check_window(&s, s.steps > 20 ? s.steps - 20 : 1, 21);
            check_window(&s, s.warmup_steps > 10 ? s.warmup_steps - 10 : 1, 20);
            check_window(&s, s.steps - s.decay_steps + 1, 5);
        }
    const struct schedule cosine = {SCHEDULE_COSINE, 1, 0, 0, 0, MOST};
    const double last = pow(acos(-1) / (2 * (double)MOST), 2); /* sin x is x there */
    assert_true(fabs(schedule_lr(&cosine, MOST) / last - 1) < 1e-12);
}

static void a_run_of_one_step_has_the_peak(void **state)
{
    (void)state;
    for (int shape = SCHEDULE_CONSTANT; shape <= SCHEDULE_WSD; shape++)
        for (uint64_t warmup = 0; warmup <= 1; warmup++) {
            const struct schedule s = {(enum schedule_shape)shape, LR, 0, warmup, 1, 1};
            assert_true(schedule_lr(&s, 1) == LR);
        }
}

static void a_run_that_is_all_warmup_ends_at_the_peak(void **state)
{
    (void)state;
    for (int shape = SCHEDULE_CONSTANT; shape <= SCHEDULE_WSD; shape++) {
        const struct schedule s = {(enum schedule_shape)shape, LR, 0, 7, 1, 7};
        assert_true(fabs(schedule_lr(&s, 1) - LR / 7) < TOLERANCE * LR);
        assert_true(schedule_lr(&s, 7) == LR);
    }
}

static void wsd_has_the_peak_until_its_last_steps(void **state)
{
    (void)state;
    const struct schedule s = {SCHEDULE_WSD, LR, 0.1, 3, 4, 20};
    static const double last[] = {1, 0.775, 0.55, 0.325};
    for (uint64_t step = 3; step <= 16; step++)
        assert_true(schedule_lr(&s, step) == LR);
    for (uint64_t i = 0; i < 4; i++)
        assert_true(fabs(schedule_lr(&s, 17 + i) - LR * last[i]) < TOLERANCE * LR);
}

static uint64_t percent_of(double percent, uint64_t steps)
{
    return schedule_share((struct hst_share){.percent = percent}, steps);
}

static void a_percentage_is_rounded_up_as_if_it_were_exact(void **state)
{
    (void)state;
    assert_int_equal(schedule_share((struct hst_share){.count = 12}, 5), 12);
    assert_int_equal(schedule_share((struct hst_share){0}, 5), 0);
    assert_int_equal(percent_of(100, 7), 7);
    assert_int_equal(percent_of(3, 100), 3);
    assert_int_equal(percent_of(3, 101), 4);
    assert_int_equal(percent_of(3, 10), 1);
    assert_int_equal(percent_of(0.001, 10), 1);
    assert_int_equal(percent_of(7, 100), 7); /* 0.07 * 100 is above 7 in doubles */
    assert_int_equal(percent_of(0.1, MOST), MOST / 1000);
    assert_int_equal(percent_of(100, MOST), MOST);
    for (uint64_t tenths = 1; tenths <= 1000; tenths++)
        for (uint64_t steps = 1; steps <= 3000; steps += 37)
            assert_int_equal(percent_of((double)tenths / 10, steps), (tenths * steps + 999) / 1000);
}

static void epochs_are_rounded_up_to_whole_steps(void **state)
{
    (void)state;
    assert_true(schedule_epoch_steps(1, 10, 3) == 4);
    assert_true(schedule_epoch_steps(3, 10, 3) == 10);
    assert_true(schedule_epoch_steps(0.1, 30, 1) == 3); /* the product is above 3 in doubles */
    assert_true(schedule_epoch_steps(2.5, 10, 5) == 5);
    assert_true(schedule_epoch_steps(1e-9, 1, 4) == 1);
    assert_true(schedule_epoch_steps(1, 1, 1000) == 1);
    assert_true(schedule_epoch_steps(1e6, UINT64_C(1) << 40, 1) > 1e18);
    for (uint64_t hundredths = 1; hundredths <= 1000; hundredths++)
        for (uint64_t sequences = 1; sequences < 2000; sequences += 91)
            assert_true(schedule_epoch_steps((double)hundredths / 100, sequences, 7) ==
                        (double)((hundredths * sequences + 699) / 700));
}

/* The step at which a watch tells of these losses, 0: never. Twice is a failure. */
static uint64_t told_at(const double *losses, uint64_t count)
{
    struct loss_watch watch = {0};
    uint64_t told = 0;
    for (uint64_t i = 0; i < count; i++)
        if (loss_watch_step(&watch, i + 1, losses[i])) {
            assert_int_equal(told, 0);
            told = i + 1;
        }
    return told;
}

static void a_loss_that_stays_2_above_the_first_for_20_steps_is_told_once(void **state)
{
    (void)state;
    double losses[60];
    for (int i = 0; i < 60; i++)
        losses[i] = 7.5;
    losses[0] = 5;
    assert_int_equal(told_at(losses, 60), 21);
    assert_int_equal(told_at(losses, 20), 0);
    losses[10] = 7; /* is not more than 2 above: they are counted anew */
    assert_int_equal(told_at(losses, 60), 31);
    losses[30] = NAN; /* counts as above */
    assert_int_equal(told_at(losses, 60), 31);
    losses[0] = NAN; /* cannot be compared with: the next is the first */
    losses[1] = 5.25;
    assert_int_equal(told_at(losses, 60), 31);
    for (int i = 0; i < 60; i++)
        losses[i] = 5 + 2 * (i % 2) + 2.5 * (i % 19 != 0);
    assert_int_equal(told_at(losses, 60), 0); /* no 20 in a row */
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates_are_those_of_transformers),
        cmocka_unit_test(every_rate_is_above_0_and_only_the_warmup_rises),
        cmocka_unit_test(a_run_of_a_million_million_steps_is_no_other),
        cmocka_unit_test(a_run_of_one_step_has_the_peak),
        cmocka_unit_test(a_run_that_is_all_warmup_ends_at_the_peak),
        cmocka_unit_test(wsd_has_the_peak_until_its_last_steps),
        cmocka_unit_test(a_percentage_is_rounded_up_as_if_it_were_exact),
        cmocka_unit_test(epochs_are_rounded_up_to_whole_steps),
        cmocka_unit_test(a_loss_that_stays_2_above_the_first_for_20_steps_is_told_once),
    };
    if (argc != 2)
        return 2;
    golden_path = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
