/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the homes: tries choices from everything where it is computed with on, letting go of one
 * class after the other, and of no more of each than must. A candidate that fits is laid out whole,
 * unless it was found before.
 */
#include "plan/search/placement_search.h"
#include "plan/search/placement_memo.h"
#include "plan/search/placement_refuse.h"

#include "base/saturate.h"
#include "base/size_text.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The order is by rising cost: what travels for each byte of memory won. Checkpoints before
 * gradients: they have the whole sweep between leaving and coming back. */
const struct placement_how PLACEMENT_USUAL = {
    .order = {LEAVE_STATES, LEAVE_ACTS, LEAVE_GRADS, LEAVE_WEIGHTS},
    .first_quarters = 4,
    .segment = 1};

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
static const struct pool_depths POOL_DEPTHS[] = {
    {24, 3, 2, 3}, {16, 3, 2, 3}, {4, 3, 2, 3}, {2, 1, 1, 1}};
static_assert(sizeof POOL_DEPTHS / sizeof POOL_DEPTHS[0] == PLACEMENT_POOL_DEPTHS, "all of them");

/* The same on a device; at least one unit's weights are copied while another one is computed with.
 */
static const struct device_depths DEVICE_DEPTHS[] = {{3, 2, 3}, {2, 2, 2}, {2, 1, 1}};
static_assert(sizeof DEVICE_DEPTHS / sizeof DEVICE_DEPTHS[0] == PLACEMENT_DEVICE_DEPTHS,
              "all of them");

struct choice_range {
    struct choice low, high;
    uint32_t *classes; /* so many of the order had their turn, at most; may be null */
};

/* It holds what is placed, and what is known of choices that were laid out before. */
struct scope {
    const struct placement_in *in;
    struct placement_memo *memo;
};

/* ---- which homes a wish allows ---- */

/* A tile's weights, gradients and states are with the one that updates it. */
static const enum hst_class UPDATED[] = {HST_CLASS_WEIGHTS, HST_CLASS_GRADS, HST_CLASS_STATES};
enum { UPDATED_COUNT = sizeof UPDATED / sizeof UPDATED[0] };

/* It counts those of the three that a wish puts into HBM, or not there. */
static int wished(const struct placement_in *in, bool hbm)
{
    int count = 0;
    for (int i = 0; i < UPDATED_COUNT; i++)
        count += in->wish.fixed[UPDATED[i]] && (in->wish.tier[UPDATED[i]] == HST_TIER_HBM) == hbm;
    return count;
}

bool placement_may_be_offloaded(const struct placement_in *in)
{
    return in->compute_tier == HST_TIER_HBM && wished(in, true) == 0;
}

static bool may_be_near(const struct placement_in *in)
{
    return in->compute_tier == HST_TIER_DRAM ||
           (wished(in, false) == 0 && !in->host_updates && placement_may_be_resident(in));
}

/* ---- fitting ---- */

/* It is found by bytes of memory alone, drives are laid out at the end. */
typedef bool fit(const struct placement_in *in, const struct placement *p);

static bool fits_hbm(const struct placement_in *in, const struct placement *p)
{
    return p->hbm_bytes <= in->hbm_budget;
}

/* It goes by memory alone: what leaves it is then the least that must, and NVMe has room for it or
 * not. */
static bool fits_memory(const struct placement_in *in, const struct placement *p)
{
    return fits_hbm(in, p) && p->dram_bytes <= in->dram_budget;
}

/* A search looks at that of *p which a memo keeps, until all is laid out. */
static void measure(const struct scope *s, const struct choice *c, struct placement *p)
{
    placement_memo_measure(s->memo, s->in, c, p);
}

/* Nothing that leaves DRAM, and no buffer pool there, takes HBM: of choices that differ in these
 * one is laid out. Where HBM alone is asked for, *p tells nothing of DRAM. */
static bool fits(const struct scope *s, const struct choice *c, struct placement *p, fit *test)
{
    struct choice of = *c;
    if (test == fits_hbm) {
        memset(of.leaves, 0, sizeof of.leaves);
        of.depths = POOL_DEPTHS[0];
    }
    measure(s, &of, p);
    return test(s->in, p);
}

/* The last value of one number, on the way from one with which the choice fits to one with which it
 * does not, with which it fits. */
static void last_that_fits(const struct scope *s, struct choice *c, uint32_t *number, uint32_t from,
                           uint32_t to, fit *test, struct placement *p)
{
    while (from > to ? from - to > 1 : to - from > 1) {
        *number = (uint32_t)(((uint64_t)from + to) / 2);
        if (fits(s, c, p, test))
            from = *number;
        else
            to = *number;
    }
    *number = from;
    measure(s, c, p);
}

/*
 * The same of states, of which there are so many tiles that halves take long. From the first tile
 * on none that leaves DRAM takes more of it than it frees, mostly much the same: so a guess by
 * proportion is near, and whatever is tried the answer is the same. *p holds what the choice takes,
 * `most_bytes` DRAM with `to` of them.
 */
static void last_states(const struct scope *s, struct choice *c, uint32_t to, uint64_t most_bytes,
                        struct placement *p)
{
    uint32_t *number = &c->leaves[LEAVE_STATES], from = *number;
    double fitting = (double)p->dram_bytes, lacking = (double)most_bytes;
    bool halve = false;
    while (from - to > 1) {
        const uint32_t span = from - to;
        const double part = (lacking - (double)s->in->dram_budget) / (lacking - fitting);
        const double guess = halve || !(part > 0 && part < 1) ? span / 2.0 : part * span;
        *number = to + (guess < 1 ? 1 : guess < span - 1 ? (uint32_t)guess : span - 1);
        if (fits(s, c, p, fits_memory)) {
            from = *number;
            fitting = (double)p->dram_bytes;
        } else {
            to = *number;
            lacking = (double)p->dram_bytes;
        }
        halve = from - to > span / 2;
    }
    *number = from;
    measure(s, c, p);
}

static uint64_t hbm_of(const struct placement *p)
{
    return p->hbm_bytes;
}

static uint64_t dram_of(const struct placement *p)
{
    return p->dram_bytes;
}

/* Lets as many of a class go as may, where that wins memory: its buffer pool takes some. */
static void let_go(const struct scope *s, struct choice *c, uint32_t *number, uint32_t most,
                   uint64_t (*held)(const struct placement *), struct placement *p)
{
    uint32_t before = *number;
    uint64_t bytes = held(p);
    *number = most;
    measure(s, c, p);
    if (held(p) < bytes)
        return;
    *number = before;
    measure(s, c, p);
}

/* Checkpoints leave HBM, no more of them than must for all else that is there. */
static void leave_hbm(const struct scope *s, const struct choice_range *range, struct choice *c,
                      struct placement *p)
{
    if (fits(s, c, p, fits_hbm))
        return;
    let_go(s, c, &c->acts_offloaded, range->high.acts_offloaded, hbm_of, p);
    if (fits_hbm(s->in, p) && c->acts_offloaded > range->low.acts_offloaded)
        last_that_fits(s, c, &c->acts_offloaded, c->acts_offloaded, range->low.acts_offloaded,
                       fits_hbm, p);
}

/* Checkpoints that have left HBM come back, as many as it has room for. */
static void return_acts(const struct scope *s, uint32_t low, struct choice *c, struct placement *p)
{
    uint32_t high = c->acts_offloaded;
    c->acts_offloaded = low;
    if (fits(s, c, p, fits_hbm))
        return;
    last_that_fits(s, c, &c->acts_offloaded, high, low, fits_hbm, p);
}

/*
 * Units stay in HBM, as many as it has room for where no checkpoint does or, if so wished, beside
 * those: from the first one on, or, where that is too large, from the second one on.
 * False, and nothing is changed, where none can.
 */
static bool fill_resident(const struct scope *s, const struct placement_how *how,
                          const struct choice_range *range, struct choice *c, struct placement *p)
{
    const struct choice without = *c;
    uint32_t units = s->in->layout->unit_count; /* that all may stay was tried before */
    if (how->resident_quarters == PLACEMENT_ALL || !may_be_near(s->in))
        return false;
    if (!how->acts_stay)
        c->acts_offloaded = range->high.acts_offloaded;
    last_that_fits(s, c, &c->resident.count, 0, units, fits_hbm, p);
    if (p->resident_units == 0) {
        c->resident.first = 1;
        last_that_fits(s, c, &c->resident.count, 0, units, fits_hbm, p);
    }
    c->resident.count = (uint32_t)((uint64_t)c->resident.count * how->resident_quarters / 4);
    measure(s, c, p);
    if (fits_hbm(s->in, p) && p->resident_units > 0) {
        return_acts(s, without.acts_offloaded, c, p);
        return true;
    }
    *c = without;
    measure(s, c, p);
    return false;
}

/* Classes leave DRAM, one after the other. */
static bool leave_dram(const struct scope *s, const struct placement_how *how,
                       const struct choice_range *range, struct choice *c, struct placement *p)
{
    bool found = fits(s, c, p, fits_memory);
    for (uint32_t i = 0; i < LEAVE_COUNT && !found; i++) {
        enum leaving class = how->order[i];
        if (range->classes && *range->classes < i + 1)
            *range->classes = i + 1;
        uint32_t low = range->low.leaves[class];
        const uint64_t bytes = p->dram_bytes;
        let_go(s, c, &c->leaves[class], range->high.leaves[class], dram_of, p);
        found = fits_memory(s->in, p);
        if (found && c->leaves[class] > low && class == LEAVE_STATES)
            last_states(s, c, low, bytes, p);
        else if (found && c->leaves[class] > low)
            last_that_fits(s, c, &c->leaves[class], c->leaves[class], low, fits_memory, p);
    }
    return found;
}

/* Bytes on drives. */
static uint64_t lay_on_drives(const struct scope *s, const struct choice *c, struct placement *p)
{
    return s->in->has_nvme ? placement_memo_drives(s->memo, s->in, c, p) : 0;
}

/* Resident units are loaded and saved by way of DRAM, which takes some of it: they stay only where
 * that lets no more go to drives. *c, found, *p: with them; *p is then of the better choice. */
static bool prefer_resident(const struct scope *s, const struct placement_how *how,
                            const struct choice_range *range, bool found, struct choice *c,
                            struct placement *p)
{
    const struct choice with = *c;
    const uint64_t dram_bytes = p->dram_bytes, nvme_bytes = lay_on_drives(s, c, p);
    *c = range->low;
    leave_hbm(s, range, c, p);
    bool without = leave_dram(s, how, range, c, p);
    bool better = found != without ? found
                  : found          ? nvme_bytes <= lay_on_drives(s, c, p)
                                   : dram_bytes <= p->dram_bytes;
    if (!better)
        return without;
    *c = with;
    measure(s, c, p);
    return found;
}

/* *c is the choice that *p is measured of: the first that fits, or the smallest. */
static bool search(const struct scope *s, const struct placement_how *how,
                   const struct choice_range *range, struct choice *c, struct placement *p)
{
    *c = range->low;
    leave_hbm(s, range, c, p);
    bool filled = fill_resident(s, how, range, c, p);
    bool found = leave_dram(s, how, range, c, p);
    return filled ? prefer_resident(s, how, range, found, c, p) : found;
}

/* The rest of HBM holds weights of more units: the graph keeps them there for the backward. */
static void fill_reservations(const struct scope *s, struct choice *c, struct placement *p)
{
    const bool all = placement_joins_rows(s->in);
    uint32_t borrowers = s->in->layout->unit_count - (all ? 0 : p->resident_units),
             *depth = &c->device_depths.reservations;
    bool borrow = false;
    for (int size = 0; size < UNIT_SIZES; size++)
        borrow = borrow || p->device_weights[size].count > 0;
    if (borrow && *depth < borrowers)
        last_that_fits(s, c, depth, *depth, borrowers + 1, fits_memory, p);
}

/* And what is left then activations: each unit that keeps them has no forward to compute again. */
static void fill_saved(const struct scope *s, struct choice *c, struct placement *p)
{
    uint32_t able = placement_savable_units(s->in);
    if (c->saved < able)
        last_that_fits(s, c, &c->saved, c->saved, able + 1, fits_memory, p);
}

/* ---- what may be chosen ---- */

/* Somewhere outside memory: a drive, or, for gradients that nothing waits for, nowhere at all. */
static bool may_leave(const struct placement_in *in, enum hst_class class)
{
    const bool exact = in->quantised && !in->layout->exact_beside && !placement_joins_rows(in);
    if ((class == HST_CLASS_WEIGHTS && (in->whole_weights || exact)) ||
        (class == HST_CLASS_GRADS && in->whole_grads))
        return false;
    return in->has_nvme || (class == HST_CLASS_GRADS && !in->deferred);
}

static struct choice_range choices(const struct placement_in *in, const struct placement_how *how)
{
    const struct place_wish *wish = &in->wish;
    struct choice_range range = {
        .low = {.segment = how->segment, .streamed = how->streamed_eighths / 8.0}};
    bool gpu = in->compute_tier == HST_TIER_HBM,
         offloaded = how->resident_quarters != PLACEMENT_ALL;
    range.low.resident.count = offloaded ? 0 : in->layout->unit_count;
    range.low.saved = (placement_savable_units(in) * how->saved_eighths + 7) / 8;
    for (int i = 0; i < LEAVE_COUNT; i++) {
        enum hst_class class = CLASS_OF[i];
        uint32_t all = i == LEAVE_STATES ? in->layout->tile_count : in->layout->unit_count;
        bool movable = may_leave(in, class) && (!gpu || offloaded || i == LEAVE_ACTS);
        if (wish->fixed[class] && wish->tier[class] == HST_TIER_NVME)
            range.low.leaves[i] = all;
        range.high.leaves[i] = !wish->fixed[class] && movable ? all : range.low.leaves[i];
    }
    bool acts = wish->fixed[HST_CLASS_ACTS], hbm = wish->tier[HST_CLASS_ACTS] == HST_TIER_HBM;
    range.low.acts_offloaded = acts && !hbm ? in->layout->unit_count : 0;
    range.high.acts_offloaded = acts && hbm ? 0 : in->layout->unit_count;
    if (how->acts_leave)
        range.low.acts_offloaded = range.high.acts_offloaded;
    /* no more of the first class than its share */
    enum leaving first = how->order[0];
    uint32_t low = range.low.leaves[first], *high = &range.high.leaves[first];
    *high = low + (uint32_t)((uint64_t)(*high - low) * how->first_quarters / 4);
    return range;
}

/* Checkpoints in memory at once with segments of so many units: those that are kept, and those
 * between the first and the last one of a segment. */
static uint64_t checkpoints_of(const struct layout *layout, uint32_t segment, uint32_t *longest)
{
    uint64_t kept = 0;
    uint32_t run = 0;
    for (uint32_t u = 0; u < layout->unit_count; u++) {
        run = layout_may_recompute(&layout->units[u]) ? run + 1 : 0;
        kept += run % segment == 1 || (run > 0 && segment == 1);
        *longest = run > *longest ? run : *longest;
    }
    uint32_t most = segment < *longest ? segment : *longest;
    return kept + (most > 2 ? most - 2 : 0);
}

uint32_t placement_longest_segment(const struct placement_in *in)
{
    uint32_t longest = 0, best = 1;
    uint64_t least = checkpoints_of(in->layout, 1, &longest);
    if (in->wish.fixed[HST_CLASS_ACTS])
        return 1;
    for (uint32_t segment = 2; segment <= longest && segment - 2 < least; segment++) {
        uint64_t count = checkpoints_of(in->layout, segment, &longest);
        if (count < least)
            best = segment;
        least = count < least ? count : least;
    }
    return best;
}

/* ---- wishes ---- */

static int refuse_place(const struct placement_in *in, enum hst_class class, const char *reason,
                        char *why, size_t why_bytes)
{
    snprintf(why, why_bytes, "--place: %s cannot be placed in %s here%s", hst_class_name(class),
             hst_tier_name(in->wish.tier[class]), reason);
    return -EINVAL;
}

static int check_class(const struct placement_in *in, enum hst_class class, char *why,
                       size_t why_bytes)
{
    enum hst_tier tier = in->wish.tier[class];
    bool gpu = in->compute_tier == HST_TIER_HBM;
    if (!in->wish.fixed[class] || tier == in->compute_tier)
        return 0;
    if (class == HST_CLASS_HIDDEN || tier == HST_TIER_HBM)
        return refuse_place(in, class,
                            gpu ? ". Fix: carry takes hbm, the rest hbm, dram or nvme"
                                : ". Fix: carry takes dram, the rest dram or nvme",
                            why, why_bytes);
    if (tier == HST_TIER_NVME && !may_leave(in, class))
        return refuse_place(in, class,
                            " (no store directory was given). Fix: give a --store, or take dram",
                            why, why_bytes);
    return 0;
}

static const char *why_not_near(const struct placement_in *in)
{
    if (in->host_updates)
        return ", and not with --state bf16, which the host updates";
    if (placement_may_be_resident(in))
        return ": whoever updates, the GPU or the host, has all of them";
    if (placement_ranks(in) == 1)
        return ", and not with --gather int8, whose weights pass by dram";
    return in->joined ? ", and not at ZeRO stage 1, whose ranks meet in dram"
                      : ", and not of several ranks that meet in dram (--comm mpi)";
}

static int check_wish(const struct placement_in *in, char *why, size_t why_bytes)
{
    for (int c = 0; c < HST_CLASS_COUNT; c++)
        if (check_class(in, (enum hst_class)c, why, why_bytes))
            return -EINVAL;
    if (!may_be_near(in) && !placement_may_be_offloaded(in)) {
        const bool never = in->host_updates || !placement_may_be_resident(in);
        snprintf(why, why_bytes,
                 "--place: weights, grads and states live in hbm all three or none of them%s. Fix: "
                 "name hbm for %s of them",
                 why_not_near(in), never ? "none" : "all or none");
        return -EINVAL;
    }
    struct gather gathers[GATHER_MAX];
    for (uint32_t u = 0; u < in->layout->unit_count; u++) {
        if (placement_gather(in->layout, optimizer_weight_bytes(in->optimizer), u, gathers) >= 0)
            continue;
        snprintf(why, why_bytes, "unit \"%s\" uses more than %u tied parameters",
                 in->layout->units[u].name, GATHER_MAX - 1);
        return -EINVAL;
    }
    return 0;
}

/* ---- the whole ---- */

/* With buffer pools as deep as there is room for: those of the drives first, which are what a step
 * waits for. *found: memory has room, and the drives have not. *again: what fits was found before,
 * and is not laid out; may be null. */
static bool search_depths(const struct scope *s, const struct placement_how *how, uint32_t *classes,
                          bool *found, bool *again, struct placement *p)
{
    const struct placement_in *in = s->in;
    struct choice_range range = choices(in, how);
    range.classes = classes;
    struct choice choice = range.low;
    uint32_t most = in->compute_tier == HST_TIER_HBM ? PLACEMENT_DEVICE_DEPTHS : 1, full;
    for (uint32_t depth = how->buffer_pools; depth < PLACEMENT_POOL_DEPTHS; depth++)
        for (uint32_t device = how->device_pools; device < most; device++) {
            range.low.depths = POOL_DEPTHS[depth];
            range.low.device_depths = DEVICE_DEPTHS[device];
            *found = search(s, how, &range, &choice, p);
            if (!*found)
                continue;
            const struct choice bare = choice;
            fill_reservations(s, &choice, p); /* drives have nothing of what fills memory */
            fill_saved(s, &choice, p);
            if (again && (*again = placement_memo_was_found(s->memo, &choice)))
                return true;
            lay_out(in, &choice, p);
            if (placement_drives_fit(in, p, &full)) {
                placement_memo_note_found(s->memo, &choice);
                return true;
            }
            choice = bare;
        }
    lay_out(in, &choice, p);
    return false;
}

int placement_search(const struct placement_in *in, const struct placement_how *how,
                     struct placement_memo *memo, uint32_t *classes, struct placement *placement)
{
    const struct scope s = {in, memo};
    struct placement p = {.units = calloc((size_t)in->layout->unit_count + 1, sizeof *p.units)};
    bool found, again = false, offloaded = how->resident_quarters != PLACEMENT_ALL;
    if (!p.units)
        return -ENOMEM;
    bool may = in->compute_tier == HST_TIER_DRAM || !offloaded || placement_may_be_offloaded(in);
    *classes = 0;
    const bool fits_so = may && search_depths(&s, how, classes, &found, &again, &p);
    if (fits_so && !again) {
        *placement = p;
        return 0;
    }
    placement_free(&p);
    return fits_so ? -EALREADY : -ENOSPC;
}

/* In the usual way: all units where they are computed with, or as many as may be. */
static bool search_usual(const struct scope *s, uint32_t segment, bool *found, struct placement *p)
{
    struct placement_how how = PLACEMENT_USUAL;
    how.segment = segment;
    how.resident_quarters = PLACEMENT_ALL;
    if (may_be_near(s->in) && search_depths(s, &how, NULL, found, NULL, p))
        return true;
    how.resident_quarters = 4;
    return placement_may_be_offloaded(s->in) && search_depths(s, &how, NULL, found, NULL, p);
}

/* It tells how far a placement is from fitting: what it lacks first, and how much it wants of
 * that. */
struct lack {
    int what; /* 1: room on the drives, 2: DRAM, 3: HBM */
    uint64_t bytes;
};

static struct lack lack_of(const struct placement_in *in, bool found, const struct placement *p)
{
    if (found)
        return (struct lack){1, p->nvme_bytes};
    return fits_hbm(in, p) ? (struct lack){2, p->dram_bytes} : (struct lack){3, p->hbm_bytes};
}

/* All checkpoints are kept where that fits at all; else as many as may be, since each that is not
 * costs a forward. Where nothing fits *p is the smallest. */
static bool search_segments(const struct scope *s, bool *found, struct placement *p)
{
    const struct placement_in *in = s->in;
    uint32_t longest = placement_longest_segment(in), best = 1;
    struct lack least = {4, 0};
    for (uint32_t segment = 1; segment <= longest; segment++) {
        if (search_usual(s, segment, found, p))
            return true;
        struct lack lack = lack_of(in, *found, p);
        if (lack.what > least.what || (lack.what == least.what && lack.bytes >= least.bytes))
            continue;
        best = segment;
        least = lack;
    }
    return best < longest && search_usual(s, best, found, p);
}

int placement_try(const struct placement_in *in, struct placement *placement, char *why,
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
    const struct scope scope = {in, placement_memo_make(in)};
    bool found = false;
    const bool placed = search_segments(&scope, &found, &p);
    placement_memo_free(scope.memo);
    if (!placed)
        rc = found ? placement_refuse_nvme(in, &p, why, why_bytes)
                   : placement_refuse_memory(in, &p, why, why_bytes);
    *placement = p;
    return rc;
}

int placement_plan(const struct placement_in *in, struct placement *placement, char *why,
                   size_t why_bytes)
{
    struct placement p = {0};
    int rc = placement_try(in, &p, why, why_bytes);
    if (rc)
        placement_free(&p);
    else
        *placement = p;
    return rc;
}
