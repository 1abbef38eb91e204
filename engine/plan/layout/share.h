/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_PLAN_SHARE_H
#define HOISTWAY_ENGINE_PLAN_SHARE_H
/*
 * Which tiles of the model a rank has. Every unit is cut, so that all ranks work on the unit at
 * hand; it is cut between tiles, so that a tile's bytes are the same whatever the number of ranks.
 * A rank's part of a unit is a run of its tiles, in order of rank. Tiles that do not divide go to
 * the ranks in turn, from unit to unit: no rank has two more than another, in a unit or in all.
 *
 * A rank numbers its tiles from 0 on, in the model's order. Pure.
 */
#include "plan/layout/layout.h"

struct share {
    uint32_t rank, world;
};

/** A run of tiles, numbered as in the model. */
struct share_run {
    uint32_t first, count;
};

/** The rank's part of a unit; count 0: none of it. */
struct share_run share_of_unit(const struct layout_unit *unit, struct share share);
/** How many tiles it has of all units. Cost: O(units). */
uint32_t share_tiles(const struct layout *layout, struct share share);
/** The number in the model of the rank's tile `index`. Cost: O(units) where there are ranks. */
uint32_t share_tile(const struct layout *layout, struct share share, uint32_t index);

#endif
