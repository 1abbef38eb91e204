/* SPDX-License-Identifier: Apache-2.0 */
/* Memory laid out again for another choice, part by part: the same as all of it at once. */
#include "placement_checks.h"
#include "plan/placement/lay_out_again.h"
#include "plan/search/placement_memo.h"
#include "plan/search/placement_search.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CHOICES 400u

static uint32_t below(uint64_t *state, uint32_t count)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 33) % count;
}

/* One number of the choice is another one, as in searches; which one, and what, is by chance. */
static void change(const struct layout *layout, uint64_t *state, struct choice *c)
{
    uint32_t *const depths[] = {
        &c->depths.slots,      &c->depths.reservations,        &c->depths.grads,
        &c->depths.acts,       &c->device_depths.reservations, &c->device_depths.grads,
        &c->device_depths.acts};
    const uint32_t units = below(state, UNITS + 1);
    switch (below(state, 9)) {
    case 0:
        c->resident.count = units;
        break;
    case 1:
        c->resident.first = below(state, 2);
        break;
    case 2:
        c->acts_offloaded = units;
        break;
    case 3:
        c->leaves[LEAVE_STATES] = below(state, 2) * below(state, layout->tile_count + 1);
        break;
    case 4:
        c->leaves[LEAVE_ACTS + below(state, LEAVE_COUNT - 1)] = units;
        break;
    case 5:
        c->segment = 1 + below(state, 3);
        break;
    case 6:
        *depths[below(state, sizeof depths / sizeof *depths)] = 1 + below(state, 4);
        break;
    case 7:
        c->saved = units;
        break;
    default:
        c->streamed = below(state, 9) / 8.0;
    }
}

static void assert_same(const struct placement *a, const struct placement *b)
{
    assert_int_equal(a->hbm_bytes, b->hbm_bytes);
    assert_int_equal(a->dram_bytes, b->dram_bytes);
    assert_int_equal(a->resident_units, b->resident_units);
    for (size_t i = 0; i < sizeof a->device_weights / sizeof *a->device_weights; i++)
        assert_int_equal(a->device_weights[i].count, b->device_weights[i].count);
}

/* Returns how many of the choices took other bytes than the one before. */
static uint32_t walk(const struct placement_in *in, uint64_t seed)
{
    struct unit_placement units[UNITS] = {0}, others[UNITS] = {0};
    struct lay_out_kept kept = {.begun.units = units};
    struct placement again = {0}, before = {0}, whole = {.units = others};
    struct choice choice = {
        .resident.count = 2, .segment = 1, .depths = {2, 1, 1, 1}, .device_depths = {2, 1, 1}};
    uint32_t others_bytes = 0;
    for (uint32_t i = 0; i < CHOICES; i++) {
        lay_out_again(in, &choice, &kept, &again);
        lay_out_memory(in, &choice, &whole);
        assert_same(&again, &whole);
        others_bytes +=
            again.hbm_bytes != before.hbm_bytes || again.dram_bytes != before.dram_bytes;
        before = again;
        change(in->layout, &seed, &choice);
    }
    return others_bytes;
}

static struct layout model_of(uint32_t ranks)
{
    struct layout layout = model(4096);
    for (uint32_t u = 1; u < UNITS - 1; u++) {
        layout.units[u].recompute = true;
        layout.units[u].saved_bytes = 8192;
    }
    if (ranks > 1)
        assert_int_equal(layout_seal(&layout, 4096, (struct share){0, ranks}), 0);
    return layout;
}

static void part_by_part_memory_is_what_it_is_at_once(void **state)
{
    (void)state;
    uint32_t walks = 0;
    for (uint32_t bits = 0; bits < 1u << 7; bits++) {
        struct layout layout = model_of(bits & 8 ? 2 : 1);
        struct placement_in in = inputs(&layout, NULL);
        in.compute_tier = bits & 1 ? HST_TIER_HBM : HST_TIER_DRAM;
        in.deferred = bits & 2;
        in.second_slots = bits & 4;
        in.quantised = bits & 16;
        in.whole_weights = in.whole_grads = (bits & 8) && (bits & 32);
        in.secondary = bits & 8 && !in.whole_weights ? 2 : 0;
        in.stored = bits & 64;
        assert_true(walk(&in, bits) > CHOICES / 8);
        walks++;
        layout_free(&layout);
    }
    assert_int_equal(walks, 128);
}

/* Sizes that overflow stay at the most there is, and what was too large for one choice is no trace
 * of it in the next. */
static void an_overflow_leaves_no_trace(void **state)
{
    (void)state;
    struct layout layout = model_of(1);
    struct placement_in in = inputs(&layout, NULL);
    struct unit_placement units[UNITS] = {0}, others[UNITS] = {0};
    struct lay_out_kept kept = {.begun.units = units};
    struct placement again = {0}, whole = {.units = others};
    struct choice choice = {.segment = 1, .depths = {2, 1, 1, 1}, .device_depths = {2, 1, 1}};
    layout.units[2].act_bytes_per_token = UINT64_MAX / 64;
    for (uint32_t left = 0; left < 6; left++) {
        choice.leaves[LEAVE_STATES] = left % 2 ? layout.tile_count : 0;
        choice.segment = 1 + left / 2 % 2;
        lay_out_again(&in, &choice, &kept, &again);
        lay_out_memory(&in, &choice, &whole);
        assert_same(&again, &whole);
        if (left == 0)
            assert_int_equal(again.dram_bytes, UINT64_MAX);
    }
    layout_free(&layout);
}

static void a_memo_changes_nothing(void **state)
{
    (void)state;
    struct layout layout = model_of(1);
    struct placement_in in = inputs(&layout, NULL);
    uint32_t placed = 0, repeated = 0, classes, again;
    in.hbm_budget = 1 << 20;
    for (in.dram_budget = 1 << 18; in.dram_budget < 1u << 23; in.dram_budget += 1 << 17) {
        in.compute_tier = in.dram_budget >> 17 & 1 ? HST_TIER_HBM : HST_TIER_DRAM;
        struct placement_memo *memo = placement_memo_make(&in);
        uint64_t tables[8][HST_CLASS_COUNT][HST_TIER_COUNT];
        uint32_t found = 0;
        for (uint32_t n = 0; n < 8; n++) {
            struct placement_how how = PLACEMENT_USUAL;
            struct placement one = {0}, two = {0};
            how.first_quarters = 1 + n % 4;
            how.resident_quarters = n % PLACEMENT_ALL;
            const int rc = placement_search(&in, &how, memo, &classes, &one);
            const int alone = placement_search(&in, &how, NULL, &again, &two);
            assert_int_equal(classes, again);
            assert_int_equal(rc == -EALREADY ? 0 : rc, alone);
            bool was = false; /* among those that were found */
            for (uint32_t i = 0; alone == 0 && i < found; i++)
                was = was || memcmp(tables[i], two.table, sizeof two.table) == 0;
            assert_true(rc != -EALREADY || was);
            if (rc == 0) {
                assert_memory_equal(one.table, two.table, sizeof one.table);
                memcpy(tables[found++], one.table, sizeof one.table);
            }
            placed += rc == 0;
            repeated += rc == -EALREADY;
            placement_free(&one);
            placement_free(&two);
        }
        placement_memo_free(memo);
    }
    assert_true(placed > 50 && repeated > 50);
    layout_free(&layout);
}

static void bytes_on_drives_are_known_again(void **state)
{
    (void)state;
    struct layout layout = model_of(1);
    const struct placement_in in = inputs(&layout, NULL);
    struct unit_placement units[UNITS] = {0};
    struct placement p = {.units = units};
    struct placement_memo *memo = placement_memo_make(&in);
    struct choice choice = {.segment = 1, .depths = {2, 1, 1, 1}, .device_depths = {2, 1, 1}};
    for (uint32_t n = 0; n < 8; n++) {
        choice.leaves[LEAVE_WEIGHTS] = n % 4;
        lay_out(&in, &choice, &p);
        const uint64_t bytes = p.nvme_bytes;
        placement_memo_measure(memo, &in, &choice, &p);
        assert_int_equal(placement_memo_drives(memo, &in, &choice, &p), bytes);
        assert_int_equal(placement_memo_drives(NULL, &in, &choice, &p), bytes);
    }
    placement_memo_free(memo);
    layout_free(&layout);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(part_by_part_memory_is_what_it_is_at_once),
        cmocka_unit_test(an_overflow_leaves_no_trace),
        cmocka_unit_test(a_memo_changes_nothing),
        cmocka_unit_test(bytes_on_drives_are_known_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
