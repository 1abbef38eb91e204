/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_PLAN_HOMES_H
#define HOISTWAY_ENGINE_PLAN_HOMES_H
/* One choice of homes, and which of two choices is better. Pure: values alone. */
#include "plan/search/planner.h"

struct homes {
    struct placement_in in; /* what they are of: a layout, budgets, slots */
    struct placement placement;
    struct planned planned;    /* simulated 0: nothing was compared */
    struct update_steps steps; /* of a step on them; 0: nothing was simulated */
};

/**
 * True where, of two that do not fit, `these` need less beyond the budgets of `those`. Memory comes
 * before drives.
 */
bool homes_lack_less(const struct homes *these, const struct homes *those);

/**
 * True where `with` holds the same as `without` in every tier and class but for second slots of
 * weights and states. On drives a store has its own.
 */
bool homes_differ_by_slots(const struct homes *with, const struct homes *without);

/** It tells how much longer a step may be whose norm clips, so that its update is deferred: how
 * often that is, nobody knows before. */
#define HOMES_CLIP_LOSS_MOST 0.05

/**
 * True where steps on homes with second slots are worth these beside others without: a step
 * without a clip gains more than PLANNER_GAIN_LEAST, and more than a step with one loses, which
 * loses less than HOMES_CLIP_LOSS_MOST.
 */
bool homes_slots_are_worth(const struct update_steps *slots, const struct update_steps *others);

/** True where a step without a clip is shorter on `these`, by more than PLANNER_GAIN_LEAST. */
bool homes_are_faster(const struct update_steps *these, const struct update_steps *those);

/**
 * True where `these` are better than `those`, which stay where both are as good. Second slots that
 * one of them has alone have to be worth it.
 */
bool homes_are_better(const struct homes *these, const struct homes *those);

#endif
