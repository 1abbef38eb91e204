/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_SESSION_STORE_KEPT_H
#define HOISTWAY_ENGINE_SESSION_STORE_KEPT_H
/* Copies of versions beside the store, of an engine that makes versions. */
#include "session/engine_state.h"

/** -EINVAL, sticky: why hst_config.keep cannot be had. */
int kept_refuse(struct hst_engine *engine, const char *why);
/** This is what hst_config.keep says. Errors, sticky: -EINVAL, -ENOMEM. */
int kept_open(struct hst_engine *engine);
/** True where the version of this step has to wait: the last one is being copied, or is to be. */
bool kept_waits(const struct hst_engine *engine, uint64_t step);
/** A version was made: begins to copy it, where it is one to be kept. */
void kept_begin(struct hst_engine *engine);
/** Tells of a copy that has ended. With `wait`, waits for it. */
void kept_end(struct hst_engine *engine, bool wait);
/** Several ranks call it between steps: the version of the step that has ended is one to be
 * kept. */
bool kept_due(const struct hst_engine *engine);
/** Then, behind a drain: all of them copy it, and wait for it. Errors: the transport's (sticky). */
int kept_follow(struct hst_engine *engine);
/** Copies the last version, in place of that of step `instead_of` (HST_NO_VERSION: of none), and
 * waits for it. Errors: -EINVAL (not sticky) where there is none or --keep makes copies. */
int kept_instead(struct hst_engine *engine, uint64_t instead_of);
/** Before the store closes: waits for the copy that is made, or gives it up after an error. */
void kept_close(struct hst_engine *engine);

#endif
