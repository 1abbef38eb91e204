/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_PLAN_SEGMENTS_H
#define HOISTWAY_ENGINE_PLAN_SEGMENTS_H
/* Which units keep their checkpoints where not all do. */
#include "plan/placement/placement.h"

/** The first one of `segment` units in a row that may be recomputed keeps its checkpoint. */
void segments_choose(const struct placement_in *in, uint32_t segment, struct placement *p);

#endif
