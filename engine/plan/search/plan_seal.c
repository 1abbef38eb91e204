/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides which plans are worth making, and keeps the best. Each is a value of its own: what loses
 * is freed, and nothing has to be undone.
 */
#include "plan/search/plan_seal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* These are of the graph of a search whose outcome is simulated once more, where by the rough one
 * it takes no longer than so many times as long as what there is. */
#define ROUGH_TILES 128u
#define ROUGH_MOST  1.05

/* ---- values ---- */

void plan_free(struct plan *plan)
{
    placement_free(&plan->homes.placement);
    if (plan->layout)
        layout_free(plan->layout);
    free(plan->layout);
    *plan = (struct plan){0};
}

static void replace_plan(struct plan *plan, const struct plan *other)
{
    plan_free(plan);
    *plan = *other;
}

static void replace_homes(struct homes *homes, const struct homes *other)
{
    placement_free(&homes->placement);
    *homes = *other;
}

/* `better` was found after `first` was: it is told beside the usual homes that those began with. */
static void tell_first(struct planned *better, const struct planned *first)
{
    better->usual_step_s = first->usual_step_s;
    better->simulated += first->simulated;
    better->better = true;
}

/* Memory or drives have too little room. */
static bool is_room(int rc)
{
    return rc == -ENOSPC || rc == -EDQUOT;
}

/* ---- tiles and slices ---- */

/* The layout alone. Errors: -ERANGE there is nothing to slice; -EINVAL; -ENOMEM. */
static int cut_layout(const struct plan_in *in, uint32_t tile_elements, bool slices,
                      struct plan *plan)
{
    struct layout *layout = calloc(1, sizeof *layout);
    *plan = (struct plan){.layout = layout, .homes.in = in->placement};
    if (!layout)
        return -ENOMEM;
    int rc =
        slices ? layout_cut(in->layout, tile_elements, layout) : layout_copy(in->layout, layout);
    if (rc)
        return rc;
    snprintf(plan->why, sizeof plan->why, "more than 2^32 tiles. Fix: larger tile_elements");
    return layout_seal(layout, tile_elements, in->share.world ? in->share : SHARE_ALL);
}

/* With the usual homes. Errors: cut_layout's and placement_try's. */
static int plan_usual(const struct plan_in *in, uint32_t tile_elements, bool slices,
                      struct plan *plan)
{
    int rc = cut_layout(in, tile_elements, slices, plan);
    if (rc)
        return rc;
    struct placement_in *of = &plan->homes.in;
    of->layout = plan->layout;
    of->second_slots = in->update.optimistic;
    if (in->store_fixed)
        in->store_fixed(plan->layout, of->optimizer, of->drive_count, of->store_fixed);
    return placement_try(of, &plan->homes.placement, plan->why, sizeof plan->why);
}

/* Units are in slices where they do not fit as they are, or whole where slices are there and do not
 * fit; of two ways that do not fit the one that lacks less is told of. */
static int plan_tiles(const struct plan_in *in, uint32_t tile_elements, struct plan *plan)
{
    struct plan other;
    const bool slices = in->there == PLAN_UNITS_SLICED;
    int first = plan_usual(in, tile_elements, slices, plan);
    if (!is_room(first) && first != -ERANGE)
        return first;
    int rc = plan_usual(in, tile_elements, !slices, &other);
    if (first != -ERANGE &&
        (rc == -ERANGE || (is_room(rc) && !homes_lack_less(&other.homes, &plan->homes)))) {
        plan_free(&other);
        return first;
    }
    replace_plan(plan, &other);
    return rc;
}

static bool has_tiles_on_drives(const struct placement *p)
{
    for (uint32_t u = 0; u < p->layout->unit_count; u++)
        if (p->units[u].grads.tier == HST_TIER_NVME)
            return true;
    return update_uses_drives(p);
}

/* Large ones where a GPU updates any, and none passes through the buffer pool of the drives. */
static int choose_tiles(const struct plan_in *in, struct plan *plan)
{
    uint32_t tile_elements = in->tile_elements ? in->tile_elements : PLAN_TILE_HOST;
    if (in->tile_elements == 0 && in->placement.compute_tier != HST_TIER_DRAM) {
        int rc = plan_tiles(in, PLAN_TILE_DEVICE, plan);
        const struct placement *p = &plan->homes.placement;
        if (rc == 0 && p->resident_units > 0 && !has_tiles_on_drives(p))
            return 0;
        plan_free(plan);
    }
    return plan_tiles(in, tile_elements, plan);
}

/* ---- homes ---- */

/* The usual ones with second slots. Errors: no room; -ENOMEM. */
static int find_with_slots(const struct homes *homes, struct homes *with)
{
    char why[384];
    *with = (struct homes){.in = homes->in, .planned = homes->planned};
    with->in.second_slots = true;
    return placement_plan(&with->in, &with->placement, why, sizeof why);
}

/* Second slots, where the budget has room for them beside all that is there. */
static void take_spare_slots(const struct plan_in *in, struct homes *homes)
{
    struct homes with;
    if (homes->in.second_slots || !update_could_use_slots(&in->update, &homes->placement))
        return;
    if (find_with_slots(homes, &with) == 0 && homes_differ_by_slots(&with, homes))
        replace_homes(homes, &with);
    else
        placement_free(&with.placement);
}

static struct planner_in planner_of(const struct plan_in *in, const struct homes *homes,
                                    bool optimistic)
{
    return (struct planner_in){.placement = &homes->in,
                               .machine = in->machine,
                               .optimistic = optimistic,
                               .phases = in->phases,
                               .phases_on_drives = in->phases_on_drives};
}

static int improve_with_slots(const struct plan_in *in, struct homes *with)
{
    const struct planner_in of = planner_of(in, with, true);
    int rc = planner_improve(&of, &with->placement, &with->planned);
    return rc ? rc : planner_update(&of, &with->placement, &with->planned, &with->steps);
}

/* No others can be faster. */
static bool are_least(const struct plan_in *in, const struct homes *homes)
{
    const struct planner_in of = planner_of(in, homes, in->update.optimistic);
    return planner_is_least(&of, planner_unclipped_s(&homes->steps));
}

/* Other homes for the sake of an update in the backward, where that may be chosen: its second slots
 * take room. */
static int try_optimistic(const struct plan_in *in, struct homes *homes)
{
    struct homes with;
    if (!update_could_use_slots(&in->update, &homes->placement))
        return 0;
    int rc = find_with_slots(homes, &with);
    if (rc && rc != -ENOMEM)
        return 0; /* they do not fit */
    rc = rc ? rc : improve_with_slots(in, &with);
    if (rc || !update_could_use_slots(&in->update, &with.placement) ||
        !homes_slots_are_worth(&with.steps, &homes->steps)) {
        placement_free(&with.placement);
        return rc;
    }
    struct planned *planned = &with.planned;
    size_t said = strlen(planned->what);
    snprintf(planned->what + said, sizeof planned->what - said,
             "; second slots for an optimistic update");
    tell_first(planned, &homes->planned);
    replace_homes(homes, &with);
    return 0;
}

/* ---- all that is saved on drives, where the host computes ---- */

/* False where something is wished for elsewhere, or steps could not change to an update that does
 * not wait. Versions have slots of their own there. */
static bool ask_for_drives(const struct plan_in *in, const struct homes *homes, struct homes *with)
{
    static const enum hst_class saved[] = {HST_CLASS_STATES, HST_CLASS_WEIGHTS};
    const struct update_wish *wish = &in->update;
    struct place_wish *place = &with->in.wish;
    *with = (struct homes){.in = homes->in};
    if (homes->in.compute_tier != HST_TIER_DRAM || !homes->in.has_nvme ||
        !(wish->optimistic || (wish->either && wish->frees_all)))
        return false;
    for (size_t i = 0; i < (homes->in.derived_weights ? 1 : sizeof saved / sizeof *saved); i++) {
        if (place->fixed[saved[i]] && place->tier[saved[i]] != HST_TIER_NVME)
            return false;
        place->fixed[saved[i]] = true;
        place->tier[saved[i]] = HST_TIER_NVME;
    }
    with->in.second_slots = wish->optimistic || !homes->in.stored;
    return true;
}

/* True where an update may be optimistic on these homes, too, as a version has all of it. */
static bool all_saved_on_drives(const struct placement *p, bool derived_weights)
{
    for (uint32_t u = 0; u < p->layout->unit_count; u++) {
        const struct unit_placement *home = &p->units[u];
        if (home->tile_count > 0 && !p->layout->units[u].frozen &&
            (home->nvme_states < home->tile_count ||
             (home->weights.tier != HST_TIER_NVME && !derived_weights)))
            return false;
    }
    return true;
}

/* All is in each step's version. */
static struct planner_in drives_of(const struct plan_in *in, const struct homes *homes,
                                   bool optimistic)
{
    struct planner_in of = planner_of(in, homes, optimistic);
    of.phases |= (unsigned)PHASE_SAVE | PHASE_COMMIT;
    return of;
}

/* Seconds of both updates, on homes that were found for a deferred one. */
static int time_both(const struct plan_in *in, struct homes *homes)
{
    const struct planner_in of = drives_of(in, homes, false);
    if (homes->in.compute_tier != HST_TIER_DRAM || !in->update.either || !in->update.frees_all ||
        !(homes->in.stored || homes->in.second_slots) ||
        !all_saved_on_drives(&homes->placement, homes->in.derived_weights))
        return 0;
    return planner_update(&of, &homes->placement, NULL, &homes->steps);
}

/* They are searched for on a graph of fewer tiles, which tells them apart as well, by either
 * update: each search goes from good to better ones, and not always to the best. */
static int improve_on_drives(const struct plan_in *in, bool optimistic, const struct homes *best,
                             struct homes *with)
{
    const struct planner_in exact = drives_of(in, with, true);
    struct planner_in rough = drives_of(in, with, optimistic);
    if (rough.machine.tiles == 0 || rough.machine.tiles > ROUGH_TILES)
        rough.machine.tiles = ROUGH_TILES;
    int rc = planner_improve(&rough, &with->placement, &with->planned);
    rc = rc ? rc : planner_update(&rough, &with->placement, &with->planned, &with->steps);
    const double most_s = ROUGH_MOST * planner_unclipped_s(&best->steps);
    if (rc == 0 && planner_unclipped_s(&with->steps) < most_s)
        rc = planner_time(&exact, &with->placement, &with->steps);
    with->planned.step_s = with->steps.optimistic_s;
    return rc;
}

/* A step that does not clip wins enough, as drives wear, and more than one that clips loses. */
static bool are_worth_drives(const struct update_steps *drives, const struct update_steps *others)
{
    const double was = planner_unclipped_s(others), won_s = was - planner_unclipped_s(drives);
    return won_s > was * PLAN_DRIVES_GAIN_LEAST && won_s > drives->deferred_s - others->deferred_s;
}

/* More memory lets states stay there, and then an update has to wait for the norm. What was fast
 * with less memory is therefore tried with more: so no plan is much slower for it. */
static int try_drives(const struct plan_in *in, bool optimistic, struct homes *homes)
{
    char why[384];
    struct homes with;
    if (!ask_for_drives(in, homes, &with))
        return 0;
    int rc = placement_plan(&with.in, &with.placement, why, sizeof why);
    if (rc)
        return rc == -ENOMEM ? rc : 0; /* they do not fit */
    rc = improve_on_drives(in, optimistic, homes, &with);
    if (rc || !are_worth_drives(&with.steps, &homes->steps)) {
        placement_free(&with.placement);
        return rc;
    }
    with.in.wish = homes->in.wish;
    struct planned *planned = &with.planned;
    size_t said = strlen(planned->what);
    snprintf(planned->what + said, sizeof planned->what - said,
             "; on drives for an optimistic update");
    tell_first(planned, &homes->planned);
    replace_homes(homes, &with);
    return 0;
}

/* The fastest, where enough is known of the machine. slots: those with second slots, too. */
static int find_fastest(const struct plan_in *in, bool slots, struct homes *homes)
{
    take_spare_slots(in, homes);
    if (!in->is_known)
        return 0;
    const struct planner_in of = planner_of(in, homes, in->update.optimistic);
    int rc = planner_improve(&of, &homes->placement, &homes->planned);
    homes->steps = (struct update_steps){homes->planned.step_s, homes->planned.step_s};
    if (rc == 0 && homes->in.second_slots && !of.optimistic)
        rc = planner_update(&of, &homes->placement, &homes->planned, &homes->steps);
    rc = rc || !slots || are_least(in, homes) ? rc : try_optimistic(in, homes);
    rc = rc ? rc : time_both(in, homes);
    rc = rc || are_least(in, homes) ? rc : try_drives(in, true, homes);
    return rc || are_least(in, homes) ? rc : try_drives(in, false, homes);
}

/* With what slices leave to others a step may be faster. */
static int try_slices(const struct plan_in *in, struct plan *plan)
{
    struct plan sliced;
    if (plan->homes.planned.simulated == 0 || plan->layout->whole || in->there != PLAN_UNITS_ANY ||
        are_least(in, &plan->homes))
        return 0;
    int rc = plan_usual(in, plan->layout->tile_elements, true, &sliced);
    rc = rc ? rc : find_fastest(in, plan->homes.in.second_slots, &sliced.homes);
    if (rc || !homes_are_better(&sliced.homes, &plan->homes)) {
        plan_free(&sliced);
        return rc == -ENOMEM ? rc : 0; /* else there are none, or they do not fit */
    }
    tell_first(&sliced.homes.planned, &plan->homes.planned);
    replace_plan(plan, &sliced);
    return 0;
}

/* ---- the whole ---- */

/* Nothing of it is to be looked at where it failed. */
static int fail(struct plan *plan, int rc)
{
    struct plan failed = {0};
    if (is_room(rc))
        return rc;
    if (rc == -EINVAL)
        memcpy(failed.why, plan->why, sizeof failed.why);
    replace_plan(plan, &failed);
    return rc;
}

int plan_seal(const struct plan_in *in, struct plan *plan)
{
    int rc = choose_tiles(in, plan);
    rc = rc ? rc : find_fastest(in, true, &plan->homes);
    rc = rc ? rc : try_slices(in, plan);
    if (rc)
        return fail(plan, rc);
    plan->why[0] = '\0';
    return 0;
}
