/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/visit/order.h"

#include "exec/lanes/loop.h"
#include "exec/program.h"
#include "exec/update/verdict.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

int order_open(struct executor *exec)
{
    struct order *order = &exec->order;
    for (int i = 0; i < 2; i++)
        order->visited[i] =
            calloc((size_t)exec->in.layout->unit_count + 1, sizeof *order->visited[i]);
    return order->visited[0] && order->visited[1] ? 0 : -ENOMEM;
}

void order_close(struct executor *exec)
{
    for (int i = 0; i < 2; i++) {
        free(exec->order.visited[i]);
        exec->order.visited[i] = NULL;
    }
}

/* ---- what is seen ---- */

void order_begin(struct executor *exec)
{
    exec->order.visits[0] = exec->order.visits[1] = 0;
}

void order_note(struct executor *exec, uint32_t unit, enum hst_sweep sweep)
{
    struct order *order = &exec->order;
    int which = sweep == HST_BACKWARD;
    bool is_of_order = sweep == HST_FORWARD || sweep == HST_BACKWARD;
    if (is_of_order && order->visits[which]++ < exec->in.layout->unit_count)
        order->visited[which][order->visits[which] - 1] = unit;
}

/* As the client described it. */
static uint32_t described(const struct executor *exec, uint32_t unit)
{
    return exec->in.layout->units[unit].whole;
}

int order_check(struct executor *exec, uint32_t unit, enum hst_sweep sweep)
{
    if (sweep == HST_EVAL)
        return 0;
    if (exec->in.comm)
        return report_refuse(exec->in.report,
                             "unit %u was asked for out of the order of hst_engine_visits, which a "
                             "step keeps where several ranks make it together. Fix: keep it",
                             described(exec, unit));
    if (exec->in.plan_in->quantised)
        return report_refuse(exec->in.report,
                             "unit %u was asked for out of the order of hst_engine_visits, which a "
                             "step keeps where weights are gathered as integers. Fix: keep it",
                             described(exec, unit));
    if (exec->in.placement->segment > 1)
        return report_refuse(exec->in.report,
                             "unit %u was asked for out of the order of hst_engine_visits, which a "
                             "step keeps where checkpoints are recomputed. Fix: keep it, or "
                             "leave out HST_UNIT_RECOMPUTE",
                             described(exec, unit));
    if (sweep == HST_RECOMPUTE)
        return report_refuse(exec->in.report,
                             "unit %u is not recomputed: hst_engine_visits has no such "
                             "visit",
                             described(exec, unit));
    return 0;
}

int order_learn(struct executor *exec, bool optimistic)
{
    const struct order *o = &exec->order;
    const struct step_order order = {o->visited[0], o->visited[1], o->visits[0], o->visits[1]};
    int rc = program_step(exec, &order, optimistic);
    if (rc == -EINVAL)
        return 0; /* a unit visited twice in a sweep: it goes on as it is asked for */
    if (rc)
        return report_fail(exec->in.report, HST_E_BUDGET, rc,
                           "no memory for the graph of a new order");
    verdict_open(exec, optimistic);
    return 0;
}

/* ---- one unit ---- */

static int fail_graph(struct executor *exec, int rc)
{
    return report_fail(exec->in.report, HST_E_BUDGET, rc,
                       "the graph of a unit that is asked for out of order cannot be made: %s",
                       strerror(-rc));
}

int order_serve(struct executor *exec, uint32_t unit, enum hst_sweep sweep)
{
    unsigned step_phase = sweep == HST_BACKWARD ? PHASE_BACKWARD
                          : sweep == HST_EVAL   ? PHASE_EVAL
                                                : PHASE_FORWARD;
    int rc = program_alone(exec, unit, step_phase, NULL);
    return rc ? fail_graph(exec, rc) : 0;
}

/* ---- what the step's graph retained ---- */

/* A buffer of a pool that holds something of a unit. */
struct held {
    uint32_t unit;
    enum pool pool;
    uint32_t buffer;
};

/* Runs what takes it home, which is in a phase of the unit's graph. */
static int evict(struct executor *exec, struct held held, unsigned step_phase, program_keeps *keeps)
{
    int rc = program_alone(exec, held.unit, step_phase, keeps);
    if (rc)
        return fail_graph(exec, rc);
    scheduler_lend_next(&exec->alone.scheduler, held.pool, held.buffer);
    rc = loop_until(exec, loop_is_idle);
    program_resume_step(exec);
    return rc;
}

static bool follows_forward(const struct graph *graph, uint32_t node)
{
    while (node-- > 0)
        if (graph->nodes[node].kind == NODE_FORWARD)
            return true;
    return false;
}

/* Checkpoints that were kept in memory for the backward go home: their buffers are needed. */
static int evict_acts(struct executor *exec)
{
    const struct graph *graph = &exec->step.graph;
    const struct scheduler *scheduler = &exec->step.scheduler;
    enum pool pool = executor_computes_in_dram(exec) ? POOL_ACTS : POOL_DEVICE_ACTS;
    struct scheduled at = {.step_window = exec->turn.step_window};
    int rc = 0;
    for (uint32_t i = scheduler->lane[LANE_COMPUTE].at;
         i < graph->lane_count[LANE_COMPUTE] && rc == 0; i++) {
        at.node = graph->lane[LANE_COMPUTE][i];
        if (graph->nodes[at.node].kind != NODE_BACKWARD)
            continue;
        struct held held = {graph->nodes[at.node].unit, pool,
                            scheduler_pool_buffer(scheduler, at, pool)};
        if (held.buffer != GRAPH_NONE)
            rc = evict(exec, held, PHASE_FORWARD, follows_forward);
    }
    return rc;
}

static bool writes_grads(const struct graph *graph, uint32_t node)
{
    return graph->nodes[node].kind == NODE_WRITE_GRADS;
}

/* Gradients that were kept in memory for the update go home too. */
static int evict_grads(struct executor *exec)
{
    const struct graph *graph = &exec->step.graph;
    int rc = 0;
    for (uint32_t i = 0; i < graph->node_count && rc == 0; i++) {
        const struct node *node = &graph->nodes[i];
        const uint32_t reservation = node->reservation[0];
        if (node->kind != NODE_NORM || reservation == GRAPH_NONE)
            continue;
        struct held held = {
            node->unit, (enum pool)graph->reservations[reservation].pool,
            scheduler_left_to_heir(&exec->step.scheduler, exec->turn.step_window, reservation)};
        if (held.buffer != GRAPH_NONE)
            rc = evict(exec, held, PHASE_BACKWARD, writes_grads);
    }
    return rc;
}

int order_leave(struct executor *exec, uint32_t unit)
{
    struct scheduler *scheduler = &exec->step.scheduler;
    const uint64_t behind = exec->turn.step_window + 1;
    if (!exec->order.warned)
        report_log(exec->in.report, HST_LOG_WARNING,
                   "W601 unit %u was asked for out of the order of the last step: the rest of this "
                   "step is served as it is asked for, without reading ahead; the next step "
                   "follows the new order",
                   described(exec, unit));
    exec->order.warned = true;
    int rc = loop_to_rest(exec);
    rc = rc ? rc : evict_acts(exec);
    rc = rc ? rc : evict_grads(exec);
    if (rc)
        return rc;
    assert(exec->now == &exec->step); /* what is waited for below; evictions have run another */
    if (scheduler->opened > behind)
        scheduler_narrow(scheduler, behind, 0);
    scheduler_narrow(scheduler, exec->turn.step_window, exec->turn.pending);
    rc = loop_until(exec, loop_is_idle);
    if (rc == 0)
        scheduler_forget(scheduler);
    return rc;
}
