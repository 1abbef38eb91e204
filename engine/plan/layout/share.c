/* SPDX-License-Identifier: Apache-2.0 */
/* Decides who has which tiles: see share.h. */
#include "plan/layout/share.h"

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* The ranks that have one tile more are `rest` in a row, from `start` on, going round. How many of
   them are below `rank`. */
static uint32_t extras_below(uint32_t rank, uint32_t start, uint32_t rest, uint32_t world)
{
    const uint64_t end = (uint64_t)start + rest;
    const uint32_t wrapped = end > world ? (uint32_t)(end - world) : 0;
    const uint32_t behind_start = rank > start ? least(rank - start, rest - wrapped) : 0;
    return least(rank, wrapped) + behind_start;
}

struct share_run share_of_unit(const struct layout_unit *unit, struct share share)
{
    const uint32_t each = unit->tile_count / share.world, rest = unit->tile_count % share.world;
    /* where the units before have left off: their tiles went round as often as they divide */
    const uint32_t start = unit->first_tile % share.world;
    const uint32_t before = extras_below(share.rank, start, rest, share.world);
    const uint32_t behind = extras_below(share.rank + 1, start, rest, share.world);
    return (struct share_run){
        .first = unit->first_tile + share.rank * each + before,
        .count = each + behind - before,
    };
}

uint32_t share_tiles(const struct layout *layout, struct share share)
{
    uint32_t count = 0;
    if (share.world == 1)
        return layout->tile_count;
    for (uint32_t u = 0; u < layout->unit_count; u++)
        count += share_of_unit(&layout->units[u], share).count;
    return count;
}

uint32_t share_tile(const struct layout *layout, struct share share, uint32_t index)
{
    if (share.world == 1)
        return index;
    for (uint32_t u = 0; u < layout->unit_count; u++) {
        const struct share_run run = share_of_unit(&layout->units[u], share);
        if (index < run.count)
            return run.first + index;
        index -= run.count;
    }
    return layout->tile_count;
}
