/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_EXEC_PROGRAM_H
#define HOISTWAY_ENGINE_EXEC_PROGRAM_H
/*
 * Graphs that are run, and their nodes. There are two: the step's, and that of one unit alone for a
 * client that has left the order. One of them is run at a time, while nothing of the other is under
 * way.
 */
#include "exec/executor.h"
#include "plan/graph/step_graph.h"

/** Replaces the step's graph, of which nothing is under way, and runs it. order: as in step_graph.
 * Errors: as there, the old one being untouched; -ENOMEM. */
int program_step(struct executor *exec, const struct step_order *order, bool optimistic);
/** True of a node that is run. */
typedef bool program_keeps(const struct graph *graph, uint32_t node);
/** Runs the graph of one unit in that phase, with the nodes that are kept alone (null: all).
 * Errors: as step_graph_unit. */
int program_alone(struct executor *exec, uint32_t unit, unsigned step_phase, program_keeps *keeps);
/** Goes on with the step's. */
void program_resume_step(struct executor *exec);
void program_close(struct executor *exec);

static inline const struct node *program_node(const struct executor *exec, struct scheduled at)
{
    return &exec->now->graph.nodes[at.node];
}

/** A started node has nothing to read: its buffer came with its contents. */
bool program_is_kept(const struct executor *exec, struct scheduled at);
/** A node is done, and what its lane has been doing since it could begin with it is told. */
void program_finish(struct executor *exec, struct scheduled at, double start_s);

#endif
