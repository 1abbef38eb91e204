/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_STORE_CHOOSE_H
#define HOISTWAY_ENGINE_STORE_CHOOSE_H
/* Which version an open goes on from, decided from what was read. Pure. */
#include "store/format.h"

/* All that was read of superblocks: [slot][copy]. */
struct store_superblocks {
    struct store_superblock read[2][2]; /* where there is no flaw */
    struct store_flaw flaw[2][2];
};

/**
 * The valid superblock with the highest number. *trusted: its neighbour, which the one before or a
 * torn one after it would have been written to, is there too; else a later one may be lost, and
 * what it says of a clean close may be out of date. Returns false where none is valid.
 */
bool store_choose_superblock(const struct store_superblocks *all, struct store_superblock *newest,
                             bool *trusted);

/* A version that a rank could go on from. Equal ids: the same step of the same run. */
struct store_candidate {
    uint64_t version, step;
    struct store_id commit_id;
};
struct store_candidates { /* of one rank: of cur and prev those whose manifest is good */
    uint32_t count;
    struct store_candidate list[2];
    bool newest_damaged; /* cur's is not */
    uint64_t damaged_step; /* of cur, then */
};

/**
 * The latest version below `below` that every rank has; below STORE_NO_VERSION: of all. Null where
 * there is none. Points into ranks[0].
 */
const struct store_candidate *store_choose_version(const struct store_candidates *ranks,
                                                   uint32_t rank_count, uint64_t below);

/** True where a rank's newest version has no whole manifest: what is chosen is an older one. *step
 * ← its step, the latest of several. */
bool store_newest_damaged(const struct store_candidates *ranks, uint32_t rank_count,
                          uint64_t *step);

/** The latest version that any rank has; 0: none has one. */
uint64_t store_latest_version(const struct store_candidates *ranks, uint32_t rank_count);

/** It tells whether the bytes of a version have to be compared with their hashes before use. */
bool store_must_verify(const struct store_superblock *newest, bool trusted, uint64_t version);

#endif
