/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_PLAN_STRIPE_H
#define HOISTWAY_ENGINE_PLAN_STRIPE_H
/*
 * Which drive a tile is on. Tiles go round the drives in a fixed pattern of STRIPE_CYCLE, in which
 * each drive has a share as large as its rate, spread evenly: while tiles stream in order, every
 * drive is busy all the time, and a slow one is asked for less. Pure.
 */
#include <stdint.h>

#define STRIPE_DRIVES_MAX 8u
#define STRIPE_CYCLE     64u

struct stripe {
    uint32_t drives;
    uint8_t drive[STRIPE_CYCLE];
    /* of the first i tiles of a cycle, how many are on each drive */
    uint8_t before[STRIPE_CYCLE + 1][STRIPE_DRIVES_MAX];
};

/**
 * rates: of each drive in any unit; one that is not a number > 0 counts as the least of the others
 * (all of them: equal shares). Every drive has at least one tile of a cycle. drives: 1 to
 * STRIPE_DRIVES_MAX.
 */
void stripe_init(struct stripe *stripe, const double *rates, uint32_t drives);

static inline uint32_t stripe_drive(const struct stripe *stripe, uint64_t tile)
{
    return stripe->drive[tile % STRIPE_CYCLE];
}

/** It counts those of the tiles [0, tile) that are on the drive. */
static inline uint64_t stripe_before(const struct stripe *stripe, uint64_t tile, uint32_t drive)
{
    return tile / STRIPE_CYCLE * stripe->before[STRIPE_CYCLE][drive] +
           stripe->before[tile % STRIPE_CYCLE][drive];
}

#endif
