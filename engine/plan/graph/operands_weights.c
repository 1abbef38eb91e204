/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operands of nodes that move weights. A unit's buffer of weights holds its own tiles one after
 * another, then those that it is an alias of.
 */
#include "plan/graph/operands.h"

/* ---- weights: own tiles, then others' ---- */

struct run {
    uint32_t owner, first; /* unit, tile */
    uint64_t at, bytes;    /* in a buffer of the unit that reads it */
    uint64_t shard_at;     /* of several ranks: from there to the first tile */
    uint64_t shard_bytes;  /* of all tiles */
};

/* A unit's row, of which the rank has a shard. */
static struct run run_of_row(const struct build *b, uint32_t unit, uint64_t at)
{
    const struct graph_unit *u = &b->in->units[unit];
    return (struct run){.owner = unit,
                        .first = u->first_tile,
                        .at = at,
                        .bytes = weights_of(b, parts_is_shared(b) ? u->row_elements : u->elements),
                        .shard_at = weights_of(b, u->shard_at),
                        .shard_bytes = weights_of(b, u->elements)};
}

static struct run own_run(const struct build *b, uint32_t unit)
{
    return run_of_row(b, unit, 0);
}

static uint32_t ranks_of(const struct build *b)
{
    return parts_has_ranks(b) ? b->in->ranks : 1;
}

/* Own tiles are run 0. *run is then the one behind the one given. */
static bool next_run(const struct build *b, uint32_t unit, uint32_t number, struct run *run)
{
    const struct graph_unit *u = &b->in->units[unit];
    if (number == 0) {
        *run = own_run(b, unit);
        return true;
    }
    if (number > u->alias_count)
        return false;
    const uint32_t owner = u->alias_of[number - 1];
    const uint64_t exact = b->in->exact_beside ? run->bytes / ranks_of(b) : 0;
    const uint64_t at = run->at + run->bytes + exact, bytes = u->alias_bytes[number - 1];
    *run = parts_is_shared(b)
               ? run_of_row(b, owner, at)
               : (struct run){owner,
                              b->in->units[owner].first_tile + u->alias_tile[number - 1],
                              at,
                              bytes,
                              b->in->exact_beside ? bytes : 0,
                              bytes};
    return true;
}

static uint32_t run_tiles(const struct build *b, const struct run *run)
{
    return (uint32_t)((run->shard_bytes + tile_bytes(b) - 1) / tile_bytes(b));
}

/* Some tiles of a run: the last tile of all may be short. */
static void add_run(struct build *b, const struct run *run, uint32_t first, uint32_t end,
                    struct operand_end from, struct operand_end to)
{
    uint64_t start = first * tile_bytes(b), stop = end * tile_bytes(b);
    if (first < end)
        build_operand(b, (struct operand){.what = EXTENT_WEIGHTS,
                                          .from = from,
                                          .to = to,
                                          .first = run->first + first,
                                          .count = end - first,
                                          .offset = run->at + run->shard_at + start,
                                          .bytes = least(stop, run->shard_bytes) - start});
}

struct operands_offloaded operands_offloaded(const struct build *b, uint32_t unit)
{
    struct operands_offloaded offloaded = {0};
    struct run run;
    for (uint32_t i = 0; next_run(b, unit, i, &run); i++) {
        if (b->in->units[run.owner].weights != HST_TIER_NVME)
            continue;
        offloaded.extents += run_tiles(b, &run);
        offloaded.bytes += run.shard_bytes;
    }
    return offloaded;
}

void operands_read_weights(struct build *b, uint32_t unit, uint32_t piece, uint32_t pieces)
{
    struct operand_end to = in_buffer(parts_pool(b, unit, POOL_WEIGHTS));
    uint64_t extents = operands_offloaded(b, unit).extents;
    uint32_t first = (uint32_t)(extents * piece / pieces);
    uint32_t end = (uint32_t)(extents * (piece + 1) / pieces);
    struct run run;
    for (uint32_t i = 0, passed = 0; next_run(b, unit, i, &run); i++) {
        if (b->in->units[run.owner].weights != HST_TIER_NVME)
            continue;
        uint32_t tiles = run_tiles(b, &run), from = first > passed ? first - passed : 0;
        uint32_t until = end > passed ? end - passed : 0;
        add_run(b, &run, from, until < tiles ? until : tiles, on_drives(b, EXTENT_WEIGHTS), to);
        passed += tiles;
    }
}

/* This is where rows come together. */
static struct operand_end rows_at(const struct build *b, uint32_t unit)
{
    if (parts_is_joined(b))
        return in_buffer(parts_pool(b, unit, POOL_DEVICE_WEIGHTS));
    return parts_is_whole(b) ? at_home(b->in->units[unit].weights)
                             : in_buffer(parts_pool(b, unit, POOL_WEIGHTS));
}

/* The row of a run, which was gathered. */
static void add_row(struct build *b, const struct run *run, struct operand_end from,
                    struct operand_end to)
{
    if (run->bytes > 0)
        build_operand(b, (struct operand){.what = EXTENT_WEIGHTS,
                                          .from = from,
                                          .to = to,
                                          .first = run->first,
                                          .count = b->in->units[run->owner].tile_count,
                                          .offset = run->at,
                                          .bytes = run->bytes});
}

/* A gather takes the rank's shard from there: a copy has brought what was not on the device. */
static struct operand_end shard_at(const struct build *b, uint32_t unit, uint32_t owner)
{
    return parts_is_joined(b) && !parts_is_resident(b, owner) ? rows_at(b, unit)
                                                              : weights_in_host(b, unit, owner);
}

void operands_gather(struct build *b, uint32_t unit)
{
    struct operand_end to = rows_at(b, unit);
    struct run run;
    for (uint32_t i = 0; next_run(b, unit, i, &run) && (i == 0 || !parts_is_whole(b)); i++)
        if (run.bytes > 0)
            build_operand(b, (struct operand){.what = EXTENT_WEIGHTS,
                                              .from = shard_at(b, unit, run.owner),
                                              .to = to,
                                              .first = run.first,
                                              .count = b->in->units[run.owner].tile_count,
                                              .offset = run.at,
                                              .bytes = of_others(b, run.bytes)});
}

void operands_gather_near(struct build *b, uint32_t unit)
{
    const struct operand_end to = rows_at(b, unit);
    const uint32_t ranks = b->in->secondary;
    struct run run;
    for (uint32_t i = 0; next_run(b, unit, i, &run); i++)
        if (run.bytes > 0)
            build_operand(b, (struct operand){.what = EXTENT_WEIGHTS,
                                              .from = to,
                                              .to = to,
                                              .first = run.first,
                                              .count = b->in->units[run.owner].tile_count,
                                              .offset = run.at,
                                              .bytes = run.bytes / ranks * (ranks - 1)});
}

void operands_weights(struct build *b, uint32_t unit, bool copy)
{
    struct operand_end device = in_buffer(parts_pool(b, unit, POOL_DEVICE_WEIGHTS));
    struct run run;
    for (uint32_t i = 0; next_run(b, unit, i, &run); i++) {
        const bool row = parts_gathers(b) && !(copy && parts_is_joined(b));
        struct operand_end host = row ? rows_at(b, unit) : weights_in_host(b, unit, run.owner);
        struct operand_end to = parts_copy_weights(b, unit) ? device : host;
        if (row)
            add_row(b, &run, copy ? host : to, to);
        else
            add_run(b, &run, 0, run_tiles(b, &run), copy ? host : to, to);
    }
}

void operands_copy_weights(struct build *b, uint32_t unit)
{
    operands_weights(b, unit, true);
}
