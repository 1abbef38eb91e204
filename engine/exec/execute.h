/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_EXEC_EXECUTE_H
#define HOISTWAY_ENGINE_EXEC_EXECUTE_H
/*
 * The executor: runs the step graph on the machine. Everything happens on the caller's thread, in
 * one loop: take what has completed, start what may start, and when there is nothing to do wait for
 * the drives or the device. The client's calls are that loop with different ends: a unit may be
 * computed with, the norm is known, all is written. Nothing is allocated after execute_open.
 */
#include "session/engine_state.h"

/** Builds the graph of the sealed plan and what running it needs. Errors: -ENOMEM, the device's. */
int execute_open(struct hst_engine *engine);
void execute_close(struct hst_engine *engine);

/** Opens the step window of the step that begins. */
int execute_begin(struct hst_engine *engine);
/**
 * Waits until the unit may be computed with in that sweep, and starts its node. Units before it in
 * the order are passed. HST_EVAL outside a step begins an evaluation where none is under way.
 * Errors: -EINVAL the unit is not visited so, or its turn is over.
 */
int execute_reach(struct hst_engine *engine, uint32_t unit, enum hst_sweep sweep);
/** The acquired unit's work is enqueued on the stream. */
int execute_leave(struct hst_engine *engine, struct hst_stream *stream);
/** Waits for all gradients and their norm, which is in run.grad_norm then; where that left the step
 * without an update, run.skipped says so. */
int execute_end(struct hst_engine *engine);
/** Between steps: those to come are optimistic or deferred, where a graph can follow their
 * order. */
int execute_update_as(struct hst_engine *engine, bool optimistic);
/** Waits until everything that was begun is done and written; the next step begins anew. */
int execute_drain(struct hst_engine *engine);

#endif
