/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client's calls as ends of the loop, and the step windows of the graph behind them. While a
 * step runs, the step window behind it is open already, taken for another step; a drain or an
 * evaluation takes phases away from it.
 */
#include "exec/visit/execute.h"

#include "base/clock.h"
#include "exec/lanes/lanes.h"
#include "exec/lanes/loop.h"
#include "exec/moves.h"
#include "exec/passages.h"
#include "exec/streams.h"
#include "exec/tiles/tile_stream.h"
#include "exec/update/verdict.h"
#include "exec/visit/order.h"
#include "exec/visit/visits.h"

#include <string.h>

/* ---- ends ---- */

static bool may_open(struct executor *exec)
{
    return scheduler_may_open(&exec->step.scheduler);
}

static bool compute_is_ready(struct executor *exec)
{
    struct scheduled at;
    return scheduler_next(&exec->now->scheduler, LANE_COMPUTE, &at) &&
           program_node(exec, at)->kind != NODE_UPDATE &&
           scheduler_ready(&exec->now->scheduler, at);
}

static bool is_computed(struct executor *exec)
{
    return exec->passages[LANE_COMPUTE].count == 0;
}

static bool norm_is_known(struct executor *exec)
{
    return exec->verdict.is_known;
}

/* ---- step windows ---- */

static int open_step_window(struct executor *exec, unsigned phases)
{
    int rc = loop_until(exec, may_open);
    if (rc)
        return rc;
    exec->turn.step_window = exec->step.scheduler.opened;
    scheduler_open(&exec->step.scheduler, phases);
    return 0;
}

/* All ranks are here, so that nothing waits for a client's visit. */
static int run_out(struct executor *exec)
{
    exec->turn.runs_out = true;
    exec->turn.reached = GRAPH_NONE;
    const int rc = loop_until(exec, loop_is_idle);
    exec->turn.runs_out = false;
    return rc;
}

/* It leaves what was opened for a step that does not come now to the update alone, or to
 * nothing. */
int execute_drain(struct executor *exec)
{
    struct turn *turn = &exec->turn;
    unsigned phases = turn->pending;
    int rc = 0;
    program_resume_step(exec);
    if (exec->in.comm && turn->evaluating && !turn->on_demand)
        rc = loop_until(exec, net_is_even);
    if (rc)
        return rc;
    if (turn->prepared || (turn->evaluating && !turn->on_demand))
        scheduler_narrow(&exec->step.scheduler, turn->step_window, phases);
    else if (phases)
        rc = open_step_window(exec, phases);
    rc = rc ? rc : run_out(exec);
    turn->evaluating = turn->prepared = turn->on_demand = false;
    turn->pending = 0;
    return rc;
}

int execute_gather(struct executor *exec)
{
    if (!exec->in.comm)
        return 0;
    int rc = open_step_window(exec, PHASE_WHOLE);
    return rc ? rc : run_out(exec);
}

/* They are those of a step that was not foreseen: with what the last one has left to do. */
static unsigned phases_of_step(const struct executor *exec)
{
    const struct executor_owner *owner = &exec->in.owner;
    return (unsigned)PHASE_FORWARD | PHASE_BACKWARD | exec->turn.pending |
           owner->phases(owner->context, exec->in.standing->number);
}

int execute_begin(struct executor *exec)
{
    struct turn *turn = &exec->turn;
    int rc = turn->evaluating ? execute_drain(exec) : 0;
    turn->on_demand = false;
    turn->reached = 0;
    program_resume_step(exec);
    order_begin(exec);
    rc = rc ? rc : verdict_step_begins(exec);
    if (rc == 0 && !turn->prepared)
        rc = open_step_window(exec, phases_of_step(exec));
    if (rc == 0)
        exec->in.owner.window_begins(exec->in.owner.context, turn->step_window);
    turn->prepared = false;
    turn->in_step = rc == 0;
    return rc;
}

/* ---- visits ---- */

static enum node_kind node_kind_of(enum hst_sweep sweep)
{
    return sweep == HST_BACKWARD    ? NODE_BACKWARD
           : sweep == HST_RECOMPUTE ? NODE_RECOMPUTE
                                    : NODE_FORWARD;
}

/* True where the unit's node comes next in the compute lane of this step window, but for forwards,
 * which may be left out; not those that are made again. */
static bool is_ahead(struct executor *exec, uint32_t unit, enum node_kind kind, uint32_t *number)
{
    struct scheduler *scheduler = &exec->step.scheduler;
    const struct graph *graph = &exec->step.graph;
    struct scheduled at;
    if (!scheduler_next(scheduler, LANE_COMPUTE, &at) || at.step_window != exec->turn.step_window)
        return false;
    for (uint32_t i = scheduler->lane[LANE_COMPUTE].at; i < graph->lane_count[LANE_COMPUTE]; i++) {
        at.node = graph->lane[LANE_COMPUTE][i];
        const struct node *node = &graph->nodes[at.node];
        if (!scheduler_is_run(scheduler, at))
            continue;
        *number = at.node;
        if (node->unit == unit && node->kind == kind)
            return true;
        if (node->kind == NODE_BACKWARD || node->kind == NODE_RECOMPUTE)
            return false;
    }
    return false;
}

/* Starts the unit's node when it may run; what comes before it in the lane is left out. */
static int reach(struct executor *exec, uint32_t unit, enum node_kind kind)
{
    struct scheduler *scheduler = &exec->now->scheduler;
    for (;;) {
        struct scheduled at;
        int rc = loop_until(exec, compute_is_ready);
        if (rc)
            return rc;
        scheduler_next(scheduler, LANE_COMPUTE, &at);
        const struct node *node = program_node(exec, at);
        scheduler_start(scheduler, at);
        if (node->unit == unit && node->kind == kind) {
            exec->turn.computing = at;
            exec->turn.computing_start_s = clock_seconds();
            exec->turn.computing_host_s = exec->measure.host_s;
            return 0;
        }
        scheduler_done(scheduler, at);
    }
}

/* An evaluation begins anew where the unit does not come in the one under way. */
static int begin_evaluation(struct executor *exec, uint32_t unit)
{
    struct turn *turn = &exec->turn;
    uint32_t number;
    if (turn->evaluating && (turn->on_demand || is_ahead(exec, unit, NODE_FORWARD, &number)))
        return 0;
    bool restart = turn->evaluating;
    int rc = execute_drain(exec);
    if (rc)
        return rc;
    turn->on_demand = restart; /* in an order of its own */
    if (restart)
        scheduler_forget(&exec->step.scheduler);
    rc = restart ? 0 : open_step_window(exec, PHASE_EVAL);
    turn->evaluating = rc == 0;
    turn->reached = 0;
    return rc;
}

/* The rest of the step, or of the evaluation, is served unit by unit. Its phases of the step window
 * are gone. Where an update has followed a backward at once the last step's bytes are gone too, and
 * its version is left out. */
static int leave_order(struct executor *exec, uint32_t unit)
{
    int rc = order_leave(exec, unit);
    if (rc)
        return rc;
    exec->turn.pending = 0;
    exec->turn.on_demand = true;
    return exec->verdict.early_begun ? 0 : exec->in.owner.order_left(exec->in.owner.context);
}

int execute_reach(struct executor *exec, uint32_t unit, enum hst_sweep sweep)
{
    struct turn *turn = &exec->turn;
    uint32_t number = 0;
    enum node_kind kind = node_kind_of(sweep);
    int rc = sweep == HST_EVAL ? begin_evaluation(exec, unit) : 0;
    bool ahead = rc == 0 && !turn->on_demand && is_ahead(exec, unit, kind, &number);
    turn->reached = ahead ? number : turn->reached;
    if (rc == 0 && !ahead)
        rc = order_check(exec, unit, sweep);
    if (rc)
        return rc;
    order_note(exec, unit, sweep);
    if (!ahead && !turn->on_demand)
        rc = leave_order(exec, unit);
    if (rc == 0 && turn->on_demand)
        rc = order_serve(exec, unit, sweep);
    return rc ? rc : reach(exec, unit, kind);
}

unsigned char *execute_operand(const struct executor *exec, unsigned what, uint32_t nth)
{
    return moves_work(exec, exec->turn.computing, what, nth);
}

/* Visits that the client may have enqueued on the host. One that runs further ahead waits for room
 * in the host's stream, where nobody looks at drives: here it waits for them, too. With two the
 * host never waits for the client, and a third one makes up for a short one. */
#define HOST_AHEAD 3u

static bool may_go_on(struct executor *exec)
{
    const bool host = executor_computes_in_dram(exec);
    return exec->passages[LANE_COMPUTE].count < (host ? HOST_AHEAD : PASSAGES_MOST);
}

int execute_leave(struct executor *exec, struct hst_stream *stream)
{
    const struct turn *turn = &exec->turn;
    int rc = passages_add(exec, LANE_COMPUTE, stream,
                          (struct passage){.at = turn->computing,
                                           .start_s = turn->computing_start_s,
                                           .host_s = turn->computing_host_s});
    rc = rc ? rc : streams_unit_passes(exec, stream);
    if (rc)
        return executor_fail_device(exec, rc, "the computation of a unit");
    return loop_until(exec, turn->on_demand ? loop_is_idle : may_go_on);
}

/* ---- the end of a step ---- */

/* Derived weights on drives have one slot: what an optimistic update wrote there is made again of
 * the states, which are as they were. */
static int restore_derived(struct executor *exec)
{
    if (!exec->verdict.optimistic || !exec->in.plan_in->derived_weights)
        return 0;
    int rc = execute_drain(exec);
    return rc ? rc : exec->in.owner.derive(exec->in.owner.context);
}

int execute_computed(struct executor *exec)
{
    return exec->turn.on_demand ? 0 : loop_until(exec, is_computed);
}

int execute_end(struct executor *exec)
{
    struct turn *turn = &exec->turn;
    turn->reached = exec->now->graph.step_end;
    int rc = turn->on_demand ? host_clip(exec) : loop_until(exec, norm_is_known);
    if (rc)
        return rc;
    turn->in_step = false;
    turn->pending = exec->verdict.left;
    turn->step_window++;
    turn->prepared = !turn->on_demand && exec->step.scheduler.opened > turn->step_window;
    rc = turn->on_demand ? order_learn(exec, exec->verdict.optimistic) : 0;
    return rc || !exec->verdict.skipped ? rc : restore_derived(exec);
}

int execute_update_as(struct executor *exec, bool optimistic)
{
    int rc = execute_drain(exec);
    return rc ? rc : order_learn(exec, optimistic);
}

/* ---- opening ---- */

int execute_open(struct executor *exec, const struct executor_in *in)
{
    executor_init(exec, in);
    verdict_open(exec, in->optimistic);
    int rc = drives_open(exec);
    rc = rc ? rc : order_open(exec);
    rc = rc ? rc : measure_open(exec);
    rc = rc ? rc : program_step(exec, NULL, in->optimistic);
    rc = rc ? rc : visits_open(exec);
    rc = rc ? rc : tile_stream_open(exec);
    rc = rc ? rc : passages_open(exec);
    return rc ? rc : streams_open(exec);
}

void execute_close(struct executor *exec)
{
    streams_close(exec);
    passages_close(exec);
    tile_stream_close(exec);
    visits_close(exec);
    program_close(exec);
    measure_close(exec);
    order_close(exec);
    drives_close(exec);
}
