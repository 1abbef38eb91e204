/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operands of each kind of node but those that move weights. A slot of the tile pool holds one
 * tile's weights or gradients, then its record.
 */
#include "plan/graph/operands.h"

#include <hoistway/cpu_adam.h>

/* ---- ends ---- */

static struct operand_end grads_in_host(const struct build *b, uint32_t unit)
{
    return in_host(b->in->units[unit].grads, parts_pool(b, unit, POOL_GRADS));
}

static struct operand_end acts_in_host(const struct build *b, uint32_t unit)
{
    return in_host(b->in->units[unit].acts, POOL_ACTS);
}

static struct operand_end grads_of_visit(const struct build *b, uint32_t unit)
{
    return b->in->device_sums || is_offloaded(b, b->in->units[unit].grads)
               ? in_buffer(parts_pool(b, unit, POOL_DEVICE_GRADS))
               : grads_in_host(b, unit);
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

/* An update finds them there that are in no slot. */
static struct operand_end grads_of_update(const struct build *b, uint32_t unit)
{
    return parts_updates_from_buffer(b, unit) ? in_buffer(parts_pool(b, unit, POOL_DEVICE_GRADS))
                                              : grads_in_host(b, unit);
}

void operands_update(struct build *b, struct operands_tiles t)
{
    struct operand_end slot = in_buffer(POOL_TILES), home = at_home(memory_of(b, t.unit));
    add_in_place(b, t, EXTENT_WEIGHTS, weights_in_host(b, t.unit, t.unit));
    add_in_place(b, t, EXTENT_STATES, t.states ? slot : home);
    add_in_place(b, t, EXTENT_GRADS, t.grads ? slot : grads_of_update(b, t.unit));
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
    const bool home = parts_is_resident(b, unit) && !parts_updates_from_buffer(b, unit);
    build_operand(b, (struct operand){.what = EXTENT_GRADS,
                                      .from = row,
                                      .to = home ? at_home(HST_TIER_HBM) : row,
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

/* Of a sum that ranks have on a device the partials leave it. */
void operands_norm(struct build *b, uint32_t unit)
{
    const bool device = parts_has_ranks(b) && parts_is_resident(b, unit);
    const struct operand_end host = at_home(HST_TIER_DRAM), grads = grads_of_update(b, unit);
    if (device || parts_norm_on_host(b, unit))
        add_grads(b, unit, grads, grads);
    add_partials(b, unit, device ? at_home(HST_TIER_HBM) : host, host);
}

/* ---- visits ---- */

void operands_visit(struct build *b, uint32_t unit, bool weights, bool grads)
{
    struct operand_end at = grads_of_visit(b, unit);
    if (weights)
        operands_weights(b, unit, false);
    add_acts_of_visit(b, unit);
    if (grads)
        add_grads_of_visit(b, unit);
    if (grads && !parts_has_ranks(b) && b->in->apart)
        add_partials(b, unit, at, at);
}
