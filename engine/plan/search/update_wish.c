/* SPDX-License-Identifier: Apache-2.0 */
/* Decides by homes alone, so that it can be asked of homes that are only thought of. */
#include "plan/search/update_wish.h"

bool update_uses_drives(const struct placement *placement)
{
    for (uint32_t u = 0; u < placement->layout->unit_count; u++)
        if (placement->units[u].weights.tier == HST_TIER_NVME ||
            placement->units[u].nvme_states > 0)
            return true;
    return false;
}

bool update_uses_host(const struct placement *placement)
{
    return placement->resident_units < placement->layout->unit_count;
}

bool update_may_change(const struct update_wish *wish, const struct placement *placement)
{
    return wish->either && (wish->frees || !update_uses_drives(placement));
}

bool update_could_use_slots(const struct update_wish *wish, const struct placement *placement)
{
    return update_may_change(wish, placement) && placement->compute_tier != HST_TIER_DRAM &&
           update_uses_host(placement);
}
