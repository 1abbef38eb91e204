/* SPDX-License-Identifier: Apache-2.0 */
/* Takes memory of a tier's arena, one piece behind the other: all that is laid out does so. */
#include "plan/placement/lay_out.h"

#include "base/saturate.h"

static uint64_t *end_of(struct placement *p, enum hst_tier tier)
{
    return tier == HST_TIER_HBM ? &p->hbm_bytes : &p->dram_bytes;
}

uint64_t lay_out_take(struct placement *p, enum hst_tier tier, enum hst_class class, uint64_t bytes)
{
    uint64_t *end = end_of(p, tier), at = *end;
    p->table[class][tier] = sat_add(p->table[class][tier], sat_page_up(bytes));
    *end = sat_add(at, sat_page_up(bytes));
    return at;
}
