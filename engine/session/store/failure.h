/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_SESSION_STORE_FAILURE_H
#define HOISTWAY_ENGINE_SESSION_STORE_FAILURE_H
/* Errors of what the engine and its executor ask for. Each is recorded as report_fail does, and
   returns what that returns. */
#include "session/engine_state.h"

/** -ECANCELED where the engine has not loaded and the client wishes to end that, else 0. */
int engine_stopped(const struct hst_engine *engine);
/** An I/O error of the store, with what it was about. */
int engine_fail_transfer(struct hst_engine *engine, const struct transfer *transfer);
/** The way to the extents broke down: nothing on it will complete any more. */
int engine_fail_extents(struct hst_engine *engine, int native);
/** An error of the device: what it says itself, and what it was about. */
int engine_fail_device(struct hst_engine *engine, int native, const char *what);

#endif
