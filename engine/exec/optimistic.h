/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_EXEC_OPTIMISTIC_H
#define HOISTWAY_ENGINE_EXEC_OPTIMISTIC_H
/*
 * The optimistic update: made in the backward, into slots of its own, with the factor of a norm
 * that does not clip. When the norm is known it stands, and the slots change places; or it is made
 * again in the next step window from the slots that were not touched. What a plan leaves to the
 * next forward is made there once, with the factor that is known by then. The bits are those of the
 * deferred update in any case.
 *
 * In memory the second slots are the placement's; on drives they are the store's, where every step
 * is a version, or without a store the scratch files'.
 */
#include "plan/search/update_wish.h"
#include "session/engine_state.h"

/** Before planning: whether the plan is to have second slots. */
bool optimistic_wants_slots(const struct hst_engine *engine);
/** What was asked for, for the plan. */
struct update_wish optimistic_wish(const struct hst_engine *engine);
/** After planning and versions_check. Errors: -EINVAL (sticky) where it was asked for and cannot
 * be. */
int optimistic_check(struct hst_engine *engine);

/** A step begins: the coefficients of an update that does not wait, and what it would leave. */
int optimistic_step_begins(struct hst_engine *engine);
/**
 * Its norm is known, as the gradients are stored: what it leaves for the next step window
 * (run.left), in which slot the weights are, and which coefficients a redo has.
 * Errors: optimizer_coefs.
 */
int optimistic_judge(struct hst_engine *engine, double stored_norm);
/** A step has ended: whether those to come are to be made the other way, by run.choice. */
bool optimistic_step_ended(struct hst_engine *engine, const struct hst_step_stats *stats);
/** A started COMMIT without a store, or in its place: what updates have written stands. */
void optimistic_settle(struct hst_engine *engine);
/** A started REVERT. Errors: the store's, or scratch's (sticky). */
int optimistic_revert(struct hst_engine *engine);

#endif
