/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides how far ahead of a visit what it needs is brought: as far as buffers go, in whatever
 * order visits of units of several sizes follow one another.
 */
#include "plan/graph/graph_build.h"

static uint32_t less(uint32_t a, uint32_t b)
{
    return a > b ? a - b : 0;
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* It is one of the forward, or of the backward. */
static uint32_t visited(const struct build *b, bool backward, uint32_t place)
{
    return backward ? b->visits[place].unit : b->in->forward[place];
}

static bool borrows(const struct build *b, uint32_t unit, enum pool pool)
{
    return pool == POOL_WEIGHTS ? parts_reserve_weights(b, unit) : parts_copy_weights(b, unit);
}

/* Visits that may follow one another, wherever the first one is, each with a buffer of its own.
 * Wide units with buffers of their own are seen to by ahead_most. */
static uint32_t depth_in(const struct build *b, enum pool pool, bool backward)
{
    const uint32_t visits = backward ? b->visit_count : b->in->unit_count;
    uint32_t held[UNIT_SIZES] = {0}, first = 0, depth = visits;
    for (uint32_t i = 0; i < visits; i++) {
        const uint32_t unit = visited(b, backward, i);
        const enum pool of = parts_pool(b, unit, pool);
        if (borrows(b, unit, pool) && of != pool + UNIT_WIDE)
            held[of - pool]++;
        for (; held[of - pool] > b->in->buffers[of]; first++) {
            const uint32_t out = visited(b, backward, first);
            const enum pool from = parts_pool(b, out, pool);
            if (borrows(b, out, pool) && from != pool + UNIT_WIDE)
                held[from - pool]--;
        }
        if (first > 0)
            depth = least(depth, i + 1 - first);
    }
    return depth;
}

/* There are as many as buffers, unless there are some of two sizes. */
uint32_t ahead_depth(const struct build *b, enum pool pool)
{
    if (b->in->buffers[pool + UNIT_NARROW] == 0)
        return b->in->buffers[pool];
    return least(depth_in(b, pool, false), depth_in(b, pool, true));
}

/*
 * How far rows of the backward are gathered before their visit, where they are copied on. With
 * copies one unit ahead a gather that comes with its copy is behind the exchange of the visit at
 * hand, which waits for that one's gradients: the copy begins late, and so does the next visit. One
 * further ahead it is there by then. Where no units are narrow, gathers come with their copies.
 */
uint32_t ahead_gathers(const struct build *b, uint32_t copy)
{
    bool narrow = false;
    for (uint32_t i = 0; i < b->in->unit_count; i++)
        narrow = narrow || b->in->units[i].size == UNIT_NARROW;
    return copy + (narrow && b->in->apart);
}

/* A later wide unit's stages follow the visit of the one before, where both share one buffer; its
 * weights are read while the unit before it is updated, one place further ahead. */
uint32_t ahead_most(const struct build *b)
{
    const struct graph_in *in = b->in;
    uint32_t most = in->unit_count, last = GRAPH_NONE;
    if (in->buffers[POOL_WIDE_WEIGHTS] != 1 && in->buffers[POOL_DEVICE_WIDE_WEIGHTS] != 1)
        return most;
    for (uint32_t i = 0; i < in->unit_count; i++) {
        if (in->units[in->forward[i]].size != UNIT_WIDE)
            continue;
        most = last == GRAPH_NONE ? most : least(most, less(i - last, 2));
        last = i;
    }
    last = GRAPH_NONE;
    for (uint32_t i = 0; i < b->visit_count; i++) {
        if (in->units[b->visits[i].unit].size != UNIT_WIDE)
            continue;
        bool other = last != GRAPH_NONE && b->visits[last].unit != b->visits[i].unit;
        most = other ? least(most, less(i - last, 2)) : most;
        last = i;
    }
    return most;
}

/* How far copies to the device come before the visit, or gathers, whose buffers are those of reads:
 * before the exchange of the visit at hand, so that the next one's weights do not wait for it. */
uint32_t ahead_copies(const struct build *b)
{
    const uint32_t depth = b->in->apart ? ahead_depth(b, POOL_DEVICE_WEIGHTS) : 0;
    if (depth > 0)
        return less(depth, 1);
    if (parts_is_whole(b))
        return 1;
    return parts_gathers(b) ? less(ahead_depth(b, POOL_WEIGHTS), 1) : 0;
}
