/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_EXEC_PASSAGES_H
#define HOISTWAY_ENGINE_EXEC_PASSAGES_H
/* It holds what was given to the device: a ring for each of its lanes, in the order of its ends. */
#include "session/engine_state.h"

/**
 * Marks where the lane's stream is through with a node that was started, whose work was enqueued
 * there; there must be room for one more. Returns the device's error.
 */
int passages_add(struct hst_engine *engine, enum lane lane, struct hst_stream *stream,
                 struct passage passage);

#endif
