/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client's calls as ends of the loop, and the step windows of the graph behind them. While a
 * step runs, the step window behind it is open already, taken for another step; a drain or an
 * evaluation takes phases away from it.
 */
#include "exec/execute.h"

#include "base/clock.h"
#include "exec/copies.h"
#include "exec/demand.h"
#include "exec/failure.h"
#include "exec/loop.h"
#include "exec/measure.h"
#include "exec/optimistic.h"
#include "exec/optimizer.h"
#include "exec/passages.h"
#include "exec/slices.h"
#include "exec/versions.h"
#include "exec/visits.h"
#include "plan/graph/step_graph.h"

#include <errno.h>
#include <stdlib.h>

static const struct node *node_of(const struct execute *run, struct scheduled at)
{
    return &run->graph.nodes[at.node];
}

/* ---- ends ---- */

static bool may_open(struct hst_engine *engine)
{
    return scheduler_may_open(&engine->run.scheduler);
}

static bool compute_is_ready(struct hst_engine *engine)
{
    struct scheduled at;
    return scheduler_next(&engine->run.scheduler, LANE_COMPUTE, &at) &&
           node_of(&engine->run, at)->kind != NODE_UPDATE &&
           scheduler_ready(&engine->run.scheduler, at);
}

static bool clip_is_done(struct hst_engine *engine)
{
    return engine->run.clip_done;
}

/* ---- the client's calls ---- */

static enum node_kind node_kind_of(enum hst_sweep sweep)
{
    return sweep == HST_BACKWARD    ? NODE_BACKWARD
           : sweep == HST_RECOMPUTE ? NODE_RECOMPUTE
                                    : NODE_FORWARD;
}

static int open_step_window(struct hst_engine *engine, unsigned phases)
{
    struct execute *run = &engine->run;
    int rc = loop_until(engine, may_open);
    if (rc)
        return rc;
    run->step_window = run->scheduler.opened;
    scheduler_open(&run->scheduler, phases);
    return 0;
}

/* It leaves what was opened for a step that does not come now to the update alone, or to
 * nothing. */
int execute_drain(struct hst_engine *engine)
{
    struct execute *run = &engine->run;
    unsigned phases = run->pending;
    int rc = 0;
    if (run->prepared || (run->evaluating && !run->on_demand))
        scheduler_narrow(&run->scheduler, run->step_window, phases);
    else if (phases)
        rc = open_step_window(engine, phases);
    rc = rc ? rc : loop_until(engine, loop_is_idle);
    run->evaluating = run->prepared = run->on_demand = false;
    run->pending = 0;
    return rc;
}

/* They are those of a step that was not foreseen: with what the last one has left to do. */
static unsigned phases_of_step(const struct hst_engine *engine)
{
    return (unsigned)PHASE_FORWARD | PHASE_BACKWARD | engine->run.pending |
           versions_phases(engine, engine->step.number);
}

int execute_begin(struct hst_engine *engine)
{
    struct execute *run = &engine->run;
    int rc = run->evaluating ? execute_drain(engine) : 0;
    run->on_demand = false;
    run->visits[0] = run->visits[1] = 0;
    rc = rc ? rc : optimistic_step_begins(engine);
    if (rc == 0 && !run->prepared)
        rc = open_step_window(engine, phases_of_step(engine));
    if (rc == 0)
        versions_window_begins(engine, run->step_window);
    run->prepared = run->clip_done = run->skipped = run->early_begun = false;
    run->in_step = rc == 0;
    return rc;
}

/* True where the unit's node comes next in the compute lane of this step window, but for forwards,
 * which may be left out; not those that are made again. */
static bool is_ahead(struct execute *run, uint32_t unit, enum node_kind kind)
{
    const struct graph *graph = &run->graph;
    struct scheduled at;
    if (!scheduler_next(&run->scheduler, LANE_COMPUTE, &at) || at.step_window != run->step_window)
        return false;
    for (uint32_t i = run->scheduler.lane[LANE_COMPUTE].at; i < graph->lane_count[LANE_COMPUTE];
         i++) {
        at.node = graph->lane[LANE_COMPUTE][i];
        const struct node *node = node_of(run, at);
        if (!scheduler_is_run(&run->scheduler, at))
            continue;
        if (node->unit == unit && node->kind == kind)
            return true;
        if (node->kind == NODE_BACKWARD || node->kind == NODE_RECOMPUTE)
            return false;
    }
    return false;
}

/* The visit is not ahead: only the sealed order says what would be recomputed in which order. */
static int check_order(struct hst_engine *engine, uint32_t unit, enum hst_sweep sweep)
{
    if (sweep == HST_EVAL)
        return 0;
    if (engine->placement.segment > 1)
        return report_refuse(&engine->report,
                             "unit %u was asked for out of the order of hst_engine_visits, which a "
                             "step keeps where checkpoints are computed again. Fix: keep it, or "
                             "leave out HST_UNIT_RECOMPUTE",
                             slices_described(engine, unit));
    if (sweep == HST_RECOMPUTE)
        return report_refuse(&engine->report,
                             "unit %u is not computed again: hst_engine_visits has no such "
                             "visit",
                             slices_described(engine, unit));
    return 0;
}

/* ---- a client that leaves the order ---- */

/* Checkpoints that were kept in memory for the backward go home: their buffers are needed. */
static int evict_retained_acts(struct hst_engine *engine)
{
    struct execute *run = &engine->run;
    const struct graph *graph = &run->graph;
    enum pool pool = engine_computes_in_dram(engine) ? POOL_ACTS : POOL_DEVICE_ACTS;
    struct scheduled at = {.step_window = run->step_window};
    int rc = 0;
    for (uint32_t i = run->scheduler.lane[LANE_COMPUTE].at;
         i < graph->lane_count[LANE_COMPUTE] && rc == 0; i++) {
        at.node = graph->lane[LANE_COMPUTE][i];
        if (node_of(run, at)->kind == NODE_BACKWARD &&
            scheduler_pool_buffer(&run->scheduler, at, pool) != GRAPH_NONE)
            rc = demand_send_acts(engine, node_of(run, at)->unit, pool,
                                  scheduler_pool_buffer(&run->scheduler, at, pool));
    }
    return rc;
}

/* Gradients that were kept in memory for the update go home too. */
static int evict_retained_grads(struct hst_engine *engine)
{
    struct execute *run = &engine->run;
    const struct graph *graph = &run->graph;
    int rc = 0;
    for (uint32_t i = 0; i < graph->node_count && rc == 0; i++) {
        const struct node *node = &graph->nodes[i];
        if (node->kind != NODE_NORM || node->reservation[0] == GRAPH_NONE)
            continue;
        uint32_t buffer =
            scheduler_left_to_heir(&run->scheduler, run->step_window, node->reservation[0]);
        if (buffer != GRAPH_NONE)
            rc = demand_send_grads(engine, node->unit,
                                   (enum pool)graph->reservations[node->reservation[0]].pool,
                                   buffer);
    }
    return rc;
}

/* The rest of the step, or of the evaluation, is served unit by unit. */
static int leave_order(struct hst_engine *engine, uint32_t unit)
{
    struct execute *run = &engine->run;
    if (!run->warned)
        report_log(&engine->report, HST_LOG_WARNING,
                   "W601 unit %u was asked for out of the order of the last step: the rest of this "
                   "step is served as it is asked for, without reading ahead; the next step "
                   "follows the new order",
                   slices_described(engine, unit));
    run->warned = true;
    int rc = loop_to_rest(engine);
    rc = rc ? rc : evict_retained_acts(engine);
    rc = rc ? rc : evict_retained_grads(engine);
    if (rc)
        return rc;
    if (run->scheduler.opened > run->step_window + 1)
        scheduler_narrow(&run->scheduler, run->step_window + 1, 0);
    scheduler_narrow(&run->scheduler, run->step_window, run->pending);
    rc = loop_until(engine, loop_is_idle);
    if (rc)
        return rc;
    scheduler_forget(&run->scheduler); /* its buffers are used on demand */
    run->pending = 0;
    run->on_demand = true;
    /* Its phase of the step window is gone. Where an update has followed a backward at once the
       last step's bytes are gone too, and its version is left out. */
    return run->early_begun ? 0 : versions_instead(engine);
}

/* The graph of the steps to come follows the order of this one, where it can be followed. */
static int learn_order(struct hst_engine *engine, bool optimistic)
{
    struct execute *run = &engine->run;
    const struct step_order order = {run->visited[0], run->visited[1], run->visits[0],
                                     run->visits[1]};
    struct graph graph;
    int rc = step_graph(&engine->plan_in, &engine->placement, &order, optimistic, &graph);
    if (rc == -EINVAL)
        return 0; /* a unit visited twice in a sweep: it goes on as it is asked for */
    if (rc)
        return report_fail(&engine->report, HST_E_BUDGET, rc,
                           "no memory for the graph of a new order");
    scheduler_free(&run->scheduler);
    graph_free(&run->graph);
    run->graph = graph;
    run->stale = UINT64_MAX; /* step windows begin anew */
    run->optimistic = optimistic;
    run->deferred = engine->plan_in.deferred && !optimistic;
    rc = scheduler_init(&run->scheduler, &run->graph);
    return rc ? report_fail(&engine->report, HST_E_BUDGET, rc,
                            "no memory for the scheduler of a new order")
              : 0;
}

/* Starts the unit's node when it may run; what comes before it in the lane is left out. */
static int reach(struct hst_engine *engine, uint32_t unit, enum node_kind kind)
{
    struct execute *run = &engine->run;
    for (;;) {
        struct scheduled at;
        int rc = loop_until(engine, compute_is_ready);
        if (rc)
            return rc;
        scheduler_next(&run->scheduler, LANE_COMPUTE, &at);
        const struct node *node = node_of(run, at);
        scheduler_start(&run->scheduler, at);
        if (node->unit == unit && node->kind == kind) {
            run->computing = at;
            run->computing_start_s = clock_seconds();
            run->computing_host_s = run->measure.host_s;
            return 0;
        }
        scheduler_done(&run->scheduler, at);
    }
}

/* An evaluation begins anew where the unit does not come in the one under way. */
static int begin_evaluation(struct hst_engine *engine, uint32_t unit)
{
    struct execute *run = &engine->run;
    if (run->evaluating && (run->on_demand || is_ahead(run, unit, NODE_FORWARD)))
        return 0;
    bool restart = run->evaluating;
    int rc = execute_drain(engine);
    if (rc)
        return rc;
    run->on_demand = restart; /* in an order of its own */
    if (restart)
        scheduler_forget(&run->scheduler);
    rc = restart ? 0 : open_step_window(engine, PHASE_EVAL);
    run->evaluating = rc == 0;
    return rc;
}

static void record_visit(struct hst_engine *engine, uint32_t unit, enum hst_sweep sweep)
{
    struct execute *run = &engine->run;
    int which = sweep == HST_BACKWARD;
    bool is_of_order = sweep == HST_FORWARD || sweep == HST_BACKWARD;
    if (is_of_order && run->visits[which]++ < engine->layout.unit_count)
        run->visited[which][run->visits[which] - 1] = unit;
}

int execute_reach(struct hst_engine *engine, uint32_t unit, enum hst_sweep sweep)
{
    struct execute *run = &engine->run;
    enum node_kind kind = node_kind_of(sweep);
    int rc = sweep == HST_EVAL ? begin_evaluation(engine, unit) : 0;
    bool ahead = rc == 0 && !run->on_demand && is_ahead(run, unit, kind);
    if (rc == 0 && !ahead)
        rc = check_order(engine, unit, sweep);
    if (rc)
        return rc;
    record_visit(engine, unit, sweep);
    if (!ahead && !run->on_demand)
        rc = leave_order(engine, unit);
    if (rc)
        return rc;
    return run->on_demand ? demand_reach(engine, unit, sweep) : reach(engine, unit, kind);
}

int execute_leave(struct hst_engine *engine, struct hst_stream *stream)
{
    struct execute *run = &engine->run;
    int rc = 0;
    if (run->on_demand)
        return demand_leave(engine, stream, engine->sweep);
    if (run->passages[LANE_COMPUTE].count == EXECUTE_PASSAGES)
        rc = loop_take_oldest(engine, LANE_COMPUTE);
    if (rc)
        return rc;
    rc = passages_add(engine, LANE_COMPUTE, stream,
                      (struct passage){.at = run->computing,
                                       .start_s = run->computing_start_s,
                                       .host_s = run->computing_host_s});
    rc = rc ? rc : hst_event_record(engine->unit_passed, stream);
    return rc ? engine_fail_device(engine, rc, "the computation of a unit") : loop_start(engine);
}

/* Derived weights on drives have one slot: what an optimistic update wrote there is made again of
 * the states, which are as they were. */
static int restore_derived(struct hst_engine *engine)
{
    if (!engine->run.optimistic || !engine->plan_in.derived_weights)
        return 0;
    int rc = execute_drain(engine);
    return rc ? rc : versions_derive(engine);
}

int execute_end(struct hst_engine *engine)
{
    struct execute *run = &engine->run;
    int rc = run->on_demand ? loop_clip(engine) : loop_until(engine, clip_is_done);
    if (rc)
        return rc;
    run->in_step = false;
    run->pending = run->left;
    run->step_window++;
    run->prepared = !run->on_demand && run->scheduler.opened > run->step_window;
    rc = run->on_demand ? learn_order(engine, run->optimistic) : 0;
    return rc || !run->skipped ? rc : restore_derived(engine);
}

int execute_update_as(struct hst_engine *engine, bool optimistic)
{
    int rc = execute_drain(engine);
    rc = rc ? rc : learn_order(engine, optimistic);
    engine->run.choice.optimistic = engine->run.optimistic; /* an order may be beyond learning */
    return rc;
}

/* ---- opening ---- */

static uint32_t flights_wanted(const struct hst_engine *engine)
{
    uint32_t drives = engine->drive_count ? engine->drive_count : 1;
    return drives * EXTENTS_IN_FLIGHT;
}

/* The device's nodes end in order. */
static bool has_passages(int lane)
{
    return lane == LANE_COMPUTE || lane == LANE_H2D || lane == LANE_D2H;
}

int execute_open(struct hst_engine *engine)
{
    struct execute *run = &engine->run;
    run->deferred = engine->plan_in.deferred && !run->optimistic;
    run->stale = UINT64_MAX;
    for (int l = 0; l < LANE_COUNT; l++)
        run->issuing[l] = EXECUTE_JOBS;
    run->committing = EXECUTE_JOBS;
    run->flight_count = flights_wanted(engine);
    run->flights = calloc(run->flight_count, sizeof *run->flights);
    for (int i = 0; i < 2; i++)
        run->visited[i] = calloc((size_t)engine->layout.unit_count + 1, sizeof *run->visited[i]);
    if (!run->flights || !run->visited[0] || !run->visited[1])
        return -ENOMEM;
    int rc = measure_open(engine);
    rc = rc ? rc
            : step_graph(&engine->plan_in, &engine->placement, NULL, run->optimistic, &run->graph);
    rc = rc ? rc : scheduler_init(&run->scheduler, &run->graph);
    rc = rc ? rc : visits_open(engine);
    for (int l = 0; l < LANE_COUNT; l++)
        for (uint32_t i = 0; rc == 0 && has_passages(l) && i < EXECUTE_PASSAGES; i++)
            rc = hst_event_create(engine->dev, &run->passages[l].ring[i].passed);
    return rc ? rc : copies_open(engine);
}

void execute_close(struct hst_engine *engine)
{
    struct execute *run = &engine->run;
    copies_close(engine);
    for (int l = 0; l < LANE_COUNT; l++)
        for (uint32_t i = 0; i < EXECUTE_PASSAGES; i++)
            hst_event_destroy(&run->passages[l].ring[i].passed);
    scheduler_free(&run->scheduler);
    graph_free(&run->graph);
    graph_free(&run->demand);
    free(run->flights);
    for (int i = 0; i < 2; i++) {
        free(run->visited[i]);
        run->visited[i] = NULL;
    }
    measure_close(engine);
    visits_close(engine);
    run->flights = NULL;
}
