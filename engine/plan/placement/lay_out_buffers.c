/* SPDX-License-Identifier: Apache-2.0 */
/* Takes memory for buffers: of one choice of homes, when those are laid out. */
#include "plan/placement/lay_out.h"

#include "base/saturate.h"
#include "plan/placement/buffer_pools.h"

/* Tiles pass through host memory to be loaded, saved, or part of a version: one is worked on while
 * another one is copied. */
#define HBM_SLOTS 2u

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* The buffer pool in DRAM that tiles from elsewhere pass through. */
static void place_slots(const struct placement_in *in, const struct choice *c, struct placement *p)
{
    bool hbm = p->resident_units > 0;
    bool grads = c->leaves[LEAVE_GRADS] > 0 && in->deferred;
    bool weights = c->leaves[LEAVE_WEIGHTS] > 0, states = c->leaves[LEAVE_STATES] > 0;
    if (!hbm && !grads && !weights && !states)
        return;
    uint64_t largest_tile = layout_largest_tile(in->layout);
    uint64_t record = record_layout(in->optimizer, largest_tile).bytes;
    uint64_t weight_bytes = sat_page_up(largest_tile * optimizer_weight_bytes(in->optimizer));
    p->slot_record_at = weights || grads || hbm ? weight_bytes : 0;
    p->slots.bytes = p->slot_record_at + (states || hbm ? record : 0);
    uint32_t depth = grads || weights || states ? c->depths.slots : HBM_SLOTS;
    uint32_t tiles = in->layout->tile_count;
    p->slots.count = depth < tiles ? depth : tiles;
    p->slots.at = lay_out_take(p, HST_TIER_DRAM, HST_CLASS_BUFFERS,
                               sat_times(p->slots.bytes, p->slots.count));
}

/* It places what the host needs beside a device with its own memory; the host device shares it. */
static void place_host_side(const struct placement_in *in, uint64_t largest_tile,
                            struct placement *p)
{
    uint64_t device = 0; /* up to the last unit that the device updates */
    for (uint32_t u = 0; u < in->layout->unit_count; u++) {
        const struct layout_unit *unit = &in->layout->units[u];
        if (placement_is_resident(p, u))
            device = unit->first_block * sizeof(double) + placement_partials_bytes(unit->elements);
    }
    p->norm_partials = lay_out_take_near(p, HST_CLASS_BUFFERS, device);
    p->host_partials = lay_out_take(p, HST_TIER_DRAM, HST_CLASS_BUFFERS,
                                    placement_partials_bytes(in->layout->elements));
    p->load_values = p->accumulator;
    if (p->compute_tier == HST_TIER_HBM)
        p->load_values = lay_out_take(p, HST_TIER_DRAM, HST_CLASS_BUFFERS,
                                      sat_times(largest_tile, sizeof(float)));
}

/* Of several ways each is rounded, and waits for those that it is added to. */
static void place_ways(const struct placement_in *in, struct placement *p)
{
    const struct layout *layout = in->layout;
    uint64_t elements = 0, tied = lay_out_ways(in) > 1 ? layout->tied_elements : 0;
    for (uint32_t u = 0; u < layout->unit_count; u++)
        if (!layout->units[u].frozen)
            elements = most(elements, layout->units[u].elements);
    p->way_sums = (struct buffer_pool){.bytes = sat_page_up(sat_times(elements, sizeof(float))),
                                       .count = in->way_buffers};
    p->way_sums.at =
        lay_out_take_near(p, HST_CLASS_BUFFERS, sat_times(p->way_sums.bytes, p->way_sums.count));
    p->tied_of_ways = lay_out_take_near(
        p, HST_CLASS_BUFFERS, sat_times(sat_times(tied, sizeof(float)), lay_out_ways(in)));
}

void lay_out_buffers(const struct placement_in *in, const struct choice *c, struct placement *p)
{
    const struct layout *layout = in->layout;
    /* On the host the accumulator also holds a tile's initial values before there are gradients. */
    uint64_t largest_tile = layout_largest_tile(layout);
    uint64_t accumulator = p->compute_tier == HST_TIER_HBM ? 0 : largest_tile;
    for (uint32_t u = 0; u < layout->unit_count; u++) {
        accumulator = most(accumulator, layout->units[u].grad_elements);
        p->work_bytes = most(p->work_bytes, layout->units[u].work_bytes);
    }
    p->accumulator = lay_out_take_near(p, HST_CLASS_BUFFERS, sat_times(accumulator, sizeof(float)));
    p->tied =
        lay_out_take_near(p, HST_CLASS_BUFFERS, sat_times(layout->tied_elements, sizeof(float)));
    place_ways(in, p);
    p->work = lay_out_take_near(p, HST_CLASS_BUFFERS, p->work_bytes);
    buffer_pools_place_kept(in, p);
    p->client_device = lay_out_take_near(p, HST_CLASS_BUFFERS, in->client_device_bytes);
    p->client_host = lay_out_take(p, HST_TIER_DRAM, HST_CLASS_BUFFERS, in->client_host_bytes);
    buffer_pools_place(in, c, p);
    place_host_side(in, largest_tile, p);
    place_slots(in, c, p);
}
