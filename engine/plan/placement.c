/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides homes and addresses. The search is over two numbers, how many tiles' states and how many
 * units' weights are on NVMe, because with a cyclic order a fixed set is optimal and which members
 * it has does not matter. Every candidate is laid out completely, so the table is exact to the
 * byte.
 */
#include "plan/placement.h"

#include <errno.h>
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

static uint64_t page_up(uint64_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

static uint64_t take(uint64_t *end, uint64_t bytes)
{
    uint64_t at = *end;
    *end += page_up(bytes);
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
    return (in->grain_tokens * bytes_per_token + 63) / 64 * 64;
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

/* Bytes a lease of this unit must hold: what it gathers from NVMe. */
static uint64_t lease_bytes(const struct placement_in *in, const struct placement *p, uint32_t unit)
{
    struct gather gathers[GATHER_MAX];
    int n = placement_gather(in->layout, in->precision, unit, gathers);
    uint64_t bytes = 0;
    for (int i = 0; i < n; i++) {
        const struct gather *g = &gathers[i];
        if (p->weights[g->first_tile].tier != HST_TIER_NVME)
            continue;
        struct tile_range last = layout_tile(in->layout, g->first_tile + g->tile_count - 1);
        struct tile_range first = layout_tile(in->layout, g->first_tile);
        uint64_t elements = last.offset + last.elements - first.offset;
        bytes = g->lease_at + elements * record_weight_bytes(in->precision);
    }
    return bytes;
}

static void place_weights(const struct placement_in *in, uint32_t nvme_units, struct placement *p)
{
    uint64_t element_bytes = record_weight_bytes(in->precision);
    for (uint32_t u = 0; u < in->layout->unit_count; u++) {
        const struct layout_unit *unit = &in->layout->units[u];
        enum hst_tier tier = u < nvme_units ? HST_TIER_NVME : HST_TIER_DRAM;
        uint64_t bytes = unit->elements * element_bytes;
        uint64_t at = take(tier == HST_TIER_NVME ? &p->nvme_bytes : &p->dram_bytes, bytes);
        for (uint32_t t = 0; t < unit->tile_count; t++) {
            uint64_t offset = (uint64_t)t * in->layout->tile_elements * element_bytes;
            p->weights[unit->first_tile + t] =
                (struct address){.tier = tier, .offset = at + offset};
        }
        p->table[HST_CLASS_WEIGHTS][tier] += page_up(bytes);
    }
}

static void place_states(const struct placement_in *in, uint32_t nvme_tiles, struct placement *p)
{
    for (uint32_t t = 0; t < in->layout->tile_count; t++) {
        uint32_t elements = layout_tile(in->layout, t).elements;
        uint64_t bytes = record_layout(in->precision, elements).bytes;
        enum hst_tier tier = t < nvme_tiles ? HST_TIER_NVME : HST_TIER_DRAM;
        uint64_t *end = tier == HST_TIER_NVME ? &p->nvme_bytes : &p->dram_bytes;
        p->states[t] = (struct address){.tier = tier, .offset = take(end, bytes)};
        p->table[HST_CLASS_STATES][tier] += bytes;
    }
}

static uint64_t take_class(struct placement *p, enum hst_class class, uint64_t bytes)
{
    p->table[class][HST_TIER_DRAM] += page_up(bytes);
    return take(&p->dram_bytes, bytes);
}

static void place_step_data(const struct placement_in *in, struct placement *p)
{
    uint64_t element_bytes = record_weight_bytes(in->precision);
    for (uint32_t u = 0; u < in->layout->unit_count; u++) {
        const struct layout_unit *unit = &in->layout->units[u];
        uint64_t act_stride = placement_micro_stride(in, unit->act_bytes_per_token);
        p->grads[u] = take_class(p, HST_CLASS_GRADS, unit->elements * element_bytes);
        p->acts[u] = PLACEMENT_NO_ADDRESS;
        if (act_stride > 0)
            p->acts[u] = take_class(p, HST_CLASS_ACTS, act_stride * p->micro_count);
    }
    uint64_t carry = placement_micro_stride(in, in->carry_bytes_per_token) * p->micro_count;
    p->carry = take_class(p, HST_CLASS_CARRY, carry);
    p->carry_grad = take_class(p, HST_CLASS_CARRY, carry);
}

static void place_buffers(const struct placement_in *in, const struct choice *c,
                          struct placement *p)
{
    const struct layout *layout = in->layout;
    /* The accumulator also stages a tile's initial values, before there are gradients. */
    uint64_t largest_tile = layout_largest_tile(layout);
    uint64_t accumulator = largest_tile;
    for (uint32_t u = 0; u < layout->unit_count; u++) {
        const struct layout_unit *unit = &layout->units[u];
        accumulator = unit->grad_elements > accumulator ? unit->grad_elements : accumulator;
        p->work_bytes = unit->work_bytes > p->work_bytes ? unit->work_bytes : p->work_bytes;
        uint64_t lease = page_up(lease_bytes(in, p, u));
        p->lease_bytes = lease > p->lease_bytes ? lease : p->lease_bytes;
    }
    p->accumulator = take_class(p, HST_CLASS_BUFFERS, accumulator * sizeof(float));
    p->tied = take_class(p, HST_CLASS_BUFFERS, layout->tied_elements * sizeof(float));
    p->norm_partials =
        take_class(p, HST_CLASS_BUFFERS, layout->elements / LAYOUT_UNIT_ALIGN * sizeof(double));
    p->work = take_class(p, HST_CLASS_BUFFERS, p->work_bytes);
    p->lease_count = p->lease_bytes > 0 ? c->leases : 0;
    p->leases = take_class(p, HST_CLASS_BUFFERS, p->lease_bytes * p->lease_count);
    if (p->nvme_bytes == 0)
        return;
    uint64_t weights =
        c->weight_units > 0 ? page_up(largest_tile * record_weight_bytes(in->precision)) : 0;
    uint64_t states = c->state_tiles > 0 ? record_layout(in->precision, largest_tile).bytes : 0;
    p->slot_record_at = weights;
    p->slot_bytes = weights + states;
    p->slot_count = c->slots;
    p->slots = take_class(p, HST_CLASS_BUFFERS, p->slot_bytes * p->slot_count);
}

/* Lays everything out for one choice; *p keeps its arrays, the rest is rewritten. */
static void lay_out(const struct placement_in *in, const struct choice *c, struct placement *p)
{
    *p = (struct placement){
        .states = p->states, .weights = p->weights, .grads = p->grads, .acts = p->acts};
    p->micro_count = (uint32_t)((in->batch_tokens + in->grain_tokens - 1) / in->grain_tokens);
    place_weights(in, c->weight_units, p);
    place_states(in, c->state_tiles, p);
    place_step_data(in, p);
    place_buffers(in, c, p);
}

static bool fits(const struct placement_in *in, const struct choice *c, struct placement *p)
{
    lay_out(in, c, p);
    return p->dram_bytes <= in->dram_budget && p->nvme_bytes <= in->nvme_budget;
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
    bool states_free = !wish->fixed[HST_CLASS_STATES] && in->has_nvme;
    bool weights_free = !wish->fixed[HST_CLASS_WEIGHTS] && in->has_nvme;
    if (wish->fixed[HST_CLASS_STATES] && wish->tier[HST_CLASS_STATES] == HST_TIER_NVME)
        range.low.state_tiles = tiles;
    if (wish->fixed[HST_CLASS_WEIGHTS] && wish->tier[HST_CLASS_WEIGHTS] == HST_TIER_NVME)
        range.low.weight_units = units;
    range.high.state_tiles = states_free ? tiles : range.low.state_tiles;
    range.high.weight_units = weights_free ? units : range.low.weight_units;
    return range;
}

static int refuse(const struct placement_in *in, struct choice_range range, struct placement *p,
                  char *why, size_t why_bytes)
{
    size_t last = sizeof RING_DEPTHS / sizeof RING_DEPTHS[0] - 1;
    struct choice least = range.high;
    least.slots = RING_DEPTHS[last].slots;
    least.leases = RING_DEPTHS[last].leases;
    lay_out(in, &least, p);
    const double mib = 1024.0 * 1024.0;
    snprintf(why, why_bytes,
             "no placement fits: the smallest needs %.1f MiB of DRAM and %.1f MiB of NVMe, the "
             "budgets are %.1f MiB and "
             "%.1f MiB. Fix: raise --dram or --nvme%s, or lower --batch-tokens or --grain",
             (double)p->dram_bytes / mib, (double)p->nvme_bytes / mib,
             (double)in->dram_budget / mib, (double)in->nvme_budget / mib,
             in->has_nvme ? "" : ", give a --store");
    return -ENOSPC;
}

static int check_wish(const struct placement_in *in, char *why, size_t why_bytes)
{
    for (int c = 0; c < HST_CLASS_COUNT; c++) {
        if (!in->wish.fixed[c] || in->wish.tier[c] == HST_TIER_DRAM)
            continue;
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
    struct placement p = {
        .states = calloc((size_t)in->layout->tile_count + 1, sizeof *p.states),
        .weights = calloc((size_t)in->layout->tile_count + 1, sizeof *p.weights),
        .grads = calloc((size_t)in->layout->unit_count + 1, sizeof *p.grads),
        .acts = calloc((size_t)in->layout->unit_count + 1, sizeof *p.acts),
    };
    if (!p.states || !p.weights || !p.grads || !p.acts) {
        snprintf(why, why_bytes, "out of memory while planning %u tiles", in->layout->tile_count);
        placement_free(&p);
        return -ENOMEM;
    }
    struct choice_range range = choices(in);
    for (size_t i = 0; i < sizeof RING_DEPTHS / sizeof RING_DEPTHS[0]; i++) {
        range.low.slots = RING_DEPTHS[i].slots;
        range.low.leases = RING_DEPTHS[i].leases;
        if (search(in, range, &p)) {
            *placement = p;
            return 0;
        }
    }
    rc = refuse(in, range, &p, why, why_bytes);
    placement_free(&p);
    return rc;
}

void placement_free(struct placement *placement)
{
    free(placement->states);
    free(placement->weights);
    free(placement->grads);
    free(placement->acts);
    *placement = (struct placement){0};
}
