/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which version an open goes on from: never a guess. What every rank has, under the same id, is
 * taken; what a dead writer may have touched is read and compared first.
 */
#include "store/choose.h"

#include <errno.h>

bool store_choose_superblock(const struct store_superblocks *all, struct store_superblock *newest,
                             bool *trusted)
{
    const struct store_superblock *of_slot[2] = {NULL, NULL};
    for (unsigned slot = 0; slot < 2; slot++)
        for (unsigned copy = 0; copy < 2; copy++) {
            const struct store_superblock *read = &all->read[slot][copy];
            if (all->flaw[slot][copy].error == 0 &&
                (!of_slot[slot] || read->seq > of_slot[slot]->seq))
                of_slot[slot] = read;
        }
    if (!of_slot[0] && !of_slot[1])
        return false;
    const bool second = !of_slot[0] || (of_slot[1] && of_slot[1]->seq > of_slot[0]->seq);
    const struct store_superblock *other = of_slot[!second];
    *newest = *of_slot[second];
    if (other)
        *trusted = other->seq + 1 == newest->seq;
    else /* the first of all has no neighbour yet */
        *trusted = newest->seq == 0 && all->flaw[!second][0].error == -ENOENT &&
                   all->flaw[!second][1].error == -ENOENT;
    return true;
}

static bool has(const struct store_candidates *rank, const struct store_candidate *wanted)
{
    for (uint32_t i = 0; i < rank->count; i++)
        if (rank->list[i].version == wanted->version &&
            store_id_equal(&rank->list[i].commit_id, &wanted->commit_id))
            return true;
    return false;
}

const struct store_candidate *store_choose_version(const struct store_candidates *ranks,
                                                   uint32_t rank_count, uint64_t below)
{
    const struct store_candidate *best = NULL;
    for (uint32_t i = 0; i < ranks[0].count; i++) {
        const struct store_candidate *candidate = &ranks[0].list[i];
        bool common = candidate->version < below;
        for (uint32_t r = 1; r < rank_count; r++)
            common = common && has(&ranks[r], candidate);
        if (common && (!best || candidate->version > best->version))
            best = candidate;
    }
    return best;
}

bool store_newest_damaged(const struct store_candidates *ranks, uint32_t rank_count, uint64_t *step)
{
    bool damaged = false;
    for (uint32_t r = 0; r < rank_count; r++) {
        if (!ranks[r].newest_damaged)
            continue;
        *step = damaged && *step > ranks[r].damaged_step ? *step : ranks[r].damaged_step;
        damaged = true;
    }
    return damaged;
}

uint64_t store_latest_version(const struct store_candidates *ranks, uint32_t rank_count)
{
    uint64_t latest = 0;
    for (uint32_t r = 0; r < rank_count; r++)
        for (uint32_t i = 0; i < ranks[r].count; i++)
            latest = ranks[r].list[i].version > latest ? ranks[r].list[i].version : latest;
    return latest;
}

bool store_must_verify(const struct store_superblock *newest, bool trusted, uint64_t version)
{
    return newest->state != STORE_CLEAN || !trusted || version != newest->cur.version;
}
