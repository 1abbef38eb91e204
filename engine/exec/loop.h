/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_EXEC_LOOP_H
#define HOISTWAY_ENGINE_EXEC_LOOP_H
/* The executor's one loop. All return the engine's sticky error. */
#include "session/engine_state.h"

typedef bool loop_end(struct hst_engine *engine);

/** Runs what may run until `end` holds. */
int loop_until(struct hst_engine *engine, loop_end *end);
/** Runs until all that is left waits for the client. */
int loop_to_rest(struct hst_engine *engine);
/** An end: every node of every opened step window is done. */
bool loop_is_idle(struct hst_engine *engine);
/** One round without waiting, after something was given to the device. */
int loop_start(struct hst_engine *engine);

/** Waits for the oldest node of a lane of the device. */
int loop_take_oldest(struct hst_engine *engine, enum lane lane);
/** The clip factor and the coefficients of the update, when all norms are known. */
int loop_clip(struct hst_engine *engine);

#endif
