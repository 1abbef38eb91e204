/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_PLAN_UNIT_SIZES_H
#define HOISTWAY_ENGINE_PLAN_UNIT_SIZES_H
/* Says how large units are beside the others, by which they take turns at buffers. Pure. */
#include "plan/placement/placement.h"

/** Bytes of all weights that a unit's computation reads. */
uint64_t unit_sizes_bytes(const struct placement_in *in, uint32_t unit);

/**
 * Writes the size of each unit of *p, by the layout alone.
 *
 * The first and the last one are wide where they are larger than all between them. Of those between
 * one is narrow that is clearly smaller than the one behind it, as attention is before its MLP; no
 * slice is. Where there are such units, so is each other one that is no larger and does not come
 * behind one. Layers of one size have no narrow ones.
 */
void unit_sizes_mark(const struct placement_in *in, struct placement *p);

/** Writes how many units of each size may be among `count` that follow one another, of those that
 * are not wide and borrow buffers: all, or those that are not resident. All are 0 with a count of
 * 0. Cost: O(units). */
void unit_sizes_most(const struct placement *p, bool all, uint32_t count,
                     uint32_t most[UNIT_SIZES]);

#endif
