/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_SESSION_STORE_COPIES_H
#define HOISTWAY_ENGINE_SESSION_STORE_COPIES_H
/*
 * Which copies of versions several processes find beside a store, where each finds some. What is
 * shared is a list of steps; the caller shares it.
 */
#include "session/store/shares.h"

enum { COPIES_MOST = 1024 };

struct copies {
    uint64_t count, steps[COPIES_MOST]; /* rising */
};

/** copies ← those in any directory that the words of `store` may mean to this process. place: as of
 * shares_list. Errors: -ENOMEM. */
int copies_look(struct copies *copies, const char *store, const struct hst_store_place *place);
/** Returns how many steps there are in all[processes], of which at most `capacity` were written,
 * rising. */
size_t copies_of_all(const struct copies *all, uint32_t processes, uint64_t *steps,
                     size_t capacity);

#endif
