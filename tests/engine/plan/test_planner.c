/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The planner over the fixed list of models on machines: within the budgets, never slower in
 * simulation than the usual homes, the same each time; and cases in which it must find better ones.
 */
#include "graph/graph_cases.h"
#include "placement_checks.h"
#include "plan/graph/step_graph.h"
#include "plan/placement/record.h"
#include "plan/search/planner.h"

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

static struct layout layout_of(const struct graph_case *c, uint64_t tokens)
{
    struct layout layout = {0};
    char why[256], name[32], owner[32] = "";
    for (uint32_t u = 0; u < c->in.unit_count; u++) {
        const struct graph_unit *unit = &c->units[u];
        snprintf(name, sizeof name, "unit.%u", u);
        struct hst_param_desc params[2] = {
            {.name = name, .dim_count = 1, .dims = {unit->elements}},
            {.name = "tied", .dim_count = 1, .dims = {c->units[0].elements}, .alias_of = owner}};
        const struct hst_unit_desc desc = {
            .name = name,
            .params = params,
            .param_count = 1 + (unit->alias_count > 0),
            .flops_per_token = (uint64_t)(unit->backward_flops / 3 / (double)tokens),
            .act_bytes_per_token = unit->act_bytes / tokens,
            .work_bytes = 1 << 20,
            .flags = unit->no_forward      ? HST_UNIT_NO_FORWARD
                     : unit->act_bytes > 0 ? HST_UNIT_RECOMPUTE
                                           : 0};
        assert_int_equal(layout_add(&layout, &desc, why, sizeof why), 0);
        if (u == 0)
            snprintf(owner, sizeof owner, "%s", name);
    }
    assert_int_equal(layout_seal(&layout, c->in.tile_elements, SHARE_ALL), 0);
    return layout;
}

struct problem {
    struct layout layout;
    struct placement_in in;
    struct sim_rates rates;
    bool streams;
    uint32_t threads;
};

/* Budgets: some share of what would hold it all. */
static void make_problem(uint32_t number, struct problem *p)
{
    static struct graph_case c; /* large: not on the stack */
    uint64_t seed = ~(uint64_t)number, tokens = UINT64_C(1024) << pick(&seed, 4);
    struct placement all = {0};
    char why[384];
    graph_case(number, &c);
    p->layout = layout_of(&c, tokens);
    p->rates = c.rates;
    p->in = inputs(&p->layout, NULL);
    if (c.in.weight_bytes < 4)
        p->in.optimizer = optimizer_find(HST_OPTIMIZER_ADAMW, HST_PRECISION_BF16, HST_STATE_FP32);
    p->in.batch_tokens = p->in.micro_batch_tokens = tokens;
    p->in.hidden_bytes_per_token = 8192;
    p->in.deferred = c.in.deferred;
    p->in.stored = pick(&seed, 3) == 0;
    p->in.compute_tier = c.in.apart ? HST_TIER_HBM : HST_TIER_DRAM;
    p->in.hbm_budget = p->in.dram_budget = p->in.nvme_budget = UINT64_C(1) << 50;
    if (c.in.apart)
        p->in.host_updates = true; /* else a GPU that holds it all would */
    assert_int_equal(placement_plan(&p->in, &all, why, sizeof why), 0);
    p->in.dram_budget = all.dram_bytes / 16 * (1 + pick(&seed, 16));
    if (c.in.apart)
        p->in.hbm_budget = all.hbm_bytes / 4 * (1 + pick(&seed, 4));
    placement_free(&all);
}

static double simulated(const struct problem *p, const struct placement *placement)
{
    struct sim sim;
    struct graph graph;
    const struct sim_in in = {.graph = &graph, .rates = p->rates, .brief = true};
    assert_int_equal(step_graph_coarse(&p->in, placement, PLANNER_TILES, false, &graph), 0);
    assert_int_equal(simulate(&in, &sim), 0);
    graph_free(&graph);
    return sim.step_s;
}

static void improve(const struct problem *p, struct placement *placement, struct planned *planned)
{
    const struct planner_in in = {&p->in, {p->rates, p->threads, 0, p->streams, 0}, false, 0, 0};
    assert_int_equal(planner_improve(&in, placement, planned), 0);
}

/* The fastest that these homes are with whatever share of the update in the next forward. */
static double fastest(const struct problem *p, struct placement *placement)
{
    double least = simulated(p, placement);
    for (placement->late_eighths = 1; placement->late_eighths < 8; placement->late_eighths++)
        least = fmin(least, simulated(p, placement));
    return least;
}

static void check_budgets(const struct problem *p, const struct placement *placement)
{
    assert_true(placement->hbm_bytes <= p->in.hbm_budget);
    assert_true(placement->dram_bytes <= p->in.dram_budget);
    assert_true(placement->nvme_bytes <= p->in.nvme_budget);
    check_table(placement);
}

static uint32_t stride = 8; /* of the list; 1: all of it */

static void over_the_list_none_is_slower_than_the_usual_homes(void **state)
{
    (void)state;
    uint32_t placed = 0, better = 0, recomputed = 0;
    for (uint32_t number = 0; number < CASES; number += stride) {
        struct problem p = {0};
        struct placement usual = {0}, chosen = {0};
        struct planned planned;
        char why[384];
        make_problem(number, &p);
        if (placement_plan(&p.in, &usual, why, sizeof why) == 0) {
            if (placed % 2) /* no more on drives than the usual homes take */
                p.in.nvme_budget = usual.nvme_bytes;
            assert_int_equal(placement_plan(&p.in, &chosen, why, sizeof why), 0);
            improve(&p, &chosen, &planned);
            check_budgets(&p, &chosen);
            double before = planned.usual_step_s, after = simulated(&p, &chosen);
            assert_true(planned.step_s == after);
            assert_true(before <= simulated(&p, &usual));
            assert_true(before * (1 - PLANNER_GAIN_LEAST) <= fastest(&p, &usual));
            assert_true(planned.better ? after < before * (1 - PLANNER_GAIN_LEAST)
                                       : after == before);
            if (planned.better)
                assert_true(after * (1 - PLANNER_GAIN_LEAST) <= fastest(&p, &chosen));
            else
                assert_memory_equal(chosen.table, usual.table, sizeof chosen.table);
            assert_int_equal(strncmp(planned.what, "what leaves memory: ", 20), 0);
            assert_true(strlen(planned.what) < sizeof planned.what - 1); /* all of it is told */
            assert_in_range(planned.simulated, 1, 100);
            placed++;
            better += planned.better;
            recomputed += planned.better && chosen.segment > usual.segment;
            placement_free(&usual);
            placement_free(&chosen);
        }
        layout_free(&p.layout);
    }
    printf("%u placed, %u of them better than usual, %u with fewer checkpoints\n", placed, better,
           recomputed);
    assert_true(placed > CASES / stride / 2);
    assert_true(better > placed / 8); /* it is not for nothing */
}

static void the_same_is_chosen_each_time(void **state)
{
    (void)state;
    for (uint32_t number = 0; number < 4 * CASES / stride / 10; number++) {
        struct problem p = {0};
        struct placement one = {0}, two = {0};
        struct planned first, again;
        char why[384];
        make_problem(number, &p);
        if (placement_plan(&p.in, &one, why, sizeof why) == 0) {
            assert_int_equal(placement_plan(&p.in, &two, why, sizeof why), 0);
            improve(&p, &one, &first);
            improve(&p, &two, &again);
            assert_true(first.step_s == again.step_s);
            assert_string_equal(first.what, again.what);
            assert_memory_equal(one.table, two.table, sizeof one.table);
            assert_memory_equal(one.units, two.units, p.layout.unit_count * sizeof *one.units);
            placement_free(&one);
            placement_free(&two);
        }
        layout_free(&p.layout);
    }
}

/* ---- by hand ---- */

#define HAND_UNITS 16u
#define HAND_TILES 64u

/* Equal units, the memory short by a bit less than all gradients. Drives that read and write at the
 * same rate, and computation of which three quarters are in the backward. */
static void make_by_hand(struct problem *p)
{
    static struct graph_case c;
    struct placement all = {0};
    char why[384];
    const struct graph_unit unit = {
        .tile_count = HAND_TILES, .forward_flops = 1e6, .backward_flops = 3e6};
    even_case(&c, HAND_UNITS, &unit);
    p->layout = layout_of(&c, 1000);
    p->in = inputs(&p->layout, NULL);
    p->in.batch_tokens = p->in.micro_batch_tokens = 1000;
    assert_int_equal(placement_plan(&p->in, &all, why, sizeof why), 0);
    uint64_t grads = all.table[HST_CLASS_GRADS][HST_TIER_DRAM];
    p->in.dram_budget = all.dram_bytes - grads / 2;
    placement_free(&all);
    /* 16 s of forward; grads / 2 in 12 s, either way */
    p->rates = (struct sim_rates){.flops_per_s = 1e6,
                                  .read = (double)grads / 24,
                                  .write = (double)grads / 24,
                                  .update = 1e12,
                                  .norm = 1e12};
}

/* The fastest homes, from the usual ones on. */
static struct planned improve_usual(struct problem *p, struct placement *chosen)
{
    struct planned planned;
    char why[384];
    assert_int_equal(placement_plan(&p->in, chosen, why, sizeof why), 0);
    improve(p, chosen, &planned);
    return planned;
}

/* States would be read and written beside the forward alone; gradients are written in the backward,
 * where drives have nothing else to do. */
static void gradients_leave_first_where_the_forward_waits_for_drives(void **state)
{
    (void)state;
    struct problem p = {0};
    struct placement usual = {0}, chosen = {0};
    char why[384];
    make_by_hand(&p);
    p.rates.mixed = p.rates.read; /* in turns */
    assert_int_equal(placement_plan(&p.in, &usual, why, sizeof why), 0);
    assert_true(usual.table[HST_CLASS_STATES][HST_TIER_NVME] > 0);
    struct planned planned = improve_usual(&p, &chosen);
    assert_true(planned.better);
    /* 48 s of the backward at least, behind some 30 of drives beside the forward; then 64 s of
       computation at least, with gradients on their way from one sweep to the other */
    assert_true(planned.usual_step_s > 80);
    assert_true(planned.step_s > 64 && planned.step_s < 73);
    assert_true(chosen.table[HST_CLASS_GRADS][HST_TIER_NVME] > 0);
    assert_int_equal(chosen.table[HST_CLASS_STATES][HST_TIER_NVME], 0);
    assert_string_equal(planned.what, "what leaves memory: grads");
    check_budgets(&p, &chosen);
    placement_free(&usual);
    placement_free(&chosen);
    layout_free(&p.layout);
}

/* Half of the checkpoints would have to leave, for drives that take a minute for that; a forward of
 * half of the units takes eight seconds. */
static void checkpoints_are_left_out_where_drives_take_longer(void **state)
{
    (void)state;
    static struct graph_case c;
    const struct graph_unit unit = {
        .tile_count = 2, .act_bytes = 4096000, .forward_flops = 1e6, .backward_flops = 3e6};
    struct problem p = {0};
    struct placement all = {0}, chosen = {0};
    char why[384];
    even_case(&c, HAND_UNITS, &unit);
    p.layout = layout_of(&c, 1000);
    p.in = inputs(&p.layout, "weights=dram,states=dram,grads=dram");
    p.in.batch_tokens = p.in.micro_batch_tokens = 1000;
    assert_int_equal(placement_plan(&p.in, &all, why, sizeof why), 0);
    uint64_t acts = all.table[HST_CLASS_ACTS][HST_TIER_DRAM];
    p.in.dram_budget = all.dram_bytes - acts / 2;
    placement_free(&all);
    p.rates = (struct sim_rates){.flops_per_s = 1e6,
                                 .read = (double)acts / 2 / 64,
                                 .write = (double)acts / 2 / 64,
                                 .update = 1e12,
                                 .norm = 1e12};
    struct planned planned = improve_usual(&p, &chosen);
    assert_true(planned.better);
    assert_true(planned.usual_step_s > 100);
    assert_true(planned.step_s > 71.9 && planned.step_s < 73);
    assert_int_equal(chosen.segment, 2);
    assert_int_equal(chosen.table[HST_CLASS_ACTS][HST_TIER_NVME], 0);
    assert_string_equal(planned.what, "what leaves memory: nothing; acts of one unit in 2 kept");
    check_budgets(&p, &chosen);
    placement_free(&chosen);
    assert_int_equal(place_parse("weights=dram,acts=nvme", &p.in.wish, why, sizeof why), 0);
    planned = improve_usual(&p, &chosen); /* all of them, as wished */
    assert_int_equal(chosen.segment, 1);
    placement_free(&chosen);
    layout_free(&p.layout);
}

/* On a GPU: in how many budgets the planner chose so. */
static uint32_t plan_for_gpu(struct sim_rates rates, const char *words)
{
    static struct graph_case c;
    struct problem p = {0};
    struct placement usual = {0}, chosen = {0};
    uint32_t found = 0;
    char why[384];
    const struct graph_unit unit = {.tile_count = 2, .forward_flops = 1e3, .backward_flops = 3e3};
    even_case(&c, 12, &unit);
    p.layout = layout_of(&c, 1000);
    p.in = inputs(&p.layout, NULL);
    p.in.batch_tokens = p.in.micro_batch_tokens = 1000;
    p.in.compute_tier = HST_TIER_HBM;
    p.in.deferred = true;
    p.in.hbm_budget = UINT64_C(1) << 40;
    assert_int_equal(placement_plan(&p.in, &usual, why, sizeof why), 0);
    p.in.hbm_budget = usual.hbm_bytes;
    placement_free(&usual);
    p.rates = rates;
    for (; placement_plan(&p.in, &usual, why, sizeof why) == 0; p.in.hbm_budget -= 32768) {
        struct planned planned = improve_usual(&p, &chosen);
        if (planned.better && strstr(planned.what, words)) {
            assert_int_not_equal(chosen.resident_units, usual.resident_units);
            found++;
        }
        check_budgets(&p, &chosen);
        placement_free(&usual);
        placement_free(&chosen);
    }
    layout_free(&p.layout);
    return found;
}

/* Each unit in HBM has the place of several units' weights: where the link is what is waited for
 * those win; where the host's update is, more units do. */
static void a_gpus_memory_is_for_what_takes_longest(void **state)
{
    (void)state;
    const struct sim_rates link = {
        .h2d = 1e5, .d2h = 1e9, .update = 1e12, .norm = 1e12, .flops_per_s = 1e9};
    const struct sim_rates update = {
        .h2d = 1e9, .d2h = 1e9, .update = 1e4, .norm = 1e9, .flops_per_s = 1e9};
    assert_true(plan_for_gpu(link, "fewer units in HBM") > 0);
    assert_int_equal(plan_for_gpu(update, "fewer units in HBM"), 0);
    assert_true(plan_for_gpu(update, "smaller rings") > 0); /* room for a unit */
}

/* Twelve units in DRAM, on a GPU that computes in no time. Returns how many of the 96 tiles it
 * updates. */
static uint32_t streamed_with(struct sim_rates rates, bool fixed, struct planned *planned)
{
    static struct graph_case c;
    struct problem p = {.rates = rates};
    struct placement chosen = {0};
    const struct graph_unit unit = {.tile_count = 8, .forward_flops = 1e3, .backward_flops = 3e3};
    even_case(&c, 12, &unit);
    p.layout = layout_of(&c, 1000);
    p.in = inputs(&p.layout, "weights=dram,grads=dram,states=dram");
    p.in.batch_tokens = p.in.micro_batch_tokens = 1000;
    p.in.compute_tier = HST_TIER_HBM;
    p.in.hbm_budget = UINT64_C(1) << 40;
    p.in.deferred = true;
    p.in.streams = fixed;
    p.streams = true;
    *planned = improve_usual(&p, &chosen);
    uint32_t streamed = chosen.streamed_tiles;
    placement_free(&chosen);
    layout_free(&p.layout);
    return streamed;
}

/* The host updates an element in 1 s / UPDATE, the link moves one there and back in a third. */
static void a_gpu_updates_where_the_host_takes_longer_than_the_link(void **state)
{
    (void)state;
    enum { UPDATE = 1000000 };
    struct planned planned;
    struct sim_rates rates = {
        .h2d = 48e6, .d2h = 48e6, .update = UPDATE, .norm = 1e12, .flops_per_s = 1e12};
    uint32_t streamed = streamed_with(rates, false, &planned);
    assert_in_range(streamed, 48, 72);
    assert_true(planned.step_s < 0.5 * planned.usual_step_s);
    assert_string_equal(planned.what,
                        "what leaves memory: nothing; the GPU updates a share of DRAM");
    /* it is not asked */
    assert_int_equal(streamed_with(rates, true, &planned), 0);
    /* memory carries no more than the host's update moves: the link would take its share of that */
    rates.dram = 26.0 * UPDATE;
    assert_int_equal(streamed_with(rates, false, &planned), 0);
    rates.dram = 0;
    rates.h2d = rates.d2h = 1e6; /* the link takes longer */
    assert_int_equal(streamed_with(rates, false, &planned), 0);
}

/* 64 s of computation, of which a quarter is the forward's, and an update by the host. */
static void update_for(struct problem *p, double seconds, struct placement *placement,
                       bool deferred)
{
    char why[384];
    make_by_hand(p);
    p->in.dram_budget = UINT64_MAX / 2;
    p->in.deferred = p->in.second_slots = deferred;
    p->rates.update = (double)p->layout.elements / seconds;
    assert_int_equal(placement_plan(&p->in, placement, why, sizeof why), 0);
}

/* As long as all of the computation: that quarter is left to the next forward, no sweep waits. */
static void the_next_forward_hides_a_share_of_an_update_that_need_not_wait(void **state)
{
    (void)state;
    struct placement placement = {0};
    struct planned planned;
    struct problem p = {0};
    update_for(&p, 64, &placement, false);
    assert_true(simulated(&p, &placement) > 79);
    improve(&p, &placement, &planned);
    assert_int_equal(placement.late_eighths, 2);
    assert_true(planned.step_s < 70);
    assert_false(planned.better); /* the homes are the usual ones */
    placement_free(&placement);
    layout_free(&p.layout);
}

/* An eighth of an update that is little longer than the backward would win less than a hundredth of
 * a step. */
static void a_share_that_wins_next_to_nothing_is_not_left(void **state)
{
    (void)state;
    for (int longer = 0; longer < 2; longer++) {
        struct placement placement = {0};
        struct planned planned;
        struct problem p = {0};
        update_for(&p, longer ? 49 : 48.5, &placement, false);
        improve(&p, &placement, &planned);
        assert_true((placement.late_eighths > 0) == longer);
        placement_free(&placement);
        layout_free(&p.layout);
    }
}

/* Of the list, one whose fastest homes are so with a share alone. */
static void homes_are_compared_with_their_share(void **state)
{
    (void)state;
    struct problem p = {0};
    struct placement chosen = {0};
    make_problem(110, &p);
    struct planned planned = improve_usual(&p, &chosen);
    assert_true(chosen.late_eighths > 0 && planned.better);
    assert_true(planned.step_s < 22); /* 22.58 where they are not */
    placement_free(&chosen);
    layout_free(&p.layout);
}

/* A problem of the list with so many threads; *threads: of them, those that update. */
static double step_with(struct problem p, uint32_t *threads)
{
    struct placement chosen = {0};
    struct planned planned = improve_usual(&p, &chosen);
    *threads = chosen.update_threads[0];
    p.rates.update *= planner_update_share(*threads, p.threads, 0);
    assert_true(planned.step_s == simulated(&p, &chosen));
    placement_free(&chosen);
    return planned.step_s;
}

/* Of the list, one whose update keeps memory from drives and copies while it runs. */
static void fewer_threads_update_where_memory_carries_no_more(void **state)
{
    (void)state;
    struct problem p = {0};
    uint32_t threads;
    make_problem(61, &p);
    p.threads = 1;
    double all_s = step_with(p, &threads);
    assert_int_equal(threads, 0);
    p.threads = 16;
    assert_true(step_with(p, &threads) < 0.99 * all_s);
    assert_int_equal(threads, 8);
    p.rates.dram = 0; /* it carries whatever there is */
    (void)step_with(p, &threads);
    assert_int_equal(threads, 0);
    layout_free(&p.layout);
}

static void a_share_of_the_threads_reaches_what_half_of_them_do(void **state)
{
    (void)state;
    static const struct {
        uint32_t some, all;
        double half, share;
    } r[] = {{0, 16, 0.9, 1},   {8, 16, 0.9, 0.9}, {12, 16, 0.9, 0.95}, {4, 5, 0.8, 0.9},
             {12, 16, 0, 0.75}, {3, 5, 0.55, 0.6}, {12, 16, 1.5, 1},    {4, 16, 0.9, 0.45}};
    for (size_t i = 0; i < sizeof r / sizeof *r; i++)
        assert_float_equal(planner_update_share(r[i].some, r[i].all, r[i].half), r[i].share, 1e-6);
}

/* Each has its own number; half are enough where they do the three quarters that are best. */
static void threads_are_chosen_for_either_update(void **state)
{
    (void)state;
    static const struct {
        uint32_t problem, deferred, optimistic;
        double half;
    } rows[] = {{143, 14, 8, 0}, {165, 12, 12, 0}, {165, 8, 8, 0.75}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct problem p = {0};
        struct placement placement = {0};
        struct update_steps steps;
        char why[384];
        make_problem(rows[i].problem, &p);
        p.in.second_slots = true;
        assert_int_equal(placement_plan(&p.in, &placement, why, sizeof why), 0);
        const struct planner_machine machine = {p.rates, 16, rows[i].half, false, 0};
        const struct planner_in in = {.placement = &p.in, .machine = machine};
        assert_int_equal(planner_update(&in, &placement, NULL, &steps), 0);
        assert_int_equal(planner_is_optimistic(&steps), rows[i].problem == 143);
        assert_int_equal(placement.update_threads[0], rows[i].deferred);
        assert_int_equal(placement.update_threads[1], rows[i].optimistic);
        placement_free(&placement);
        layout_free(&p.layout);
    }
}

static void so_it_does_of_an_optimistic_one(void **state)
{
    (void)state;
    struct placement placement = {0};
    struct planned planned;
    struct update_steps steps;
    struct problem p = {0};
    update_for(&p, 64, &placement, true);
    struct planner_in in = {.placement = &p.in, .machine.rates = p.rates};
    assert_int_equal(planner_improve(&in, &placement, &planned), 0);
    assert_int_equal(placement.late_eighths, 0); /* a deferred one is all there */
    assert_true(planned.step_s > 110);
    assert_int_equal(planner_update(&in, &placement, NULL, &steps), 0);
    assert_int_equal(placement.late_eighths, 2);
    assert_true(planner_is_optimistic(&steps));
    placement.late_eighths = 0;
    in.optimistic = true;
    assert_int_equal(planner_improve(&in, &placement, &planned), 0);
    assert_int_equal(placement.late_eighths, 2);
    assert_true(planned.step_s < 70);
    placement_free(&placement);
    layout_free(&p.layout);
}

static void what_is_wished_stays_where_it_was_wished(void **state)
{
    (void)state;
    struct problem p = {0};
    struct placement chosen = {0};
    char why[384];
    make_by_hand(&p);
    p.rates.mixed = p.rates.read;
    assert_int_equal(place_parse("grads=dram", &p.in.wish, why, sizeof why), 0);
    (void)improve_usual(&p, &chosen);
    assert_int_equal(chosen.table[HST_CLASS_GRADS][HST_TIER_NVME], 0);
    placement_free(&chosen);
    layout_free(&p.layout);
}

static void where_drives_are_fast_the_usual_homes_stay(void **state)
{
    (void)state;
    struct problem p = {0};
    struct placement chosen = {0};
    make_by_hand(&p);
    p.rates.read *= 1e3;
    p.rates.write *= 1e3;
    struct planned planned = improve_usual(&p, &chosen);
    assert_false(planned.better);
    assert_int_equal(planned.simulated, 1); /* computation alone takes as long */
    assert_string_equal(planned.what, "what leaves memory: states");
    placement_free(&chosen);
    layout_free(&p.layout);
}

/* `test_engine_planner --all` takes the whole list. */
int main(int argc, char **argv)
{
    stride = argc > 1 && strcmp(argv[1], "--all") == 0 ? 1 : stride;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_leave_first_where_the_forward_waits_for_drives),
        cmocka_unit_test(checkpoints_are_left_out_where_drives_take_longer),
        cmocka_unit_test(a_gpus_memory_is_for_what_takes_longest),
        cmocka_unit_test(a_gpu_updates_where_the_host_takes_longer_than_the_link),
        cmocka_unit_test(the_next_forward_hides_a_share_of_an_update_that_need_not_wait),
        cmocka_unit_test(a_share_that_wins_next_to_nothing_is_not_left),
        cmocka_unit_test(homes_are_compared_with_their_share),
        cmocka_unit_test(fewer_threads_update_where_memory_carries_no_more),
        cmocka_unit_test(a_share_of_the_threads_reaches_what_half_of_them_do),
        cmocka_unit_test(threads_are_chosen_for_either_update),
        cmocka_unit_test(so_it_does_of_an_optimistic_one),
        cmocka_unit_test(what_is_wished_stays_where_it_was_wished),
        cmocka_unit_test(where_drives_are_fast_the_usual_homes_stay),
        cmocka_unit_test(the_same_is_chosen_each_time),
        cmocka_unit_test(over_the_list_none_is_slower_than_the_usual_homes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
