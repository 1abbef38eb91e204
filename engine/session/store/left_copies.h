/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_SESSION_STORE_LEFT_COPIES_H
#define HOISTWAY_ENGINE_SESSION_STORE_LEFT_COPIES_H
/* Kept copies of ranks that a move has left without. */
#include "session/engine_state.h"

/**
 * After a store of other ranks was moved to these, while engine->shares are of that store: warns of
 * copies in directories of it that no rank has any more (W623). Nobody else tells or removes them.
 * They are whole until --keep removes the part of the ranks that go on.
 * Errors: the transport's, -ENOMEM (sticky).
 */
int left_copies_tell(struct hst_engine *engine);

#endif
