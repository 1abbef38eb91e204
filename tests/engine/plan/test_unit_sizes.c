/* SPDX-License-Identifier: Apache-2.0 */
/* Which units have buffers of another size than most, and how many of each size there are. */
#include "placement_checks.h"
#include "plan/placement/lay_out.h"
#include "plan/placement/unit_sizes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MOST 16u

/* Sizes are letters: u, w, n. */
static void assert_sizes(const struct layout *layout, const char *expected)
{
    struct unit_placement units[MOST] = {0};
    struct placement p = {.layout = layout, .units = units};
    struct placement_in in = inputs(layout, NULL);
    char sizes[MOST + 1] = {0};
    unit_sizes_mark(&in, &p);
    for (uint32_t u = 0; u < layout->unit_count; u++)
        sizes[u] = "uwn"[units[u].size];
    assert_string_equal(sizes, expected);
}

static void a_unit_is_narrow_before_one_that_is_clearly_larger(void **state)
{
    (void)state;
    static const struct {
        uint32_t rows[MOST], units;
        const char *sizes;
    } cases[] = {
        {{60, 50, 100, 50, 100, 40}, 6, "ununun"},     /* halves; the head alternates with them */
        {{60, 50, 100, 50, 100, 60}, 6, "ununuu"},     /* unless it is larger */
        {{200, 50, 100, 50, 100, 200}, 6, "wnunuw"},   /* or wide */
        {{60, 50, 100, 50, 100, 1, 40}, 7, "unununu"}, /* or what is between takes the turn */
        {{60, 75, 100, 75, 100, 60}, 6, "ununun"},
        {{60, 76, 100, 76, 100, 60}, 6, "uuuuuu"},   /* hardly smaller */
        {{60, 100, 50, 100, 50, 60}, 6, "uununu"},   /* whichever comes first */
        {{60, 100, 100, 100, 100, 60}, 6, "uuuuuu"}, /* whole layers: nor are smaller ends */
        {{200, 100, 100, 100, 100, 200}, 6, "wuuuuw"},
        {{50, 100}, 2, "uu"},
        {{50, 100, 50}, 3, "uuu"},
        {{50}, 1, "u"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct layout layout = model_of_rows(cases[i].rows, cases[i].units, 4096);
        assert_sizes(&layout, cases[i].sizes);
        layout_free(&layout);
    }
}

/* A head of a matrix that it has not for itself. */
static void a_unit_of_nothing_is_usual_among_layers(void **state)
{
    (void)state;
    struct layout layout = model_of_rows((uint32_t[]){60, 100, 100, 100, 100, 60}, 6, 4096);
    layout.units[5].elements = 0;
    assert_sizes(&layout, "uuuuuu");
    layout_free(&layout);
}

/* A table is cut into slices of any size. */
static void no_slice_is_narrow(void **state)
{
    (void)state;
    struct layout layout = model_of_rows((uint32_t[]){60, 50, 100, 50, 100, 40}, 6, 4096),
                  whole = layout;
    struct layout_unit units[6];
    memcpy(units, layout.units, sizeof units);
    whole.units = units;
    layout.whole = &whole;
    for (uint32_t u = 0; u < 6; u++) {
        layout.units[u].whole = u;
        units[u].rows = layout.units[u].rows = 10;
    }
    assert_sizes(&layout, "ununun");
    units[1].rows = 20; /* unit 1 is a part of it */
    assert_sizes(&layout, "uuunun");
    units[1].rows = 10;
    units[2].rows = units[4].rows = 20; /* so is what is behind each of the small ones */
    assert_sizes(&layout, "uuuuuu");
    units[2].rows = units[4].rows = 10;
    units[5].rows = 20;
    assert_sizes(&layout, "ununuu");
    layout.whole = NULL;
    layout_free(&layout);
}

/* ---- so many in a row ---- */

/* Units take turns: these are all runs of that length. */
static uint32_t most_of(const struct placement *p, enum unit_size size, uint32_t count)
{
    uint32_t turns[MOST], units = 0, most = 0;
    for (uint32_t u = 0; u < p->layout->unit_count; u++)
        if (p->units[u].size != UNIT_WIDE && p->units[u].offloaded)
            turns[units++] = u;
    for (uint32_t first = 0; first < units; first++) {
        uint32_t held = 0;
        for (uint32_t i = first; i < units && i < first + count; i++)
            held += p->units[turns[i]].size == size;
        most = held > most ? held : most;
    }
    return most;
}

static void units_in_a_row_are_counted_by_size(void **state)
{
    (void)state;
    static const char *const patterns[] = {"ununununun", "wnunununuw", "uunnuunnun", "uuuuuuuuuu",
                                           "nnnnnuuuuu", "unuuunuuun", "u"};
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++)
        for (unsigned resident = 0; resident < 16; resident++) { /* some of the first four */
            struct unit_placement units[MOST] = {0};
            struct layout layout = {.unit_count = (uint32_t)strlen(patterns[i])};
            struct placement p = {.layout = &layout, .units = units, .compute_tier = HST_TIER_HBM};
            for (uint32_t u = 0; u < layout.unit_count; u++) {
                units[u].size = patterns[i][u] == 'n'   ? UNIT_NARROW
                                : patterns[i][u] == 'w' ? UNIT_WIDE
                                                        : UNIT_USUAL;
                units[u].offloaded = u > 3 || !(resident >> u & 1);
            }
            for (uint32_t count = 0; count < 12; count++) {
                uint32_t most[UNIT_SIZES] = {9, 9, 9};
                unit_sizes_most(&p, false, count, most);
                assert_int_equal(most[UNIT_USUAL], most_of(&p, UNIT_USUAL, count));
                assert_int_equal(most[UNIT_NARROW], most_of(&p, UNIT_NARROW, count));
                assert_int_equal(most[UNIT_WIDE], 0);
            }
        }
}

/* ---- their pools ---- */

static void assert_pool(const struct buffer_pool *pools, enum unit_size size, uint64_t rows,
                        uint32_t count)
{
    assert_int_equal(pools[size].count, count);
    if (count > 0)
        assert_in_range(pools[size].bytes, rows * 4096 * sizeof(float),
                        (rows + 1) * 4096 * sizeof(float)); /* partials may be behind it */
}

static void place(const struct placement_in *in, struct placement *p)
{
    char why[512];
    assert_int_equal(placement_plan(in, p, why, sizeof why), 0);
    check_addresses(in, p, HST_TIER_HBM);
    check_addresses(in, p, HST_TIER_DRAM);
    check_table(p);
}

static struct placement_in device_inputs(const struct layout *layout, const char *wishes)
{
    struct placement_in in = inputs(layout, wishes);
    in.compute_tier = HST_TIER_HBM;
    in.hbm_budget = 1u << 30;
    in.drive_count = 1;
    in.drive_budgets[0] = 1u << 30;
    return in;
}

/* Ten units that alternate: of three buffers two of either size take hardly more, and of two one of
 * either size takes less. One is one that all take turns at. */
static void halves_have_buffers_of_two_sizes(void **state)
{
    (void)state;
    static const uint32_t rows[] = {300, 203, 400, 203, 400, 203, 400, 203, 400, 203};
    struct layout layout = model_of_rows(rows, 10, 4096);
    struct placement p = {0};
    struct placement_in in = device_inputs(&layout, "states=nvme,weights=nvme,grads=nvme");
    place(&in, &p);
    assert_pool(p.reservations, UNIT_USUAL, 400, 2);
    assert_pool(p.reservations, UNIT_NARROW, 203, 2);
    assert_pool(p.grad_buffers, UNIT_USUAL, 400, 1);
    assert_pool(p.grad_buffers, UNIT_NARROW, 203, 1);
    assert_pool(p.device_weights, UNIT_USUAL, 400, 5); /* HBM has room for all of them */
    assert_pool(p.device_weights, UNIT_NARROW, 203, 5);
    assert_pool(p.device_grads, UNIT_USUAL, 400, 1);
    assert_pool(p.device_grads, UNIT_NARROW, 203, 1);
    placement_free(&p);
    /* beside the accumulator: no more than one of either size, for weights and for gradients */
    in.hbm_budget = (uint64_t)(400 + 2 * (400 + 203) + 10) * 4096 * sizeof(float);
    place(&in, &p);
    assert_pool(p.device_weights, UNIT_USUAL, 400, 1);
    assert_pool(p.device_weights, UNIT_NARROW, 203, 1);
    assert_pool(p.device_grads, UNIT_NARROW, 203, 1);
    placement_free(&p);
    in.hbm_budget -= (uint64_t)100 * 4096 * sizeof(float); /* gradients take turns at one */
    place(&in, &p);
    assert_pool(p.device_weights, UNIT_NARROW, 203, 1);
    assert_pool(p.device_grads, UNIT_USUAL, 400, 1);
    assert_pool(p.device_grads, UNIT_NARROW, 203, 0);
    placement_free(&p);
    layout_free(&layout);
}

/* Two of either size are more than three large ones. */
static void units_of_much_the_same_size_take_turns_at_the_same_buffers(void **state)
{
    (void)state;
    static const uint32_t rows[] = {300, 280, 400, 280, 400, 280, 400, 280, 400, 280};
    struct layout layout = model_of_rows(rows, 10, 4096);
    struct placement p = {0};
    const struct placement_in in = device_inputs(&layout, "states=nvme,weights=nvme,grads=nvme");
    place(&in, &p);
    assert_int_equal(p.units[1].size, UNIT_NARROW);
    assert_pool(p.reservations, UNIT_USUAL, 400, 3);
    assert_pool(p.reservations, UNIT_NARROW, 280, 0);
    assert_pool(p.grad_buffers, UNIT_NARROW, 280, 1); /* of two one of either size is less */
    placement_free(&p);
    layout_free(&layout);
}

/* Two narrow ones may meet where a segment ends and the next begins: two buffers are then no more
 * one of either size, but for gradients, which are made once each. */
static void segments_want_one_more_in_a_row(void **state)
{
    (void)state;
    static const uint32_t rows[] = {300, 203, 400, 203, 400, 203, 400, 203, 400, 203};
    struct layout layout = model_of_rows(rows, 10, 4096);
    struct unit_placement units[10] = {0};
    struct placement p = {.units = units};
    const struct placement_in in = device_inputs(&layout, NULL);
    struct choice choice = {.segment = 1, .device_depths = {.reservations = 2, .grads = 2}};
    for (uint32_t u = 1; u < 9; u++)
        layout.units[u].recompute = true;
    lay_out_memory(&in, &choice, &p);
    assert_pool(p.device_weights, UNIT_USUAL, 400, 1);
    assert_pool(p.device_weights, UNIT_NARROW, 203, 1);
    choice.segment = 2;
    lay_out_memory(&in, &choice, &p);
    assert_pool(p.device_weights, UNIT_USUAL, 400, 2);
    assert_pool(p.device_weights, UNIT_NARROW, 203, 0);
    assert_pool(p.device_grads, UNIT_USUAL, 400, 1);
    assert_pool(p.device_grads, UNIT_NARROW, 203, 1);
    layout_free(&layout);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_unit_is_narrow_before_one_that_is_clearly_larger),
        cmocka_unit_test(a_unit_of_nothing_is_usual_among_layers),
        cmocka_unit_test(no_slice_is_narrow),
        cmocka_unit_test(units_in_a_row_are_counted_by_size),
        cmocka_unit_test(halves_have_buffers_of_two_sizes),
        cmocka_unit_test(units_of_much_the_same_size_take_turns_at_the_same_buffers),
        cmocka_unit_test(segments_want_one_more_in_a_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
