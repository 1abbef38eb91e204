/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_PLAN_RINGS_H
#define HOISTWAY_ENGINE_PLAN_RINGS_H
/* The rings of units' buffers: how large, how many, and which units have rings of their own. */
#include "plan/placement/lay_out.h"

/** Once homes are laid out: sizes the rings, says which units are wide, takes their memory. */
void rings_place(const struct placement_in *in, const struct choice *choice, struct placement *p);

#endif
