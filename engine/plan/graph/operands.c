/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operands of each kind of node. A unit's buffer of weights holds its own tiles one after
 * another, then those that it is an alias of; a slot of the tile pool holds one tile's weights or
 * gradients, then its record.
 */
#include "plan/graph/graph_build.h"

#include <hoistway/cpu_adam.h>

/* ---- ends ---- */

static struct operand_end in_buffer(enum pool pool)
{
    return (struct operand_end){.space = pool >= POOL_DEVICE_WEIGHTS ? SPACE_DEVICE : SPACE_DRAM,
                                .pool = (uint8_t)pool};
}

static struct operand_end at_home(enum hst_tier tier)
{
    return (struct operand_end){.space = tier == HST_TIER_HBM ? SPACE_DEVICE : SPACE_DRAM,
                                .pool = POOL_COUNT};
}

static struct operand_end on_drives(const struct build *b, unsigned what)
{
    bool stored = b->in->stored && (what == EXTENT_WEIGHTS || what == EXTENT_STATES);
    return (struct operand_end){.space = stored ? SPACE_STORE : SPACE_SCRATCH, .pool = POOL_COUNT};
}

/* This is where the host finds what is at home in `tier`: the pool is for what comes from
   drives. */
static struct operand_end in_host(enum hst_tier tier, enum pool pool)
{
    return tier == HST_TIER_NVME ? in_buffer(pool) : at_home(tier);
}

static struct operand_end grads_in_host(const struct build *b, uint32_t unit)
{
    return in_host(b->in->units[unit].grads, parts_pool(b, unit, POOL_GRADS));
}

static struct operand_end acts_in_host(const struct build *b, uint32_t unit)
{
    return in_host(b->in->units[unit].acts, POOL_ACTS);
}

static bool is_offloaded(const struct build *b, enum hst_tier tier)
{
    return b->in->apart && tier != HST_TIER_HBM;
}

static struct operand_end grads_of_visit(const struct build *b, uint32_t unit)
{
    return is_offloaded(b, b->in->units[unit].grads)
               ? in_buffer(parts_pool(b, unit, POOL_DEVICE_GRADS))
               : grads_in_host(b, unit);
}

/* ---- weights: own tiles, then others' ---- */

struct run {
    uint32_t owner, first; /* unit, tile */
    uint64_t at, bytes;    /* in a buffer of the unit that reads it */
    uint64_t shard_at;     /* of several ranks: from there to the first tile */
    uint64_t shard_bytes;  /* of all tiles */
};

static uint64_t tile_bytes(const struct build *b)
{
    return (uint64_t)(b->in->tile_elements * b->in->weight_bytes);
}

static uint64_t weights_of(const struct build *b, uint64_t elements)
{
    return (uint64_t)((double)elements * b->in->weight_bytes);
}

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

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
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

static struct operand_end weights_in_host(const struct build *b, uint32_t unit, uint32_t owner)
{
    return in_host(b->in->units[owner].weights, parts_pool(b, unit, POOL_WEIGHTS));
}

/* This is where rows come together. */
static struct operand_end rows_at(const struct build *b, uint32_t unit)
{
    if (parts_is_joined(b))
        return in_buffer(parts_pool(b, unit, POOL_DEVICE_WEIGHTS));
    return parts_is_whole(b) ? at_home(HST_TIER_DRAM)
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

/* This is what other ranks have of so many bytes. */
static uint64_t of_others(const struct build *b, uint64_t bytes)
{
    return parts_has_ranks(b) ? bytes / b->in->ranks * (b->in->ranks - 1) : 0;
}

void operands_gather(struct build *b, uint32_t unit)
{
    struct operand_end to = rows_at(b, unit);
    struct run run;
    for (uint32_t i = 0; next_run(b, unit, i, &run) && (i == 0 || !parts_is_whole(b)); i++)
        if (run.bytes > 0)
            build_operand(b, (struct operand){.what = EXTENT_WEIGHTS,
                                              .from = parts_is_joined(b)
                                                          ? to
                                                          : weights_in_host(b, unit, run.owner),
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

static void add_weights(struct build *b, uint32_t unit, bool copy)
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
    add_weights(b, unit, true);
}

/* ---- checkpoints ---- */

static void add_acts(struct build *b, uint32_t unit, struct operand_end from, struct operand_end to)
{
    const struct graph_unit *u = &b->in->units[unit];
    uint64_t blocks = (u->act_bytes + PLACEMENT_ACT_BYTES - 1) / PLACEMENT_ACT_BYTES;
    build_operand(b, (struct operand){.what = EXTENT_ACTS,
                                      .from = from,
                                      .to = to,
                                      .first = u->first_act_block,
                                      .count = (uint32_t)blocks,
                                      .bytes = u->act_bytes});
}

void operands_acts(struct build *b, uint32_t unit, enum node_kind kind)
{
    struct operand_end drives = on_drives(b, EXTENT_ACTS), host = acts_in_host(b, unit);
    struct operand_end device = in_buffer(POOL_DEVICE_ACTS);
    bool drive = kind == NODE_READ_ACTS || kind == NODE_WRITE_ACTS;
    bool out = kind == NODE_WRITE_ACTS || kind == NODE_STORE_ACTS;
    struct operand_end far = drive ? drives : host, near = drive ? host : device;
    add_acts(b, unit, out ? near : far, out ? far : near);
}

/* A checkpoint that is recomputed has a place, and no bytes that anything moves. */
static void add_acts_of_visit(struct build *b, uint32_t unit)
{
    const struct graph_unit *u = &b->in->units[unit];
    struct operand_end at =
        is_offloaded(b, u->acts) ? in_buffer(POOL_DEVICE_ACTS) : acts_in_host(b, unit);
    bool has = u->act_bytes > 0 || u->recomputed;
    if (has && (at.pool == POOL_COUNT || parts_move_acts(b, unit)))
        add_acts(b, unit, at, at);
}

/* ---- tiles ---- */

/* From the start of the unit's row of gradients to the sum of the rank's shard. */
static uint64_t sum_at(const struct build *b, uint32_t unit)
{
    return (uint64_t)((double)b->in->units[unit].row_elements * b->in->hand_bytes);
}

/* From the start of a pool's buffer to the first tile. */
static uint64_t tiles_at(const struct build *b, unsigned what, uint32_t unit)
{
    const bool grads = what == EXTENT_GRADS;
    if (!parts_is_shared(b)) /* replicas have sums of gradients at home alone */
        return grads || !b->in->exact_beside ? 0 : weights_of(b, b->in->units[unit].shard_at);
    if (grads)
        return b->in->device_sums ? 0 : sum_at(b, unit);
    return weights_of(b, b->in->units[unit].shard_at);
}

/* From the start of a pool's buffer to a tile's part. */
static uint64_t offset_in(const struct build *b, unsigned pool, unsigned what,
                          struct operands_tiles t)
{
    switch (pool) {
    case POOL_COUNT:
        return 0;
    case POOL_TILES:
        return what == EXTENT_STATES ? b->in->slot_record_at : 0;
    case POOL_DEVICE_TILES:
        return what == EXTENT_STATES  ? b->in->device_tile_record_at
               : what == EXTENT_GRADS ? b->in->device_tile_grads_at
                                      : 0;
    default:
        return tiles_at(b, what, t.unit) + t.first * tile_bytes(b); /* gradients: weights' type */
    }
}

static double bytes_of(const struct build *b, unsigned what)
{
    return what == EXTENT_STATES  ? b->in->state_bytes
           : what == EXTENT_GRADS ? b->in->grad_bytes
                                  : b->in->weight_bytes;
}

static uint64_t records_pad(const struct build *b, struct operands_tiles t)
{
    const struct graph_unit *u = &b->in->units[t.unit];
    const bool last = t.count > 0 && t.first + t.count == u->tile_count;
    return (t.count - last) * b->in->record_pad + (last ? u->last_record_pad : 0);
}

static void add_tiles(struct build *b, struct operands_tiles t, unsigned what,
                      struct operand_end from, struct operand_end to)
{
    double elements = parts_tile_elements(b, t.unit, t.first, t.count);
    uint64_t pad = what == EXTENT_STATES ? records_pad(b, t) : 0;
    unsigned pool = to.pool == POOL_COUNT ? from.pool : to.pool;
    build_operand(b, (struct operand){.what = (uint8_t)what,
                                      .from = from,
                                      .to = to,
                                      .first = b->in->units[t.unit].first_tile + t.first,
                                      .count = t.count,
                                      .offset = offset_in(b, pool, what, t),
                                      .bytes = (uint64_t)(elements * bytes_of(b, what)) + pad});
}

static void add_in_place(struct build *b, struct operands_tiles t, unsigned what,
                         struct operand_end at)
{
    add_tiles(b, t, what, at, at);
}

void operands_read_tile(struct build *b, struct operands_tiles t)
{
    struct operand_end slot = in_buffer(POOL_TILES);
    if (t.states)
        add_tiles(b, t, EXTENT_STATES, on_drives(b, EXTENT_STATES), slot);
    if (t.grads)
        add_tiles(b, t, EXTENT_GRADS, on_drives(b, EXTENT_GRADS), slot);
}

void operands_write_tile(struct build *b, struct operands_tiles t)
{
    if (t.states)
        add_tiles(b, t, EXTENT_STATES, in_buffer(POOL_TILES), on_drives(b, EXTENT_STATES));
    if (t.weights)
        add_tiles(b, t, EXTENT_WEIGHTS, weights_in_host(b, t.unit, t.unit),
                  on_drives(b, EXTENT_WEIGHTS));
}

/* The tier of what is in memory of a unit. */
static enum hst_tier memory_of(const struct build *b, uint32_t unit)
{
    return parts_is_resident(b, unit) ? HST_TIER_HBM : HST_TIER_DRAM;
}

void operands_update(struct build *b, struct operands_tiles t)
{
    struct operand_end slot = in_buffer(POOL_TILES), home = at_home(memory_of(b, t.unit));
    add_in_place(b, t, EXTENT_WEIGHTS, weights_in_host(b, t.unit, t.unit));
    add_in_place(b, t, EXTENT_STATES, t.states ? slot : home);
    add_in_place(b, t, EXTENT_GRADS, t.grads ? slot : grads_in_host(b, t.unit));
}

void operands_streamed(struct build *b, uint32_t unit, uint32_t tile, enum node_kind kind)
{
    const struct operands_tiles t = {.unit = unit, .first = tile, .count = 1};
    struct operand_end device = in_buffer(POOL_DEVICE_TILES), host = at_home(HST_TIER_DRAM);
    struct operand_end from = kind == NODE_FETCH_TILE ? host : device;
    struct operand_end to = kind == NODE_STORE_TILE ? host : device;
    add_tiles(b, t, EXTENT_WEIGHTS, from, to);
    add_tiles(b, t, EXTENT_STATES, from, to);
    if (kind != NODE_STORE_TILE)
        add_tiles(b, t, EXTENT_GRADS, from, to);
}

static void add_saved(struct build *b, struct operands_tiles t, struct operand_end from,
                      bool to_store)
{
    struct operand_end slot = in_buffer(POOL_TILES);
    if (t.states)
        add_tiles(b, t, EXTENT_STATES, from, to_store ? on_drives(b, EXTENT_STATES) : slot);
    if (t.weights)
        add_tiles(b, t, EXTENT_WEIGHTS, from, to_store ? on_drives(b, EXTENT_WEIGHTS) : slot);
}

void operands_copy_tile(struct build *b, struct operands_tiles t)
{
    add_saved(b, t, at_home(HST_TIER_HBM), false);
}

void operands_save(struct build *b, struct operands_tiles t)
{
    bool resident = parts_is_resident(b, t.unit);
    add_saved(b, t, resident ? in_buffer(POOL_TILES) : at_home(HST_TIER_DRAM), true);
}

/* ---- gradients ---- */

static void add_grads(struct build *b, uint32_t unit, struct operand_end from,
                      struct operand_end to)
{
    const struct operands_tiles all = {.unit = unit, .count = b->in->units[unit].tile_count};
    if (all.count > 0)
        add_tiles(b, all, EXTENT_GRADS, from, to);
}

/* This is where a backward of several ranks leaves the whole row. */
static struct operand_end row_of_grads(const struct build *b, uint32_t unit)
{
    return b->in->buckets ? at_home(HST_TIER_DRAM) : in_buffer(parts_pool(b, unit, POOL_GRADS));
}

/* They are the unit's, or those of all that are in its bucket. */
static uint64_t exchanged_bytes(const struct build *b, uint32_t unit)
{
    uint64_t bytes = 0;
    for (uint32_t u = 0; b->in->buckets && u < b->in->unit_count; u++)
        if (b->in->units[u].bucket == b->in->units[unit].bucket && parts_has_grads(b, u))
            bytes += sum_at(b, u);
    return b->in->buckets ? bytes : sum_at(b, unit);
}

/* In a device's buffer the sum of the shard comes first, the row behind it. */
static uint64_t row_on_device_at(const struct build *b, uint32_t unit)
{
    const uint64_t shard = b->in->units[unit].row_elements / b->in->ranks;
    return b->in->device_sums ? (uint64_t)((double)shard * b->in->grad_bytes) : 0;
}

static void exchange_on_device(struct build *b, uint32_t unit)
{
    const struct graph_unit *u = &b->in->units[unit];
    const struct operand_end row = in_buffer(parts_pool(b, unit, POOL_DEVICE_GRADS));
    build_operand(b, (struct operand){.what = EXTENT_GRADS,
                                      .from = row,
                                      .to = row,
                                      .first = u->first_tile,
                                      .count = u->tile_count,
                                      .offset = row_on_device_at(b, unit),
                                      .bytes = of_others(b, sum_at(b, unit))});
}

void operands_exchange(struct build *b, uint32_t unit)
{
    const struct graph_unit *u = &b->in->units[unit];
    const struct operand_end row = row_of_grads(b, unit);
    const bool home = u->grads != HST_TIER_NVME;
    if (b->in->device_sums) {
        exchange_on_device(b, unit);
        return;
    }
    build_operand(b, (struct operand){.what = EXTENT_GRADS,
                                      .from = row,
                                      .to = home ? at_home(u->grads) : row,
                                      .first = u->first_tile,
                                      .count = u->tile_count,
                                      .offset = home ? 0 : sum_at(b, unit),
                                      .bytes = of_others(b, exchanged_bytes(b, unit))});
}

void operands_gather_grads(struct build *b, uint32_t unit)
{
    const struct graph_unit *u = &b->in->units[unit];
    const struct operand_end home = at_home(u->grads);
    const uint64_t bytes = (uint64_t)((double)u->row_elements * b->in->grad_bytes);
    build_operand(b, (struct operand){.what = EXTENT_GRADS,
                                      .from = home,
                                      .to = home,
                                      .first = u->first_tile,
                                      .count = u->tile_count,
                                      .bytes = of_others(b, bytes)});
}

/* Of several ranks a backward leaves the whole row, for all of them. */
static void add_row_of_grads(struct build *b, uint32_t unit, struct operand_end from,
                             struct operand_end to)
{
    if (parts_has_row(b, unit))
        build_operand(b, (struct operand){.what = EXTENT_GRADS,
                                          .from = from,
                                          .to = to,
                                          .first = b->in->units[unit].first_tile,
                                          .count = b->in->units[unit].tile_count,
                                          .offset = row_on_device_at(b, unit),
                                          .bytes = sum_at(b, unit)});
}

static void add_grads_of_visit(struct build *b, uint32_t unit)
{
    const struct operand_end at = grads_of_visit(b, unit), row = row_of_grads(b, unit);
    if (!parts_has_ranks(b))
        add_grads(b, unit, at, at);
    else if (b->in->apart)
        add_row_of_grads(b, unit, at, at);
    else
        add_row_of_grads(b, unit, row, row);
}

/* Behind the gradients where they leave the device with them. */
static void add_partials(struct build *b, uint32_t unit, struct operand_end from,
                         struct operand_end to)
{
    uint64_t elements = b->in->units[unit].elements;
    if (elements > 0)
        build_operand(
            b, (struct operand){.what = OPERAND_PARTIALS,
                                .from = from,
                                .to = to,
                                .first = unit,
                                .count = 1,
                                .offset = from.pool == POOL_COUNT
                                              ? 0
                                              : (uint64_t)((double)elements * b->in->grad_bytes),
                                .bytes = elements / HST_NORM_BLOCK * sizeof(double)});
}

void operands_write_grads(struct build *b, uint32_t unit)
{
    add_grads(b, unit, grads_in_host(b, unit), on_drives(b, EXTENT_GRADS));
}

void operands_read_grads(struct build *b, uint32_t unit)
{
    add_grads(b, unit, on_drives(b, EXTENT_GRADS), grads_in_host(b, unit));
}

/* The sum of the rank's shard: of replicas it goes to its place in the row at home. */
static void copy_sum(struct build *b, uint32_t unit, struct operand_end device)
{
    const struct graph_unit *u = &b->in->units[unit];
    const double shard = (double)(u->row_elements / b->in->ranks);
    if (!b->in->replicas)
        add_grads(b, unit, device, grads_in_host(b, unit));
    else
        build_operand(b, (struct operand){.what = EXTENT_GRADS,
                                          .from = device,
                                          .to = at_home(u->grads),
                                          .first = u->first_tile,
                                          .count = u->tile_count,
                                          .bytes = (uint64_t)(shard * b->in->grad_bytes)});
}

void operands_copy_grads(struct build *b, uint32_t unit)
{
    struct operand_end device = grads_of_visit(b, unit);
    if (b->in->device_sums) {
        copy_sum(b, unit, device);
        return;
    }
    if (parts_has_ranks(b)) {
        add_row_of_grads(b, unit, device, row_of_grads(b, unit));
        return;
    }
    add_grads(b, unit, device, grads_in_host(b, unit));
    add_partials(b, unit, device, at_home(HST_TIER_DRAM));
}

void operands_norm(struct build *b, uint32_t unit)
{
    struct operand_end at = at_home(HST_TIER_DRAM);
    if (parts_norm_on_host(b))
        add_grads(b, unit, grads_in_host(b, unit), grads_in_host(b, unit));
    add_partials(b, unit, at, at);
}

/* ---- visits ---- */

void operands_visit(struct build *b, uint32_t unit, bool weights, bool grads)
{
    struct operand_end at = grads_of_visit(b, unit);
    if (weights)
        add_weights(b, unit, false);
    add_acts_of_visit(b, unit);
    if (grads)
        add_grads_of_visit(b, unit);
    if (grads && !parts_norm_on_host(b))
        add_partials(b, unit, at, at);
}
