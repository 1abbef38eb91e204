/* SPDX-License-Identifier: Apache-2.0 */
/* Which homes are better, and where an update may be optimistic: values alone. */
#include "plan/search/homes.h"
#include "plan/search/update_wish.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define DRAM HST_TIER_DRAM
#define NVME HST_TIER_NVME

static struct homes needs(uint64_t hbm, uint64_t dram, uint64_t nvme)
{
    return (struct homes){
        .in = {.hbm_budget = 10, .dram_budget = 100, .nvme_budget = 1000},
        .placement = {.hbm_bytes = hbm, .dram_bytes = dram, .nvme_bytes = nvme},
    };
}

static void memory_lacks_before_drives_do(void **state)
{
    (void)state;
    static const struct {
        uint64_t these[3], those[3];
        bool less;
    } rows[] = {
        {{10, 110, 0}, {10, 120, 0}, true},
        {{10, 120, 0}, {10, 110, 0}, false},
        {{15, 105, 0}, {10, 111, 0}, true}, /* of both memories the sum */
        {{15, 105, 0}, {10, 110, 0}, false},
        {{10, 105, 9000}, {10, 106, 0}, true},
        {{10, 105, 2000}, {10, 105, 2001}, true},
        {{0, 50, 2000}, {10, 100, 2000}, false}, /* what is within budgets lacks nothing */
        {{0, 50, 500}, {10, 100, 600}, false},
        {{UINT64_MAX, UINT64_MAX, 0}, {UINT64_MAX, 110, 0}, false}, /* sums do not overflow */
        {{10, 110, 0}, {UINT64_MAX, UINT64_MAX, 0}, true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct homes these = needs(rows[i].these[0], rows[i].these[1], rows[i].these[2]);
        const struct homes those = needs(rows[i].those[0], rows[i].those[1], rows[i].those[2]);
        assert_int_equal(homes_lack_less(&these, &those), rows[i].less);
    }
}

static void second_slots_are_the_only_difference_where_they_are(void **state)
{
    (void)state;
    for (int stored = 0; stored < 2; stored++)
        for (int class = 0; class < HST_CLASS_COUNT; class ++)
            for (int tier = 0; tier < HST_TIER_COUNT; tier++) {
                struct homes without = {.in.stored = stored}, with = without;
                uint64_t *bytes = &with.placement.table[class][tier];
                bool has_slots = class == HST_CLASS_WEIGHTS || class == HST_CLASS_STATES;
                bool twice = has_slots && (tier == DRAM || (tier == NVME && !stored));
                without.placement.table[class][tier] = 64;
                *bytes = twice ? 128 : 64;
                assert_true(homes_differ_by_slots(&with, &without));
                *bytes = twice ? 64 : 128;
                assert_false(homes_differ_by_slots(&with, &without));
            }
}

/* Deferred and optimistic steps with second slots, beside steps without them. */
static void slots_are_worth_what_they_win_beyond_what_a_clip_loses(void **state)
{
    (void)state;
    static const struct {
        struct update_steps slots, others;
        bool worth;
    } rows[] = {
        {{100, 80}, {100, 100}, true},
        {{100, 99.5}, {100, 100}, false}, /* less than can be told */
        {{104, 90}, {100, 100}, true},
        {{104, 97}, {100, 100}, false}, /* a step that clips loses more than another gains */
        {{106, 80}, {100, 100}, false}, /* and it loses too much */
        {{100, 80}, {100, 80.5}, false},
        {{80, 120}, {100, 100}, true}, /* a deferred update on these homes is faster already */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(homes_slots_are_worth(&rows[i].slots, &rows[i].others), rows[i].worth);
}

static void better_homes_are_faster_and_their_slots_are_worth_it(void **state)
{
    (void)state;
    static const struct {
        bool slots, other_slots;
        struct update_steps these, those;
        bool better;
    } rows[] = {
        {false, false, {90, 90}, {100, 100}, true},
        {false, false, {99.5, 99.5}, {100, 100}, false}, /* those at hand stay */
        {true, true, {200, 90}, {100, 100}, true},
        {true, true, {90, 101}, {95, 80}, false},
        {true, false, {104, 90}, {100, 100}, true},
        {true, false, {106, 90}, {100, 100}, false},
        {false, true, {100, 100}, {104, 90}, false},
        {false, true, {100, 100}, {106, 90}, true}, /* their slots are not worth it */
        {false, true, {100, 100}, {100, 99.5}, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct homes these = {.in.second_slots = rows[i].slots, .steps = rows[i].these};
        const struct homes those = {.in.second_slots = rows[i].other_slots, .steps = rows[i].those};
        assert_int_equal(homes_are_better(&these, &those), rows[i].better);
    }
}

static void an_update_may_change_where_drives_have_free_slots(void **state)
{
    (void)state;
    const struct layout layout = {.unit_count = 2};
    struct unit_placement units[2] = {{.weights.tier = DRAM}, {.weights.tier = DRAM}};
    const struct placement p = {.layout = &layout, .units = units, .compute_tier = HST_TIER_HBM};
    struct update_wish wish = {.either = true};
    assert_true(update_may_change(&wish, &p));
    for (int i = 0; i < 2; i++) {
        units[1].weights.tier = i == 0 ? NVME : DRAM;
        units[1].nvme_states = i == 0 ? 0 : 3;
        assert_true(update_uses_drives(&p));
        wish.frees = false;
        assert_false(update_may_change(&wish, &p));
        wish.frees = true;
        assert_true(update_may_change(&wish, &p));
    }
    wish.either = false;
    assert_false(update_may_change(&wish, &p));
}

static void slots_are_of_use_beside_a_gpu_where_the_host_updates(void **state)
{
    (void)state;
    const struct layout layout = {.unit_count = 2};
    struct unit_placement units[2] = {{.weights.tier = DRAM}, {.weights.tier = DRAM}};
    struct placement p = {.layout = &layout, .units = units, .compute_tier = HST_TIER_HBM};
    const struct update_wish wish = {.either = true}, no = {.optimistic = true};
    p.resident_units = 1;
    assert_true(update_could_use_slots(&wish, &p));
    assert_false(update_could_use_slots(&no, &p));
    p.resident_units = 2;
    assert_false(update_could_use_slots(&wish, &p));
    p.resident_units = 0;
    p.compute_tier = DRAM;
    assert_false(update_could_use_slots(&wish, &p));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_lacks_before_drives_do),
        cmocka_unit_test(second_slots_are_the_only_difference_where_they_are),
        cmocka_unit_test(slots_are_worth_what_they_win_beyond_what_a_clip_loses),
        cmocka_unit_test(better_homes_are_faster_and_their_slots_are_worth_it),
        cmocka_unit_test(an_update_may_change_where_drives_have_free_slots),
        cmocka_unit_test(slots_are_of_use_beside_a_gpu_where_the_host_updates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
