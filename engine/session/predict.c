/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This file tells what a step will take, and what it waits for: the graph that is run, simulated on
 * what was measured. A resource bounds the step that would gain most from having it twice as fast:
 * a lane that is busy longest may be so beside another that everything waits for.
 */
#include "session/predict.h"

#include "plan/graph/graph_bound.h"
#include "plan/graph/simulate.h"
#include "plan/search/start_up.h"
#include "session/engine_state.h"
#include "session/ranks/ranks.h"
#include "session/store/versions.h"

#include <errno.h>
#include <hoistway/predict.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct machine {
    struct sim_rates rates;
    double half;     /* see struct planner_machine */
    double *visit_s; /* [MEASURE_SWEEPS · units], one sweep after the other */
    uint32_t units;
};

/* ---- what is known ---- */

static bool moves(const struct graph *graph, enum lane lane)
{
    for (uint32_t i = 0; i < graph->lane_count[lane]; i++) {
        const struct node *node = &graph->nodes[graph->lane[lane][i]];
        if ((node->phases & PHASES_TRAIN) && node->work > 0)
            return true;
    }
    return false;
}

/* The host does work of this kind. */
static bool updates(const struct graph *graph, enum node_kind kind)
{
    for (uint32_t i = 0; i < graph->lane_count[LANE_UPDATE]; i++) {
        const struct node *node = &graph->nodes[graph->lane[LANE_UPDATE][i]];
        if (node->kind == (unsigned)kind && (node->phases & PHASES_TRAIN) && node->work > 0)
            return true;
    }
    return false;
}

/* The means of what visits took. False where one was not made yet; a forward that is never made is
 * one that the client leaves out. */
static bool fill_visits(const struct hst_engine *engine, struct machine *m)
{
    const struct graph *graph = engine_graph(engine);
    for (uint32_t i = 0; i < graph->lane_count[LANE_COMPUTE]; i++) {
        const struct node *node = &graph->nodes[graph->lane[LANE_COMPUTE][i]];
        if (node->kind == NODE_UPDATE || !(node->phases & PHASES_TRAIN))
            continue;
        enum measure_sweep sweep = measure_sweep(node);
        struct measure_visit visit = engine->exec.measure.visits[sweep][node->unit];
        if (visit.count > 0)
            m->visit_s[(uint32_t)sweep * m->units + node->unit] = visit.seconds / visit.count;
        else if (sweep != MEASURE_FORWARD)
            return false;
    }
    return true;
}

static double rate_of(struct measure_work work)
{
    return work.seconds > 0 ? work.elements / work.seconds : 0;
}

static bool fill_measured(const struct hst_engine *engine, struct machine *m)
{
    const struct measure *measure = &engine->exec.measure;
    m->rates.update = rate_of(measure->update);
    m->rates.norm = rate_of(measure->norm);
    if (!engine->plan_in.joined) /* a visit's seconds have it in them; else what follows waits */
        m->rates.device_update = 0;
    m->rates.forward_s = m->visit_s;
    m->rates.recompute_s = m->visit_s + MEASURE_RECOMPUTE * m->units;
    m->rates.backward_s = m->visit_s + MEASURE_BACKWARD * m->units;
    return fill_visits(engine, m) &&
           (!updates(engine_graph(engine), NODE_UPDATE) || m->rates.update > 0) &&
           (!updates(engine_graph(engine), NODE_NORM) || m->rates.norm > 0);
}

/* Together as fast as each alone, as far as figures can tell. */
#define AS_FAST 0.95

/* It returns what host memory carries; 0: more than the update and copies both ways ask of it
 * together, so what they moved says nothing of memory. */
static double memory_rate(const struct hst_figure *f)
{
    double shared = f[HST_RATE_SHARED].value;
    const struct optimizer *updated = optimizer_measured(HST_PRECISION_BF16, HST_STATE_DEFAULT);
    double alone = optimizer_traffic_bytes(updated) * f[updated->update_rate].value +
                   f[HST_RATE_COPY_BOTH].value;
    return shared < AS_FAST * alone ? shared : 0;
}

/* Ranks measured what each had beside the others. A plan has the rates of a machine, whose cores
 * and drives the ranks of a node share; a planned GPU is one rank's. */
static uint32_t sharers_of(const struct hst_engine *engine)
{
    return engine->config.plan ? engine->ranks.locals : 1;
}

/* The rates of each lane; those that are not known are 0. */
static struct sim_rates rates_for(const struct hst_engine *engine, const struct hst_rates *rates)
{
    const struct hst_figure *f = rates->figures;
    bool bf16 = engine->config.precision == HST_PRECISION_BF16;
    const bool planned = engine->config.planned != NULL;
    const double part = 1.0 / sharers_of(engine);
    const double pace = optimizer_pace(engine->optimizer);
    return (struct sim_rates){
        .read = part * f[HST_RATE_READ].value,
        .write = part * f[HST_RATE_WRITE].value,
        .mixed = part * f[HST_RATE_MIXED].value,
        .mixed_busy = part * f[HST_RATE_MIXED_BUSY].value,
        .h2d = f[HST_RATE_H2D].value,
        .d2h = f[HST_RATE_D2H].value,
        .flops_per_s = (planned ? 1 : part) * f[HST_RATE_COMPUTE].value,
        .update = part * f[engine->optimizer->update_rate].value * pace,
        .norm = part * f[bf16 ? HST_RATE_NORM_BF16 : HST_RATE_NORM_FP32].value,
        .device_update = f[engine->optimizer->device_rate].value * pace,
        .dram = engine_computes_in_dram(engine) ? 0 : memory_rate(f),
        .shared_cores = engine_computes_in_dram(engine) && !planned,
        .net = ranks_net(engine, rates),
    };
}

/* This is what half of the host's threads reach of the update's rate; 0: not known. */
static double half_of(const struct hst_engine *engine, const struct hst_rates *rates)
{
    const double all = rates->figures[engine->optimizer->update_rate].value;
    return all > 0 ? rates->figures[engine->optimizer->half_rate].value / all : 0;
}

/* False, with the reason, where one of these figures is not known. */
static bool are_known(const struct hst_rates *rates, enum hst_rate first, enum hst_rate last,
                      const char *whose, char *why, size_t why_bytes)
{
    for (int r = (int)first; r <= (int)last; r++) {
        const char *how = rates->figures[r].how;
        if (rates->figures[r].value > 0)
            continue;
        snprintf(why, why_bytes, "the %s rates are not known: %s", whose,
                 how[0] ? how : "they were not measured");
        return false;
    }
    return true;
}

/* With one rank there is nothing to be known. */
static bool is_net_known(const struct hst_engine *engine, const struct hst_rates *rates, char *why,
                         size_t why_bytes)
{
    const struct comm_info *ranks = &engine->ranks;
    const enum hst_rate operations = ranks_operations_rate(ranks);
    return ranks->ranks == 1 ||
           (are_known(rates, operations, operations, "network's", why, why_bytes) &&
            (ranks->locals == 1 || are_known(rates, HST_RATE_NET_GATHER, HST_RATE_NET_EXCHANGE,
                                             "network's", why, why_bytes)) &&
            (ranks->nodes == 1 || are_known(rates, HST_RATE_NET_BETWEEN, HST_RATE_NET_BETWEEN,
                                            "network's", why, why_bytes)));
}

static bool are_bytes_known(const struct graph *graph, const struct hst_rates *rates, char *why,
                            size_t why_bytes)
{
    bool drives = moves(graph, LANE_READ) || moves(graph, LANE_WRITE);
    bool link = moves(graph, LANE_H2D) || moves(graph, LANE_D2H);
    return (!drives ||
            are_known(rates, HST_RATE_READ, HST_RATE_MIXED, "drives'", why, why_bytes)) &&
           (!link || are_known(rates, HST_RATE_H2D, HST_RATE_D2H, "link's", why, why_bytes));
}

static bool is_host_known(const struct hst_engine *engine, const struct hst_rates *rates, char *why,
                          size_t why_bytes)
{
    bool bf16 = engine->config.precision == HST_PRECISION_BF16;
    enum hst_rate update = engine->optimizer->update_rate;
    enum hst_rate norm = bf16 ? HST_RATE_NORM_BF16 : HST_RATE_NORM_FP32;
    return are_known(rates, update, update, "update's", why, why_bytes) &&
           (!engine_computes_in_dram(engine) ||
            are_known(rates, norm, norm, "norm's", why, why_bytes));
}

static bool is_computation_known(const struct hst_rates *rates, char *why, size_t why_bytes)
{
    return are_known(rates, HST_RATE_COMPUTE, HST_RATE_COMPUTE, "computation's", why, why_bytes);
}

static bool is_all_known(const struct hst_engine *engine, const struct hst_rates *rates)
{
    char why[200];
    return is_computation_known(rates, why, sizeof why) &&
           is_host_known(engine, rates, why, sizeof why) &&
           (!engine->plan_in.has_nvme ||
            are_known(rates, HST_RATE_READ, HST_RATE_MIXED, "drives'", why, sizeof why)) &&
           (engine_computes_in_dram(engine) ||
            are_known(rates, HST_RATE_H2D, HST_RATE_D2H, "link's", why, sizeof why)) &&
           is_net_known(engine, rates, why, sizeof why);
}

bool predict_machine(const struct hst_engine *engine, const struct hst_rates *rates,
                     struct planner_machine *machine)
{
    if (!rates || !is_all_known(engine, rates))
        return false;
    *machine = (struct planner_machine){.rates = rates_for(engine, rates),
                                        .threads = engine->config.threads,
                                        .tiles = engine->config.plan_tiles,
                                        .half = half_of(engine, rates)};
    machine->streams = !engine_computes_in_dram(engine) &&
                       rates->figures[HST_RATE_SHARED].value > 0 &&
                       machine->rates.device_update > 0;
    return true;
}

/* A plan, and an engine that is about to load, which have measured nothing themselves. */
static bool is_to_begin(const struct hst_engine *engine)
{
    return engine->phase <= PHASE_SEALED;
}

/* Training measures computation and optimizer itself, what is to begin asks the rates. False, with
 * the reason, where something is not known. */
static bool fill(const struct hst_engine *engine, const struct hst_rates *rates, struct machine *m,
                 char *why, size_t why_bytes)
{
    const struct graph *graph = engine_graph(engine);
    m->rates = rates_for(engine, rates);
    m->half = half_of(engine, rates);
    if (!is_to_begin(engine)) {
        if (fill_measured(engine, m))
            return are_bytes_known(graph, rates, why, why_bytes) &&
                   is_net_known(engine, rates, why, why_bytes);
        snprintf(why, why_bytes, "computation and update are measured from the second step on");
        return false;
    }
    return is_computation_known(rates, why, why_bytes) &&
           (!moves(graph, LANE_UPDATE) || is_host_known(engine, rates, why, why_bytes)) &&
           are_bytes_known(graph, rates, why, why_bytes) &&
           is_net_known(engine, rates, why, why_bytes);
}

/* ---- what would help ---- */

static void scale_visits(struct machine *m, double times)
{
    m->rates.flops_per_s *= times;
    m->rates.device_update *= times;
    for (uint32_t i = 0; i < MEASURE_SWEEPS * m->units; i++)
        m->visit_s[i] /= times;
}

static void scale_optimizer(struct machine *m, double times)
{
    m->rates.update *= times;
    m->rates.norm *= times;
}

static void scale_cores(struct machine *m, double times)
{
    scale_visits(m, times);
    scale_optimizer(m, times);
}

static void scale_drives(struct machine *m, double times)
{
    m->rates.read *= times;
    m->rates.write *= times;
    m->rates.mixed *= times;
    m->rates.mixed_busy *= times;
}

static void scale_link(struct machine *m, double times)
{
    m->rates.h2d *= times;
    m->rates.d2h *= times;
}

static void scale_net(struct machine *m, double times)
{
    m->rates.net.gather *= times;
    m->rates.net.exchange *= times;
    m->rates.net.between *= times;
    m->rates.net.operation_s /= times;
    m->rates.net.gather_messages_s /= times;
    m->rates.net.near_messages_s /= times;
    m->rates.net.exchange_messages_s /= times;
}

struct resource {
    const char *name;
    enum lane lanes[2];
    void (*scale)(struct machine *m, double times);
};

static const struct resource on_host[] = {
    {"cores", {LANE_COMPUTE, LANE_UPDATE}, scale_cores},
    {"drives", {LANE_READ, LANE_WRITE}, scale_drives},
    {"network", {LANE_NET, LANE_NET}, scale_net},
};
static const struct resource on_gpu[] = {
    {"GPU", {LANE_COMPUTE, LANE_COMPUTE}, scale_visits},
    {"cores", {LANE_UPDATE, LANE_UPDATE}, scale_optimizer},
    {"link", {LANE_H2D, LANE_D2H}, scale_link},
    {"drives", {LANE_READ, LANE_WRITE}, scale_drives},
    {"network", {LANE_NET, LANE_NET}, scale_net},
};

static uint32_t update_threads(const struct hst_engine *engine)
{
    return engine->placement.update_threads[engine_is_optimistic(engine)];
}

static struct sim_in step_in(const struct hst_engine *engine, const struct machine *m)
{
    struct sim_in in = {.graph = engine_graph(engine),
                        .rates = m->rates,
                        .phases = versions_phases_simulated(engine)};
    if (is_to_begin(engine)) /* else what is measured is theirs */
        in.rates.update *=
            planner_update_share(update_threads(engine), engine->config.threads, m->half);
    return in;
}

/* The seconds of a step are enough. */
static int seconds_of(const struct hst_engine *engine, const struct machine *m, double *step_s)
{
    struct sim sim = {0};
    struct sim_in in = step_in(engine, m);
    in.brief = true;
    const int rc = simulate(&in, &sim);
    *step_s = sim.step_s;
    return rc;
}

/* Seconds that differ by less are the same: they were summed otherwise. */
#define SAME_TIME 1e-9

/* Most first; of two that help as much the one that was tried first. */
static void keep_help(struct hst_prediction *p, const char *what, double step_s)
{
    uint32_t at = p->help_count++;
    for (; at > 0 && p->helps[at - 1].step_s > step_s * (1 + SAME_TIME); at--)
        p->helps[at] = p->helps[at - 1];
    p->helps[at] = (struct hst_help){what, step_s};
}

static int find_help(const struct hst_engine *engine, struct machine *m, const struct sim *sim,
                     struct hst_prediction *p)
{
    bool host = m->rates.shared_cores;
    const struct resource *resources = host ? on_host : on_gpu;
    size_t count = host ? sizeof on_host / sizeof *on_host : sizeof on_gpu / sizeof *on_gpu;
    p->bound_by = lane_name(sim->bound_by);
    for (size_t i = 0; i < count; i++) {
        const enum lane *lanes = resources[i].lanes;
        double faster_s;
        if (lanes[0] == LANE_NET && engine->ranks.ranks == 1)
            continue;
        resources[i].scale(m, 2);
        int rc = seconds_of(engine, m, &faster_s);
        resources[i].scale(m, 0.5);
        if (rc)
            return rc;
        if (faster_s >= p->step_s * (1 - SAME_TIME))
            continue;
        keep_help(p, resources[i].name, faster_s);
        if (p->helps[0].what == resources[i].name)
            p->bound_by = lane_name(lanes[sim->busy_s[lanes[1]] > sim->busy_s[lanes[0]]]);
    }
    return 0;
}

/* ---- an evaluation ---- */

/* A sweep by itself takes what its busiest lane does: what is read ahead hides behind the rest. */
static double evaluation_seconds(const struct hst_engine *engine, const struct sim_rates *rates)
{
    const struct graph *graph = engine_graph(engine);
    double busy_s[LANE_COUNT] = {0}, most_s = 0;
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const struct node *node = &graph->nodes[i];
        if (node->phases & PHASE_EVAL)
            busy_s[node->lane] += sim_node_seconds(rates, node);
    }
    for (int l = 0; l < LANE_COUNT; l++)
        most_s = busy_s[l] > most_s ? busy_s[l] : most_s;
    return most_s;
}

/* ---- what a step asks of the machine ---- */

static bool is_of_client(const struct node *node)
{
    return node->kind == NODE_FORWARD || node->kind == NODE_RECOMPUTE ||
           node->kind == NODE_BACKWARD;
}

static void find_demands(const struct hst_engine *engine, const struct sim_rates *rates,
                         struct hst_prediction *p)
{
    const struct graph *graph = engine_graph(engine);
    const unsigned phases = PHASES_TRAIN | versions_phases_simulated(engine);
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const struct node *node = &graph->nodes[i];
        if (!(node->phases & phases))
            continue;
        p->compute_s += is_of_client(node) ? sim_node_seconds(rates, node) : 0;
        p->write_bytes += node->lane == LANE_WRITE ? node->work : 0;
    }
}

/* ---- before the first step ---- */

void predict_start_up(const struct hst_engine *engine, const struct hst_rates *rates,
                      struct hst_start_up *start_up)
{
    const uint64_t own_bytes = engine->config.load_bytes / engine->ranks.ranks;
    struct start_bytes bytes =
        start_up_bytes(&engine->plan_in, &engine->placement, own_bytes, engine->config.resumes);
    struct hst_rates shared = rates ? *rates : (struct hst_rates){.drive_count = 0};
    shared.figures[HST_RATE_READ].value /= sharers_of(engine);
    shared.figures[HST_RATE_WRITE].value /= sharers_of(engine);
    start_up_seconds(&bytes, &shared, start_up);
}

/* ---- the whole ---- */

static int predict(const struct hst_engine *engine, struct machine *m, struct hst_prediction *p)
{
    struct sim sim = {0};
    struct graph_bound bound = {0};
    const bool rough = engine->config.plan_tiles > 0;
    const struct sim_in in = step_in(engine, m);
    int rc = rough ? seconds_of(engine, m, &sim.step_s) : simulate(&in, &sim);
    rc = rc || rough ? rc : graph_bound(in.graph, &m->rates, in.phases, &bound);
    if (rc)
        return rc;
    p->step_s = sim.step_s;
    p->bound_s = bound.step_s;
    if (is_to_begin(engine)) {
        p->evaluation_s = evaluation_seconds(engine, &m->rates);
        find_demands(engine, &m->rates, p);
    }
    return rough ? 0 : find_help(engine, m, &sim, p);
}

int hst_engine_predict(const struct hst_engine *engine, const struct hst_rates *rates,
                       struct hst_prediction *prediction)
{
    static const struct hst_rates none;
    if (engine_graph(engine)->node_count == 0 || !prediction)
        return -EINVAL;
    struct hst_prediction p = {0};
    struct machine m = {.units = engine->layout.unit_count};
    m.visit_s = calloc(MEASURE_SWEEPS * (size_t)m.units + 1, sizeof *m.visit_s);
    int rc = m.visit_s ? 0 : -ENOMEM;
    if (rc == 0 && fill(engine, rates ? rates : &none, &m, p.why, sizeof p.why))
        rc = predict(engine, &m, &p);
    free(m.visit_s);
    if (rc == 0)
        *prediction = p;
    return rc;
}

/* ---- a step as it passes ---- */

#define SHOWN_WINDOW 4u /* of the six: as steady as any */

struct timeline {
    const struct hst_engine *engine;
    double begin_s, end_s; /* of the step that is shown */
    hst_trace_fn *event;   /* null: its begin is looked for */
    void *context;
};

static void take_node(void *context, uint64_t step_window, uint32_t number, double start_s,
                      double end_s)
{
    struct timeline *t = context;
    const struct hst_engine *engine = t->engine;
    const struct node *node = &engine_graph(engine)->nodes[number];
    if (!t->event) {
        if (node->lane == LANE_COMPUTE && step_window == SHOWN_WINDOW)
            t->begin_s = fmin(t->begin_s, start_s);
        return;
    }
    const double from = fmax(start_s, t->begin_s), to = fmin(end_s, t->end_s);
    if (from >= to)
        return;
    t->event(t->context, &(struct hst_trace_event){.lane = lane_name(node->lane),
                                                   .what = node_kind_name(node->kind),
                                                   .step = step_window,
                                                   .tile = node->tile,
                                                   .tile_count = node->tile_count,
                                                   .start_s = from - t->begin_s,
                                                   .end_s = to - t->begin_s,
                                                   .work = node->work});
}

static int show(const struct hst_engine *engine, const struct machine *m, struct timeline *t)
{
    struct sim sim;
    hst_trace_fn *event = t->event;
    t->begin_s = INFINITY;
    t->event = NULL;
    struct sim_in in = step_in(engine, m);
    in.node = take_node;
    in.context = t;
    int rc = simulate(&in, &sim);
    t->event = event;
    t->end_s = t->begin_s + sim.step_s;
    return rc ? rc : simulate(&in, &sim);
}

int hst_engine_timeline(const struct hst_engine *engine, const struct hst_rates *rates,
                        hst_trace_fn *event, void *context)
{
    char why[200];
    if (engine_graph(engine)->node_count == 0 || !is_to_begin(engine) || !rates || !event)
        return -EINVAL;
    struct machine m = {.units = engine->layout.unit_count};
    struct timeline t = {.engine = engine, .event = event, .context = context};
    return fill(engine, rates, &m, why, sizeof why) ? show(engine, &m, &t) : -EINVAL;
}

int hst_engine_start_up(const struct hst_engine *engine, const struct hst_rates *rates,
                        struct hst_start_up *start_up)
{
    if (engine_graph(engine)->node_count == 0 || !start_up)
        return -EINVAL;
    predict_start_up(engine, rates, start_up);
    return 0;
}

int hst_engine_decision(const struct hst_engine *engine, struct hst_decision *decision)
{
    if (engine_graph(engine)->node_count == 0 || !decision)
        return -EINVAL;
    const struct planned *p = &engine->planned;
    *decision = (struct hst_decision){
        .update = engine_is_optimistic(engine) ? "optimistic"
                  : engine->plan_in.deferred   ? "deferred"
                                               : "early",
        .homes = p->simulated == 0 ? "usual"
                 : p->better       ? p->what
                                   : "none is faster",
        .usual_step_s = p->usual_step_s,
        .step_s = p->step_s,
        .checkpoint_every = engine->placement.segment,
        .resident_units = engine->placement.resident_units,
        .units = engine->layout.unit_count,
        .streamed_tiles = engine->placement.streamed_tiles,
        .tiles_in_dram = placement_tiles_in_dram(&engine->placement),
        .late_share = engine->placement.late_eighths / 8.0,
        .update_threads = update_threads(engine) ? update_threads(engine) : engine->config.threads,
        .saved_units = engine->placement.saved_units,
        .savable_units = placement_savable_units(&engine->plan_in),
    };
    layout_count_slices(&engine->layout, &decision->cut_units, &decision->slices);
    return 0;
}
