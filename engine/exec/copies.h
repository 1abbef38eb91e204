/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_EXEC_COPIES_H
#define HOISTWAY_ENGINE_EXEC_COPIES_H
/*
 * The copies between host memory and a device that has its own: nodes of LANE_H2D and LANE_D2H,
 * each lane on a stream of its own, beside the computation's.
 */
#include "session/engine_state.h"

/** Streams for both lanes, where anything is copied. Errors: -ENOMEM, the device's (not sticky). */
int copies_open(struct hst_engine *engine);
/** Waits for what is under way. */
void copies_close(struct hst_engine *engine);

/**
 * Enqueues the lane's nodes as long as they may start. *moved: whether any did. Errors: the
 * device's (sticky).
 */
int copies_start(struct hst_engine *engine, enum lane lane, bool *moved);
/** Enqueues one node's copies on the stream, behind the update that they wait for, for a node that
 * was started or is on demand. Returns the device's error. */
int copies_enqueue(struct hst_engine *engine, struct hst_stream *stream, struct scheduled at);

#endif
