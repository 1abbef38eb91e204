/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_EXEC_DEMAND_H
#define HOISTWAY_ENGINE_EXEC_DEMAND_H
/*
 * A client that leaves the order it declared is served all the same. Each unit it asks for has a
 * graph of its own (graph_build_unit): what comes before the visit is done when the client asks,
 * what comes after it when the client is done, one node after another, with the first buffer of
 * each ring. The graph of the step stands still meanwhile (scheduler_is_idle). Slow and exact.
 */
#include "session/engine_state.h"

/** Takes home the unit's checkpoints that are in this buffer of a pool. */
int demand_send_acts(struct hst_engine *engine, uint32_t unit, enum pool pool, uint32_t buffer);
/** Takes home the unit's gradients that are in this buffer of a pool. */
int demand_send_grads(struct hst_engine *engine, uint32_t unit, enum pool pool, uint32_t buffer);
/** It brings into memory what the unit's computation in that sweep reads. */
int demand_reach(struct hst_engine *engine, uint32_t unit, enum hst_sweep sweep);
/** Its work is enqueued on the stream: waits for it, and takes home what it made. */
int demand_leave(struct hst_engine *engine, struct hst_stream *stream, enum hst_sweep sweep);

#endif
