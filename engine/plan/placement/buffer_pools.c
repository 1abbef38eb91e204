/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buffers that units borrow. One that all units take turns at is as large as the largest of them,
 * which mostly is the embedding or the head, far larger than a layer: then those two have buffers
 * of their own. So have the smaller ones of units that alternate, where that takes hardly more.
 */
#include "plan/placement/buffer_pools.h"

#include "base/saturate.h"
#include "plan/placement/unit_sizes.h"

#include <math.h>

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Bytes of the row of a unit that reads no others' weights. */
static uint64_t own_bytes(const struct placement_in *in, uint32_t unit)
{
    return placement_row_elements(in->layout, unit) * optimizer_weight_bytes(in->optimizer);
}

/* And behind it the rank's exact weights, where it is not those. */
static uint64_t kept_bytes(const struct placement_in *in, uint32_t unit)
{
    const struct gather row = {.bytes = own_bytes(in, unit)};
    return row.bytes + placement_exact_bytes(in->layout, &row);
}

/* Bytes a reservation of this unit must hold: what it gathers from NVMe, or from other ranks, or
 * from integers, unless the device's memory is where it does. */
static uint64_t reservation_bytes(const struct placement_in *in, const struct placement *p,
                                  uint32_t unit)
{
    struct gather gathers[GATHER_MAX];
    const bool gathered = !placement_joins_rows(in) &&
                          (in->quantised || (in->layout->share.world > 1 && !in->whole_weights));
    if (!in->layout->units[unit].borrows)
        return gathered || p->units[unit].weights.tier == HST_TIER_NVME ? kept_bytes(in, unit) : 0;
    int n = placement_gather(in->layout, optimizer_weight_bytes(in->optimizer), unit, gathers);
    uint64_t bytes = 0;
    for (int i = 0; i < n; i++) {
        const struct gather *g = &gathers[i];
        if (!gathered && p->units[g->unit].weights.tier != HST_TIER_NVME)
            continue;
        bytes = g->reservation_at + g->bytes + placement_exact_bytes(in->layout, g);
    }
    return bytes;
}

static uint64_t weights_bytes(const struct placement_in *in, uint32_t unit)
{
    return in->layout->units[unit].elements * optimizer_weight_bytes(in->optimizer);
}

/* This is what a rank hands to the others of a unit's gradients, and behind it its shard of
   their sum. */
static uint64_t grads_bytes(const struct placement_in *in, uint32_t unit)
{
    if (placement_ranks(in) == 1)
        return weights_bytes(in, unit);
    if (in->replicas > 0) /* the sum goes home */
        return placement_exchange_bytes(in, unit);
    return sat_add(placement_joins_sums(in) ? 0 : placement_exchange_bytes(in, unit),
                   placement_shard_elements(in->layout, unit) *
                       optimizer_weight_bytes(in->optimizer));
}

/* Ranks that exchange on a device have the sum of their shard there too. */
static uint64_t device_row_bytes(const struct placement_in *in, uint32_t unit)
{
    const uint64_t shard = placement_exchange_elements(in, unit) / placement_ranks(in);
    const uint64_t row = placement_exchange_bytes(in, unit);
    return placement_joins_sums(in)
               ? sat_add(row, sat_times(shard, optimizer_weight_bytes(in->optimizer)))
               : row;
}

/* Rounded gradients, and behind them the partials of their norm; of several ranks the row that they
 * exchange. */
static uint64_t device_grads_bytes(const struct placement_in *in, uint32_t unit)
{
    if (placement_ranks(in) > 1)
        return sat_page_up(device_row_bytes(in, unit));
    uint64_t partials = placement_partials_bytes(in->layout->units[unit].elements);
    return sat_page_up(sat_add(weights_bytes(in, unit), partials));
}

/* Rows of gradients pass by buffers of the host's, in which ranks exchange them. */
static bool passes_rows(const struct placement_in *in)
{
    return placement_ranks(in) > 1 && !placement_has_buckets(in) && !placement_joins_sums(in);
}

static void enlarge(struct buffer_pool pools[UNIT_SIZES], enum unit_size size, uint64_t bytes)
{
    pools[size].bytes = most(pools[size].bytes, bytes);
}

/* Each as large as any unit of its size. */
static void size_pools(const struct placement_in *in, struct placement *p)
{
    for (uint32_t u = 0; u < in->layout->unit_count; u++) {
        const struct unit_placement *home = &p->units[u];
        enlarge(p->reservations, home->size, sat_page_up(reservation_bytes(in, p, u)));
        const bool grads = !in->layout->units[u].frozen;
        if (grads && (home->grads.tier == HST_TIER_NVME || passes_rows(in)))
            enlarge(p->grad_buffers, home->size, grads_bytes(in, u));
        if (home->offloaded || p->device_rows)
            enlarge(p->device_weights, home->size, sat_page_up(unit_sizes_bytes(in, u)));
        if (grads && (home->offloaded || p->device_sums))
            enlarge(p->device_grads, home->size, device_grads_bytes(in, u));
    }
}

static uint64_t bytes_of(const struct buffer_pool pools[UNIT_SIZES])
{
    uint64_t bytes = 0;
    for (int s = 0; s < UNIT_SIZES; s++)
        bytes = sat_add(bytes, sat_times(pools[s].bytes, pools[s].count));
    return bytes;
}

/* A pool wants so many buffers, in the memory of that tier. */
struct wanted {
    enum hst_tier tier;
    uint32_t count;
    bool segments; /* the backward turns round in each: two units of a size may meet there */
    bool all;      /* resident units borrow, too: ranks put rows together there */
};

/* Rows are whole pages of all ranks: two halves of a row may take a little more than it. */
#define NARROW_MORE 64u

/* Units that are not wide take turns at `count` buffers. Narrow ones have their own, as many of
 * either size as so many units in a row may want, where that takes hardly more memory. */
static void share_narrow(const struct placement *p, uint32_t count, const struct wanted *wanted,
                         struct buffer_pool pools[UNIT_SIZES])
{
    const struct buffer_pool wide = pools[UNIT_WIDE];
    const uint64_t usual = pools[UNIT_USUAL].bytes, narrow = pools[UNIT_NARROW].bytes;
    struct buffer_pool shared[UNIT_SIZES] = {{.bytes = most(usual, narrow)}};
    uint32_t turns[UNIT_SIZES] = {0};
    shared[UNIT_USUAL].count = shared[UNIT_USUAL].bytes > 0 ? count : 0;
    if (usual > 0 && narrow > 0)
        unit_sizes_most(p, wanted->all, count + (wanted->segments && count > 0), turns);
    const uint64_t room = bytes_of(shared);
    pools[UNIT_WIDE].count = 0;
    pools[UNIT_USUAL].count = turns[UNIT_USUAL];
    pools[UNIT_NARROW].count = turns[UNIT_NARROW];
    if (turns[UNIT_NARROW] == 0 || bytes_of(pools) > sat_add(room, room / NARROW_MORE))
        for (int s = 0; s < UNIT_SIZES; s++)
            pools[s] = shared[s];
    pools[UNIT_WIDE] = wide;
}

/* Wide units take turns at one buffer, unless there are more than the others need; or at those of
 * the others, where that takes no more memory. */
static void take_pools(const struct placement_in *in, struct wanted wanted,
                       struct buffer_pool pools[UNIT_SIZES], struct placement *p)
{
    uint32_t wide = 0, others = 0;
    uint64_t largest = 0;
    for (uint32_t u = 0; u < in->layout->unit_count; u++) {
        const bool borrows = wanted.all || !placement_is_resident(p, u);
        wide += p->units[u].size == UNIT_WIDE && borrows;
        others += p->units[u].size != UNIT_WIDE && borrows;
    }
    for (int s = 0; s < UNIT_SIZES; s++)
        largest = most(largest, pools[s].bytes);
    const uint32_t count = least(wanted.count, others + wide);
    struct buffer_pool shared[UNIT_SIZES] = {{.bytes = largest, .count = largest > 0 ? count : 0}};
    others = least(count, others);
    share_narrow(p, others, &wanted, pools);
    pools[UNIT_WIDE].count = pools[UNIT_WIDE].bytes == 0 ? 0 : count > others ? wide : 1;
    if (wide > 0 && bytes_of(shared) <= bytes_of(pools))
        for (int s = 0; s < UNIT_SIZES; s++)
            pools[s] = shared[s];
    for (int s = 0; s < UNIT_SIZES; s++)
        pools[s].at = lay_out_take(p, wanted.tier, HST_CLASS_BUFFERS,
                                   sat_times(pools[s].bytes, pools[s].count));
}

/* ---- checkpoints ---- */

static void take_pool(struct placement *p, enum hst_tier tier, struct buffer_pool *buffer_pool,
                      uint32_t count)
{
    buffer_pool->count = buffer_pool->bytes > 0 ? count : 0;
    buffer_pool->at =
        lay_out_take(p, tier, HST_CLASS_BUFFERS, sat_times(buffer_pool->bytes, buffer_pool->count));
}

/* No checkpoint that moves is much larger than the others. */
static void place_acts_pools(const struct placement_in *in, const struct choice *c,
                             struct placement *p)
{
    for (uint32_t u = 0; u < in->layout->unit_count; u++) {
        const struct unit_placement *home = &p->units[u];
        if (home->acts.tier == HST_TIER_NVME)
            p->act_buffers.bytes = most(p->act_buffers.bytes, home->act_bytes);
        if (placement_copies_acts(p, u))
            p->device_acts.bytes = most(p->device_acts.bytes, home->act_bytes);
    }
    take_pool(p, HST_TIER_DRAM, &p->act_buffers, c->depths.acts);
    take_pool(p, HST_TIER_HBM, &p->device_acts, c->device_depths.acts);
}

/* ---- what the slices of a unit share ---- */

void buffer_pools_place_kept(const struct placement_in *in, struct placement *p)
{
    const struct layout *layout = in->layout;
    for (uint32_t u = 0; u < layout->unit_count; u++) {
        if (!layout_is_slice(layout, u))
            continue;
        uint64_t bytes = sat_times(layout->units[u].slice_token_bytes, in->batch_tokens);
        bool first = layout->units[u].first_row == 0;
        p->units[u].kept = first ? lay_out_take(p, p->compute_tier, HST_CLASS_BUFFERS, bytes)
                                 : p->units[u - 1].kept;
    }
}

/* ---- streamed tiles ---- */

/* Enough for copies both ways while one is updated, and small ones until the host, which updates
 * others, looks again. */
#define STREAM_BYTES      ((uint64_t)64 << 20)
#define STREAM_TILES      4u
#define STREAM_TILES_MOST 16u

/* It tells of a class that is updated whether its home tier may be DRAM. */
static bool may_be_in_dram(const struct placement_in *in, enum hst_class class)
{
    return !in->wish.fixed[class] || in->wish.tier[class] == HST_TIER_DRAM;
}

/* Taken where any unit is offloaded, whatever of it is in DRAM: else what leaves DRAM would win
   HBM. */
static void place_device_tiles(const struct placement_in *in, const struct choice *c,
                               struct placement *p)
{
    bool offloaded = p->compute_tier == HST_TIER_HBM && p->resident_units < in->layout->unit_count;
    bool may = may_be_in_dram(in, HST_CLASS_WEIGHTS) && may_be_in_dram(in, HST_CLASS_GRADS) &&
               may_be_in_dram(in, HST_CLASS_STATES);
    double share = in->streams ? in->stream_share : c->streamed;
    if (share == 0 || !offloaded || !may || in->host_updates)
        return;
    uint64_t largest = layout_largest_tile(in->layout);
    p->device_tile_grads_at = sat_page_up(largest * optimizer_weight_bytes(in->optimizer));
    p->device_tile_record_at = 2 * p->device_tile_grads_at;
    p->device_tiles.bytes =
        p->device_tile_record_at + sat_page_up(record_layout(in->optimizer, largest).bytes);
    uint64_t count = STREAM_BYTES / p->device_tiles.bytes;
    count = count < STREAM_TILES ? STREAM_TILES : count;
    count = count > STREAM_TILES_MOST ? STREAM_TILES_MOST : count;
    uint32_t tiles = (uint32_t)ceil(in->layout->tile_count * share); /* about, and no fewer */
    take_pool(p, HST_TIER_HBM, &p->device_tiles, least((uint32_t)count, tiles));
}

/* The last tiles of units that have all that is updated in DRAM; what a unit has too few tiles for
 * the next ones have. */
void buffer_pools_stream(const struct placement_in *in, const struct choice *c, struct placement *p)
{
    double share = in->streams ? in->stream_share : c->streamed, owed = 0; /* tiles */
    for (uint32_t u = 0; u < in->layout->unit_count; u++) {
        struct unit_placement *home = &p->units[u];
        uint32_t tiles = in->layout->units[u].tile_count - home->nvme_states;
        bool streams = home->offloaded && !in->host_updates && !in->layout->units[u].frozen &&
                       home->weights.tier == HST_TIER_DRAM && home->grads.tier == HST_TIER_DRAM;
        home->streamed_tiles = 0;
        if (!streams)
            continue;
        owed += tiles * share;
        uint32_t some = owed > 0 ? (uint32_t)(owed + 0.5) : 0;
        home->streamed_tiles = some < tiles ? some : tiles;
        owed -= home->streamed_tiles;
        p->streamed_tiles += home->streamed_tiles;
    }
}

void buffer_pools_place(const struct placement_in *in, const struct choice *c, struct placement *p)
{
    const bool segments = p->segment > 1;
    const struct {
        struct buffer_pool *pools; /* [UNIT_SIZES] */
        struct wanted wanted;
    } kinds[] = {
        {p->reservations, {HST_TIER_DRAM, c->depths.reservations, segments, false}},
        {p->grad_buffers, {HST_TIER_DRAM, c->depths.grads, false, false}},
        {p->device_weights,
         {HST_TIER_HBM, c->device_depths.reservations, segments, p->device_rows}},
        {p->device_grads, {HST_TIER_HBM, c->device_depths.grads, false, p->device_sums}},
    };
    unit_sizes_mark(in, p);
    size_pools(in, p);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        take_pools(in, kinds[i].wanted, kinds[i].pools, p);
    place_acts_pools(in, c, p);
    place_device_tiles(in, c, p);
}

/* A visit of its backward may gather what it reads. */
static bool gathers_near(const struct placement_in *in, const struct choice *c, uint32_t unit)
{
    const struct layout_unit *u = &in->layout->units[unit];
    const bool recomputed = c->segment > 1 && layout_may_recompute(u);
    return in->secondary > 0 && !u->rests && (recomputed || !u->blind_backward);
}

/* Any unit that reads the row does so in its backward. */
static bool is_kept(const struct placement_in *in, const struct placement *p, uint32_t row)
{
    struct gather gathers[GATHER_MAX];
    bool kept = p->units[row].gathers_near;
    for (uint32_t u = 0; u < in->layout->unit_count && !kept; u++) {
        if (!p->units[u].gathers_near || !in->layout->units[u].borrows)
            continue;
        const int n =
            placement_gather(in->layout, optimizer_weight_bytes(in->optimizer), u, gathers);
        for (int i = 0; i < n; i++)
            kept = kept || gathers[i].unit == row;
    }
    return kept;
}

/* A rank keeps so much of rows from the forward to the backward: of each that a backward gathers as
 * much as the others of its node, where rows come together. */
void buffer_pools_place_secondary(const struct placement_in *in, const struct choice *c,
                                  struct placement *p)
{
    const enum hst_tier tier = placement_joins_rows(in) ? HST_TIER_HBM : HST_TIER_DRAM;
    p->secondary.at = p->dram_bytes;
    for (uint32_t u = 0; u < in->layout->unit_count; u++)
        p->units[u].gathers_near = gathers_near(in, c, u);
    for (uint32_t u = 0; in->secondary > 0 && u < in->layout->unit_count; u++)
        if (is_kept(in, p, u))
            p->units[u].secondary =
                lay_out_take(p, tier, HST_CLASS_WEIGHTS,
                             placement_row_elements(in->layout, u) / in->secondary *
                                 optimizer_weight_bytes(in->optimizer));
    p->secondary.bytes = p->dram_bytes - p->secondary.at;
    p->secondary.count = p->secondary.bytes > 0;
}
