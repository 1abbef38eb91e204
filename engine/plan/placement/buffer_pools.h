/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_PLAN_BUFFER_POOLS_H
#define HOISTWAY_ENGINE_PLAN_BUFFER_POOLS_H
/* The buffer pools of units' buffers: how large, how many, and which units have buffer pools of
   their own. */
#include "plan/placement/lay_out.h"

/** Once homes are laid out: says how large units are beside the others, sizes the buffer pools,
 * takes their memory. */
void buffer_pools_place(const struct placement_in *in, const struct choice *choice,
                        struct placement *p);
/** Takes memory for what a rank keeps of gathered rows from the forward to the backward. */
void buffer_pools_place_secondary(const struct placement_in *in, const struct choice *choice,
                                  struct placement *p);
/** Once what is updated has homes: which tiles the device updates, though they are offloaded. */
void buffer_pools_stream(const struct placement_in *in, const struct choice *choice,
                         struct placement *p);
/** Places what the slices of a unit share. */
void buffer_pools_place_kept(const struct placement_in *in, struct placement *p);

#endif
