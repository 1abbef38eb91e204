/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_OPERANDS_H
#define HOISTWAY_ENGINE_OPERANDS_H
/* Between operands.c and operands_weights.c: the ends of operands, and sizes. Pure. */
#include "plan/graph/graph_build.h"

static inline struct operand_end in_buffer(enum pool pool)
{
    return (struct operand_end){.space = pool >= POOL_DEVICE_WEIGHTS ? SPACE_DEVICE : SPACE_DRAM,
                                .pool = (uint8_t)pool};
}

static inline struct operand_end at_home(enum hst_tier tier)
{
    return (struct operand_end){.space = tier == HST_TIER_HBM ? SPACE_DEVICE : SPACE_DRAM,
                                .pool = POOL_COUNT};
}

static inline struct operand_end on_drives(const struct build *b, unsigned what)
{
    bool stored = b->in->stored && (what == EXTENT_WEIGHTS || what == EXTENT_STATES);
    return (struct operand_end){.space = stored ? SPACE_STORE : SPACE_SCRATCH, .pool = POOL_COUNT};
}

/* This is where the host finds what is at home in `tier`: the pool is for what comes from
   drives. */
static inline struct operand_end in_host(enum hst_tier tier, enum pool pool)
{
    return tier == HST_TIER_NVME ? in_buffer(pool) : at_home(tier);
}

static inline bool is_offloaded(const struct build *b, enum hst_tier tier)
{
    return b->in->apart && tier != HST_TIER_HBM;
}

static inline uint64_t tile_bytes(const struct build *b)
{
    return (uint64_t)(b->in->tile_elements * b->in->weight_bytes);
}

static inline uint64_t weights_of(const struct build *b, uint64_t elements)
{
    return (uint64_t)((double)elements * b->in->weight_bytes);
}

static inline uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline struct operand_end weights_in_host(const struct build *b, uint32_t unit,
                                                 uint32_t owner)
{
    return in_host(b->in->units[owner].weights, parts_pool(b, unit, POOL_WEIGHTS));
}

/* This is what other ranks have of so many bytes. */
static inline uint64_t of_others(const struct build *b, uint64_t bytes)
{
    return parts_has_ranks(b) ? bytes / b->in->ranks * (b->in->ranks - 1) : 0;
}

/* operands_weights.c */
/** These are the weights that a visit reads or, where `copy` is, that go to the device. */
void operands_weights(struct build *b, uint32_t unit, bool copy);

#endif
