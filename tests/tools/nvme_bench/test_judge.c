/* SPDX-License-Identifier: Apache-2.0 */
/* What measured values mean: percentiles, drops, the best shape, usable rates, stamps. */
#include "nvme_bench/judge.h"
#include "nvme_bench/report/plot.h"
#include "nvme_bench/stamp.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void test_percentiles_are_of_nearest_rank_over_all_sets(void **state)
{
    uint64_t one[600], two[400], scratch[1000];
    struct nb_latencies a = {.ns = one, .capacity = 600}, b = {.ns = two, .capacity = 400};
    const struct nb_latencies *const sets[] = {&a, &b};
    double p[NB_PERCENTILES];
    (void)state;
    for (uint64_t i = 1000; i > 0; i--) /* 1 … 1000, falling, split over both */
        nb_latencies_add(i % 5 < 3 ? &a : &b, i);
    nb_latencies_percentiles(sets, 2, scratch, p);
    assert_true(p[NB_P50] == 500 && p[NB_P90] == 900 && p[NB_P99] == 990);
    assert_true(p[NB_P999] == 999 && p[NB_MAX] == 1000);
    a.count = b.count = 0;
    nb_latencies_percentiles(sets, 2, scratch, p);
    assert_true(isnan(p[NB_P50]) && isnan(p[NB_MAX]));
}

static void test_more_latencies_than_there_is_room_for_are_thinned_evenly(void **state)
{
    uint64_t room[8];
    struct nb_latencies l = {.ns = room, .capacity = 8};
    (void)state;
    for (uint64_t i = 0; i < 100; i++)
        nb_latencies_add(&l, i);
    assert_true(l.stride == 16);
    assert_true(l.count == 7);
    for (size_t i = 0; i < l.count; i++)
        assert_true(l.ns[i] == 16 * i);
    const struct nb_latencies *const sets[] = {&l};
    uint64_t scratch[8];
    double p[NB_PERCENTILES];
    nb_latencies_percentiles(sets, 1, scratch, p);
    assert_true(p[NB_MAX] == 99); /* which was thinned out */
}

static struct nb_sustained windows(const double *rates, uint32_t count)
{
    struct nb_sustained s = {.window_bytes = 100, .windows = count};
    memcpy(s.rates, rates, count * sizeof *rates);
    nb_sustained_judge(&s);
    return s;
}

static void test_a_drop_is_found_where_the_rate_falls_and_stays(void **state)
{
    const double cliff[] = {5, 5.1, 4.9, 5, 3, 1, 1.02, 1, 1, 0.99, 1, 1, 1};
    struct nb_sustained s = windows(cliff, 13);
    (void)state;
    assert_true(s.drop_bytes == 400); /* the window in which it falls is after the drop */
    assert_true(s.first == 5 && s.last == 1);
    assert_true(s.flat);
}

static void test_a_stall_is_no_drop(void **state)
{
    const double stall[] = {5, 5, 5, 0.1, 5, 5, 5, 5, 5, 5, 5, 5};
    struct nb_sustained s = windows(stall, 12);
    (void)state;
    assert_true(s.drop_bytes == 0);
    assert_true(s.first == 5 && s.last == 5 && s.flat);
}

static void test_what_still_moves_is_not_flat(void **state)
{
    const double falling[] = {5, 5, 5, 4.6, 4.2, 3.8, 3.4, 3, 2.6, 2.2, 1.8, 1.4};
    const double few[] = {1, 1, 1};
    (void)state;
    assert_false(windows(falling, 12).flat);
    assert_true(windows(falling, 12).drop_bytes > 0);
    assert_false(windows(few, 3).flat);
    assert_true(windows(few, 0).last == 0);
}

static void add_point(struct nb_result *r, enum nb_phase phase, enum nb_kind kind, uint32_t drive,
                      struct nb_shape shape, double rate)
{
    r->points[r->point_count++] = (struct nb_point){
        .phase = phase, .kind = kind, .drive = drive, .shape = shape, .rate = rate};
}

static struct nb_result *result(uint32_t drives)
{
    struct nb_result *r = calloc(1, sizeof *r);
    assert_non_null(r);
    r->drive_count = drives;
    return r;
}

static void test_the_best_shape_is_the_smallest_that_is_nearly_the_fastest(void **state)
{
    struct nb_result *r = result(1);
    const struct nb_shape large = {1u << 20, 16, 2}, two = {1u << 20, 4, 2}, one = {1u << 20, 8, 1},
                          slow = {1u << 18, 1, 1};
    struct nb_shape best = {0};
    (void)state;
    add_point(r, NB_SWEEP, NB_MIXED, 0, large, 100);
    add_point(r, NB_SWEEP, NB_MIXED, 0, two, 98);
    add_point(r, NB_SWEEP, NB_MIXED, 0, one, 97.5);
    add_point(r, NB_SWEEP, NB_MIXED, 0, slow, 96);
    add_point(r, NB_SWEEP, NB_READ, 0, slow, 1000); /* reads do not decide */
    nb_choose_best(r, 0, &best);
    assert_memory_equal(&best, &one, sizeof best); /* as much in flight as `two`, fewer threads */
    assert_true(nb_ceiling(r, NB_MIXED, 0) == 100 && nb_ceiling(r, NB_READ, 0) == 1000);
    free(r);
}

static void test_one_drive_is_planned_with_its_steady_rates(void **state)
{
    struct nb_result *r = result(1);
    struct nb_rates rates;
    const struct nb_shape any = {4096, 1, 1};
    (void)state;
    assert_false(nb_rates_of(r, &rates));
    add_point(r, NB_STEADY, NB_READ, 0, any, 7);
    add_point(r, NB_STEADY, NB_WRITE, 0, any, 5);
    assert_false(nb_rates_of(r, &rates));
    add_point(r, NB_STEADY, NB_MIXED, 0, any, 6);
    assert_true(nb_rates_of(r, &rates));
    assert_true(rates.read == 7 && rates.write == 5 && rates.mixed == 6);
    r->drives[0].sustained.last = 3;
    assert_true(nb_rates_of(r, &rates) && rates.write == 5); /* no drop: nothing fell to 3 */
    r->drives[0].sustained.drop_bytes = 1;
    assert_true(nb_rates_of(r, &rates) && rates.write == 3);
    r->drives[0].sustained.last = 9;
    assert_true(nb_rates_of(r, &rates) && rates.write == 5);
    free(r);
}

static void test_several_drives_are_planned_with_the_lesser_of_sum_and_together(void **state)
{
    struct nb_result *r = result(2);
    struct nb_rates rates;
    const struct nb_shape any = {4096, 1, 1};
    (void)state;
    for (uint32_t d = 0; d < 2; d++)
        for (uint32_t k = 0; k < NB_KINDS; k++)
            add_point(r, NB_STEADY, (enum nb_kind)k, d, any, 5);
    add_point(r, NB_STRIPED, NB_READ, NB_ALL_DRIVES, any, 8);   /* the bus limits */
    add_point(r, NB_STRIPED, NB_WRITE, NB_ALL_DRIVES, any, 30); /* into the caches */
    add_point(r, NB_STRIPED, NB_MIXED, NB_ALL_DRIVES, any, 10);
    assert_true(nb_rates_of(r, &rates));
    assert_true(rates.read == 8 && rates.write == 10 && rates.mixed == 10);
    free(r);
}

static void add_steady(struct nb_result *r, uint32_t drive, double read, double write, double mixed)
{
    const struct nb_shape any = {4096, 1, 1};
    add_point(r, NB_STEADY, NB_READ, drive, any, read);
    add_point(r, NB_STEADY, NB_WRITE, drive, any, write);
    add_point(r, NB_STEADY, NB_MIXED, drive, any, mixed);
}

static void test_unequal_drives_share_by_writing_and_reading(void **state)
{
    struct nb_result *r = result(2);
    struct nb_rates rates;
    double shares[NB_MAX_DRIVES];
    (void)state;
    nb_shares_of(r, shares);
    assert_true(shares[0] == 0.5 && shares[1] == 0.5); /* nothing is known */
    add_steady(r, 0, 6, 6, 6);
    add_steady(r, 1, 6, 1.5, 3);
    for (uint32_t k = 0; k < NB_KINDS; k++) /* together as fast as can be: the shares limit */
        add_point(r, NB_STRIPED, (enum nb_kind)k, NB_ALL_DRIVES, (struct nb_shape){4096, 1, 1}, 99);
    nb_shares_of(r, shares); /* 1/(1/6 + 1/6) = 3 and 1/(1/6 + 1/1.5) = 1.2 */
    assert_true(fabs(shares[0] - 3 / 4.2) < 1e-15 && fabs(shares[1] - 1.2 / 4.2) < 1e-15);
    assert_false(nb_drives_are_alike(r));
    assert_true(nb_rates_of(r, &rates));
    assert_true(fabs(rates.read - 8.4) < 1e-12);   /* 6 / 0.714 before 6 / 0.286 */
    assert_true(fabs(rates.write - 5.25) < 1e-12); /* 1.5 / 0.286 before 6 / 0.714 */
    assert_true(fabs(rates.mixed - 8.4) < 1e-12);
    r->drives[1].sustained.last = 0.6; /* what a long write fell to counts for shares too */
    r->drives[1].sustained.drop_bytes = 1;
    nb_shares_of(r, shares);
    assert_true(fabs(shares[1] - (6 / 11.0) / (3 + 6 / 11.0)) < 1e-15);
    free(r);
}

static void test_one_shape_for_all_is_chosen_by_what_they_reach_together(void **state)
{
    struct nb_result *r = result(2);
    const struct nb_shape small = {1u << 18, 1, 1}, large = {1u << 20, 4, 1}, lone = {4096, 1, 1};
    struct nb_shape best;
    (void)state;
    r->drives[0].best = small;
    add_steady(r, 0, 3, 3, 3);
    add_steady(r, 1, 1, 1, 1);
    add_point(r, NB_SWEEP, NB_MIXED, 0, small, 3);
    add_point(r, NB_SWEEP, NB_MIXED, 0, large, 3);
    add_point(r, NB_SWEEP, NB_MIXED, 0, lone, 9); /* the other was not measured in it */
    add_point(r, NB_SWEEP, NB_MIXED, 1, small, 0.5);
    add_point(r, NB_SWEEP, NB_MIXED, 1, large, 1);
    nb_choose_for_all(r, &best); /* small: min(4, 2), large: min(4, 4) */
    assert_memory_equal(&best, &large, sizeof best);
    r->drive_count = 1;
    nb_choose_for_all(r, &best);
    assert_memory_equal(&best, &small, sizeof best);
    free(r);
}

static void test_a_stamp_is_known_again_and_nothing_else_is(void **state)
{
    static char block[4 * NB_SECTOR_BYTES];
    const struct nb_stamp from = {.run = 9, .offset = 8192, .drive = 1, .file = 2, .pass = 3};
    struct nb_stamp found;
    (void)state;
    nb_stamp_fill(block, sizeof block, 5);
    assert_false(nb_stamp_read(block, &found));
    nb_stamp_put(block, sizeof block, &from);
    for (uint64_t i = 0; i < 4; i++) {
        struct nb_stamp want = from;
        want.offset = 8192 + i * NB_SECTOR_BYTES;
        want = nb_stamp_seal(&want);
        assert_true(nb_stamp_read(block + i * NB_SECTOR_BYTES, &found));
        assert_memory_equal(&found, &want, sizeof want);
    }
    for (size_t bit = 0; bit < 8 * sizeof(struct nb_stamp); bit++) {
        block[bit / 8] ^= (char)(1 << bit % 8);
        assert_false(nb_stamp_read(block, &found));
        block[bit / 8] ^= (char)(1 << bit % 8);
    }
    assert_true(nb_stamp_read(block, &found));
}

static void test_axes_have_round_steps(void **state)
{
    (void)state;
    assert_true(plot_step(6) == 1);
    assert_true(plot_step(7) == 2);
    assert_true(fabs(plot_step(0.3) - 0.05) < 1e-15);
    assert_true(plot_step(14) == 2.5);
    assert_true(plot_step(0) == 1 && plot_step(INFINITY) == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_percentiles_are_of_nearest_rank_over_all_sets),
        cmocka_unit_test(test_more_latencies_than_there_is_room_for_are_thinned_evenly),
        cmocka_unit_test(test_a_drop_is_found_where_the_rate_falls_and_stays),
        cmocka_unit_test(test_a_stall_is_no_drop),
        cmocka_unit_test(test_what_still_moves_is_not_flat),
        cmocka_unit_test(test_the_best_shape_is_the_smallest_that_is_nearly_the_fastest),
        cmocka_unit_test(test_one_drive_is_planned_with_its_steady_rates),
        cmocka_unit_test(test_several_drives_are_planned_with_the_lesser_of_sum_and_together),
        cmocka_unit_test(test_unequal_drives_share_by_writing_and_reading),
        cmocka_unit_test(test_one_shape_for_all_is_chosen_by_what_they_reach_together),
        cmocka_unit_test(test_a_stamp_is_known_again_and_nothing_else_is),
        cmocka_unit_test(test_axes_have_round_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
