/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_TELL_PLAN_H
#define HOISTWAY_ENGINE_TELL_PLAN_H
/* Notes of what was decided, in the log of a run; a plan has none. */
#include "session/engine_state.h"

/** This is where all lives, and why there. */
void tell_home_tiers(struct hst_engine *engine);
/** Once it is known when the update is made: how, and what starting takes. */
void tell_update(struct hst_engine *engine);

#endif
