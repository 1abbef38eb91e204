/* SPDX-License-Identifier: Apache-2.0 */
/* Which graph is run, and what becomes of a node that is done. */
#include "exec/program.h"

#include "base/clock.h"

static void free_program(struct program *program)
{
    scheduler_free(&program->scheduler);
    graph_free(&program->graph);
}

static int replace(struct executor *exec, struct program *program, const struct graph *graph)
{
    free_program(program);
    program->graph = *graph;
    exec->now = program;
    return scheduler_init(&program->scheduler, &program->graph);
}

int program_step(struct executor *exec, const struct step_order *order, bool optimistic)
{
    struct graph graph;
    int rc = step_graph(exec->in.plan_in, exec->in.placement, order, optimistic, &graph);
    return rc ? rc : replace(exec, &exec->step, &graph);
}

int program_alone(struct executor *exec, uint32_t unit, unsigned step_phase, program_keeps *keeps)
{
    struct graph graph;
    int rc = step_graph_unit(exec->in.plan_in, exec->in.placement, unit, exec->verdict.optimistic,
                             &graph);
    if (rc)
        return rc;
    for (uint32_t i = 0; keeps && i < graph.node_count; i++)
        graph.nodes[i].phases = keeps(&graph, i) ? graph.nodes[i].phases : 0;
    rc = replace(exec, &exec->alone, &graph);
    if (rc == 0)
        scheduler_open(&exec->alone.scheduler, step_phase);
    return rc;
}

void program_resume_step(struct executor *exec)
{
    exec->now = &exec->step;
}

void program_close(struct executor *exec)
{
    free_program(&exec->step);
    free_program(&exec->alone);
}

bool program_is_kept(const struct executor *exec, struct scheduled at)
{
    return node_kind_is_retained(program_node(exec, at)->kind) &&
           at.step_window != exec->verdict.stale &&
           scheduler_was_retained(&exec->now->scheduler, at);
}

static bool is_of_no_unit(const struct node *node)
{
    return node->kind == NODE_CLIP || node->kind == NODE_REVERT || node->kind == NODE_COMMIT ||
           node->kind == NODE_AGREE || node->kind == NODE_VOTE;
}

void program_finish(struct executor *exec, struct scheduled at, double start_s)
{
    const struct node *node = program_node(exec, at);
    const struct hst_config *c = exec->in.config;
    double end_s = clock_seconds(), free_s = exec->lane_end_s[node->lane];
    struct hst_trace_event event = {
        .lane = lane_name((enum lane)node->lane),
        .what = node_kind_name((enum node_kind)node->kind),
        .unit = is_of_no_unit(node) ? NULL : exec->in.layout->units[node->unit].name,
        .step = exec->in.standing->number + 1,
        .tile = node->tile,
        .tile_count = node->tile_count,
        .start_s = start_s > free_s ? start_s : free_s,
        .end_s = end_s,
        .work = program_is_kept(exec, at) ? 0 : node->work,
    };
    exec->lane_end_s[node->lane] = end_s;
    if (c->trace)
        c->trace(c->trace_context, &event);
    scheduler_done(&exec->now->scheduler, at);
}
