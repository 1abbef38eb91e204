/* SPDX-License-Identifier: Apache-2.0 */
/* Decides addresses for one choice of homes: one arena in HBM, one in DRAM, one file on each drive,
 * so the table is exact to the byte. */
#include "plan/placement/lay_out_again.h"

#include "base/saturate.h"
#include "plan/layout/ways.h"
#include "plan/placement/buckets.h"
#include "plan/placement/buffer_pools.h"
#include "plan/placement/segments.h"

#include <string.h>

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* It takes memory where a unit is updated, if that is done in memory. */
static struct address take_memory(struct placement *p, uint32_t unit, enum hst_class class,
                                  uint64_t bytes)
{
    enum hst_tier tier = placement_memory(p, unit);
    return (struct address){.tier = tier, .offset = lay_out_take(p, tier, class, bytes)};
}

/* Extents of one kind of a unit on the drives: `count` of them from the `first` one on, of `bytes`
 * each but for the last one, `total` in all. Whole pages all. */
struct run {
    uint32_t first, count;
    uint64_t bytes, total;
};

/* It takes so many copies of the run on the drives, and writes where each drive's part of the first
 * one begins behind `ends`. */
static void take_copies(struct placement *p, enum hst_class class, struct run run, uint64_t copies,
                        uint64_t *ends, uint64_t *starts)
{
    uint64_t last_bytes = run.count ? run.total - sat_times(run.count - 1, run.bytes) : 0;
    for (uint32_t d = 0; d < p->stripe.drives; d++) {
        uint64_t extents = stripe_before(&p->stripe, run.first + (uint64_t)run.count, d) -
                           stripe_before(&p->stripe, run.first, d);
        bool last = run.count > 0 && stripe_drive(&p->stripe, run.first + run.count - 1) == d;
        uint64_t need = sat_add(sat_times(extents - last, run.bytes), last ? last_bytes : 0);
        need = sat_times(need, copies);
        starts[d] = ends[d];
        ends[d] = sat_add(ends[d], need);
        p->nvme_bytes = sat_add(p->nvme_bytes, need);
    }
    uint64_t *sum = &p->table[class][HST_TIER_NVME];
    *sum = sat_add(*sum, sat_times(run.total, copies));
}

/* False where memory alone is laid out. */
static bool has_drives(const struct placement *p)
{
    return p->stripe.drives > 0;
}

/* Scratch. */
static void take_on_drives(struct placement *p, enum hst_class class, struct run run,
                           uint64_t *starts)
{
    take_copies(p, class, run, 1, p->drive_bytes, starts);
}

static struct run tiles_of(const struct placement_in *in, uint32_t unit)
{
    const struct layout_unit *u = &in->layout->units[unit];
    uint64_t element_bytes = optimizer_weight_bytes(in->optimizer);
    return (struct run){u->first_tile, u->tile_count, in->layout->tile_elements * element_bytes,
                        u->shard.elements * element_bytes};
}

/* In memory a shard has the same room on all ranks, whichever of them ends a row. */
static uint64_t memory_bytes(const struct placement_in *in, uint32_t unit)
{
    return placement_shard_elements(in->layout, unit) * optimizer_weight_bytes(in->optimizer);
}

/* ---- what is updated ---- */

/* A unit reads what it is tied to where it computes: they are resident or offloaded together. */
static void choose_resident(const struct placement_in *in, const struct choice *c,
                            struct placement *p)
{
    const struct layout *layout = in->layout;
    const bool gpu = p->compute_tier == HST_TIER_HBM;
    const uint32_t count = placement_may_be_resident(in) ? c->resident.count : 0;
    const bool all = count >= layout->unit_count;
    for (uint32_t u = 0; u < layout->unit_count; u++)
        p->units[u].offloaded =
            gpu && !all && (u < c->resident.first || u - c->resident.first >= count);
    for (uint32_t u = 0; gpu && !all && u < layout->unit_count; u++) {
        const uint32_t first = layout->units[u].first_param;
        for (uint32_t i = first;
             layout->units[u].borrows && i < first + layout->units[u].param_count; i++) {
            const uint32_t owner = layout->params[i].owner;
            if (owner == i)
                continue;
            p->units[u].offloaded = true;
            p->units[layout->params[owner].unit].offloaded = true;
        }
    }
    for (uint32_t u = 0; gpu && u < layout->unit_count; u++)
        p->resident_units += !p->units[u].offloaded;
}

/* True where the unit is one of those that leave memory, of which `left` more are to be found. */
static bool leaves_memory(const struct placement *p, uint32_t unit, uint32_t *left)
{
    if (placement_is_resident(p, unit) || *left == 0)
        return false;
    --*left;
    return true;
}

/* All of DRAM that was taken from `start` on, once more: returns the distance. */
static uint64_t take_second_slots(const struct placement_in *in, enum hst_class class,
                                  uint64_t start, struct placement *p)
{
    uint64_t bytes = in->second_slots ? p->dram_bytes - start : 0;
    lay_out_take(p, HST_TIER_DRAM, class, bytes);
    return bytes;
}

/* Likewise in each drive's file, which had ended at `starts`. With a store nothing of these is
 * there. */
static void take_second_on_drives(const struct placement_in *in, enum hst_class class,
                                  const uint64_t *starts, struct placement *p, uint64_t *distances)
{
    uint64_t *sum = &p->table[class][HST_TIER_NVME];
    for (uint32_t d = 0; in->second_slots && d < p->stripe.drives; d++) {
        uint64_t bytes = p->drive_bytes[d] - starts[d];
        distances[d] = bytes;
        p->drive_bytes[d] = sat_add(p->drive_bytes[d], bytes);
        p->nvme_bytes = sat_add(p->nvme_bytes, bytes);
        *sum = sat_add(*sum, bytes);
    }
}

static uint64_t weights_bytes(const struct placement_in *in, uint32_t unit)
{
    return memory_bytes(in, unit) * (in->whole_weights ? in->layout->share.world : 1);
}

/* It places those of frozen units, or of the others. */
static void take_weights(const struct placement_in *in, bool frozen, struct placement *p)
{
    for (uint32_t u = 0; u < in->layout->unit_count; u++) {
        struct unit_placement *home = &p->units[u];
        if (in->layout->units[u].frozen != frozen)
            continue;
        if (home->weights.tier != HST_TIER_NVME)
            home->weights = take_memory(p, u, HST_CLASS_WEIGHTS, weights_bytes(in, u));
        else if (!in->stored && has_drives(p))
            take_on_drives(p, HST_CLASS_WEIGHTS, tiles_of(in, u), home->weights_at);
    }
}

/* Frozen weights lie behind the second slots of what is not, and has none. */
static void place_weights(const struct placement_in *in, uint32_t nvme_units, struct placement *p)
{
    uint64_t start = p->dram_bytes, starts[STRIPE_DRIVES_MAX];
    memcpy(starts, p->drive_bytes, sizeof starts);
    for (uint32_t u = 0; u < in->layout->unit_count; u++) {
        const bool leaves = leaves_memory(p, u, &nvme_units);
        p->units[u].weights =
            (struct address){.tier = leaves ? HST_TIER_NVME : placement_memory(p, u)};
    }
    take_weights(in, false, p);
    p->weights_slot = take_second_slots(in, HST_CLASS_WEIGHTS, start, p);
    take_second_on_drives(in, HST_CLASS_WEIGHTS, starts, p, p->weights_slot_on);
    uint64_t before[HST_TIER_COUNT];
    memcpy(before, p->table[HST_CLASS_WEIGHTS], sizeof before);
    take_weights(in, true, p);
    for (int tier = 0; tier < HST_TIER_COUNT; tier++)
        p->frozen_bytes[tier] = p->table[HST_CLASS_WEIGHTS][tier] - before[tier];
}

/* Bytes of the records of so many elements, in tiles of which only the last is shorter. */
static uint64_t records_of(const struct placement_in *in, struct record_sizes *r, uint64_t elements)
{
    const uint32_t tile = in->layout->tile_elements;
    const uint64_t rest = elements % tile;
    return sat_add(sat_times(elements / tile, r->bytes[0]), rest > 0 ? record_size(r, rest) : 0);
}

/* Bytes of the records of `count` tiles of a unit; only the unit's last tile is shorter. */
static uint64_t records_bytes(const struct placement_in *in, struct record_sizes *r, uint32_t unit,
                              uint32_t count, bool last)
{
    const struct layout *layout = in->layout;
    const struct layout_unit *u = &layout->units[unit];
    if (count == 0)
        return 0;
    if (!last)
        return sat_times(count, r->bytes[0]);
    uint64_t rest = u->shard.elements - (uint64_t)(u->tile_count - 1) * layout->tile_elements;
    return sat_add(sat_times(count - 1, r->bytes[0]), record_size(r, rest));
}

/* Its first tiles are so many. */
static struct run records_run(const struct placement_in *in, struct record_sizes *r, uint32_t unit,
                              uint32_t count)
{
    const struct layout_unit *u = &in->layout->units[unit];
    return (struct run){u->first_tile, count, records_bytes(in, r, unit, 1, false),
                        records_bytes(in, r, unit, count, count == u->tile_count)};
}

/* Elements of a shard in memory behind so many tiles. */
static uint64_t room_left(const struct placement_in *in, uint32_t unit, uint32_t tiles)
{
    const uint64_t all = placement_shard_elements(in->layout, unit);
    const uint64_t before = (uint64_t)tiles * in->layout->tile_elements;
    return all > before ? all - before : 0;
}

static void place_states(const struct placement_in *in, uint32_t nvme_tiles, struct placement *p)
{
    uint64_t start = p->dram_bytes, starts[STRIPE_DRIVES_MAX];
    struct record_sizes records = record_sizes_of(in->optimizer, in->layout->tile_elements);
    memcpy(starts, p->drive_bytes, sizeof starts);
    for (uint32_t u = 0; u < in->layout->unit_count; u++) {
        const struct layout_unit *unit = &in->layout->units[u];
        struct unit_placement *home = &p->units[u];
        if (unit->frozen)
            continue;
        uint32_t most = placement_is_resident(p, u) ? 0 : unit->tile_count;
        uint32_t out = nvme_tiles < most ? nvme_tiles : most;
        nvme_tiles -= out;
        home->nvme_states = out;
        if (!in->stored && has_drives(p))
            take_on_drives(p, HST_CLASS_STATES, records_run(in, &records, u, out),
                           home->nvme_states_at);
        uint64_t rest = records_of(in, &records, room_left(in, u, out));
        home->states_at = take_memory(p, u, HST_CLASS_STATES, rest).offset;
    }
    p->states_slot = take_second_slots(in, HST_CLASS_STATES, start, p);
    take_second_on_drives(in, HST_CLASS_STATES, starts, p, p->states_slot_on);
}

static uint64_t zone_bytes(const struct placement_in *in, uint64_t bytes)
{
    return in->store_align > 0 ? sat_round_up(bytes, in->store_align) : bytes;
}

/* It tells what the store's files are beside their extents: of a new one it follows from its
 * format, of one that is there from its size. */
static void place_store_rest(const struct placement_in *in, const uint64_t *slots,
                             const uint64_t *derived, struct placement *p)
{
    uint64_t extents = 0, files = 0;
    for (uint32_t d = 0; d < p->stripe.drives; d++) {
        uint64_t zones =
            sat_add(sat_times(zone_bytes(in, slots[d] / 2), 2), zone_bytes(in, derived[d]));
        p->store_bytes[d] =
            in->store_there[d] > 0 ? in->store_there[d] : sat_add(in->store_fixed[d], zones);
        extents = sat_add(extents, sat_add(slots[d], derived[d]));
        files = sat_add(files, p->store_bytes[d]);
    }
    uint64_t rest = files > extents ? files - extents : 0;
    uint64_t *sum = &p->table[HST_CLASS_BUFFERS][HST_TIER_NVME];
    *sum = sat_add(*sum, rest);
    p->nvme_bytes = sat_add(p->nvme_bytes, rest);
}

/* Two slots of everything, wherever its home is, but one of what is frozen, beside what is derived;
 * the store says where. */
static void place_store(const struct placement_in *in, struct placement *p)
{
    uint64_t starts[STRIPE_DRIVES_MAX];
    uint64_t slots[STRIPE_DRIVES_MAX] = {0}, derived[STRIPE_DRIVES_MAX] = {0};
    struct record_sizes records = record_sizes_of(in->optimizer, in->layout->tile_elements);
    if (!in->stored || p->stripe.drives == 0)
        return;
    for (uint32_t u = 0; u < in->layout->unit_count; u++) {
        const struct layout_unit *unit = &in->layout->units[u];
        const struct run states = records_run(in, &records, u, unit->tile_count);
        const bool one = in->derived_weights || unit->frozen;
        take_copies(p, HST_CLASS_WEIGHTS, tiles_of(in, u), one ? 1 : 2, one ? derived : slots,
                    starts);
        if (unit->frozen)
            p->frozen_bytes[HST_TIER_NVME] += tiles_of(in, u).total;
        else
            take_copies(p, HST_CLASS_STATES, states, 2, slots, starts);
    }
    place_store_rest(in, slots, derived, p);
}

/* A device that updates a unit right after its backward is through with its gradients before it
 * computes the next one's: resident units take turns at one place. */
static struct address take_turns(const struct placement_in *in, struct placement *p)
{
    uint64_t bytes = 0;
    for (uint32_t u = 0; u < in->layout->unit_count; u++)
        if (placement_is_resident(p, u) && !in->layout->units[u].frozen)
            bytes = most(bytes, tiles_of(in, u).total);
    uint64_t at = lay_out_take(p, HST_TIER_HBM, HST_CLASS_GRADS, bytes);
    return (struct address){.tier = HST_TIER_HBM, .offset = at};
}

/* Each replica has the whole row of sums. */
static uint64_t grads_bytes(const struct placement_in *in, uint32_t unit)
{
    return in->replicas > 0
               ? placement_exchange_elements(in, unit) * optimizer_weight_bytes(in->optimizer)
               : memory_bytes(in, unit);
}

/* The device updates with the sum that an exchange has left in its buffer. */
static bool updates_from_buffer(const struct placement_in *in)
{
    return !in->deferred && in->replicas == 0 && placement_ranks(in) > 1;
}

/* This is where a resident unit's gradients are whose update does not wait for the norm. */
static struct address passing_grads(const struct placement_in *in, struct placement *p)
{
    return updates_from_buffer(in) ? (struct address){HST_TIER_HBM, 0, PLACEMENT_NO_ADDRESS}
                                   : take_turns(in, p);
}

/* Gradients that leave memory have no home tier where the update does not wait for the norm. Of
 * replicas each has a row of sums that all put together. */
static void place_grads(const struct placement_in *in, uint32_t nvme_units, struct placement *p)
{
    const bool pass = !in->deferred && in->replicas == 0;
    struct address passing = {0};
    if (pass)
        passing = passing_grads(in, p);
    for (uint32_t u = 0; u < in->layout->unit_count; u++) {
        struct unit_placement *home = &p->units[u];
        if (in->layout->units[u].frozen) {
            home->grads = (struct address){placement_memory(p, u), 0, PLACEMENT_NO_ADDRESS};
            continue;
        }
        if (pass && placement_is_resident(p, u)) {
            home->grads = passing;
            continue;
        }
        home->grads = (struct address){.tier = HST_TIER_NVME};
        if (!leaves_memory(p, u, &nvme_units))
            home->grads = take_memory(p, u, HST_CLASS_GRADS, grads_bytes(in, u));
        else if (in->deferred && has_drives(p))
            take_on_drives(p, HST_CLASS_GRADS, tiles_of(in, u), home->grads_at);
    }
}

/* It counts the bytes of a unit's checkpoints, in whole pages: none where no backward needs it. */
static uint64_t bytes_of_acts(const struct placement_in *in, uint32_t unit,
                              const struct placement *p)
{
    const struct layout_unit *u = &in->layout->units[unit];
    uint64_t per_token = u->rests ? 0 : u->act_bytes_per_token;
    return sat_page_up(sat_times(placement_micro_stride(in, per_token), p->micro_count));
}

static enum hst_tier acts_tier(const struct choice *c, const struct placement *p, uint32_t unit)
{
    if (p->compute_tier == HST_TIER_HBM && unit >= c->acts_offloaded)
        return HST_TIER_HBM;
    return unit < c->leaves[LEAVE_ACTS] ? HST_TIER_NVME : HST_TIER_DRAM;
}

/* A recomputed checkpoint is needed until its backward. Segments follow one another, so the buffers
 * of the longest do for all; the last one of each finds its input in the hidden state, as the unit
 * before it has left that. */
static void place_recomputed(const struct placement_in *in, struct placement *p)
{
    uint32_t units = in->layout->unit_count, place = 0, most = 0;
    uint64_t bytes = 0, inner = p->compute_tier == HST_TIER_HBM ? p->hbm_bytes : p->dram_bytes;
    for (uint32_t u = 0; u < units; u++) {
        struct unit_placement *home = &p->units[u];
        place = home->recomputed ? place + 1 : 0;
        if (!home->recomputed)
            continue;
        bool last = u + 1 == units || !p->units[u + 1].recomputed;
        bytes = bytes_of_acts(in, u, p);
        home->acts = (struct address){.tier = p->compute_tier, .offset = p->hidden};
        if (last)
            continue;
        home->acts.offset = sat_add(inner, sat_times(bytes, place - 1));
        most = place > most ? place : most;
    }
    lay_out_take_near(p, HST_CLASS_ACTS, sat_times(bytes, most));
}

/* It takes so many of those that can, evenly among them: where some backwards are shorter for it,
 * copies beside the others can make up. What is recomputed anyway keeps nothing. */
static void place_saved(const struct placement_in *in, const struct choice *c, struct placement *p)
{
    uint64_t able = placement_savable_units(in), owed = 0;
    uint64_t some = p->segment > 1 ? 0 : c->saved < able ? c->saved : able;
    for (uint32_t u = 0; u < in->layout->unit_count; u++) {
        p->units[u].saved = PLACEMENT_NO_ADDRESS;
        owed += layout_may_save(&in->layout->units[u]) ? some : 0;
        if (able == 0 || owed < able)
            continue;
        owed -= able;
        p->units[u].saved = lay_out_take_near(p, HST_CLASS_ACTS, placement_saved_bytes(p, u));
        p->saved_units++;
    }
}

static void place_acts(const struct placement_in *in, const struct choice *c, struct placement *p)
{
    segments_choose(in, c->segment, p);
    for (uint32_t u = 0; u < in->layout->unit_count; u++) {
        struct unit_placement *home = &p->units[u];
        home->act_bytes = home->recomputed ? 0 : bytes_of_acts(in, u, p);
        home->acts.tier = acts_tier(c, p, u);
        home->acts.offset = PLACEMENT_NO_ADDRESS;
        if (home->act_bytes == 0)
            continue;
        if (home->acts.tier != HST_TIER_NVME) {
            home->acts.offset = lay_out_take(p, home->acts.tier, HST_CLASS_ACTS, home->act_bytes);
            continue;
        }
        uint64_t blocks = (home->act_bytes - 1) / PLACEMENT_ACT_BYTES + 1;
        bool fits = blocks < UINT32_MAX - p->act_blocks;
        struct run run = {p->act_blocks, fits ? (uint32_t)blocks : 1, PLACEMENT_ACT_BYTES,
                          fits ? home->act_bytes : UINT64_MAX};
        home->first_act_block = run.first;
        home->acts.offset = 0;
        take_on_drives(p, HST_CLASS_ACTS, run, home->acts_at);
        p->act_blocks += run.count;
    }
}

/* With a store the files of scratch are part of it, and begin with what tells so. */
static void place_room_rest(const struct placement_in *in, struct placement *p)
{
    uint64_t *sum = &p->table[HST_CLASS_BUFFERS][HST_TIER_NVME];
    for (uint32_t d = 0; in->stored && d < p->stripe.drives; d++) {
        const uint64_t rest = p->drive_bytes[d] > 0 ? in->store_room_fixed : 0;
        p->store_bytes[d] = sat_add(p->store_bytes[d], rest);
        p->nvme_bytes = sat_add(p->nvme_bytes, rest);
        *sum = sat_add(*sum, rest);
    }
}

/* ---- the whole ---- */

static uint32_t count_micros(const struct placement_in *in)
{
    const uint32_t count = lay_out_ways(in);
    const struct ways ways = {
        .count = count, .tokens = in->batch_tokens / count, .micro_tokens = in->micro_batch_tokens};
    return ways_micro_count(&ways);
}

void lay_out_begin(const struct placement_in *in, uint32_t drives, struct placement *p)
{
    *p = (struct placement){.layout = in->layout,
                            .optimizer = in->optimizer,
                            .compute_tier = in->compute_tier,
                            .whole_weights = in->whole_weights,
                            .buckets = placement_has_buckets(in),
                            .replicas = in->replicas,
                            .device_rows = placement_joins_rows(in),
                            .device_sums = placement_joins_sums(in),
                            .hand_bytes = hst_dtype_bytes(in->way_dtype),
                            .units = p->units};
    if (drives > 0)
        stripe_init(&p->stripe, in->drive_rates, drives);
    p->micro_count = count_micros(in);
    for (uint32_t u = 0; u < in->layout->unit_count; u++) {
        p->units[u].first_tile = in->layout->units[u].first_tile;
        p->units[u].tile_count = in->layout->units[u].tile_count;
    }
}

static void lay_weights(const struct placement_in *in, const struct choice *c, struct placement *p)
{
    place_weights(in, c->leaves[LEAVE_WEIGHTS], p);
}

static void lay_states(const struct placement_in *in, const struct choice *c, struct placement *p)
{
    place_states(in, c->leaves[LEAVE_STATES], p);
    place_store(in, p);
}

static void lay_grads(const struct placement_in *in, const struct choice *c, struct placement *p)
{
    if (placement_has_buckets(in))
        buckets_place(in, p);
    else
        place_grads(in, c->leaves[LEAVE_GRADS], p);
    if (has_drives(p)) /* they take no memory of their own */
        buffer_pools_stream(in, c, p);
}

static void lay_acts(const struct placement_in *in, const struct choice *c, struct placement *p)
{
    place_acts(in, c, p);
    place_room_rest(in, p);
    uint64_t hidden =
        sat_times(placement_micro_stride(in, in->hidden_bytes_per_token), p->micro_count);
    p->hidden = lay_out_take_near(p, HST_CLASS_HIDDEN, hidden);
    p->hidden_grad = lay_out_take_near(p, HST_CLASS_HIDDEN, hidden);
    place_recomputed(in, p);
}

const struct lay_out_part LAY_OUT_PART[LAY_OUT_PARTS] = {
    [PART_RESIDENT] = {choose_resident, BY_RESIDENT},
    {lay_weights, BY_RESIDENT | BY_WEIGHTS},
    {buffer_pools_place_secondary, BY_SEGMENT},
    {lay_states, BY_RESIDENT | BY_STATES},
    {lay_grads, BY_RESIDENT | BY_GRADS},
    {lay_acts, BY_ACTS | BY_SEGMENT},
    {place_saved, BY_SAVED | BY_SEGMENT},
    [PART_BUFFERS] = {lay_out_buffers, BY_RESIDENT | BY_WEIGHTS | BY_GRADS | BY_ACTS |
                                           BY_ANY_STATES | BY_SEGMENT | BY_DEPTHS | BY_STREAMED},
};

static void lay_out_on(const struct placement_in *in, const struct choice *c, uint32_t drives,
                       struct placement *p)
{
    lay_out_begin(in, drives, p);
    for (int i = 0; i < LAY_OUT_PARTS; i++)
        LAY_OUT_PART[i].lay(in, c, p);
}

void lay_out(const struct placement_in *in, const struct choice *c, struct placement *p)
{
    lay_out_on(in, c, in->drive_count ? in->drive_count : 1, p);
}

void lay_out_memory(const struct placement_in *in, const struct choice *c, struct placement *p)
{
    lay_out_on(in, c, 0, p);
}
