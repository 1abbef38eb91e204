/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_EXEC_VISIT_ORDER_H
#define HOISTWAY_ENGINE_EXEC_VISIT_ORDER_H
/*
 * A client that leaves the order it declared is served all the same. The graph of the step stands
 * still. Each unit that is asked for has a graph of its own (graph_build_unit), run by the same
 * loop: what comes before the visit is done when the client asks, what comes after it when the
 * client is done. Slow and exact. The graph of the next step follows the order that was seen.
 */
#include "exec/executor.h"

/** Errors: -ENOMEM. */
int order_open(struct executor *exec);
void order_close(struct executor *exec);

/** A step begins: none was visited yet. */
void order_begin(struct executor *exec);
void order_note(struct executor *exec, uint32_t unit, enum hst_sweep sweep);
/** The unit does not come next. Errors: -EINVAL where only the sealed order says what would be
 * recomputed in which order. */
int order_check(struct executor *exec, uint32_t unit, enum hst_sweep sweep);
/** Brings the step's graph to a rest: what it retained in buffers goes home, and they are free. */
int order_leave(struct executor *exec, uint32_t unit);
/** Runs the graph of the unit, for a visit of that sweep. */
int order_serve(struct executor *exec, uint32_t unit, enum hst_sweep sweep);
/** The graph of the steps to come follows the order of this one, where it can be followed. */
int order_learn(struct executor *exec, bool optimistic);

#endif
