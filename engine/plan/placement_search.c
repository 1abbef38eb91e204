/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the homes: tries choices from everything in memory on, letting go of one class after the
 * other, and of no more of each than must. Every candidate is laid out completely.
 */
#include "plan/lay_out.h"
#include "plan/saturate.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* By rising cost: what travels for each byte of memory won. Checkpoints before gradients: they
 * have the whole sweep between leaving and coming back. */
static const enum leaving ORDER[LEAVE_COUNT] = {LEAVE_STATES, LEAVE_ACTS, LEAVE_GRADS,
                                                LEAVE_WEIGHTS};
static const enum hst_class CLASS_OF[LEAVE_COUNT] = {
    [LEAVE_STATES] = HST_CLASS_STATES,
    [LEAVE_ACTS] = HST_CLASS_ACTS,
    [LEAVE_GRADS] = HST_CLASS_GRADS,
    [LEAVE_WEIGHTS] = HST_CLASS_WEIGHTS,
};

/* Tiles: those that are read while the backward runs are updated as soon as the norm is known, and
   the rest is on its way behind a fast drive's delay; then enough for a drive's queue while one is
   updated; then one read, one updated, one written, one spare. Three weight units: one computed
   with, one ready, one on its way. The last row is the least that works. */
static const struct ring_depths RING_DEPTHS[] = {
    {64, 3, 2, 3}, {16, 3, 2, 3}, {4, 3, 2, 3}, {2, 1, 1, 1}};
enum { RING_DEPTHS_COUNT = sizeof RING_DEPTHS / sizeof RING_DEPTHS[0] };

struct choice_range {
    struct choice low, high;
};

/* By memory alone: what leaves it is then the least that must, and NVMe has room for it or not. */
static bool fits(const struct placement_in *in, const struct choice *c, struct placement *p)
{
    lay_out(in, c, p);
    return p->dram_bytes <= in->dram_budget && p->hbm_bytes <= in->hbm_budget;
}

/* The smallest value of one number in (low, high] with which the choice fits, given that `high`
 * does. */
static void least_that_fits(const struct placement_in *in, struct choice *c, uint32_t *number,
                            uint32_t low, struct placement *p)
{
    uint32_t high = *number;
    while (high - low > 1) {
        *number = low + (high - low) / 2;
        if (fits(in, c, p))
            high = *number;
        else
            low = *number;
    }
    *number = high;
    lay_out(in, c, p);
}

/* Lets a whole class go where that wins memory: its ring takes some. */
static void let_go(const struct placement_in *in, struct choice *c, enum leaving class,
                   uint32_t number, struct placement *p)
{
    uint32_t before = c->leaves[class];
    uint64_t bytes = p->dram_bytes;
    c->leaves[class] = number;
    lay_out(in, c, p);
    if (p->dram_bytes < bytes)
        return;
    c->leaves[class] = before;
    lay_out(in, c, p);
}

/* *c is the choice whose layout *p holds: the first that fits, or the smallest. */
static bool search(const struct placement_in *in, const struct choice_range *range,
                   struct choice *c, struct placement *p)
{
    *c = range->low;
    bool found = fits(in, c, p);
    for (int i = 0; i < LEAVE_COUNT && !found; i++) {
        enum leaving class = ORDER[i];
        let_go(in, c, class, range->high.leaves[class], p);
        found = fits(in, c, p);
        if (found && c->leaves[class] > range->low.leaves[class])
            least_that_fits(in, c, &c->leaves[class], range->low.leaves[class], p);
    }
    return found;
}

static struct choice_range choices(const struct placement_in *in)
{
    const struct place_wish *wish = &in->wish;
    struct choice_range range = {0};
    bool movable = in->has_nvme && in->compute_tier == HST_TIER_DRAM;
    for (int i = 0; i < LEAVE_COUNT; i++) {
        enum hst_class class = CLASS_OF[i];
        uint32_t all = i == LEAVE_STATES ? in->layout->tile_count : in->layout->unit_count;
        if (wish->fixed[class] && wish->tier[class] == HST_TIER_NVME)
            range.low.leaves[i] = all;
        range.high.leaves[i] = !wish->fixed[class] && movable ? all : range.low.leaves[i];
    }
    return range;
}

/* ---- refusals ---- */

#define MIB (1024.0 * 1024.0)

/* Rounded up to a tenth, so that the number is a budget that works. */
static double mib_up(uint64_t bytes)
{
    return ceil((double)bytes / MIB * 10) / 10;
}

/* Whether what depends on the batch is a good part of the need: worth naming only then. */
static bool batch_weighs(const struct placement *p)
{
    enum hst_tier tier = p->compute_tier;
    uint64_t batch = sat_add(p->table[HST_CLASS_ACTS][tier],
                             sat_add(p->table[HST_CLASS_CARRY][tier], p->work_bytes));
    return batch > (tier == HST_TIER_HBM ? p->hbm_bytes : p->dram_bytes) / 4;
}

/* The smallest layout does not fit; it is in *p. */
static int refuse_memory(const struct placement_in *in, const struct placement *p, char *why,
                         size_t why_bytes)
{
    const char *batch = batch_weighs(p) ? ", or lower --batch-tokens or --grain" : "";
    if (p->hbm_bytes > in->hbm_budget)
        snprintf(why, why_bytes,
                 "the model does not fit in the GPU's memory: weights, gradients, states, "
                 "activations and buffers need %.1f MiB of HBM, the budget is %.1f MiB. Fix: raise "
                 "--hbm%s, or "
                 "train it on the host (--device host), which keeps it in DRAM and NVMe",
                 mib_up(p->hbm_bytes), (double)in->hbm_budget / MIB, batch);
    else
        snprintf(why, why_bytes,
                 "no placement fits: the smallest needs %.1f MiB of DRAM (and %.1f MiB of NVMe), "
                 "the budget is %.1f MiB. Fix: raise --dram%s%s",
                 mib_up(p->dram_bytes), mib_up(p->nvme_bytes), (double)in->dram_budget / MIB,
                 in->has_nvme || in->compute_tier == HST_TIER_HBM ? "" : ", give a --store", batch);
    return -ENOSPC;
}

/* Each drive holds no more than it may; the sum is checked beside it. */
static bool drives_fit(const struct placement_in *in, const struct placement *p, uint32_t *full)
{
    for (*full = 0; *full < in->drive_count; ++*full)
        if (p->drive_bytes[*full] > in->drive_budgets[*full])
            return false;
    return p->nvme_bytes <= in->nvme_budget;
}

static int refuse_nvme(const struct placement_in *in, const struct placement *p, char *why,
                       size_t why_bytes)
{
    uint32_t full;
    if (!drives_fit(in, p, &full) && full < in->drive_count && in->drive_count > 1) {
        snprintf(why, why_bytes,
                 "directory %u of --store needs %.1f MiB for its share of the tiles, %.1f MiB can "
                 "be had there. Fix: free space there, or leave that directory out",
                 full + 1, mib_up(p->drive_bytes[full]), (double)in->drive_budgets[full] / MIB);
        return -EDQUOT;
    }
    snprintf(why, why_bytes,
             "the store needs %.1f MiB of NVMe for what does not fit in DRAM, its budget is %.1f "
             "MiB. Fix: free space or raise --nvme, raise --dram, or give another --store",
             mib_up(p->nvme_bytes), (double)in->nvme_budget / MIB);
    return -EDQUOT;
}

static int check_wish(const struct placement_in *in, char *why, size_t why_bytes)
{
    for (int c = 0; c < HST_CLASS_COUNT; c++) {
        if (!in->wish.fixed[c] || in->wish.tier[c] == in->compute_tier)
            continue;
        if (in->compute_tier == HST_TIER_HBM) {
            snprintf(why, why_bytes,
                     "%s can not be placed in %s on a GPU: all classes live in hbm there. Fix: "
                     "leave --place out, or --device host",
                     hst_class_name((enum hst_class)c), hst_tier_name(in->wish.tier[c]));
            return -EINVAL;
        }
        bool movable = c != HST_CLASS_CARRY;
        if (in->wish.tier[c] == HST_TIER_NVME && movable && in->has_nvme)
            continue;
        snprintf(why, why_bytes,
                 "%s can not be placed in %s here%s. Fix: carry takes dram, the rest dram or nvme",
                 hst_class_name((enum hst_class)c), hst_tier_name(in->wish.tier[c]),
                 in->has_nvme ? "" : " (no store directory was given)");
        return -EINVAL;
    }
    struct gather gathers[GATHER_MAX];
    for (uint32_t u = 0; u < in->layout->unit_count; u++) {
        if (placement_gather(in->layout, in->bytes, u, gathers) >= 0)
            continue;
        snprintf(why, why_bytes, "unit \"%s\" uses more than %u tied parameters",
                 in->layout->units[u].name, GATHER_MAX - 1);
        return -EINVAL;
    }
    return 0;
}

int placement_plan(const struct placement_in *in, struct placement *placement, char *why,
                   size_t why_bytes)
{
    int rc = check_wish(in, why, why_bytes);
    if (rc)
        return rc;
    struct placement p = {.units = calloc((size_t)in->layout->unit_count + 1, sizeof *p.units)};
    if (!p.units) {
        snprintf(why, why_bytes, "out of memory while planning %u units", in->layout->unit_count);
        return -ENOMEM;
    }
    struct choice_range range = choices(in);
    struct choice choice;
    bool found = false, room = false;
    for (size_t i = 0; i < RING_DEPTHS_COUNT && !room; i++) {
        uint32_t full;
        range.low.depths = RING_DEPTHS[i];
        found = search(in, &range, &choice, &p);
        room = found && drives_fit(in, &p, &full);
    }
    if (room) {
        *placement = p;
        return 0;
    }
    rc = found ? refuse_nvme(in, &p, why, why_bytes) : refuse_memory(in, &p, why, why_bytes);
    placement_free(&p);
    return rc;
}
