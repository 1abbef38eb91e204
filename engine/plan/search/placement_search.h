/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_PLAN_PLACEMENT_SEARCH_H
#define HOISTWAY_ENGINE_PLAN_PLACEMENT_SEARCH_H
/*
 * A search for home tiers begins here: placement_plan takes the usual way, plan/planner.c tries
 * others and has them simulated. Pure.
 */
#include "plan/placement/lay_out.h"

/* Buffer pools of drives and of a device are so deep: 0 is deepest, the last the least that
 * works. */
#define PLACEMENT_POOL_DEPTHS   4u
#define PLACEMENT_DEVICE_DEPTHS 3u
#define PLACEMENT_ALL           5u

struct placement_how {
    enum leaving order[LEAVE_COUNT]; /* classes leave DRAM in this order, each as far as must be */
    uint32_t first_quarters;         /* of the first of them no more than so many, 0 to 4 */
    uint32_t buffer_pools, device_pools;    /* the deepest buffer pools that are tried; then lesser
                                               ones */
    bool acts_leave;                 /* HBM, all of them, though there may be room */
    bool acts_stay;                  /* in HBM before any unit does */
    /* Units that are resident on a GPU: PLACEMENT_ALL of them, or so many quarters of those that
       HBM has room for. */
    uint32_t resident_quarters;
    uint32_t segment; /* units to one kept checkpoint; 0 and 1: all are kept */
    /* On a GPU: the share of what is offloaded but in DRAM that it updates, in eighths. */
    uint32_t streamed_eighths;
    /* Units that keep their activations, in eighths of those that can: no fewer, and more only of
       the room that nothing else has taken. */
    uint32_t saved_eighths;
};

struct placement_memo;

/** placement_plan does this: nothing has to be known of the machine. */
extern const struct placement_how PLACEMENT_USUAL;

/**
 * *classes: so many of the order had their turn to leave. Another order of the others, which had
 * none, gives the same.
 * memo: of earlier searches of the same input, and what this one adds; may be null.
 * Errors: -ENOSPC nothing fits so; -EALREADY an earlier search of the memo's has found the same
 * placement; -ENOMEM. Cost: O(units), some hundred times, less what the memo
 * has.
 */
int placement_search(const struct placement_in *in, const struct placement_how *how,
                     struct placement_memo *memo, uint32_t *classes, struct placement *placement);

/**
 * The longest segment that is worth a try, of units that may be recomputed: beyond it what is
 * recomputed takes more memory than the checkpoints that are left out. 1: none may be, or
 * `wish` names a home for checkpoints.
 */
uint32_t placement_longest_segment(const struct placement_in *in);

/** True where a wish leaves it open that weights, gradients and states are away from a GPU. */
bool placement_may_be_offloaded(const struct placement_in *in);

#endif
