/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides homes and addresses. The search is over two numbers, how many tiles' states and how many
 * units' weights are on NVMe, because with a cyclic order a fixed set is optimal and which members
 * it has does not matter. Every candidate is laid out completely, so the table is exact to the
 * byte.
 */
#include "plan/placement.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE 4096u

/* How many tiles' states and units' weights leave DRAM (the first ones), and how deep the rings
 * are. */
struct choice {
    uint32_t state_tiles, weight_units;
    uint32_t slots, leases;
};

struct choice_range {
    struct choice low, high;
};

/* Four tiles: one being read, one updated, one written, one spare. Three weight units: one computed
   with, one ready, one on its way. The second row is the least that works. */
static const struct {
    uint32_t slots, leases;
} RING_DEPTHS[] = {{4, 3}, {2, 1}};

/* Tiles pass through host memory at load and save alone: one is worked on while one is copied. */
#define HBM_SLOTS 2u

/* Sizes come from clients: what overflows stays at the greatest number, which no budget allows. */
static uint64_t add(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

static uint64_t times(uint64_t a, uint64_t b)
{
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static uint64_t round_up(uint64_t bytes, uint64_t multiple)
{
    return bytes > UINT64_MAX - multiple ? UINT64_MAX
                                         : (bytes + multiple - 1) / multiple * multiple;
}

static uint64_t page_up(uint64_t bytes)
{
    return round_up(bytes, PAGE);
}

static uint64_t take(uint64_t *end, uint64_t bytes)
{
    uint64_t at = *end;
    *end = add(*end, page_up(bytes));
    return at;
}

uint64_t placement_micro_tokens(const struct placement_in *in, uint32_t micro)
{
    uint64_t start = (uint64_t)micro * in->grain_tokens;
    uint64_t left = in->batch_tokens - start;
    return left < in->grain_tokens ? left : in->grain_tokens;
}

uint64_t placement_micro_stride(const struct placement_in *in, uint64_t bytes_per_token)
{
    return round_up(times(in->grain_tokens, bytes_per_token), 64);
}

int placement_gather(const struct layout *layout, enum hst_precision precision, uint32_t unit,
                     struct gather gathers[GATHER_MAX])
{
    const struct layout_unit *u = &layout->units[unit];
    uint64_t element_bytes = record_weight_bytes(precision);
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

struct address placement_weights(const struct placement *placement, uint32_t tile)
{
    const struct layout *layout = placement->layout;
    struct tile_range range = layout_tile(layout, tile);
    const struct unit_home *home = &placement->units[range.unit];
    uint64_t element_bytes = record_weight_bytes(placement->precision);
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
    const struct unit_home *home = &placement->units[range.unit];
    uint64_t stride = record_layout(placement->precision, layout->tile_elements).bytes;
    uint32_t local = tile - layout->units[range.unit].first_tile;
    if (local < home->nvme_states)
        return on_drive(placement, tile, layout->units[range.unit].first_tile, home->nvme_states_at,
                        stride);
    return (struct address){.tier = placement->compute_tier,
                            .offset = home->states_at + (local - home->nvme_states) * stride};
}

/* Bytes a lease of this unit must hold: what it gathers from NVMe. */
static uint64_t lease_bytes(const struct placement_in *in, const struct placement *p, uint32_t unit)
{
    struct gather gathers[GATHER_MAX];
    int n = placement_gather(in->layout, in->precision, unit, gathers);
    uint64_t bytes = 0;
    for (int i = 0; i < n; i++) {
        const struct gather *g = &gathers[i];
        if (placement_weights(p, g->first_tile).tier != HST_TIER_NVME)
            continue;
        struct tile_range last = layout_tile(in->layout, g->first_tile + g->tile_count - 1);
        struct tile_range first = layout_tile(in->layout, g->first_tile);
        uint64_t elements = last.offset + last.elements - first.offset;
        bytes = g->lease_at + elements * record_weight_bytes(in->precision);
    }
    return bytes;
}

static uint64_t *end_of(struct placement *p, enum hst_tier tier)
{
    return tier == HST_TIER_HBM    ? &p->hbm_bytes
           : tier == HST_TIER_DRAM ? &p->dram_bytes
                                   : &p->nvme_bytes;
}

/* Room on the drives for `count` tiles of `bytes` each, the last of `rest`; writes where each
 * drive's part begins. Tiles are whole pages. */
static void take_on_drives(struct placement *p, uint32_t first_tile, uint32_t count, uint64_t bytes,
                           uint64_t rest, uint64_t *starts)
{
    for (uint32_t d = 0; d < p->stripe.drives; d++) {
        uint64_t tiles = stripe_before(&p->stripe, first_tile + (uint64_t)count, d) -
                         stripe_before(&p->stripe, first_tile, d);
        bool last = count > 0 && stripe_drive(&p->stripe, first_tile + count - 1) == d;
        uint64_t need = times(tiles - last, bytes);
        need = add(need, last ? rest : 0);
        starts[d] = p->drive_bytes[d];
        p->drive_bytes[d] = add(p->drive_bytes[d], need);
        p->nvme_bytes = add(p->nvme_bytes, need);
    }
}

static void place_weights(const struct placement_in *in, uint32_t nvme_units, struct placement *p)
{
    uint64_t element_bytes = record_weight_bytes(in->precision);
    uint64_t tile_bytes = in->layout->tile_elements * element_bytes;
    for (uint32_t u = 0; u < in->layout->unit_count; u++) {
        const struct layout_unit *unit = &in->layout->units[u];
        enum hst_tier tier = u < nvme_units ? HST_TIER_NVME : p->compute_tier;
        uint64_t bytes = times(unit->elements, element_bytes);
        uint64_t at = 0;
        if (tier == HST_TIER_NVME) {
            uint64_t rest = bytes - (unit->tile_count ? unit->tile_count - 1 : 0) * tile_bytes;
            take_on_drives(p, unit->first_tile, unit->tile_count, tile_bytes, rest,
                           p->units[u].weights_at);
        } else {
            at = take(end_of(p, tier), bytes);
        }
        p->units[u].weights = (struct address){.tier = tier, .offset = at};
        p->table[HST_CLASS_WEIGHTS][tier] = add(p->table[HST_CLASS_WEIGHTS][tier], page_up(bytes));
    }
}

/* Bytes of the records of `count` tiles of a unit; only the unit's last tile is shorter. */
static uint64_t record_bytes(const struct placement_in *in, uint32_t unit, uint32_t count,
                             bool last)
{
    const struct layout *layout = in->layout;
    const struct layout_unit *u = &layout->units[unit];
    if (count == 0)
        return 0;
    uint64_t full = record_layout(in->precision, layout->tile_elements).bytes;
    if (!last)
        return times(count, full);
    uint64_t rest = u->elements - (uint64_t)(u->tile_count - 1) * layout->tile_elements;
    return add(times(count - 1, full), record_layout(in->precision, rest).bytes);
}

static void place_states(const struct placement_in *in, uint32_t nvme_tiles, struct placement *p)
{
    uint64_t *nvme = &p->table[HST_CLASS_STATES][HST_TIER_NVME];
    uint64_t *near = &p->table[HST_CLASS_STATES][p->compute_tier];
    for (uint32_t u = 0; u < in->layout->unit_count; u++) {
        uint32_t tiles = in->layout->units[u].tile_count;
        uint32_t out = nvme_tiles < tiles ? nvme_tiles : tiles;
        uint64_t out_bytes = record_bytes(in, u, out, out == tiles);
        uint64_t in_bytes = record_bytes(in, u, tiles - out, true);
        nvme_tiles -= out;
        p->units[u].nvme_states = out;
        uint64_t full = record_bytes(in, u, 1, false);
        uint64_t rest = out > 0 ? out_bytes - times(out - 1, full) : 0;
        take_on_drives(p, in->layout->units[u].first_tile, out, full, rest,
                       p->units[u].nvme_states_at);
        p->units[u].states_at = take(end_of(p, p->compute_tier), in_bytes);
        *nvme = add(*nvme, out_bytes);
        *near = add(*near, in_bytes);
    }
}

static uint64_t take_in(struct placement *p, enum hst_tier tier, enum hst_class class,
                        uint64_t bytes)
{
    p->table[class][tier] = add(p->table[class][tier], page_up(bytes));
    return take(end_of(p, tier), bytes);
}

/* Where the device computes. */
static uint64_t take_class(struct placement *p, enum hst_class class, uint64_t bytes)
{
    return take_in(p, p->compute_tier, class, bytes);
}

static void place_step_data(const struct placement_in *in, struct placement *p)
{
    uint64_t element_bytes = record_weight_bytes(in->precision);
    for (uint32_t u = 0; u < in->layout->unit_count; u++) {
        const struct layout_unit *unit = &in->layout->units[u];
        struct unit_home *home = &p->units[u];
        uint64_t acts =
            times(placement_micro_stride(in, unit->act_bytes_per_token), p->micro_count);
        home->grads = take_class(p, HST_CLASS_GRADS, times(unit->elements, element_bytes));
        home->acts = acts > 0 ? take_class(p, HST_CLASS_ACTS, acts) : PLACEMENT_NO_ADDRESS;
    }
    uint64_t carry = times(placement_micro_stride(in, in->carry_bytes_per_token), p->micro_count);
    p->carry = take_class(p, HST_CLASS_CARRY, carry);
    p->carry_grad = take_class(p, HST_CLASS_CARRY, carry);
}

/* The ring in DRAM that tiles from elsewhere pass through. */
static void place_slots(const struct placement_in *in, const struct choice *c, struct placement *p)
{
    bool hbm = p->compute_tier == HST_TIER_HBM;
    if (p->nvme_bytes == 0 && !hbm)
        return;
    uint64_t largest_tile = layout_largest_tile(in->layout);
    uint64_t weights = page_up(largest_tile * record_weight_bytes(in->precision));
    uint64_t states = record_layout(in->precision, largest_tile).bytes;
    p->slot_record_at = c->weight_units > 0 || hbm ? weights : 0;
    p->slot_bytes = p->slot_record_at + (c->state_tiles > 0 || hbm ? states : 0);
    p->slot_count = hbm ? HBM_SLOTS : c->slots;
    p->slots = take_in(p, HST_TIER_DRAM, HST_CLASS_BUFFERS, times(p->slot_bytes, p->slot_count));
}

/* What the host needs beside a device that has its own memory; on the host device it is shared. */
static void place_host_side(uint64_t partials_bytes, uint64_t largest_tile, struct placement *p)
{
    p->host_partials = p->norm_partials;
    p->load_values = p->accumulator;
    if (p->compute_tier != HST_TIER_HBM)
        return;
    p->host_partials = take_in(p, HST_TIER_DRAM, HST_CLASS_BUFFERS, partials_bytes);
    p->load_values =
        take_in(p, HST_TIER_DRAM, HST_CLASS_BUFFERS, times(largest_tile, sizeof(float)));
}

static void place_buffers(const struct placement_in *in, const struct choice *c,
                          struct placement *p)
{
    const struct layout *layout = in->layout;
    /* On the host the accumulator also holds a tile's initial values before there are gradients. */
    uint64_t largest_tile = layout_largest_tile(layout);
    uint64_t accumulator = p->compute_tier == HST_TIER_HBM ? 0 : largest_tile;
    uint64_t partials = layout->elements / LAYOUT_UNIT_ALIGN * sizeof(double);
    for (uint32_t u = 0; u < layout->unit_count; u++) {
        const struct layout_unit *unit = &layout->units[u];
        accumulator = unit->grad_elements > accumulator ? unit->grad_elements : accumulator;
        p->work_bytes = unit->work_bytes > p->work_bytes ? unit->work_bytes : p->work_bytes;
        uint64_t lease = page_up(lease_bytes(in, p, u));
        p->lease_bytes = lease > p->lease_bytes ? lease : p->lease_bytes;
    }
    p->accumulator = take_class(p, HST_CLASS_BUFFERS, times(accumulator, sizeof(float)));
    p->tied = take_class(p, HST_CLASS_BUFFERS, times(layout->tied_elements, sizeof(float)));
    p->norm_partials = take_class(p, HST_CLASS_BUFFERS, partials);
    p->work = take_class(p, HST_CLASS_BUFFERS, p->work_bytes);
    p->client_device = take_class(p, HST_CLASS_BUFFERS, in->client_device_bytes);
    p->client_host = take_in(p, HST_TIER_DRAM, HST_CLASS_BUFFERS, in->client_host_bytes);
    p->lease_count = p->lease_bytes > 0 ? c->leases : 0;
    p->leases = take_class(p, HST_CLASS_BUFFERS, times(p->lease_bytes, p->lease_count));
    place_host_side(partials, largest_tile, p);
    place_slots(in, c, p);
}

/* Lays everything out for one choice; *p keeps its array, the rest is rewritten. */
static void lay_out(const struct placement_in *in, const struct choice *c, struct placement *p)
{
    *p = (struct placement){.layout = in->layout,
                            .precision = in->precision,
                            .compute_tier = in->compute_tier,
                            .units = p->units};
    stripe_init(&p->stripe, in->drive_rates, in->drive_count ? in->drive_count : 1);
    p->micro_count = (uint32_t)((in->batch_tokens + in->grain_tokens - 1) / in->grain_tokens);
    place_weights(in, c->weight_units, p);
    place_states(in, c->state_tiles, p);
    place_step_data(in, p);
    place_buffers(in, c, p);
}

/* By memory alone: what leaves it is then the least that must, and NVMe has room for it or not. */
static bool fits(const struct placement_in *in, const struct choice *c, struct placement *p)
{
    lay_out(in, c, p);
    return p->dram_bytes <= in->dram_budget && p->hbm_bytes <= in->hbm_budget;
}

/* The smallest value of one number in (low, high] with which the choice fits, given that `high`
 * does. */
static void least_that_fits(const struct placement_in *in, struct choice *c, uint32_t *number,
                            uint32_t low, struct placement *p)
{
    uint32_t high = *number;
    while (high - low > 1) {
        *number = low + (high - low) / 2;
        if (fits(in, c, p))
            high = *number;
        else
            low = *number;
    }
    *number = high;
    lay_out(in, c, p);
}

static bool search(const struct placement_in *in, struct choice_range range, struct placement *p)
{
    struct choice c = range.low;
    if (fits(in, &c, p))
        return true;
    c.state_tiles = range.high.state_tiles;
    if (fits(in, &c, p)) {
        least_that_fits(in, &c, &c.state_tiles, range.low.state_tiles, p);
        return true;
    }
    c.weight_units = range.high.weight_units;
    if (!fits(in, &c, p))
        return false;
    least_that_fits(in, &c, &c.weight_units, range.low.weight_units, p);
    return true;
}

static struct choice_range choices(const struct placement_in *in)
{
    const struct place_wish *wish = &in->wish;
    uint32_t tiles = in->layout->tile_count, units = in->layout->unit_count;
    struct choice_range range = {0};
    bool movable = in->has_nvme && in->compute_tier == HST_TIER_DRAM;
    bool states_free = !wish->fixed[HST_CLASS_STATES] && movable;
    bool weights_free = !wish->fixed[HST_CLASS_WEIGHTS] && movable;
    if (wish->fixed[HST_CLASS_STATES] && wish->tier[HST_CLASS_STATES] == HST_TIER_NVME)
        range.low.state_tiles = tiles;
    if (wish->fixed[HST_CLASS_WEIGHTS] && wish->tier[HST_CLASS_WEIGHTS] == HST_TIER_NVME)
        range.low.weight_units = units;
    range.high.state_tiles = states_free ? tiles : range.low.state_tiles;
    range.high.weight_units = weights_free ? units : range.low.weight_units;
    return range;
}

#define MIB (1024.0 * 1024.0)

/* Rounded up to a tenth, so that the number is a budget that works. */
static double mib_up(uint64_t bytes)
{
    return ceil((double)bytes / MIB * 10) / 10;
}

/* Whether what depends on the batch is a good part of the need: worth naming only then. */
static bool batch_weighs(const struct placement *p)
{
    enum hst_tier tier = p->compute_tier;
    uint64_t batch =
        add(p->table[HST_CLASS_ACTS][tier], add(p->table[HST_CLASS_CARRY][tier], p->work_bytes));
    return batch > (tier == HST_TIER_HBM ? p->hbm_bytes : p->dram_bytes) / 4;
}

/* The smallest layout does not fit; it is in *p. */
static int refuse_memory(const struct placement_in *in, struct choice_range range,
                         struct placement *p, char *why, size_t why_bytes)
{
    size_t last = sizeof RING_DEPTHS / sizeof RING_DEPTHS[0] - 1;
    struct choice least = range.high;
    least.slots = RING_DEPTHS[last].slots;
    least.leases = RING_DEPTHS[last].leases;
    lay_out(in, &least, p);
    const char *batch = batch_weighs(p) ? ", or lower --batch-tokens or --grain" : "";
    if (p->hbm_bytes > in->hbm_budget)
        snprintf(why, why_bytes,
                 "the model does not fit in the GPU's memory: weights, gradients, states, "
                 "activations and buffers need %.1f MiB of HBM, the budget is %.1f MiB. Fix: raise "
                 "--hbm%s, or "
                 "train it on the host (--device host), which keeps it in DRAM and NVMe",
                 mib_up(p->hbm_bytes), (double)in->hbm_budget / MIB, batch);
    else
        snprintf(why, why_bytes,
                 "no placement fits: the smallest needs %.1f MiB of DRAM (and %.1f MiB of NVMe), "
                 "the budget is %.1f MiB. Fix: raise --dram%s%s",
                 mib_up(p->dram_bytes), mib_up(p->nvme_bytes), (double)in->dram_budget / MIB,
                 in->has_nvme || in->compute_tier == HST_TIER_HBM ? "" : ", give a --store", batch);
    return -ENOSPC;
}

/* Each drive holds no more than it may; the sum is checked beside it. */
static bool drives_fit(const struct placement_in *in, const struct placement *p, uint32_t *full)
{
    for (*full = 0; *full < in->drive_count; ++*full)
        if (p->drive_bytes[*full] > in->drive_budgets[*full])
            return false;
    return p->nvme_bytes <= in->nvme_budget;
}

static int refuse_nvme(const struct placement_in *in, const struct placement *p, char *why,
                       size_t why_bytes)
{
    uint32_t full;
    if (!drives_fit(in, p, &full) && full < in->drive_count && in->drive_count > 1) {
        snprintf(why, why_bytes,
                 "directory %u of --store needs %.1f MiB for its share of the tiles, %.1f MiB can "
                 "be had there. Fix: free space there, or leave that directory out",
                 full + 1, mib_up(p->drive_bytes[full]), (double)in->drive_budgets[full] / MIB);
        return -EDQUOT;
    }
    snprintf(why, why_bytes,
             "the store needs %.1f MiB of NVMe for what does not fit in DRAM, its budget is %.1f "
             "MiB. Fix: free space or raise --nvme, raise --dram, or give another --store",
             mib_up(p->nvme_bytes), (double)in->nvme_budget / MIB);
    return -EDQUOT;
}

static int check_wish(const struct placement_in *in, char *why, size_t why_bytes)
{
    for (int c = 0; c < HST_CLASS_COUNT; c++) {
        if (!in->wish.fixed[c] || in->wish.tier[c] == in->compute_tier)
            continue;
        if (in->compute_tier == HST_TIER_HBM) {
            snprintf(why, why_bytes,
                     "%s can not be placed in %s on a GPU: all classes live in hbm there. Fix: "
                     "leave --place out, or --device host",
                     hst_class_name((enum hst_class)c), hst_tier_name(in->wish.tier[c]));
            return -EINVAL;
        }
        bool movable = c == HST_CLASS_STATES || c == HST_CLASS_WEIGHTS;
        if (in->wish.tier[c] == HST_TIER_NVME && movable && in->has_nvme)
            continue;
        snprintf(why, why_bytes,
                 "%s can not be placed in %s here%s. Fix: weights and states take dram or nvme, "
                 "the rest dram",
                 hst_class_name((enum hst_class)c), hst_tier_name(in->wish.tier[c]),
                 in->has_nvme ? "" : " (no store directory was given)");
        return -EINVAL;
    }
    struct gather gathers[GATHER_MAX];
    for (uint32_t u = 0; u < in->layout->unit_count; u++) {
        if (placement_gather(in->layout, in->precision, u, gathers) >= 0)
            continue;
        snprintf(why, why_bytes, "unit \"%s\" uses more than %u tied parameters",
                 in->layout->units[u].name, GATHER_MAX - 1);
        return -EINVAL;
    }
    return 0;
}

int placement_plan(const struct placement_in *in, struct placement *placement, char *why,
                   size_t why_bytes)
{
    int rc = check_wish(in, why, why_bytes);
    if (rc)
        return rc;
    struct placement p = {.units = calloc((size_t)in->layout->unit_count + 1, sizeof *p.units)};
    if (!p.units) {
        snprintf(why, why_bytes, "out of memory while planning %u units", in->layout->unit_count);
        return -ENOMEM;
    }
    struct choice_range range = choices(in);
    bool found = false, room = false;
    for (size_t i = 0; i < sizeof RING_DEPTHS / sizeof RING_DEPTHS[0] && !room; i++) {
        range.low.slots = RING_DEPTHS[i].slots;
        range.low.leases = RING_DEPTHS[i].leases;
        found = search(in, range, &p);
        uint32_t full;
        room = found && drives_fit(in, &p, &full);
    }
    if (room) {
        *placement = p;
        return 0;
    }
    rc = found ? refuse_nvme(in, &p, why, why_bytes) : refuse_memory(in, range, &p, why, why_bytes);
    placement_free(&p);
    return rc;
}

void placement_free(struct placement *placement)
{
    free(placement->units);
    *placement = (struct placement){0};
}
