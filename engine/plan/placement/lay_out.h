/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_PLAN_LAY_OUT_H
#define HOISTWAY_ENGINE_PLAN_LAY_OUT_H
/* Lays everything out for one choice of homes, to the byte. placement_search.c tries choices. */
#include "plan/placement/placement.h"

/* It says what goes to NVMe: so many of the first tiles' states and of the first units'
 * checkpoints, gradients and weights, of those that are not resident on a GPU. A fixed set is
 * optimal where the order of use is cyclic, and which members it has does not matter. */
enum leaving { LEAVE_STATES = 0, LEAVE_ACTS, LEAVE_GRADS, LEAVE_WEIGHTS, LEAVE_COUNT };

/* It says how deep the buffer pools are. */
struct pool_depths {
    uint32_t slots, reservations, grads, acts;
};
/* It says how deep those in a device's memory are. */
struct device_depths {
    uint32_t reservations, grads, acts;
};

struct choice {
    /* On a GPU: from `first` on so many units stay in its memory, those with tied parameters only
     * if all do; and of so many of the first units the checkpoints do not (which wait longest for
     * their backward). */
    struct {
        uint32_t first, count;
    } resident;
    uint32_t acts_offloaded;
    uint32_t leaves[LEAVE_COUNT];
    /* Units to one kept checkpoint, of those that follow one another and may be recomputed; 0
       and 1: all are kept. */
    uint32_t segment;
    struct pool_depths depths;
    struct device_depths device_depths;
    uint32_t saved;  /* so many of the units that can keep their activations do; not in segments */
    double streamed; /* share of the tiles that are offloaded, but in DRAM, 0 to 1 */
};

/** Takes bytes, whole pages, of a tier's arena, and books them. Returns where they begin. */
uint64_t lay_out_take(struct placement *p, enum hst_tier tier, enum hst_class class,
                      uint64_t bytes);

/** The same of memory where the device computes. */
static inline uint64_t lay_out_take_near(struct placement *p, enum hst_class class, uint64_t bytes)
{
    return lay_out_take(p, p->compute_tier, class, bytes);
}

/** Parts of a batch: one where no more are said. */
static inline uint32_t lay_out_ways(const struct placement_in *in)
{
    return in->ways > 0 ? in->ways : 1;
}

/** Takes memory for buffers, once homes are laid out. */
void lay_out_buffers(const struct placement_in *in, const struct choice *choice,
                     struct placement *p);

/** *p keeps its array of units, the rest is rewritten. Sizes that overflow stay at UINT64_MAX. */
void lay_out(const struct placement_in *in, const struct choice *choice, struct placement *p);
/** The same in memory, for its bytes. What is on drives has no place and no bytes in the files, and
 * no tile is streamed. */
void lay_out_memory(const struct placement_in *in, const struct choice *choice,
                    struct placement *p);

#endif
