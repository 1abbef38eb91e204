/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides which other placements are worth a simulation, and which wins. The usual way lets classes
 * leave memory by what travels for each byte won. What a step waits for depends on more: states
 * travel beside the forward alone, gradients beside both sweeps, and where drives have time in the
 * backward it may be gradients that should leave first.
 */
#include "plan/search/planner.h"

#include "plan/graph/graph_bound.h"
#include "plan/graph/step_graph.h"
#include "plan/search/placement_memo.h"
#include "plan/search/placement_search.h"
#include "plan/search/update_wish.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define SEEN_MOST     160u
#define SEGMENTS_MORE 3u
#define ROUNDING      1e-6 /* above what it may be, of seconds that are summed otherwise */

struct candidate {
    struct placement_how how;
    struct placement placement;
    double step_s;
};

struct search {
    const struct planner_in *in;
    struct placement_how usual;
    struct candidate best;
    /* tables of what was simulated: many ways lead to the same homes */
    struct seen {
        uint64_t table[HST_CLASS_COUNT][HST_TIER_COUNT];
        uint32_t segment, streamed_tiles;
    } seen[SEEN_MOST];
    uint32_t seen_count;
    struct placement_memo *memo; /* null: memory is short */
    uint32_t late_eighths;       /* of each that is tried */
    double least_s;              /* planner_least_s */
    int rc;
};

/* ---- one candidate ---- */

double planner_update_share(uint32_t update_threads, uint32_t threads, double half)
{
    if (update_threads == 0 || update_threads >= threads)
        return 1;
    double half_threads = threads / 2 + threads % 2;
    half = fmin(fmax(half, half_threads / threads), 1);
    if (update_threads <= half_threads)
        return half * update_threads / half_threads;
    return half + (1 - half) * (update_threads - half_threads) / (threads - half_threads);
}

static int graph_of(const struct planner_in *in, const struct placement *p, bool optimistic,
                    struct graph *graph)
{
    const uint32_t tiles = in->machine.tiles ? in->machine.tiles : PLANNER_TILES;
    return step_graph_brief(in->placement, p, tiles, optimistic, graph);
}

/* limit_s: a step as long or longer may be infinite, which takes less to tell; 0: none may. graph:
 * of the placement. */
static int time_graph(const struct planner_in *in, const struct placement *p, bool optimistic,
                      const struct graph *graph, double limit_s, double *step_s)
{
    struct sim sim;
    int rc = 0;
    const struct planner_machine *machine = &in->machine;
    struct sim_rates rates = machine->rates;
    rates.update *=
        planner_update_share(p->update_threads[optimistic], machine->threads, machine->half);
    const unsigned on_drives = update_uses_drives(p) ? in->phases_on_drives : 0;
    const struct sim_in sim_in = {.graph = graph,
                                  .rates = rates,
                                  .phases = in->phases | on_drives,
                                  .limit_s = limit_s,
                                  .brief = true};
    /* whatever the order, a step takes what its busiest resource does */
    if (limit_s > 0 && graph_busiest(graph, &rates, sim_in.phases) > limit_s * (1 + ROUNDING))
        sim.step_s = INFINITY;
    else
        rc = simulate(&sim_in, &sim);
    if (rc == 0)
        *step_s = sim.step_s;
    return rc;
}

static int step_of(const struct planner_in *in, const struct placement *p, bool optimistic,
                   double limit_s, double *step_s)
{
    struct graph graph;
    int rc = graph_of(in, p, optimistic, &graph);
    if (rc)
        return rc;
    rc = time_graph(in, p, optimistic, &graph, limit_s, step_s);
    graph_free(&graph);
    return rc;
}

double planner_least_s(const struct planner_in *in)
{
    const struct placement_in *of = in->placement;
    const struct sim_rates *rates = &in->machine.rates;
    const struct layout *layout = of->layout;
    double flops = 0, trained = 0; /* elements of all ranks */
    for (uint32_t u = 0; u < layout->unit_count; u++) {
        const struct layout_unit *unit = &layout->units[u];
        const bool kept = unit->saved_bytes > 0 && !of->recompute;
        const double forwards =
            (unit->no_forward ? 0 : 1) + (unit->rests ? 0 : step_backward_forwards(unit, kept));
        flops += forwards * (double)unit->flops_per_token * (double)of->batch_tokens;
        trained += unit->frozen ? 0 : (double)unit->elements;
    }
    if (rates->flops_per_s <= 0)
        return 0;
    const bool shares = rates->shared_cores && rates->update > 0;
    return flops / rates->flops_per_s +
           (shares ? floor(trained / layout->share.world) / rates->update : 0);
}

bool planner_is_least(const struct planner_in *in, double step_s)
{
    return step_s * (1 - PLANNER_GAIN_LEAST) <= planner_least_s(in);
}

static bool is_new(struct search *s, const struct placement *p)
{
    for (uint32_t i = 0; i < s->seen_count; i++)
        if (s->seen[i].segment == p->segment && s->seen[i].streamed_tiles == p->streamed_tiles &&
            memcmp(s->seen[i].table, p->table, sizeof p->table) == 0)
            return false;
    if (s->seen_count == SEEN_MOST)
        return false;
    s->seen[s->seen_count].segment = p->segment;
    s->seen[s->seen_count].streamed_tiles = p->streamed_tiles;
    memcpy(s->seen[s->seen_count++].table, p->table, sizeof p->table);
    return true;
}

/* One choice of a placement's, and the values it may have. */
struct choices {
    uint32_t *chosen;
    uint32_t of[8], count;
    double gain;               /* below it there is none */
    const struct graph *graph; /* null: the choice changes it */
};

/* *step_s: of a step with what is chosen; then of the fastest. */
static int choose(const struct planner_in *in, bool optimistic, struct placement *p,
                  const struct choices *c, double *step_s)
{
    uint32_t had = *c->chosen, best = had;
    int rc = 0;
    for (uint32_t i = 0; i < c->count && rc == 0; i++) {
        double s;
        *c->chosen = c->of[i];
        const double limit_s = *step_s * (1 - c->gain);
        if (c->of[i] != had)
            rc = c->graph ? time_graph(in, p, optimistic, c->graph, limit_s, &s)
                          : step_of(in, p, optimistic, limit_s, &s);
        if (rc || c->of[i] == had || s >= limit_s)
            continue;
        best = c->of[i];
        *step_s = s;
    }
    *c->chosen = rc ? had : best;
    return rc;
}

/* The share of an update that need not wait which the next forward has. */
static int choose_late(const struct planner_in *in, bool optimistic, struct placement *p,
                       double *step_s)
{
    struct choices c = {.chosen = &p->late_eighths, .gain = PLANNER_GAIN_LEAST};
    if (in->placement->deferred && !optimistic)
        return 0; /* all of it is left */
    for (uint32_t eighths = 0; eighths <= LATE_EIGHTHS_MOST; eighths++)
        c.of[c.count++] = eighths;
    return choose(in, optimistic, p, &c, step_s);
}

/* Threads that update: on the host device all that compute do. */
static int choose_threads(const struct planner_in *in, bool optimistic, struct placement *p,
                          double *step_s)
{
    struct graph graph;
    struct choices c = {.chosen = &p->update_threads[optimistic],
                        .count = 1,
                        .gain = PLANNER_THREADS_GAIN_LEAST,
                        .graph = &graph};
    if (p->compute_tier != HST_TIER_HBM)
        return 0;
    for (uint32_t eighths = 7; eighths >= UPDATE_EIGHTHS_LEAST; eighths--) {
        uint32_t threads = (in->machine.threads * eighths + 7) / 8;
        if (threads != c.of[c.count - 1] && threads < in->machine.threads)
            c.of[c.count++] = threads;
    }
    int rc = graph_of(in, p, optimistic, &graph);
    if (rc)
        return rc;
    rc = choose(in, optimistic, p, &c, step_s);
    graph_free(&graph);
    return rc;
}

/* It takes the best one's place where it is faster, by more than what simulation can tell. Returns
 * how many classes had their turn to leave. */
static uint32_t try(struct search *s, const struct placement_how *how)
{
    struct candidate c = {.how = *how};
    uint32_t classes;
    if (s->rc || s->best.step_s * (1 - PLANNER_GAIN_LEAST) <= s->least_s)
        return LEAVE_COUNT;
    int rc = placement_search(s->in->placement, how, s->memo, &classes, &c.placement);
    if (rc) {
        s->rc = rc == -ENOMEM ? rc : 0; /* else it does not fit so, or was tried */
        return classes;
    }
    c.placement.late_eighths = s->late_eighths;
    const double limit_s = s->best.step_s * (1 - PLANNER_GAIN_LEAST);
    if (is_new(s, &c.placement))
        s->rc = step_of(s->in, &c.placement, s->in->optimistic, limit_s, &c.step_s);
    bool faster = s->rc == 0 && c.step_s > 0 && c.step_s < limit_s;
    placement_free(faster ? &s->best.placement : &c.placement);
    if (faster)
        s->best = c;
    return classes;
}

/* ---- which ones ---- */

/* The n-th of the 24 orders; the first is the usual one. */
static void permute(uint32_t n, enum leaving order[LEAVE_COUNT])
{
    enum leaving left[LEAVE_COUNT];
    memcpy(left, PLACEMENT_USUAL.order, sizeof left);
    for (uint32_t i = 0, ways = 6; i < LEAVE_COUNT; i++) {
        uint32_t at = n / ways;
        n %= ways;
        ways /= LEAVE_COUNT - 1 - i > 0 ? LEAVE_COUNT - 1 - i : 1;
        order[i] = left[at];
        memmove(&left[at], &left[at + 1], (LEAVE_COUNT - 1 - at) * sizeof left[0]);
    }
}

/* A class whose home is fixed leaves wholly or not at all, and has its usual place. */
static bool tells(const struct place_wish *wish, const enum leaving order[LEAVE_COUNT])
{
    static const enum hst_class class_of[LEAVE_COUNT] = {[LEAVE_STATES] = HST_CLASS_STATES,
                                                         [LEAVE_ACTS] = HST_CLASS_ACTS,
                                                         [LEAVE_GRADS] = HST_CLASS_GRADS,
                                                         [LEAVE_WEIGHTS] = HST_CLASS_WEIGHTS};
    for (int i = 0; i < LEAVE_COUNT; i++)
        if (wish->fixed[class_of[order[i]]] && order[i] != PLACEMENT_USUAL.order[i])
            return false;
    return true;
}

static void try_orders(struct search *s, struct placement_how how)
{
    static const uint32_t alike[LEAVE_COUNT + 1] = {24, 6, 2, 1, 1}; /* orders that begin so */
    for (uint32_t n = 0; n < 24;) {
        permute(n, how.order);
        const bool told = tells(&s->in->placement->wish, how.order);
        const uint32_t same = told ? alike[try(s, &how)] : 1;
        n += same - n % same;
    }
}

static void try_shares(struct search *s)
{
    struct placement_how how = s->best.how;
    for (uint32_t quarters = 3; quarters >= 1; quarters--) {
        how.first_quarters = quarters;
        (void)try(s, &how);
    }
}

static void try_pools(struct search *s)
{
    struct placement_how how = s->best.how;
    for (how.buffer_pools = 1; how.buffer_pools < PLACEMENT_POOL_DEPTHS; how.buffer_pools++)
        (void)try(s, &how);
    how = s->best.how;
    bool device = s->in->placement->compute_tier == HST_TIER_HBM;
    for (how.device_pools = 1; device && how.device_pools < PLACEMENT_DEVICE_DEPTHS;
         how.device_pools++)
        (void)try(s, &how);
}

static void try_acts(struct search *s)
{
    struct placement_how how = s->usual;
    if (s->in->placement->compute_tier != HST_TIER_HBM)
        return;
    how.acts_leave = true;
    try_orders(s, how);
    how.acts_leave = false;
    how.acts_stay = true;
    try_orders(s, how);
}

/* HBM is the home of fewer units, and its room is for others' weights. */
static void try_resident(struct search *s)
{
    struct placement_how how = s->best.how;
    if (s->usual.resident_quarters != 4)
        return;
    for (how.resident_quarters = 0; how.resident_quarters < 4; how.resident_quarters++)
        (void)try(s, &how);
}

/* Memory where it is computed is for activations before it is for units, or others' weights: a
 * backward is a third shorter by them. They are worth most where the GPU spares the host a share,
 * so this comes last. */
static void try_saved(struct search *s)
{
    struct placement_how how = s->best.how;
    bool all = how.resident_quarters == PLACEMENT_ALL;
    bool gpu = s->in->placement->compute_tier == HST_TIER_HBM;
    if (placement_savable_units(s->in->placement) == 0 || how.segment > 1)
        return;
    for (int offloaded = 0; offloaded <= (gpu && all); offloaded++) {
        how.resident_quarters = offloaded ? 4 : how.resident_quarters;
        for (how.saved_eighths = 1; how.saved_eighths <= 8; how.saved_eighths++)
            (void)try(s, &how);
    }
}

/* A forward made again costs computation alone, where what it wins spares the drives or the link
 * more. Longer segments win less and less. */
static void try_segments(struct search *s)
{
    struct placement_how how = s->best.how;
    uint32_t longest = placement_longest_segment(s->in->placement), least = how.segment;
    for (uint32_t more = 1; more <= SEGMENTS_MORE && least + more <= longest; more++) {
        how.segment = least + more;
        (void)try(s, &how);
    }
}

/* The GPU updates a share of what is in DRAM. */
static void try_streamed(struct search *s)
{
    struct placement_how how = s->best.how;
    if (!s->in->machine.streams || s->in->placement->streams)
        return;
    for (how.streamed_eighths = 1; how.streamed_eighths <= 8; how.streamed_eighths++)
        (void)try(s, &how);
}

/* ---- in words ---- */

/* A store has slots for weights and states whose home is in memory, too. */
static bool has_left(const struct placement *p, enum leaving class)
{
    bool states = false, weights = false;
    for (uint32_t u = 0; u < p->layout->unit_count; u++) {
        states |= p->units[u].nvme_states > 0;
        weights |= p->units[u].weights.tier == HST_TIER_NVME;
    }
    return class == LEAVE_STATES ? states
           : class == LEAVE_WEIGHTS
               ? weights
               : p->table[class == LEAVE_ACTS ? HST_CLASS_ACTS : HST_CLASS_GRADS][HST_TIER_NVME] >
                     0;
}

/* Classes in the order in which they left, those that did. */
static void describe(const struct candidate *c, char *what, size_t what_bytes)
{
    static const char *const names[LEAVE_COUNT] = {[LEAVE_STATES] = "states",
                                                   [LEAVE_ACTS] = "acts",
                                                   [LEAVE_GRADS] = "grads",
                                                   [LEAVE_WEIGHTS] = "weights"};
    const char *begin = "what leaves memory: ";
    int n = 0;
    for (int i = 0; i < LEAVE_COUNT; i++) {
        if (!has_left(&c->placement, c->how.order[i]))
            continue;
        n += snprintf(what + n, what_bytes - (size_t)n, "%s%s", n ? ", then " : begin,
                      names[c->how.order[i]]);
    }
    if (n == 0)
        n = snprintf(what, what_bytes, "%s%s", begin, "nothing");
    const char *acts = c->how.acts_leave  ? "; acts out of HBM"
                       : c->how.acts_stay ? "; acts in HBM before units"
                                          : "";
    const char *units = c->how.resident_quarters < 4 ? "; fewer units in HBM" : "";
    const char *gpu = c->placement.streamed_tiles > 0 ? "; the GPU updates a share of DRAM" : "";
    n += snprintf(what + n, what_bytes - (size_t)n, "%s%s%s%s",
                  c->how.buffer_pools + c->how.device_pools > 0 ? "; smaller rings" : "", acts,
                  units, gpu);
    if (c->how.saved_eighths > 0 && c->placement.saved_units > 0)
        n += snprintf(what + n, what_bytes - (size_t)n, "; activations before others");
    if (c->placement.segment > 1)
        n += snprintf(what + n, what_bytes - (size_t)n, "; acts of one unit in %u kept",
                      c->placement.segment);
    if (c->placement.layout->whole)
        snprintf(what + n, what_bytes - (size_t)n, "; large units in slices");
}

/* ---- the whole ---- */

static void keep_best(struct search *s, struct placement *placement, struct planned *planned)
{
    planned->step_s = s->best.step_s;
    planned->better = s->best.placement.units != NULL;
    planned->simulated = s->seen_count;
    struct candidate usual = {.how = s->usual, .placement = *placement};
    describe(planned->better ? &s->best : &usual, planned->what, sizeof planned->what);
    if (!planned->better)
        return;
    placement_free(placement);
    *placement = s->best.placement;
}

/* placement_plan has asked for this. */
static uint32_t quarters_of(const struct placement *p)
{
    for (uint32_t u = 0; u < p->layout->unit_count; u++)
        if (p->units[u].offloaded)
            return 4;
    return PLACEMENT_ALL;
}

int planner_improve(const struct planner_in *in, struct placement *placement,
                    struct planned *planned)
{
    struct search s = {.in = in,
                       .usual = PLACEMENT_USUAL,
                       .memo = placement_memo_make(in->placement),
                       .least_s = planner_least_s(in)};
    struct planned result = {0};
    s.usual.segment = placement->segment;
    s.usual.resident_quarters = quarters_of(placement);
    s.best.how = s.usual;
    s.rc = step_of(in, placement, in->optimistic, 0, &s.best.step_s);
    s.rc = s.rc ? s.rc : choose_late(in, in->optimistic, placement, &s.best.step_s);
    result.usual_step_s = s.best.step_s;
    s.late_eighths = placement->late_eighths;
    if (s.rc == 0)
        (void)is_new(&s, placement);
    try_orders(&s, s.usual);
    try_acts(&s);
    try_shares(&s);
    try_pools(&s);
    try_resident(&s);
    try_segments(&s);
    try_streamed(&s);
    try_saved(&s);
    placement_memo_free(s.memo);
    struct placement *best = s.best.placement.units ? &s.best.placement : placement;
    if (s.rc == 0 && best != placement)
        s.rc = choose_late(in, in->optimistic, best, &s.best.step_s);
    s.rc = s.rc ? s.rc : choose_threads(in, in->optimistic, best, &s.best.step_s);
    if (s.rc) {
        placement_free(&s.best.placement);
        return s.rc;
    }
    keep_best(&s, placement, &result);
    *planned = result;
    return 0;
}

int planner_time(const struct planner_in *in, const struct placement *placement,
                 struct update_steps *steps)
{
    int rc = step_of(in, placement, false, 0, &steps->deferred_s);
    return rc ? rc : step_of(in, placement, true, 0, &steps->optimistic_s);
}

int planner_update(const struct planner_in *in, struct placement *placement,
                   const struct planned *known, struct update_steps *steps)
{
    int rc = 0;
    if (known)
        *(in->optimistic ? &steps->optimistic_s : &steps->deferred_s) = known->step_s;
    if (!known || in->optimistic) {
        rc = step_of(in, placement, false, 0, &steps->deferred_s);
        rc = rc ? rc : choose_threads(in, false, placement, &steps->deferred_s);
    }
    if (rc == 0 && (!known || !in->optimistic))
        rc = step_of(in, placement, true, 0, &steps->optimistic_s);
    rc = rc ? rc : choose_late(in, true, placement, &steps->optimistic_s);
    return rc ? rc : choose_threads(in, true, placement, &steps->optimistic_s);
}

bool planner_is_optimistic(const struct update_steps *steps)
{
    return steps->optimistic_s < steps->deferred_s * (1 - PLANNER_GAIN_LEAST);
}

double planner_unclipped_s(const struct update_steps *steps)
{
    return planner_is_optimistic(steps) ? steps->optimistic_s : steps->deferred_s;
}
