/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buffers that units borrow. One that all units take turns at is as large as the largest of them,
 * which mostly is the embedding or the head, far larger than a layer: then those two have buffers
 * of their own.
 */
#include "plan/rings.h"

#include "plan/saturate.h"

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Bytes a lease of this unit must hold: what it gathers from NVMe. */
static uint64_t lease_bytes(const struct placement_in *in, const struct placement *p, uint32_t unit)
{
    struct gather gathers[GATHER_MAX];
    int n = placement_gather(in->layout, in->bytes, unit, gathers);
    uint64_t bytes = 0;
    for (int i = 0; i < n; i++) {
        const struct gather *g = &gathers[i];
        if (placement_weights(p, g->first_tile).tier != HST_TIER_NVME)
            continue;
        bytes = g->lease_at + placement_gather_bytes(in->layout, in->bytes, g);
    }
    return bytes;
}

/* Bytes of all weights that a unit's computation reads. */
static uint64_t view_bytes(const struct placement_in *in, uint32_t unit)
{
    struct gather gathers[GATHER_MAX];
    int n = placement_gather(in->layout, in->bytes, unit, gathers);
    return n > 0 ? gathers[n - 1].lease_at +
                       placement_gather_bytes(in->layout, in->bytes, &gathers[n - 1])
                 : 0;
}

static uint64_t weights_bytes(const struct placement_in *in, uint32_t unit)
{
    return in->layout->units[unit].elements * in->bytes.weights;
}

/* ---- which are wide ---- */

/* The first and the last unit, where they are larger than all between them; all weights that a
 * unit's computation reads are its size. */
static void mark_wide(const struct placement_in *in, bool wide, struct placement *p)
{
    uint32_t last = in->layout->unit_count ? in->layout->unit_count - 1 : 0;
    uint64_t between = 0;
    for (uint32_t u = 0; u <= last && in->layout->unit_count > 0; u++) {
        p->units[u].wide = false;
        if (u > 0 && u < last)
            between = most(between, view_bytes(in, u));
    }
    for (uint32_t u = 0; wide && last > 1 && u <= last; u += last)
        p->units[u].wide = view_bytes(in, u) > between;
}

/* ---- sizes ---- */

static void size_rings(const struct placement_in *in, struct placement *p)
{
    for (int wide = 0; wide < 2; wide++)
        p->leases[wide] = p->grad_leases[wide] = p->device_leases[wide] = p->device_grads[wide] =
            (struct ring){0};
    for (uint32_t u = 0; u < in->layout->unit_count; u++) {
        const struct unit_home *home = &p->units[u];
        int wide = home->wide;
        p->leases[wide].bytes = most(p->leases[wide].bytes, sat_page_up(lease_bytes(in, p, u)));
        if (home->grads.tier == HST_TIER_NVME)
            p->grad_leases[wide].bytes = most(p->grad_leases[wide].bytes, weights_bytes(in, u));
        if (!placement_is_away(p))
            continue;
        p->device_leases[wide].bytes =
            most(p->device_leases[wide].bytes, sat_page_up(view_bytes(in, u)));
        p->device_grads[wide].bytes = most(p->device_grads[wide].bytes, weights_bytes(in, u));
    }
}

/* Each unit is computed with in its turn: wide ones share one buffer, unless there are more than
 * the others need. */
static void count_rings(const struct placement_in *in, const struct choice *c, struct placement *p)
{
    uint32_t units = in->layout->unit_count, wide = 0;
    for (uint32_t u = 0; u < units; u++)
        wide += p->units[u].wide;
    struct {
        struct ring *rings;
        uint32_t count;
    } const kinds[] = {{p->leases, c->depths.leases},
                       {p->grad_leases, c->depths.grads},
                       {p->device_leases, c->device_depths.leases},
                       {p->device_grads, c->device_depths.grads}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        struct ring *rings = kinds[i].rings;
        uint32_t narrow = wide > 0 ? least(kinds[i].count, units - wide) : kinds[i].count;
        rings[0].count = rings[0].bytes > 0 ? narrow : 0;
        rings[1].count = rings[1].bytes == 0 ? 0 : kinds[i].count > narrow ? wide : 1;
    }
}

static uint64_t all_bytes(const struct placement *p)
{
    const struct ring *const kinds[] = {p->leases, p->grad_leases, p->device_leases,
                                        p->device_grads};
    uint64_t sum = 0;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        for (int wide = 0; wide < 2; wide++)
            sum = sat_add(sum, sat_times(kinds[i][wide].bytes, kinds[i][wide].count));
    return sum;
}

static uint64_t choose(const struct placement_in *in, const struct choice *c, bool wide,
                       struct placement *p)
{
    mark_wide(in, wide, p);
    size_rings(in, p);
    count_rings(in, c, p);
    return all_bytes(p);
}

/* ---- the whole ---- */

static void take_ring(struct placement *p, enum hst_tier tier, struct ring *ring)
{
    ring->at = take_in(p, tier, HST_CLASS_BUFFERS, sat_times(ring->bytes, ring->count));
}

/* Of all checkpoints that move none is much larger than the others. */
static void place_acts_rings(const struct placement_in *in, const struct choice *c,
                             struct placement *p)
{
    for (uint32_t u = 0; u < in->layout->unit_count; u++) {
        const struct unit_home *home = &p->units[u];
        if (home->acts.tier == HST_TIER_NVME)
            p->act_leases.bytes = most(p->act_leases.bytes, home->act_bytes);
        if (placement_copies_acts(p, u))
            p->device_acts.bytes = most(p->device_acts.bytes, home->act_bytes);
    }
    p->act_leases.count = p->act_leases.bytes > 0 ? c->depths.acts : 0;
    p->device_acts.count = p->device_acts.bytes > 0 ? c->device_depths.acts : 0;
    take_ring(p, HST_TIER_DRAM, &p->act_leases);
    take_ring(p, HST_TIER_HBM, &p->device_acts);
}

void rings_place(const struct placement_in *in, const struct choice *c, struct placement *p)
{
    uint64_t with = choose(in, c, true, p);
    if (choose(in, c, false, p) > with)
        (void)choose(in, c, true, p);
    for (int wide = 0; wide < 2; wide++) {
        take_ring(p, HST_TIER_DRAM, &p->leases[wide]);
        take_ring(p, HST_TIER_DRAM, &p->grad_leases[wide]);
        take_ring(p, HST_TIER_HBM, &p->device_leases[wide]);
        take_ring(p, HST_TIER_HBM, &p->device_grads[wide]);
    }
    place_acts_rings(in, c, p);
}
