/* SPDX-License-Identifier: Apache-2.0 */
/* Plans as values: what goes in stays as it is, and what comes out follows from it alone. */
#include "placement_checks.h"
#include "plan/search/placement_search.h"
#include "plan/search/plan_seal.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TILE    4096
#define COLUMNS 64
#define BLOCK   256
#define GPU     true

/* An embedding and a head that may be in slices, and layers that are much smaller. */
static struct layout described(void)
{
    static const struct hst_param_desc embed = {
        .name = "embed", .dim_count = 2, .dims = {5000, COLUMNS}};
    static const struct hst_param_desc head = {
        .name = "head", .dim_count = 2, .dims = {5000, COLUMNS}};
    static const char *const names[] = {"one", "two", "three"};
    struct layout layout = {0};
    char why[256];
    const struct hst_unit_desc first = {.name = "embedding",
                                        .params = &embed,
                                        .param_count = 1,
                                        .work_bytes = 1 << 12,
                                        .slices = {.block_rows = BLOCK, .work_bytes = 1 << 12}};
    assert_int_equal(layout_add(&layout, &first, why, sizeof why), 0);
    for (int i = 0; i < 3; i++) {
        const struct hst_param_desc proj = {
            .name = names[i], .dim_count = 2, .dims = {1000, COLUMNS}};
        const struct hst_unit_desc layer = {.name = names[i],
                                            .params = &proj,
                                            .param_count = 1,
                                            .flops_per_token = 1 << 20,
                                            .act_bytes_per_token = 256};
        assert_int_equal(layout_add(&layout, &layer, why, sizeof why), 0);
    }
    const struct hst_unit_desc last = {
        .name = "head unit",
        .params = &head,
        .param_count = 1,
        .flops_per_token = 1 << 22,
        .flags = HST_UNIT_NO_FORWARD,
        .slices = {.block_rows = BLOCK, .work_bytes = 1 << 12, .token_bytes = 16}};
    assert_int_equal(layout_add(&layout, &last, why, sizeof why), 0);
    return layout;
}

static struct plan_in asked(const struct layout *layout, bool gpu)
{
    struct plan_in in = {.layout = layout,
                         .placement = inputs(layout, NULL),
                         .tile_elements = TILE,
                         .is_known = true,
                         .machine = {.rates = {.read = 1e9,
                                               .write = 1e9,
                                               .mixed = 1e9,
                                               .h2d = 1e9,
                                               .d2h = 1e9,
                                               .flops_per_s = 1e12,
                                               .update = 1e8,
                                               .norm = 1e9,
                                               .device_update = 1e10},
                                     .threads = 8}};
    in.placement.compute_tier = gpu ? HST_TIER_HBM : HST_TIER_DRAM;
    in.placement.hbm_budget = gpu ? 1u << 30 : 0;
    return in;
}

static void place(struct plan_in *in, const char *text)
{
    char why[256];
    assert_int_equal(place_parse(text, &in->placement.wish, why, sizeof why), 0);
}

/* A plan that fits, within its budgets; its layout's pointers are its own. */
static struct plan fitting(const struct plan_in *in)
{
    struct plan plan;
    const struct homes *homes = &plan.homes;
    assert_int_equal(plan_seal(in, &plan), 0);
    assert_string_equal(plan.why, "");
    assert_ptr_equal(homes->placement.layout, plan.layout);
    assert_ptr_equal(homes->in.layout, plan.layout);
    assert_true(plan.layout->whole == NULL || plan.layout->whole == in->layout);
    assert_true(homes->placement.hbm_bytes <= in->placement.hbm_budget);
    assert_true(homes->placement.dram_bytes <= in->placement.dram_budget);
    assert_true(homes->placement.nvme_bytes <= in->placement.nvme_budget);
    check_table(&homes->placement);
    return plan;
}

/* The least memory that would do, whole or in slices. */
static uint64_t least_dram(struct plan_in in)
{
    struct plan plan;
    in.placement.dram_budget = 1 << 16;
    assert_int_equal(plan_seal(&in, &plan), -ENOSPC);
    assert_non_null(strstr(plan.why, "Fix: "));
    uint64_t bytes = plan.homes.placement.dram_bytes;
    assert_true(bytes > in.placement.dram_budget);
    plan_free(&plan);
    return bytes;
}

static void *copied(const void *bytes, size_t count)
{
    void *copy = malloc(count);
    assert_non_null(copy);
    return memcpy(copy, bytes, count);
}

static void nothing_that_goes_in_is_changed(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct layout layout = described();
        const size_t unit_bytes = layout.unit_count * sizeof *layout.units,
                     param_bytes = layout.param_count * sizeof *layout.params;
        struct plan_in in = asked(&layout, i < 2);
        in.update.either = true;
        in.placement.dram_budget = i % 2 ? least_dram(in) : in.placement.dram_budget;
        void *units = copied(layout.units, unit_bytes),
             *params = copied(layout.params, param_bytes);
        const struct layout was = layout;
        void *in_was = copied(&in, sizeof in);
        struct plan plan = fitting(&in);
        assert_memory_equal(in_was, &in, sizeof in);
        assert_memory_equal(&was, &layout, sizeof layout);
        assert_memory_equal(units, layout.units, unit_bytes);
        assert_memory_equal(params, layout.params, param_bytes);
        plan_free(&plan);
        plan_free(&plan);
        free(in_was);
        free(units);
        free(params);
        layout_free(&layout);
    }
}

static void the_same_comes_out_each_time(void **state)
{
    (void)state;
    struct layout layout = described(), sealed = described();
    assert_int_equal(layout_seal(&sealed, 16 * TILE, SHARE_ALL),
                     0); /* tiles that are there are no matter */
    struct plan_in in = asked(&layout, GPU), other = asked(&sealed, GPU);
    in.placement.hbm_budget = other.placement.hbm_budget = 3 << 20;
    struct plan a = fitting(&in), b = fitting(&other);
    assert_true(a.homes.planned.simulated > 1);
    assert_int_equal(a.homes.planned.simulated, b.homes.planned.simulated);
    assert_string_equal(a.homes.planned.what, b.homes.planned.what);
    assert_true(a.homes.planned.step_s == b.homes.planned.step_s);
    assert_true(a.homes.steps.deferred_s == b.homes.steps.deferred_s);
    assert_memory_equal(a.homes.placement.table, b.homes.placement.table,
                        sizeof a.homes.placement.table);
    assert_int_equal(a.layout->tile_count, b.layout->tile_count);
    assert_true(layout_digest(a.layout) == layout_digest(b.layout));
    plan_free(&a);
    plan_free(&b);
    layout_free(&layout);
    layout_free(&sealed);
}

static void what_does_not_fit_is_in_slices(void **state)
{
    (void)state;
    struct layout layout = described();
    struct plan_in in = asked(&layout, false);
    in.is_known = false;
    struct plan plan = fitting(&in);
    assert_null(plan.layout->whole);
    plan_free(&plan);
    in.placement.dram_budget = least_dram(in);
    plan = fitting(&in);
    assert_ptr_equal(plan.layout->whole, &layout);
    assert_int_equal(plan.homes.planned.simulated, 0);
    plan_free(&plan);
    in.placement.dram_budget -= 4096;
    assert_int_equal(plan_seal(&in, &plan), -ENOSPC);
    assert_ptr_equal(plan.layout->whole, &layout);
    plan_free(&plan);
    layout_free(&layout);
}

/* A gather brings a slice, and its buffers are as large as that, or as the largest layer. */
static void ranks_have_no_whole_unit_in_memory(void **state)
{
    (void)state;
    struct layout layout = described();
    struct plan_in in = asked(&layout, false);
    in.is_known = false;
    for (uint32_t world = 2; world < 5; world++) {
        in.share = (struct share){0, world};
        in.tile_elements = 23 * TILE; /* nothing can be cut */
        const uint64_t whole = least_dram(in);
        in.tile_elements = TILE;
        struct plan_in little = in;
        little.placement.dram_budget = least_dram(in);
        assert_true(little.placement.dram_budget < whole);
        struct plan plan = fitting(&little);
        assert_ptr_equal(plan.layout->whole, &layout);
        for (uint32_t u = 0; u < plan.layout->unit_count; u++)
            assert_true(placement_shard_elements(plan.layout, u) * world <=
                        65536 + (world - 1) * LAYOUT_UNIT_ALIGN); /* the layers have 64,000 */
        plan_free(&plan);
    }
    layout_free(&layout);
}

/* A store's ranks have shards of whole units, or of slices, and go on with them where they fit. */
static void units_stay_as_the_store_has_them(void **state)
{
    (void)state;
    struct layout layout = described();
    struct plan_in in = asked(&layout, false);
    in.share = (struct share){0, 2};
    in.is_known = false;
    const uint64_t least = least_dram(in);
    for (int known = 0; known < 2; known++)
        for (int little = 0; little < 2; little++) {
            struct plan_in of = in;
            of.is_known = known;
            of.placement.dram_budget = little ? least : in.placement.dram_budget;
            of.machine.rates.read = of.machine.rates.write = of.machine.rates.mixed = 1e6;
            of.there = PLAN_UNITS_SLICED;
            struct plan plan = fitting(&of);
            assert_non_null(plan.layout->whole);
            plan_free(&plan);
            of.there = PLAN_UNITS_WHOLE;
            plan = fitting(&of);
            assert_int_equal(plan.layout->whole != NULL, little);
            plan_free(&plan);
        }
    in.there = PLAN_UNITS_SLICED;
    in.tile_elements = 23 * TILE; /* of another model: nothing can be cut */
    struct plan plan = fitting(&in);
    assert_null(plan.layout->whole);
    plan_free(&plan);
    layout_free(&layout);
}

/* Of drives that are too small, whether in slices or not, the whole is told of. */
static void of_two_ways_that_lack_as_much_the_whole_is_told(void **state)
{
    (void)state;
    struct layout layout = described();
    struct plan_in in = asked(&layout, false);
    struct plan plan;
    place(&in, "states=nvme");
    in.placement.nvme_budget = 1 << 20;
    assert_int_equal(plan_seal(&in, &plan), -EDQUOT);
    assert_null(plan.layout->whole);
    assert_true(plan.homes.placement.nvme_bytes > in.placement.nvme_budget);
    plan_free(&plan);
    layout_free(&layout);
}

static void refusals_are_a_reason_alone(void **state)
{
    (void)state;
    struct layout layout = described();
    struct plan_in in = asked(&layout, false);
    struct plan plan;
    place(&in, "weights=hbm");
    assert_int_equal(plan_seal(&in, &plan), -EINVAL);
    assert_non_null(strstr(plan.why, "cannot be placed in hbm"));
    assert_null(plan.layout);
    assert_null(plan.homes.placement.units);
    plan_free(&plan);
    layout_free(&layout);
}

/* Large where a GPU updates any and none passes through the buffer pool of the drives. */
static void tiles_are_as_large_as_who_updates_them_needs(void **state)
{
    (void)state;
    static const struct {
        bool gpu;
        const char *place;
        uint32_t asked, tiles;
    } rows[] = {
        {false, NULL, 0, PLAN_TILE_HOST},        {GPU, NULL, 0, PLAN_TILE_DEVICE},
        {GPU, "states=nvme", 0, PLAN_TILE_HOST}, {GPU, "grads=nvme,states=dram", 0, PLAN_TILE_HOST},
        {GPU, "states=dram", 0, PLAN_TILE_HOST}, {GPU, NULL, 2 * TILE, 2 * TILE}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct layout layout = described();
        struct plan_in in = asked(&layout, rows[i].gpu);
        if (rows[i].place)
            place(&in, rows[i].place);
        in.tile_elements = rows[i].asked;
        struct plan plan = fitting(&in);
        assert_int_equal(plan.layout->tile_elements, rows[i].tiles);
        plan_free(&plan);
        layout_free(&layout);
    }
}

/* Some units are at home on the GPU, and with large tiles states of the others are on drives. */
static void a_gpu_that_updates_beside_drives_has_small_tiles(void **state)
{
    (void)state;
    struct layout layout = described();
    struct plan_in in = asked(&layout, GPU);
    in.tile_elements = 0;
    in.is_known = false;
    in.placement.hbm_budget = 12 << 20;
    struct plan plan = fitting(&in);
    assert_int_equal(plan.layout->tile_elements, PLAN_TILE_DEVICE);
    assert_in_range(plan.homes.placement.resident_units, 1, layout.unit_count - 1);
    in.placement.dram_budget = plan.homes.placement.dram_bytes - (1 << 20);
    plan_free(&plan);
    plan = fitting(&in);
    assert_int_equal(plan.layout->tile_elements, PLAN_TILE_HOST);
    assert_true(plan.homes.placement.resident_units > 0);
    plan_free(&plan);
    layout_free(&layout);
}

static void second_slots_are_there_where_they_are_wanted_or_there_is_room(void **state)
{
    (void)state;
    struct layout layout = described();
    struct plan_in in = asked(&layout, GPU);
    in.is_known = false;
    place(&in, "weights=dram,states=dram,grads=dram,acts=hbm");
    struct plan without = fitting(&in);
    const uint64_t once = without.homes.placement.dram_bytes;
    assert_false(without.homes.in.second_slots);
    in.update.either = true;
    struct plan with = fitting(&in);
    assert_true(with.homes.in.second_slots);
    assert_true(homes_differ_by_slots(&with.homes, &without.homes));
    plan_free(&with);
    plan_free(&without);
    in.placement.dram_budget = once; /* none for them */
    without = fitting(&in);
    assert_false(without.homes.in.second_slots);
    plan_free(&without);
    in.update = (struct update_wish){.optimistic = true};
    assert_int_equal(plan_seal(&in, &without), -ENOSPC);
    assert_true(without.homes.in.second_slots);
    plan_free(&without);
    layout_free(&layout);
}

/* Where an update takes as long as the rest, and drives are fast enough for what makes room. */
static void slots_are_made_room_for_where_they_are_worth_it(void **state)
{
    (void)state;
    for (int may = 0; may < 2; may++) {
        struct layout layout = described();
        struct plan_in in = asked(&layout, GPU);
        place(&in, "weights=dram,grads=dram,acts=hbm");
        in.update = (struct update_wish){.either = may, .frees = true};
        in.placement.batch_tokens = in.placement.micro_batch_tokens = 32;
        in.machine.rates.read = in.machine.rates.write = in.machine.rates.mixed = 1e13;
        in.machine.rates.h2d = in.machine.rates.d2h = 1e13;
        in.machine.rates.flops_per_s = 1e9; /* some 0.7 s */
        in.machine.rates.update = 2e6;
        in.phases = PHASE_COMMIT;
        struct plan all = fitting(&in);
        in.placement.dram_budget = all.homes.placement.dram_bytes * 2 / (may ? 3 : 1);
        plan_free(&all);
        struct plan plan = fitting(&in);
        assert_int_equal(plan.homes.in.second_slots, may);
        assert_int_equal(strstr(plan.homes.planned.what, "; second slots") != NULL, may);
        if (may) {
            assert_true(plan.homes.planned.better);
            assert_true(planner_is_optimistic(&plan.homes.steps));
            assert_true(plan.homes.planned.usual_step_s > plan.homes.planned.step_s);
        }
        plan_free(&plan);
        layout_free(&layout);
    }
}

static void fixed_of_store(const struct layout *layout, const struct optimizer *optimizer,
                           uint32_t drives, uint64_t fixed_bytes[STRIPE_DRIVES_MAX])
{
    assert_true(optimizer_weight_bytes(optimizer) > 0);
    for (uint32_t d = 0; d < drives; d++)
        fixed_bytes[d] = layout->tile_count * UINT64_C(4096);
}

static void a_store_has_what_its_tiles_need_beside_them(void **state)
{
    (void)state;
    struct layout layout = described();
    struct plan_in in = asked(&layout, false);
    in.placement.stored = true;
    in.placement.drive_count = 1;
    in.placement.drive_budgets[0] = in.placement.nvme_budget;
    struct plan scratch = fitting(&in);
    in.store_fixed = fixed_of_store;
    struct plan plan = fitting(&in);
    const uint64_t fixed = plan.layout->tile_count * UINT64_C(4096);
    assert_true(plan.homes.in.store_fixed[0] == fixed);
    assert_true(plan.homes.placement.nvme_bytes - scratch.homes.placement.nvme_bytes == fixed);
    plan_free(&plan);
    plan_free(&scratch);
    layout_free(&layout);
}

/* An embedding and a head that hold memory for one moment each are slower as a whole. */
static void slices_are_taken_where_they_make_steps_faster(void **state)
{
    (void)state;
    for (int fast = 0; fast < 2; fast++) {
        struct layout layout = described();
        struct plan_in in = asked(&layout, false);
        struct plan plan;
        in.placement.dram_budget = 1 << 16;
        in.is_known = false;
        /* the least that would do as a whole */
        in.tile_elements = 23 * TILE; /* nothing can be cut */
        assert_int_equal(plan_seal(&in, &plan), -ENOSPC);
        in.placement.dram_budget = plan.homes.placement.dram_bytes + (1 << 20);
        plan_free(&plan);
        in.tile_elements = TILE;
        in.is_known = true;
        const double drives = fast ? 1e15 : 1e6;
        in.machine.rates.read = in.machine.rates.write = in.machine.rates.mixed = drives;
        plan = fitting(&in);
        assert_int_equal(plan.layout->whole != NULL, !fast);
        assert_int_equal(strstr(plan.homes.planned.what, "; large units in slices") != NULL, !fast);
        if (!fast) {
            assert_true(plan.homes.planned.better);
            assert_true(plan.homes.planned.step_s < plan.homes.planned.usual_step_s);
        }
        plan_free(&plan);
        layout_free(&layout);
    }
}

/* Of so many layers, with an embedding and a head. */
static struct layout layers(uint32_t count, uint64_t rows, uint64_t flops)
{
    struct layout layout = {0};
    char why[256], names[64][16];
    for (uint32_t u = 0; u < count + 2; u++) {
        const bool end = u == 0 || u == count + 1;
        snprintf(names[u], sizeof names[u], "unit.%u", u);
        const struct hst_param_desc param = {
            .name = names[u], .dim_count = 2, .dims = {end ? rows / 2 : rows, COLUMNS}};
        const struct hst_unit_desc unit = {.name = names[u],
                                           .params = &param,
                                           .param_count = 1,
                                           .flops_per_token = u == 0 ? 0 : flops,
                                           .act_bytes_per_token = end ? 0 : 256,
                                           .flags = u == count + 1 ? HST_UNIT_NO_FORWARD
                                                    : end          ? 0
                                                                   : HST_UNIT_RECOMPUTE};
        assert_int_equal(layout_add(&layout, &unit, why, sizeof why), 0);
    }
    return layout;
}

/* More memory is no reason for a slower step, but for what a search overlooks: with less of it all
 * states are on drives, an update need not wait, and so it may be with more. */
static void more_memory_makes_no_plan_slower(void **state)
{
    static const struct {
        uint32_t layers;
        uint64_t rows, flops;
        double drives, update;
        bool stored;
    } rows[] = {{6, 4000, 1 << 21, 7e7, 1e8, true},
                {6, 4000, 1 << 21, 7e7, 1e8, false},
                {12, 2000, 1 << 20, 7e7, 3e7, true},
                {4, 9000, 1 << 23, 4e7, 5e7, true},
                {24, 1000, 1 << 18, 1.4e8, 4e8, true}};
    (void)state;
    uint32_t optimistic = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct layout layout = layers(rows[i].layers, rows[i].rows, rows[i].flops);
        struct plan_in in = asked(&layout, false);
        in.placement.deferred = true;
        in.placement.stored = rows[i].stored;
        in.placement.hidden_bytes_per_token = 256;
        in.update =
            (struct update_wish){.either = true, .frees = !rows[i].stored, .frees_all = true};
        in.machine.rates = (struct sim_rates){.read = rows[i].drives,
                                              .write = rows[i].drives,
                                              .mixed = 1.5 * rows[i].drives,
                                              .flops_per_s = 1e10,
                                              .update = rows[i].update,
                                              .norm = 1e9,
                                              .shared_cores = true};
        struct update_steps best = {INFINITY, INFINITY};
        for (double bytes = (double)least_dram(in); bytes < 6e7; bytes *= 1.3) {
            in.placement.dram_budget = (uint64_t)bytes;
            struct plan plan = fitting(&in);
            const struct update_steps steps = plan.homes.steps;
            const double step_s = planner_unclipped_s(&steps), least_s = planner_unclipped_s(&best);
            /* unless a step that clips is shorter by as much */
            if (step_s > least_s * (1 + PLAN_DRIVES_GAIN_LEAST + 2 * PLANNER_GAIN_LEAST) &&
                step_s - least_s > best.deferred_s - steps.deferred_s)
                fail_msg("row %zu: with %.3g bytes a step takes %.4g s, with less %.4g", i, bytes,
                         step_s, least_s);
            best = step_s < least_s ? steps : best;
            optimistic += planner_is_optimistic(&plan.homes.steps);
            plan_free(&plan);
        }
        layout_free(&layout);
    }
    assert_true(optimistic > 0);
}

/* Another order of classes that had no turn to leave. */
static void an_order_of_what_need_not_leave_changes_nothing(void **state)
{
    (void)state;
    struct layout layout = layers(6, 1000, 1 << 20);
    assert_int_equal(layout_seal(&layout, TILE, SHARE_ALL), 0);
    struct placement_in in = inputs(&layout, NULL);
    uint32_t alike = 0, most = 0;
    for (in.dram_budget = 1 << 18; in.dram_budget < 1u << 23; in.dram_budget += 1 << 16) {
        struct placement_how how = PLACEMENT_USUAL, other = PLACEMENT_USUAL;
        struct placement one = {0}, two = {0};
        uint32_t classes, again;
        int rc = placement_search(&in, &how, NULL, &classes, &one);
        if (rc == 0 && classes + 1 < LEAVE_COUNT) {
            other.order[classes] = how.order[LEAVE_COUNT - 1];
            other.order[LEAVE_COUNT - 1] = how.order[classes];
            assert_int_equal(placement_search(&in, &other, NULL, &again, &two), 0);
            assert_int_equal(again, classes);
            assert_memory_equal(one.table, two.table, sizeof one.table);
            assert_int_equal(one.dram_bytes, two.dram_bytes);
            alike++;
        }
        most = rc == 0 && classes > most ? classes : most;
        placement_free(&one);
        placement_free(&two);
    }
    assert_true(alike > 0 && most >= 2);
    layout_free(&layout);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_that_goes_in_is_changed),
        cmocka_unit_test(the_same_comes_out_each_time),
        cmocka_unit_test(what_does_not_fit_is_in_slices),
        cmocka_unit_test(ranks_have_no_whole_unit_in_memory),
        cmocka_unit_test(units_stay_as_the_store_has_them),
        cmocka_unit_test(of_two_ways_that_lack_as_much_the_whole_is_told),
        cmocka_unit_test(refusals_are_a_reason_alone),
        cmocka_unit_test(tiles_are_as_large_as_who_updates_them_needs),
        cmocka_unit_test(a_gpu_that_updates_beside_drives_has_small_tiles),
        cmocka_unit_test(second_slots_are_there_where_they_are_wanted_or_there_is_room),
        cmocka_unit_test(slots_are_made_room_for_where_they_are_worth_it),
        cmocka_unit_test(a_store_has_what_its_tiles_need_beside_them),
        cmocka_unit_test(slices_are_taken_where_they_make_steps_faster),
        cmocka_unit_test(more_memory_makes_no_plan_slower),
        cmocka_unit_test(an_order_of_what_need_not_leave_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
