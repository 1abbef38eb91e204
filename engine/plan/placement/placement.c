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
        units += in->layout->units[u].saved_bytes > 0;
    return units;
}

uint64_t placement_saved_bytes(const struct placement *placement, uint32_t unit)
{
    return sat_times(placement->layout->units[unit].saved_bytes, placement->micro_count);
}

int placement_gather(const struct layout *layout, uint64_t element_bytes, uint32_t unit,
                     struct gather gathers[GATHER_MAX])
{
    const struct layout_unit *u = &layout->units[unit];
    uint64_t at = 0;
    uint32_t n = 0;
    if (u->tile_count > 0) {
        gathers[n++] = (struct gather){.first_tile = u->first_tile, .tile_count = u->tile_count};
        at += u->elements * element_bytes;
    }
    for (uint32_t i = u->first_param; i < u->first_param + u->param_count; i++) {
        const struct layout_param *param = &layout->params[i];
        if (param->owner == i)
            continue;
        if (n == GATHER_MAX)
            return -EINVAL;
        const struct layout_unit *owner = &layout->units[layout->params[param->owner].unit];
        uint32_t first = (uint32_t)(param->offset / layout->tile_elements);
        uint32_t last = (uint32_t)((param->offset + param->count - 1) / layout->tile_elements);
        gathers[n++] = (struct gather){owner->first_tile + first, last - first + 1, at};
        uint64_t end = (uint64_t)(last + 1) * layout->tile_elements;
        end = end < owner->elements ? end : owner->elements;
        at += (end - (uint64_t)first * layout->tile_elements) * element_bytes;
    }
    return (int)n;
}

uint64_t placement_gather_bytes(const struct layout *layout, uint64_t element_bytes,
                                const struct gather *gather)
{
    struct tile_range first = layout_tile(layout, gather->first_tile);
    struct tile_range last = layout_tile(layout, gather->first_tile + gather->tile_count - 1);
    return (last.offset + last.elements - first.offset) * element_bytes;
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

uint32_t placement_tiles_in_dram(const struct placement *p)
{
    uint32_t count = 0;
    for (uint32_t u = 0; u < p->layout->unit_count; u++)
        if (p->units[u].offloaded)
            count += p->layout->units[u].tile_count - p->units[u].nvme_states;
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
        return on_drive(placement, tile, layout->units[range.unit].first_tile, home->weights_at,
                        layout->tile_elements * element_bytes);
    at.offset += range.offset * element_bytes;
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
        return on_drive(placement, tile, layout->units[range.unit].first_tile, home->nvme_states_at,
                        stride);
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

static struct address tile_grads(const struct placement *placement, uint32_t tile)
{
    const struct layout *layout = placement->layout;
    struct tile_range range = layout_tile(layout, tile);
    uint64_t element_bytes = optimizer_weight_bytes(placement->optimizer);
    const struct unit_placement *home = &placement->units[range.unit];
    struct address at = home->grads;
    if (at.tier == HST_TIER_NVME)
        return on_drive(placement, tile, layout->units[range.unit].first_tile, home->grads_at,
                        layout->tile_elements * element_bytes);
    at.offset += range.offset * element_bytes;
    return at;
}

struct address placement_extent(const struct placement *placement, enum extent_kind kind,
                                uint32_t index, uint64_t *bytes)
{
    if (kind == EXTENT_ACTS)
        return act_block(placement, index, bytes);
    uint32_t elements = layout_tile(placement->layout, index).elements;
    if (kind == EXTENT_STATES) {
        *bytes = record_layout(placement->optimizer, elements).bytes;
        return placement_states(placement, index);
    }
    *bytes = elements * optimizer_weight_bytes(placement->optimizer);
    return kind == EXTENT_GRADS ? tile_grads(placement, index)
                                : placement_weights(placement, index);
}

uint64_t placement_second(const struct placement *placement, enum extent_kind kind, uint32_t drive)
{
    return kind == EXTENT_WEIGHTS  ? placement->weights_slot_on[drive]
           : kind == EXTENT_STATES ? placement->states_slot_on[drive]
                                   : 0;
}

uint32_t placement_extents(const struct placement *placement, enum extent_kind kind)
{
    return kind == EXTENT_ACTS ? placement->act_blocks : placement->layout->tile_count;
}

void placement_free(struct placement *placement)
{
    free(placement->units);
    *placement = (struct placement){0};
}
