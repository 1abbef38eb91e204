/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_EXEC_VISIT_EXECUTE_H
#define HOISTWAY_ENGINE_EXEC_VISIT_EXECUTE_H
/*
 * The executor's calls: runs the step graph on the machine. Everything happens on the caller's
 * thread, in one loop: take what has completed, start what may start, and when there is nothing to
 * do wait for a lane. The calls are that loop with different ends: a unit may be computed with, the
 * norm is known, all is written. Nothing is allocated after execute_open, but for a client that
 * leaves the order, and for steps that change the time of their update. All return the sticky error
 * where nothing else is said.
 */
#include "exec/executor.h"

/** Builds the graph of the sealed plan and what running it needs; *exec is zero. Extents come with
 * executor_attach. Errors, which are not recorded: -ENOMEM, the device's. */
int execute_open(struct executor *exec, const struct executor_in *in);
/** Also of one that was not opened, or not wholly, but is zero. */
void execute_close(struct executor *exec);

/** Opens the step window of the step that begins. */
int execute_begin(struct executor *exec);
/**
 * Waits until the unit may be computed with in that sweep, and starts its node. Units before it in
 * the order are passed. HST_EVAL outside a step begins an evaluation where none is under way.
 * Errors: -EINVAL the unit is not visited so, or its turn is over.
 */
int execute_reach(struct executor *exec, uint32_t unit, enum hst_sweep sweep);
/** The nth operand of a kind of the unit that was reached: see moves_work. */
unsigned char *execute_operand(const struct executor *exec, unsigned what, uint32_t nth);
/** The unit's work is enqueued on the stream. */
int execute_leave(struct executor *exec, struct hst_stream *stream);
/** Waits until the device has computed what it was given. */
int execute_computed(struct executor *exec);
/** Waits for all gradients and their norm, which is in verdict.grad_norm then; where that left the
 * step without an update, verdict.skipped says so. */
int execute_end(struct executor *exec);
/** Between steps: those to come are optimistic or deferred, where a graph can follow their
 * order; verdict.optimistic says what they are. */
int execute_update_as(struct executor *exec, bool optimistic);
/** Waits until everything that was begun is done and written; the next step begins anew. No unit is
 * acquired. */
int execute_drain(struct executor *exec);
/** After a load: rows of several ranks that backwards leave whole are made so. */
int execute_gather(struct executor *exec);

#endif
