/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_SESSION_EXECUTOR_IN_H
#define HOISTWAY_ENGINE_SESSION_EXECUTOR_IN_H
#include "session/engine_state.h"

/** This is what the engine's executor is given, once the arenas are there. */
struct executor_in engine_executor_in(struct hst_engine *engine);

#endif
