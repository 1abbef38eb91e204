/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_PLAN_SWEEP_H
#define HOISTWAY_ENGINE_PLAN_SWEEP_H
/*
 * The order in which units are used in one step: places 0..L-1 are the forward, L..2L-1 the
 * backward in reverse; then the next step begins at 0. It is known before the step starts: that is
 * why fetching ahead needs no cache and no guess. Pure.
 */
#include <stdbool.h>
#include <stdint.h>

/** The unit at a place of the endless order; unit_count > 0. */
static inline uint32_t sweep_unit(uint32_t unit_count, uint32_t place)
{
    place %= 2 * unit_count;
    return place < unit_count ? place : 2 * unit_count - 1 - place;
}

/** Places from `place` on until the unit is next used, 0 where it is used at `place` itself. */
static inline uint32_t sweep_distance(uint32_t unit_count, uint32_t place, uint32_t unit)
{
    uint32_t here = place % (2 * unit_count);
    uint32_t forward = (unit + 2 * unit_count - here) % (2 * unit_count);
    uint32_t backward = (2 * unit_count - 1 - unit + 2 * unit_count - here) % (2 * unit_count);
    return forward < backward ? forward : backward;
}

#endif
