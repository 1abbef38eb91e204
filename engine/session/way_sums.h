/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_WAY_SUMS_H
#define HOISTWAY_ENGINE_WAY_SUMS_H
/*
 * What a backward has accumulated of a unit becomes its rounded gradient: at once where there is
 * one way; else way by way, each being rounded and added to those before it by the tree of
 * <hoistway/ways.h>. A way's end is seen by the micro-batch that the client acquires next.
 */
#include "session/engine_state.h"

/** This is what a configuration says of ways, for this rank. Errors: -EINVAL (sticky). */
int way_sums_configure(struct hst_engine *engine);

/** Once the arena is there: what the device reads of sums is written before any is begun. */
void way_sums_open(struct hst_engine *engine);

/** The unit's backward begins on the stream: accumulators are zero, or to be written. */
int way_sums_begin(struct hst_engine *engine, uint32_t unit, struct hst_stream *stream);
/** The backward goes on with this micro-batch; views say whether its gradients are fresh. Errors:
 * -EINVAL its way is over already, or one before it was not written. */
int way_sums_reach(struct hst_engine *engine, uint32_t unit, uint32_t micro);
/** All ways are over: the row of gradients has their sum. Errors: -EINVAL some were not begun. */
int way_sums_end(struct hst_engine *engine, uint32_t unit);

#endif
