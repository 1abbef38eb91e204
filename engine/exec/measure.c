/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps what the graph's computations took. */
#include "exec/measure.h"

#include "base/clock.h"
#include "exec/executor.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

/* The first step touches memory for the first time; an evaluation is no step; a unit that is served
 * on demand has a graph of its own, which nobody predicts. */
static bool is_warm(const struct executor *exec)
{
    return exec->in.standing->number > 0 && !exec->turn.evaluating && !exec->turn.on_demand;
}

enum measure_sweep measure_sweep(const struct node *node)
{
    return node->kind == NODE_BACKWARD    ? MEASURE_BACKWARD
           : node->kind == NODE_RECOMPUTE ? MEASURE_RECOMPUTE
                                          : MEASURE_FORWARD;
}

int measure_open(struct executor *exec)
{
    struct measure *m = &exec->measure;
    int rc = 0;
    for (int i = 0; i < MEASURE_SWEEPS; i++) {
        m->visits[i] = calloc((size_t)exec->in.layout->unit_count + 1, sizeof *m->visits[i]);
        rc = m->visits[i] ? rc : -ENOMEM;
    }
    return rc;
}

void measure_close(struct executor *exec)
{
    for (int i = 0; i < MEASURE_SWEEPS; i++) {
        free(exec->measure.visits[i]);
        exec->measure.visits[i] = NULL;
    }
}

/* It began when it was acquired and the one before had ended, whichever was later: that one, too,
 * with more of the optimizer's seconds behind it. */
void measure_passage(struct executor *exec, const struct passage *passage)
{
    struct measure *m = &exec->measure;
    const struct node *node = &exec->now->graph.nodes[passage->at.node];
    double end_s = clock_seconds();
    double host_s = m->host_s - fmax(passage->host_s, m->visit_host_s);
    double seconds = end_s - fmax(passage->start_s, m->visit_end_s) - host_s;
    if (is_warm(exec)) {
        struct measure_visit *visit = &m->visits[measure_sweep(node)][node->unit];
        visit->seconds += fmax(seconds, 0);
        visit->count++;
    }
    m->visit_end_s = end_s;
    m->visit_host_s = m->host_s;
}

void measure_host(struct executor *exec, const struct node *node, double seconds)
{
    struct measure *m = &exec->measure;
    struct measure_work *work = node->kind == NODE_UPDATE ? &m->update : &m->norm;
    m->host_s += seconds;
    if (!is_warm(exec))
        return;
    work->elements += node->work;
    work->seconds += seconds;
}
