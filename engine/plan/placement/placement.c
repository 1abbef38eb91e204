/* SPDX-License-Identifier: Apache-2.0 */
/* Looks up what was decided: addresses are arithmetic, whatever the size of the model. */
#include "plan/placement/placement.h"

#include "base/saturate.h"

#include <errno.h>
#include <stdlib.h>

uint64_t placement_micro_stride(const struct placement_in *in, uint64_t bytes_per_token)
{
    return sat_round_up(sat_times(in->micro_batch_tokens, bytes_per_token), 64);
}

/* No activations stay where they have a home tier elsewhere. */
uint32_t placement_savable_units(const struct placement_in *in)
{
    bool elsewhere =
        in->wish.fixed[HST_CLASS_ACTS] && in->wish.tier[HST_CLASS_ACTS] != in->compute_tier;
    uint32_t units = 0;
    for (uint32_t u = 0; !in->recompute && !elsewhere && u < in->layout->unit_count; u++)
        units += layout_may_save(&in->layout->units[u]);
    return units;
}

uint64_t placement_saved_bytes(const struct placement *placement, uint32_t unit)
{
    return sat_times(placement->layout->units[unit].saved_bytes, placement->micro_count);
}

uint64_t placement_exchange_elements(const struct placement_in *in, uint32_t unit)
{
    const uint32_t ranks = placement_ranks(in);
    return shard_elements(in->layout->units[unit].elements, ranks) * ranks;
}

uint64_t placement_exchange_bytes(const struct placement_in *in, uint32_t unit)
{
    return placement_exchange_elements(in, unit) * hst_dtype_bytes(in->way_dtype);
}

static struct gather gather_row(const struct layout *layout, uint64_t element_bytes, uint32_t unit)
{
    return (struct gather){.unit = unit,
                           .first_tile = layout->units[unit].first_tile,
                           .tile_count = layout->units[unit].tile_count,
                           .bytes = placement_row_elements(layout, unit) * element_bytes};
}

/* The tiles that a parameter lies in, which is another unit's. */
static struct gather gather_param(const struct layout *layout, uint64_t element_bytes,
                                  const struct layout_param *param)
{
    const uint32_t unit = layout->params[param->owner].unit;
    const struct layout_unit *owner = &layout->units[unit];
    if (layout->share.world > 1)
        return gather_row(layout, element_bytes, unit);
    uint32_t first = (uint32_t)(param->offset / layout->tile_elements);
    uint32_t last = (uint32_t)((param->offset + param->count - 1) / layout->tile_elements);
    uint64_t start = (uint64_t)first * layout->tile_elements;
    uint64_t end = (uint64_t)(last + 1) * layout->tile_elements;
    end = end < owner->elements ? end : owner->elements;
    return (struct gather){.unit = unit,
                           .first_tile = owner->first_tile + first,
                           .tile_count = last - first + 1,
                           .first = start,
                           .bytes = (end - start) * element_bytes};
}

uint64_t placement_exact_bytes(const struct layout *layout, const struct gather *gather)
{
    return layout->exact_beside ? gather->bytes / layout->share.world : 0;
}

int placement_gather(const struct layout *layout, uint64_t element_bytes, uint32_t unit,
                     struct gather gathers[GATHER_MAX])
{
    const struct layout_unit *u = &layout->units[unit];
    uint32_t n = 0;
    if (u->elements > 0)
        gathers[n++] = gather_row(layout, element_bytes, unit);
    const uint32_t end = u->borrows ? u->first_param + u->param_count : u->first_param;
    for (uint32_t i = u->first_param; i < end; i++) {
        const struct layout_param *param = &layout->params[i];
        if (param->owner == i)
            continue;
        if (n == GATHER_MAX)
            return -EINVAL;
        gathers[n] = gather_param(layout, element_bytes, param);
        gathers[n].reservation_at = n > 0 ? gathers[n - 1].reservation_at + gathers[n - 1].bytes +
                                                placement_exact_bytes(layout, &gathers[n - 1])
                                          : 0;
        n++;
    }
    return (int)n;
}

/* Tiles of a unit that share a drive follow one another there; only the unit's last is shorter. */
static struct address on_drive(const struct placement *placement, uint32_t tile,
                               uint32_t first_tile, const uint64_t *starts, uint64_t stride)
{
    uint32_t drive = stripe_drive(&placement->stripe, tile);
    uint64_t nth = stripe_before(&placement->stripe, tile, drive) -
                   stripe_before(&placement->stripe, first_tile, drive);
    return (struct address){
        .tier = HST_TIER_NVME, .drive = drive, .offset = starts[drive] + nth * stride};
}

/* Of a tile. Ranks plan alike, so its place is that of its number in the plan. */
static struct address tile_on_drive(const struct placement *placement, uint32_t tile, uint32_t unit,
                                    const uint64_t *starts, uint64_t stride)
{
    const uint32_t first = placement->units[unit].first_tile;
    const uint32_t local = tile - placement->layout->units[unit].first_tile;
    return on_drive(placement, first + local, first, starts, stride);
}

/* As planned, whatever this rank has of them. */
uint32_t placement_tiles_in_dram(const struct placement *p)
{
    uint32_t count = 0;
    for (uint32_t u = 0; u < p->layout->unit_count; u++)
        if (p->units[u].offloaded && !p->layout->units[u].frozen)
            count += p->units[u].tile_count - p->units[u].nvme_states;
    return count;
}

struct address placement_weights(const struct placement *placement, uint32_t tile)
{
    const struct layout *layout = placement->layout;
    struct tile_range range = layout_tile(layout, tile);
    const struct unit_placement *home = &placement->units[range.unit];
    uint64_t element_bytes = optimizer_weight_bytes(placement->optimizer);
    struct address at = home->weights;
    if (at.tier == HST_TIER_NVME)
        return tile_on_drive(placement, tile, range.unit, home->weights_at,
                             layout->tile_elements * element_bytes);
    const uint64_t first = placement->whole_weights ? 0 : layout->units[range.unit].shard.first;
    at.offset += (range.offset - first) * element_bytes;
    return at;
}

struct address placement_states(const struct placement *placement, uint32_t tile)
{
    const struct layout *layout = placement->layout;
    struct tile_range range = layout_tile(layout, tile);
    const struct unit_placement *home = &placement->units[range.unit];
    uint64_t stride = record_layout(placement->optimizer, layout->tile_elements).bytes;
    uint32_t local = tile - layout->units[range.unit].first_tile;
    if (local < home->nvme_states)
        return tile_on_drive(placement, tile, range.unit, home->nvme_states_at, stride);
    return (struct address){.tier = placement_memory(placement, range.unit),
                            .offset = home->states_at + (local - home->nvme_states) * stride};
}

/* Only a unit's last block is shorter. */
static uint32_t unit_of_block(const struct placement *placement, uint32_t block)
{
    uint32_t unit = 0;
    for (uint32_t u = 0; u < placement->layout->unit_count; u++) {
        const struct unit_placement *home = &placement->units[u];
        if (home->acts.tier == HST_TIER_NVME && home->act_bytes > 0 &&
            home->first_act_block <= block)
            unit = u;
    }
    return unit;
}

static struct address act_block(const struct placement *placement, uint32_t block, uint64_t *bytes)
{
    const struct unit_placement *home = &placement->units[unit_of_block(placement, block)];
    uint64_t left =
        home->act_bytes - (uint64_t)(block - home->first_act_block) * PLACEMENT_ACT_BYTES;
    *bytes = left < PLACEMENT_ACT_BYTES ? left : PLACEMENT_ACT_BYTES;
    return on_drive(placement, block, home->first_act_block, home->acts_at, PLACEMENT_ACT_BYTES);
}

/* ---- buckets ---- */

struct bucket_row bucket_row(const struct placement *p, uint32_t unit, uint64_t element_bytes)
{
    const struct unit_placement *home = &p->units[unit];
    return (struct bucket_row){.at = home->grads.offset + home->bucket_first * element_bytes,
                               .shard = placement_shard_elements(p->layout, unit),
                               .stride = home->bucket_elements};
}

struct bucket bucket_of(const struct placement *p, uint32_t unit)
{
    const struct unit_placement *home = &p->units[unit];
    const bool apart = p->hand_bytes != optimizer_weight_bytes(p->optimizer);
    const uint64_t parts = apart ? p->layout->share.world : p->layout->share.rank;
    return (struct bucket){.at = home->grads.offset,
                           .sum_at =
                               home->grads.offset + parts * home->bucket_elements * p->hand_bytes,
                           .elements = home->bucket_elements};
}

static struct address tile_grads(const struct placement *placement, uint32_t tile)
{
    const struct layout *layout = placement->layout;
    struct tile_range range = layout_tile(layout, tile);
    uint64_t element_bytes = optimizer_weight_bytes(placement->optimizer);
    const struct unit_placement *home = &placement->units[range.unit];
    const uint64_t in_shard = range.offset - layout->units[range.unit].shard.first;
    struct address at = home->grads;
    if (at.tier == HST_TIER_NVME)
        return tile_on_drive(placement, tile, range.unit, home->grads_at,
                             layout->tile_elements * element_bytes);
    if (placement->buckets)
        at.offset = bucket_of(placement, range.unit).sum_at + home->bucket_first * element_bytes;
    at.offset += in_shard * element_bytes;
    return at;
}

struct address placement_extent(const struct placement *placement, enum extent_kind kind,
                                uint32_t index, uint64_t *bytes)
{
    if (kind == EXTENT_ACTS)
        return act_block(placement, index, bytes);
    const struct tile_range range = layout_tile(placement->layout, index);
    if (kind == EXTENT_STATES) {
        *bytes = placement_record_bytes(placement, range);
        return placement_states(placement, index);
    }
    const bool none = kind == EXTENT_GRADS && placement->layout->units[range.unit].frozen;
    *bytes = none ? 0 : range.elements * optimizer_weight_bytes(placement->optimizer);
    if (none)
        return placement->units[range.unit].grads;
    return kind == EXTENT_GRADS ? tile_grads(placement, index)
                                : placement_weights(placement, index);
}

static bool is_of_frozen(const struct placement *placement, enum extent_kind kind, uint32_t index)
{
    const struct layout *layout = placement->layout;
    return kind != EXTENT_ACTS && layout->units[layout_tile(layout, index).unit].frozen;
}

uint64_t placement_second(const struct placement *placement, enum extent_kind kind, uint32_t index,
                          uint32_t drive)
{
    const uint64_t slot = kind == EXTENT_WEIGHTS  ? placement->weights_slot_on[drive]
                          : kind == EXTENT_STATES ? placement->states_slot_on[drive]
                                                  : 0;
    return slot > 0 && is_of_frozen(placement, kind, index) ? 0 : slot;
}

uint64_t placement_second_in_dram(const struct placement *placement, enum extent_kind kind,
                                  uint32_t index)
{
    const uint64_t slot = kind == EXTENT_WEIGHTS ? placement->weights_slot : placement->states_slot;
    return slot > 0 && is_of_frozen(placement, kind, index) ? 0 : slot;
}

uint64_t placement_record_bytes(const struct placement *placement, struct tile_range range)
{
    return placement->layout->units[range.unit].frozen
               ? 0
               : record_layout(placement->optimizer, range.elements).bytes;
}

uint32_t placement_extents(const struct placement *placement, enum extent_kind kind)
{
    return kind == EXTENT_ACTS ? placement->act_blocks : placement->layout->tile_count;
}

/* Where homes of a class begin that are in DRAM: buckets are taken from the last unit on, and tiles
 * of frozen units lie behind those of the others. */
static uint64_t first_of(const struct placement *p, enum hst_class class)
{
    uint64_t first = UINT64_MAX;
    for (uint32_t u = 0; u < p->layout->unit_count; u++) {
        const struct unit_placement *home = &p->units[u];
        const struct address at = class == HST_CLASS_GRADS ? home->grads : home->weights;
        if (!placement_is_resident(p, u) && at.offset < first)
            first = at.offset;
    }
    return first;
}

/* lay_out takes the pools one behind the other, and all homes of one class. */
uint32_t placement_exposed(const struct placement *p, struct exposed parts[EXPOSED_MAX])
{
    const struct buffer_pool *last =
        p->device_sums ? &p->reservations[UNIT_SIZES - 1] : &p->grad_buffers[UNIT_SIZES - 1];
    const uint64_t at = p->device_rows ? p->grad_buffers[0].at : p->reservations[0].at;
    const bool any = !p->device_rows || !p->device_sums;
    const struct exposed parts_of[EXPOSED_MAX] = {
        {at, any ? sat_page_up(last->at + last->bytes * last->count) - at : 0},
        {first_of(p, HST_CLASS_WEIGHTS),
         p->whole_weights && p->replicas == 0 ? p->table[HST_CLASS_WEIGHTS][HST_TIER_DRAM] : 0},
        {first_of(p, HST_CLASS_GRADS),
         p->buckets || p->replicas > 0 ? p->table[HST_CLASS_GRADS][HST_TIER_DRAM] : 0},
        {p->secondary.at, p->secondary.bytes},
    };
    uint32_t count = 0;
    for (uint32_t i = 0; i < EXPOSED_MAX; i++)
        if (parts_of[i].bytes > 0)
            parts[count++] = parts_of[i];
    return count;
}

void placement_free(struct placement *placement)
{
    free(placement->units);
    *placement = (struct placement){0};
}
