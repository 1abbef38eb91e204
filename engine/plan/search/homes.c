/* SPDX-License-Identifier: Apache-2.0 */
/* Decides which of two choices of homes is better, by what they hold or by what a step takes. */
#include "plan/search/homes.h"

#include "base/saturate.h"

static uint64_t beyond(uint64_t bytes, uint64_t budget)
{
    return bytes > budget ? bytes - budget : 0;
}

static uint64_t lacks_memory(const struct placement_in *in, const struct placement *p)
{
    return sat_add(beyond(p->hbm_bytes, in->hbm_budget), beyond(p->dram_bytes, in->dram_budget));
}

bool homes_lack_less(const struct homes *these, const struct homes *those)
{
    const struct placement_in *in = &those->in;
    const struct placement *a = &these->placement, *b = &those->placement;
    uint64_t of_a = lacks_memory(in, a), of_b = lacks_memory(in, b);
    return of_a != of_b
               ? of_a < of_b
               : beyond(a->nvme_bytes, in->nvme_budget) < beyond(b->nvme_bytes, in->nvme_budget);
}

bool homes_differ_by_slots(const struct homes *with, const struct homes *without)
{
    const struct placement *a = &with->placement, *b = &without->placement;
    for (int class = 0; class < HST_CLASS_COUNT; class ++)
        for (int tier = 0; tier < HST_TIER_COUNT; tier++) {
            bool slots = tier == HST_TIER_DRAM || (tier == HST_TIER_NVME && !with->in.stored);
            bool twice = slots && (class == HST_CLASS_WEIGHTS || class == HST_CLASS_STATES);
            const uint64_t once = twice && class == HST_CLASS_WEIGHTS ? b->frozen_bytes[tier] : 0;
            if (a->table[class][tier] != b->table[class][tier] * (twice ? 2 : 1) - once)
                return false;
        }
    return true;
}

bool homes_slots_are_worth(const struct update_steps *slots, const struct update_steps *others)
{
    double is = planner_unclipped_s(slots), was = planner_unclipped_s(others);
    double loss_s = slots->deferred_s - others->deferred_s;
    return is < was * (1 - PLANNER_GAIN_LEAST) && was - is > loss_s &&
           loss_s < others->deferred_s * HOMES_CLIP_LOSS_MOST;
}

bool homes_are_faster(const struct update_steps *these, const struct update_steps *those)
{
    return planner_unclipped_s(these) < planner_unclipped_s(those) * (1 - PLANNER_GAIN_LEAST);
}

bool homes_are_better(const struct homes *these, const struct homes *those)
{
    const struct update_steps *a = &these->steps, *b = &those->steps;
    if (these->in.second_slots && !those->in.second_slots)
        return homes_slots_are_worth(a, b);
    bool loses = those->in.second_slots && !these->in.second_slots &&
                 b->deferred_s > a->deferred_s && !homes_slots_are_worth(b, a);
    return loses || homes_are_faster(a, b);
}
