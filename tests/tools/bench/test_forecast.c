/* SPDX-License-Identifier: Apache-2.0 */
/* How the benchmark judges predictions, whatever the machine. */
#include "bench/forecast.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void assert_near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-12))
        fail_msg("got %.15g, want %.15g", got, want);
}

static void predictions_are_judged_by_how_far_they_are_off_either_way(void **state)
{
    (void)state;
    const struct bench_forecast_case cases[] = {
        {.measured_s = 2, .planned_s = 1, .predicted_s = 2.2, .bound_s = 1.8}, /* 10 % too long */
        {.measured_s = 4, .planned_s = 4.4, .predicted_s = 3, .bound_s = 2},   /* 25 % too short */
        {.measured_s = 1, .planned_s = 1.3, .predicted_s = 1.02, .bound_s = 0.7},
    };
    struct bench_forecast all = bench_forecast_judge(cases, 3);
    assert_near(all.off_median, 0.1);
    assert_near(all.off_worst, 0.25);
    assert_near(all.plan_off_median, 0.3);
    assert_near(all.plan_off_worst, 0.5);
    assert_near(all.bound_median, 0.7);
    all = bench_forecast_judge(cases, 1);
    assert_near(all.off_worst, 0.1);
    assert_near(all.bound_median, 0.9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(predictions_are_judged_by_how_far_they_are_off_either_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
