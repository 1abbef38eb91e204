/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_SESSION_UPDATE_TIME_H
#define HOISTWAY_ENGINE_SESSION_UPDATE_TIME_H
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
static inline bool optimistic_wants_slots(const struct hst_engine *engine)
{
    return engine->plan_in.deferred && engine->config.update_time == HST_UPDATE_OPTIMISTIC;
}

/** This is what was asked for, for the plan. */
struct update_wish optimistic_wish(const struct hst_engine *engine);
/** After planning and versions_check. Errors: -EINVAL (sticky) where it was asked for and cannot
 * be. */
int optimistic_check(struct hst_engine *engine);

/** A step has ended: whether those to come are to be made the other way, by engine.choice. */
bool optimistic_step_ended(struct hst_engine *engine, const struct hst_step_stats *stats);

#endif
