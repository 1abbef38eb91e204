/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_SESSION_STORE_MOVE_H
#define HOISTWAY_ENGINE_SESSION_STORE_MOVE_H
/* A store of other ranks, or of other units, is made one of these, when they resume. */
#include "session/engine_state.h"
#include "store/store.h"

/**
 * Reads the last version of the store that all ranks find, each what it has; what another one has
 * of this one's elements comes from there. All of it is compared with its hashes, and becomes the
 * first version of a store of these ranks, hashed anew. The store before stays as it is until that
 * version is prepared on all ranks.
 *
 * Where the last version is damaged on any of them, it is the version before of which all have
 * whole bytes (W614).
 *
 * config: of the new store, with accept and progress. *store: as store_create leaves it, with a
 * version; also after an error. Errors (sticky): those of config->accept, of ckpt_open_shares,
 * store_create and the reading; -ENOSPC (E301) both stores are more than --nvme; the transport's.
 * -ECANCELED is not recorded.
 */
int store_move(struct hst_engine *engine, const struct store_config *config, struct store **store);

/**
 * W614, of a version that is not the newest, since that one is damaged on some rank. All ranks call
 * it, and one of them tells. It comes before the older version takes the newest one's place.
 */
void store_tell_step_back(struct hst_engine *engine, uint64_t damaged_step, uint64_t step);

#endif
