/* SPDX-License-Identifier: Apache-2.0 */
/* Placement: homes within budgets, addresses that do not overlap, a table exact to the byte. */
#include "placement_checks.h"
#include "plan/placement/lay_out.h"
#include "plan/search/placement_search.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void everything_is_at_home_in_dram_where_it_fits(void **state)
{
    (void)state;
    struct layout layout = model(8192);
    struct placement_in in = inputs(&layout, NULL);
    struct placement p = {0};
    char why[512];
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), 0);
    assert_int_equal(p.nvme_bytes, 0);
    assert_int_equal(p.slots.count + p.reservations[0].count, 0);
    check_addresses(&in, &p, HST_TIER_DRAM);
    check_table(&p);
    placement_free(&p);
    layout_free(&layout);
}

static void every_budget_down_to_the_smallest_is_kept_and_the_next_is_refused(void **state)
{
    (void)state;
    struct layout layout = model(4096);
    struct placement_in in = inputs(&layout, NULL);
    struct placement p = {0};
    char why[512];
    uint64_t smallest = 0, nvme_before = 0;
    uint32_t slots_before = 0;
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), 0);
    in.dram_budget = p.dram_bytes;
    placement_free(&p);
    for (; placement_plan(&in, &p, why, sizeof why) == 0; in.dram_budget -= 4096) {
        assert_true(p.dram_bytes <= in.dram_budget);
        /* the less memory the more leaves it, but for where smaller buffer pools make room */
        assert_true(p.nvme_bytes >= nvme_before || p.slots.count < slots_before);
        nvme_before = p.nvme_bytes;
        slots_before = p.slots.count;
        smallest = p.dram_bytes;
        check_addresses(&in, &p, HST_TIER_DRAM);
        check_addresses(&in, &p, HST_TIER_NVME);
        check_table(&p);
        placement_free(&p);
    }
    assert_true(nvme_before > 0);
    /* The number that the message names is a budget that works, hardly more than the smallest. */
    in.dram_budget = named_budget(why);
    assert_true(in.dram_budget >= smallest && in.dram_budget < smallest + 1048576 / 5);
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), 0);
    placement_free(&p);
    layout_free(&layout);
}

static void states_leave_before_weights_and_no_more_than_needed(void **state)
{
    (void)state;
    struct layout layout = model(4096);
    struct placement_in in = inputs(&layout, NULL);
    struct placement all = {0}, p = {0};
    char why[512];
    assert_int_equal(placement_plan(&in, &all, why, sizeof why), 0);
    uint64_t states = all.table[HST_CLASS_STATES][HST_TIER_DRAM];
    in.dram_budget = all.dram_bytes - states / 4;
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), 0);
    assert_int_equal(p.table[HST_CLASS_WEIGHTS][HST_TIER_NVME], 0);
    assert_true(p.table[HST_CLASS_STATES][HST_TIER_DRAM] > 0);
    assert_true(p.table[HST_CLASS_STATES][HST_TIER_NVME] > 0);
    /* One tile more in DRAM would not have fitted. */
    uint64_t record = record_layout(in.optimizer, 4096).bytes;
    assert_true(p.dram_bytes + record > in.dram_budget);
    placement_free(&all);
    placement_free(&p);
    layout_free(&layout);
}

static void a_small_nvme_budget_is_enough_where_little_must_leave_dram(void **state)
{
    (void)state;
    struct layout layout = model(4096);
    struct placement_in in = inputs(&layout, NULL);
    struct placement all = {0}, p = {0};
    char why[512];
    assert_int_equal(placement_plan(&in, &all, why, sizeof why), 0);
    in.dram_budget = all.dram_bytes - all.table[HST_CLASS_STATES][HST_TIER_DRAM] / 4;
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), 0);
    uint64_t enough = p.nvme_bytes;
    assert_true(enough < all.table[HST_CLASS_STATES][HST_TIER_DRAM]);
    placement_free(&p);
    in.nvme_budget = enough;
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), 0);
    placement_free(&p);
    in.nvme_budget = 4096;
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), -EDQUOT);
    assert_non_null(strstr(why, "--nvme"));
    placement_free(&all);
    layout_free(&layout);
}

static uint64_t saved_mask(const struct placement *p)
{
    uint64_t mask = 0;
    for (uint32_t u = 0; u < p->layout->unit_count; u++)
        mask |= (uint64_t)(p->units[u].saved != PLACEMENT_NO_ADDRESS) << u;
    return mask;
}

/* All but the first unit can; they take what is left, evenly among them, and nothing leaves for
 * them. */
static void activations_stay_where_there_is_room(void **state)
{
    (void)state;
    static const uint64_t masks[UNITS] = {0, 0x20, 0x28, 0x34, 0x3c, 0x3e};
    struct layout layout = model(4096);
    struct placement_in in = inputs(&layout, NULL);
    struct placement p = {0};
    char why[512];
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), 0);
    uint64_t least = p.dram_bytes, each = 4 * 10000 / 4096 * 4096 + 4096;
    assert_int_equal(saved_mask(&p), 0);
    placement_free(&p);
    for (uint32_t u = 1; u < UNITS; u++)
        layout.units[u].saved_bytes = 10000; /* of each of four micro-batches */
    for (uint32_t kept = 0; kept < UNITS; kept++) {
        in.dram_budget = least + kept * each;
        assert_int_equal(placement_plan(&in, &p, why, sizeof why), 0);
        assert_int_equal(p.saved_units, kept);
        assert_int_equal(saved_mask(&p), masks[kept]);
        assert_int_equal(p.dram_bytes, in.dram_budget);
        assert_int_equal(p.nvme_bytes, 0);
        check_addresses(&in, &p, HST_TIER_DRAM);
        check_table(&p);
        placement_free(&p);
    }
    in.dram_budget = least - 4096; /* others leave, and none are kept before they do */
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), 0);
    assert_true(p.nvme_bytes > 0 && p.dram_bytes + each > in.dram_budget);
    placement_free(&p);
    layout_free(&layout);
}

static void activations_with_another_home_do_not_stay(void **state)
{
    (void)state;
    static const char *const wishes[] = {NULL, "acts=dram", "acts=nvme"};
    struct layout layout = model(4096);
    for (uint32_t u = 1; u < UNITS; u++)
        layout.units[u].saved_bytes = 10000;
    for (int again = 0; again < 2; again++)
        for (size_t i = 0; i < sizeof wishes / sizeof *wishes; i++) {
            struct placement_in in = inputs(&layout, wishes[i]);
            struct placement p = {0};
            char why[512];
            in.recompute = again;
            bool none = again || (wishes[i] && strcmp(wishes[i], "acts=nvme") == 0);
            assert_int_equal(placement_plan(&in, &p, why, sizeof why), 0);
            assert_int_equal(p.saved_units, none ? 0 : UNITS - 1);
            assert_int_equal(placement_savable_units(&in), p.saved_units);
            placement_free(&p);
        }
    layout_free(&layout);
}

/* Though there is room: whoever plans so needs it for something else. */
static void what_is_computed_again_in_segments_keeps_no_activations(void **state)
{
    (void)state;
    struct layout layout = model(4096);
    struct placement_in in = inputs(&layout, NULL);
    struct placement_how how = PLACEMENT_USUAL;
    how.resident_quarters = PLACEMENT_ALL;
    how.saved_eighths = 8;
    for (uint32_t u = 1; u < UNITS; u++) {
        layout.units[u].saved_bytes = 10000;
        layout.units[u].recompute = true;
    }
    for (how.segment = 1; how.segment <= 2; how.segment++) {
        struct placement p = {0};
        uint32_t classes;
        assert_int_equal(placement_search(&in, &how, NULL, &classes, &p), 0);
        assert_int_equal(p.segment, how.segment);
        assert_int_equal(p.saved_units, how.segment == 1 ? UNITS - 1 : 0);
        placement_free(&p);
    }
    layout_free(&layout);
}

static void sizes_that_overflow_are_refused(void **state)
{
    (void)state;
    struct placement p = {0};
    char why[512];
    struct layout layout = model(4096);
    struct placement_in in = inputs(&layout, NULL);
    in.hidden_bytes_per_token = 1ull << 62;
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), -ENOSPC);
    in = inputs(&layout, NULL);
    layout.units[1].work_bytes = UINT64_MAX - 100;
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), -ENOSPC);
    layout.units[1].work_bytes = 0;
    layout.units[2].act_bytes_per_token = 1ull << 62;
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), -ENOSPC);
    layout_free(&layout);
}

static void wishes_are_kept_and_contradictions_refused(void **state)
{
    (void)state;
    struct layout layout = model(4096);
    struct placement p = {0};
    char why[512];
    struct placement_in in = inputs(&layout, "states=nvme,weights=nvme");
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), 0);
    assert_int_equal(
        p.table[HST_CLASS_WEIGHTS][HST_TIER_DRAM] + p.table[HST_CLASS_STATES][HST_TIER_DRAM], 0);
    assert_int_equal(p.slots.count, 24);
    assert_int_equal(p.reservations[0].count, 3);
    check_addresses(&in, &p, HST_TIER_DRAM);
    check_addresses(&in, &p, HST_TIER_NVME);
    placement_free(&p);
    in.has_nvme = false;
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), -EINVAL);
    in = inputs(&layout, "carry=nvme");
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), -EINVAL);
    in = inputs(&layout, "grads=nvme,acts=nvme");
    in.drive_count = 1;
    in.drive_budgets[0] = 1u << 30;
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), 0);
    assert_int_equal(
        p.table[HST_CLASS_GRADS][HST_TIER_DRAM] + p.table[HST_CLASS_ACTS][HST_TIER_DRAM], 0);
    assert_int_equal(p.grad_buffers[0].count, 2);
    assert_int_equal(p.act_buffers.count, 3);
    check_addresses(&in, &p, HST_TIER_DRAM);
    check_drives(&in, &p);
    check_table(&p);
    placement_free(&p);
    in.deferred = false; /* gradients are used up at once */
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), 0);
    assert_int_equal(
        p.table[HST_CLASS_GRADS][HST_TIER_DRAM] + p.table[HST_CLASS_GRADS][HST_TIER_NVME], 0);
    check_drives(&in, &p);
    placement_free(&p);
    in = inputs(&layout, "grads=nvme");
    in.has_nvme = false; /* and go to no drive */
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), -EINVAL);
    in.deferred = false;
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), 0);
    assert_int_equal(p.nvme_bytes, 0);
    placement_free(&p);
    in = inputs(&layout, "weights=hbm");
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), -EINVAL);
    in = inputs(&layout, "states=dram,weights=dram");
    in.dram_budget = 1u << 20;
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), -ENOSPC);
    in = inputs(&layout, "states=nvme");
    in.nvme_budget = 4096;
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), -EDQUOT);
    layout_free(&layout);
}

/* ---- checkpoints that are recomputed ---- */

#define ACTS UINT64_C(32768) /* of a unit: 4 micro-batches of 32 tokens, 256 bytes each */

/* Units 1 to 4 may be recomputed, 5 keeps its checkpoint. */
static struct layout model_of_layers(void)
{
    struct layout layout = model(4096);
    for (uint32_t u = 1; u < UNITS - 1; u++)
        layout.units[u].recompute = true;
    return layout;
}

static void check_segments(enum hst_tier tier, uint32_t offloaded, enum hst_tier home)
{
    struct layout layout = model_of_layers();
    struct unit_placement units[UNITS], others[UNITS];
    struct placement p = {.units = units}, memory = {.units = others};
    struct placement_in in = inputs(&layout, NULL);
    in.compute_tier = tier;
    /* units to one checkpoint: those kept of 1 to 4, and buffers between first and last */
    static const uint32_t kept[] = {0, 4, 2, 2, 1}, inner[] = {0, 0, 0, 1, 2};
    for (uint32_t segment = 1; segment <= 4; segment++) {
        const struct choice choice = {.acts_offloaded = offloaded,
                                      .depths = {2, 1, 1, 1},
                                      .device_depths = {2, 1, 1},
                                      .segment = segment};
        lay_out(&in, &choice, &p);
        lay_out_memory(&in, &choice, &memory);
        assert_int_equal(memory.hbm_bytes, p.hbm_bytes);
        assert_int_equal(memory.dram_bytes, p.dram_bytes);
        uint64_t near = p.table[HST_CLASS_ACTS][tier], far = p.table[HST_CLASS_ACTS][home];
        assert_int_equal(far, (kept[segment] + 1 + (tier == home ? inner[segment] : 0)) * ACTS);
        assert_true(tier == home || near == inner[segment] * ACTS);
        assert_int_equal(p.segment, segment);
        for (uint32_t u = 1; u < UNITS; u++) {
            uint32_t place = u < UNITS - 1 ? (u - 1) % segment : 0;
            bool last = place > 0 && (u == UNITS - 2 || place == segment - 1);
            assert_int_equal(units[u].recomputed, place > 0);
            assert_int_equal(units[u].act_bytes, place > 0 ? 0 : ACTS);
            assert_int_equal(units[u].acts.tier, place > 0 ? tier : home);
            assert_int_equal(last, units[u].acts.offset == p.hidden);
        }
        check_addresses(&in, &p, HST_TIER_DRAM);
        check_addresses(&in, &p, HST_TIER_HBM);
        check_table(&p);
    }
    layout_free(&layout);
}

static void what_is_computed_again_takes_the_buffers_of_one_segment(void **state)
{
    (void)state;
    check_segments(HST_TIER_DRAM, 0, HST_TIER_DRAM);
    check_segments(HST_TIER_HBM, 0, HST_TIER_HBM);
    check_segments(HST_TIER_HBM, UNITS, HST_TIER_DRAM);
}

static void checkpoints_are_left_out_where_nothing_else_fits(void **state)
{
    (void)state;
    struct layout layout = model_of_layers();
    struct placement_in in = inputs(&layout, NULL);
    struct placement p = {0};
    char why[512];
    in.has_nvme = false;
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), 0);
    assert_int_equal(p.segment, 1);
    uint64_t all = p.dram_bytes;
    placement_free(&p);
    in.dram_budget = all - 4096;
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), 0);
    assert_int_equal(p.segment, 2);
    assert_int_equal(p.dram_bytes, all - 2 * ACTS);
    placement_free(&p);
    in.dram_budget = all - 2 * ACTS - 4096; /* the smallest keeps two of four */
    assert_int_equal(placement_try(&in, &p, why, sizeof why), -ENOSPC);
    assert_int_equal(p.dram_bytes, all - 2 * ACTS);
    placement_free(&p);
    in.dram_budget = all - 4096; /* wherever a wish puts them, there are all */
    assert_int_equal(place_parse("acts=dram", &in.wish, why, sizeof why), 0);
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), -ENOSPC);
    in.wish.fixed[HST_CLASS_ACTS] = false;
    in.has_nvme = true;
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), 0);
    assert_int_equal(p.segment, 1); /* drives have room */
    placement_free(&p);
    layout_free(&layout);
}

static void checkpoints_are_left_out_where_drives_are_full(void **state)
{
    (void)state;
    struct layout layout = model_of_layers();
    struct placement_in in = inputs(&layout, "weights=dram,grads=dram,states=dram,acts=nvme");
    struct placement p = {0};
    char why[512];
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), 0);
    assert_int_equal(p.nvme_bytes, 5 * ACTS);
    uint64_t rest = p.dram_bytes - p.act_buffers.count * ACTS;
    placement_free(&p);
    in.wish.fixed[HST_CLASS_ACTS] = false;
    in.nvme_budget = 2 * ACTS;
    in.dram_budget = rest + 4 * ACTS; /* three units, and a buffer for the other two */
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), 0);
    assert_int_equal(p.segment, 1);
    placement_free(&p);
    in.dram_budget -= 4096;
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), 0);
    assert_int_equal(p.segment, 2);
    assert_true(p.nvme_bytes <= in.nvme_budget);
    placement_free(&p);
    in.dram_budget = rest + ACTS; /* the buffer alone, and three units that drives must hold */
    assert_int_equal(placement_try(&in, &p, why, sizeof why), -EDQUOT);
    assert_int_equal(p.nvme_bytes, 3 * ACTS);
    placement_free(&p);
    layout_free(&layout);
}

static void drives_hold_shares_as_large_as_their_rates(void **state)
{
    (void)state;
    struct layout layout = model(4096);
    struct placement p = {0};
    char why[512];
    struct placement_in in = inputs(&layout, "states=nvme,weights=nvme");
    in.drive_count = 3;
    for (uint32_t d = 0; d < 3; d++) {
        in.drive_rates[d] = d == 1 ? 2e9 : 1e9;
        in.drive_budgets[d] = 1u << 30;
    }
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), 0);
    check_drives(&in, &p);
    double share = (double)p.drive_bytes[1] / (double)p.nvme_bytes;
    assert_true(share > 0.4 && share < 0.6);
    placement_free(&p);
    in.drive_budgets[1] = 4096;
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), -EDQUOT);
    assert_non_null(strstr(why, "directory 2 of --store"));
    in = inputs(&layout, "states=nvme");
    in.optimizer = optimizer_find(HST_OPTIMIZER_ADAMW, HST_PRECISION_BF16, HST_STATE_BF16);
    in.drive_count = 2;
    in.drive_rates[0] = 3;
    in.drive_rates[1] = 1;
    in.drive_budgets[0] = in.drive_budgets[1] = 1u << 30;
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), 0);
    check_drives(&in, &p);
    placement_free(&p);
    layout_free(&layout);
}

/* The table of a placement that fits, checked. */
static void table_of(const struct placement_in *in, uint64_t table[HST_CLASS_COUNT][HST_TIER_COUNT])
{
    struct placement p = {0};
    char why[512];
    assert_int_equal(placement_plan(in, &p, why, sizeof why), 0);
    check_addresses(in, &p, HST_TIER_DRAM);
    if (in->stored)
        assert_int_equal(placement_second(&p, EXTENT_STATES, 0, 0), 0);
    else
        check_drives(in, &p);
    check_table(&p);
    memcpy(table, p.table, sizeof p.table);
    placement_free(&p);
}

/* Weights and states, wherever they are; but a store has slots of its own on drives. */
static void second_slots_are_counted_in_memory_and_on_drives(void **state)
{
    (void)state;
    static const char *const places[] = {
        "states=nvme,weights=nvme,grads=nvme,acts=nvme", "states=nvme", "weights=nvme",
        "states=dram,weights=dram,grads=nvme,acts=dram", "acts=nvme"};
    struct layout layout = model(4096);
    for (int i = 0; i < 15; i++) {
        struct placement_in in = inputs(&layout, places[i % 5]);
        uint64_t once[HST_CLASS_COUNT][HST_TIER_COUNT], twice[HST_CLASS_COUNT][HST_TIER_COUNT];
        in.drive_count = 1 + (uint32_t)i / 5;
        in.stored = i == 14;
        for (uint32_t d = 0; d < in.drive_count; d++) {
            in.drive_rates[d] = 3 - d;
            in.drive_budgets[d] = 1u << 30;
        }
        table_of(&in, once);
        in.second_slots = true;
        table_of(&in, twice);
        for (int c = 0; c < HST_CLASS_COUNT; c++)
            for (int t = 0; t < HST_TIER_COUNT; t++) {
                bool slots = (c == HST_CLASS_WEIGHTS || c == HST_CLASS_STATES) &&
                             (t == HST_TIER_DRAM || !in.stored);
                assert_int_equal(twice[c][t], once[c][t] * (slots ? 2 : 1));
            }
    }
    layout_free(&layout);
}

static void second_slots_on_drives_are_within_the_budget(void **state)
{
    (void)state;
    struct layout layout = model(4096);
    struct placement_in in = inputs(&layout, "states=nvme,weights=nvme,grads=dram,acts=dram");
    struct placement p = {0};
    char why[512];
    in.second_slots = true;
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), 0);
    in.nvme_budget = p.nvme_bytes;
    placement_free(&p);
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), 0);
    placement_free(&p);
    in.nvme_budget--;
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), -EDQUOT);
    assert_non_null(strstr(why, "a second slot of its weights and states"));
    assert_non_null(strstr(why, "--update deferred"));
    in.second_slots = false;
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), 0);
    assert_int_equal(p.nvme_bytes, (in.nvme_budget + 1) / 2);
    placement_free(&p);
    layout_free(&layout);
}

static void stripes_are_fair_even_and_complete(void **state)
{
    (void)state;
    const double rates[][STRIPE_DRIVES_MAX] = {
        {1},       {1, 1},       {3, 1}, {7e9, 3.5e9, 1e9},
        {1, 1000}, {NAN, 2, -1}, {0, 0}, {1, 1, 1, 1, 1, 1, 1, 1}};
    const uint32_t drives[] = {1, 2, 2, 3, 2, 3, 2, 8};
    for (size_t r = 0; r < sizeof drives / sizeof drives[0]; r++) {
        struct stripe s;
        stripe_init(&s, rates[r], drives[r]);
        uint32_t sum = 0;
        for (uint32_t d = 0; d < drives[r]; d++) {
            assert_true(s.before[STRIPE_CYCLE][d] >= 1);
            sum += s.before[STRIPE_CYCLE][d];
        }
        assert_int_equal(sum, STRIPE_CYCLE);
        uint64_t seen[STRIPE_DRIVES_MAX] = {0};
        for (uint64_t tile = 0; tile < 1000; tile++) {
            uint32_t drive = stripe_drive(&s, tile);
            assert_true(drive < drives[r]);
            assert_int_equal(stripe_before(&s, tile, drive), seen[drive]);
            seen[drive]++;
            /* evenly: never more than one tile away from its share */
            for (uint32_t d = 0; d < drives[r]; d++) {
                double share = (double)s.before[STRIPE_CYCLE][d] / STRIPE_CYCLE;
                assert_true(fabs((double)seen[d] - share * (double)(tile + 1)) < 1.5);
            }
        }
    }
    struct stripe s;
    stripe_init(&s, (const double[]){3, 1}, 2);
    assert_int_equal(s.before[STRIPE_CYCLE][0], 48);
}

static void a_unit_gathers_its_tiles_and_those_of_what_it_is_tied_to(void **state)
{
    (void)state;
    struct layout layout = model(4096);
    struct gather gathers[GATHER_MAX];
    assert_int_equal(placement_gather(&layout, sizeof(float), 2, gathers), 1);
    assert_int_equal(gathers[0].first_tile, layout.units[2].first_tile);
    assert_int_equal(gathers[0].tile_count, layout.units[2].tile_count);
    assert_int_equal(placement_gather(&layout, sizeof(float), UNITS - 1, gathers), 2);
    assert_int_equal(gathers[1].first_tile, 0);
    assert_int_equal(gathers[1].reservation_at, layout.units[UNITS - 1].elements * 4);
    /* 64 + 20,000 elements in tiles of 4,096: five tiles. */
    assert_int_equal(gathers[1].tile_count, 5);
    layout_free(&layout);
}

static void place_texts_are_parsed_or_refused(void **state)
{
    (void)state;
    struct place_wish wish = {0};
    char why[256];
    assert_int_equal(place_parse("states=nvme,weights=dram", &wish, why, sizeof why), 0);
    assert_true(wish.fixed[HST_CLASS_STATES] && wish.tier[HST_CLASS_STATES] == HST_TIER_NVME);
    assert_true(wish.fixed[HST_CLASS_WEIGHTS] && wish.tier[HST_CLASS_WEIGHTS] == HST_TIER_DRAM);
    assert_false(wish.fixed[HST_CLASS_GRADS]);
    static const char *const bad[] = {"states",       "states=",
                                      "=nvme",        "states=disk",
                                      "state=nvme",   "states=nvme,",
                                      ",states=nvme", "states=nvme,states=dram",
                                      "buffers=dram", "states=nvme weights=dram"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(place_parse(bad[i], &wish, why, sizeof why), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_is_at_home_in_dram_where_it_fits),
        cmocka_unit_test(every_budget_down_to_the_smallest_is_kept_and_the_next_is_refused),
        cmocka_unit_test(states_leave_before_weights_and_no_more_than_needed),
        cmocka_unit_test(a_small_nvme_budget_is_enough_where_little_must_leave_dram),
        cmocka_unit_test(activations_stay_where_there_is_room),
        cmocka_unit_test(activations_with_another_home_do_not_stay),
        cmocka_unit_test(what_is_computed_again_in_segments_keeps_no_activations),
        cmocka_unit_test(sizes_that_overflow_are_refused),
        cmocka_unit_test(wishes_are_kept_and_contradictions_refused),
        cmocka_unit_test(what_is_computed_again_takes_the_buffers_of_one_segment),
        cmocka_unit_test(checkpoints_are_left_out_where_nothing_else_fits),
        cmocka_unit_test(checkpoints_are_left_out_where_drives_are_full),
        cmocka_unit_test(drives_hold_shares_as_large_as_their_rates),
        cmocka_unit_test(second_slots_are_counted_in_memory_and_on_drives),
        cmocka_unit_test(second_slots_on_drives_are_within_the_budget),
        cmocka_unit_test(stripes_are_fair_even_and_complete),
        cmocka_unit_test(a_unit_gathers_its_tiles_and_those_of_what_it_is_tied_to),
        cmocka_unit_test(place_texts_are_parsed_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
