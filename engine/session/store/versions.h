/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_SESSION_STORE_VERSIONS_H
#define HOISTWAY_ENGINE_SESSION_STORE_VERSIONS_H
/*
 * Versions of the store: made at the end of a forward of the step that follows (NODE_COMMIT), or
 * between steps; and what a resumed run takes from the last one. All return the engine's sticky
 * error.
 */
#include "session/engine_state.h"

/** It reads what hst_config.durability says. Errors: -EINVAL (sticky). */
int versions_configure(struct hst_engine *engine);
/** After planning: nothing, where there is no store. Finishes what was left to `auto`. */
int versions_check(struct hst_engine *engine);

/** Before the initial values are written: a new store. */
int versions_create(struct hst_engine *engine);
/**
 * The store that is there: steps, Adam's t, loss scale and the client's cursor are the engine's
 * then, and all that is at home in memory has been read. Errors: -ENOENT (not sticky) where nothing
 * was ever committed.
 */
int versions_open(struct hst_engine *engine);

/** Working weights that no version has are made of the states. Nothing is under way. */
int versions_derive(struct hst_engine *engine);

/** The step of the last one; HST_NO_VERSION where there is none. */
uint64_t versions_last(const struct hst_engine *engine);
/** It tells whether the version of a step that ends is to be made under the forward of the next. */
bool versions_due(const struct hst_engine *engine, uint64_t step);
/** It returns what `auto` chooses: the least number of steps of step_s (> 0) of which save_s is 1 %
 * at most, 1 to 1e9. Pure. */
uint64_t versions_interval(double save_s, double step_s);
/** Phases of a step window that follows a step: its version, where that is due; without a store,
 * that what an optimistic update wrote to drives stands. */
unsigned versions_phases(const struct hst_engine *engine, uint64_t step);
/** They are those of each step window, where a step is simulated: of versions, where every step is
 * one. */
unsigned versions_phases_simulated(const struct hst_engine *engine);
/** It notes the client's cursor of the step that begins; first: that of the version of step 0. */
void versions_cursor(struct hst_engine *engine, bool first, const void *cursor, size_t bytes);
/** It notes where training stands when a step ends. */
void versions_step_ended(struct hst_engine *engine, double step_s);

/** A step's step window begins: its COMMIT will be of where training stands now. */
void versions_window_begins(struct hst_engine *engine, uint64_t step_window);
/** For a started COMMIT: begins its step window's; whether it is made, as at once without a
 * store. */
int versions_begin(struct hst_engine *engine, uint64_t step_window, bool *made);
int versions_poll(struct hst_engine *engine, bool *made);
/** Of several ranks: all have voted for the version that is prepared. Errors: sticky. */
int versions_committed(struct hst_engine *engine);
/** A started REVERT: what updates have written since is forgotten. Errors: the store's, or
 * scratch's (sticky). */
int versions_revert(struct hst_engine *engine);
/** It does, of a step window that is cut short with nothing under way, what its COMMIT would have
 * done, which no update of its own step has followed. */
int versions_instead(struct hst_engine *engine);
/** Between steps, with nothing under way: makes one of all that is, and waits for it. */
int versions_now(struct hst_engine *engine);

#endif
