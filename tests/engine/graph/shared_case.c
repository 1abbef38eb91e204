/* SPDX-License-Identifier: Apache-2.0 */
/* Random graphs of several ranks: see shared_case.h. */
#include "shared_case.h"

#include "memory_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define BLOCK 4096u

void cut_rows(const struct graph_case *whole, uint32_t rank, uint32_t ranks, uint64_t *seed,
              struct graph_case *c)
{
    const uint32_t tile_blocks = 1 + pick(seed, 2);
    uint32_t tile = 0;
    *c = *whole;
    c->in.units = c->units;
    c->in.forward = c->forward;
    c->in.backward = c->backward;
    c->in.ranks = ranks;
    c->in.tile_elements = tile_blocks * BLOCK;
    c->in.secondary = c->in.secondary ? ranks : 0;
    for (uint32_t i = 0; i < c->in.unit_count; i++) {
        struct graph_unit *u = &c->units[i];
        const bool all = c->in.replicas;
        const uint64_t blocks = u->tile_count ? 1 + pick(seed, all ? 5 : 5 * ranks) : 0;
        const uint64_t each = (blocks + ranks - 1) / ranks, before = all ? 0 : rank * each;
        const uint64_t left = blocks > before ? blocks - before : 0,
                       own = all || left < each ? left : each;
        u->row_elements = ranks * each * BLOCK;
        u->shard_at = before * BLOCK;
        u->elements = own * BLOCK;
        u->first_tile = tile;
        u->tile_count = (uint32_t)((own + tile_blocks - 1) / tile_blocks);
        u->nvme_states = u->nvme_states < u->tile_count ? u->nvme_states : u->tile_count;
        u->streamed_tiles = u->streamed_tiles < u->tile_count - u->nvme_states
                                ? u->streamed_tiles
                                : u->tile_count - u->nvme_states;
        u->alias_bytes[0] = 0; /* rows are read whole */
        tile += u->tile_count;
    }
    assert_true(tile <= MODEL_TILES);
}

/* As a stage of ZeRO has it: what is whole is in memory. */
static enum hst_tier in_memory(enum hst_tier tier)
{
    return tier == HST_TIER_HBM ? tier : HST_TIER_DRAM;
}

static void choose_stage(uint64_t *seed, struct graph_case *c)
{
    const uint32_t stage = pick(seed, 6); /* 3 and more: all are shards */
    c->in.whole_weights = stage == 1 || stage == 2;
    c->in.buckets = stage == 1;
    c->in.replicas = stage == 0;
    for (uint32_t i = 0; i < c->in.unit_count; i++) {
        struct graph_unit *u = &c->units[i];
        u->bucket = pick(seed, 3);
        u->weights = stage < 3 ? in_memory(u->weights) : u->weights;
        u->grads = stage < 2 ? in_memory(u->grads) : u->grads;
    }
}

/* Where ranks exchange in DRAM no unit is resident on a device. */
static void leave_device(struct graph_case *c)
{
    for (uint32_t i = 0; i < c->in.unit_count; i++)
        if (c->units[i].weights == HST_TIER_HBM)
            c->units[i].weights = c->units[i].grads = HST_TIER_DRAM;
}

void shared_case(uint64_t seed, struct graph_case *c)
{
    random_case(seed, c);
    uint64_t own = seed ^ 0x7a9c;
    c->units[c->forward[0]].no_forward = false;
    c->in.hand_bytes = pick(&own, 2) ? 4 : 2;
    choose_stage(&own, c);
    const bool joined = c->in.apart && pick(&own, 2);
    c->in.device_rows = joined && !c->in.whole_weights && !c->in.replicas;
    c->in.device_sums = joined && !c->in.buckets;
    if (!c->in.device_sums)
        leave_device(c);
    const bool shards = !c->in.whole_weights && !c->in.buckets && !c->in.replicas;
    /* The ranks of the node are all of them. */
    c->in.secondary = shards && pick(&own, 3) == 0;
    if (c->in.whole_weights && pick(&own, 2)) /* else few rows come together in the backward */
        c->in.late_share = 0;
}
