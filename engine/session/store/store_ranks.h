/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_STORE_RANKS_H
#define HOISTWAY_ENGINE_STORE_RANKS_H
/* This is what ranks tell each other of their files of one store, before any of them is changed. */
#include "session/engine_state.h"
#include "store/store.h"

/** This is what store_open asks them. */
struct store_peers store_ranks_peers(struct hst_engine *engine);
/** Draws what all ranks have in common. Errors: the system's, the transport's (sticky). */
int store_ranks_ids(struct hst_engine *engine, struct store_agreed *agreed);
/** No rank finds a store. Errors: -EEXIST (E616, sticky). */
int store_ranks_none_there(struct hst_engine *engine);

#endif
