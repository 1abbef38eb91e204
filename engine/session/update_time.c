/* SPDX-License-Identifier: Apache-2.0 */
#include "session/update_time.h"

#include <errno.h>
#include <string.h>

/* ---- where it can be ---- */

static int refuse(struct hst_engine *engine, const char *reason)
{
    return report_fail(&engine->report, HST_E_VALUE, -EINVAL,
                       "the update cannot be optimistic: %s. Fix: --update deferred", reason);
}

/* Bytes on drives have their second slot in the store, which frees it with every step's version,
   but while a copy of one is made (--keep); without a store, where the placement has made room. */
struct update_wish optimistic_wish(const struct hst_engine *engine)
{
    return (struct update_wish){
        .optimistic = optimistic_wants_slots(engine),
        .either = engine->ranks.ranks == 1 && engine->config.update_time == HST_UPDATE_AUTO &&
                  engine->plan_in.deferred && engine->config.keep == 0,
        .frees = !engine->plan_in.stored || engine->versions.every == 1,
        /* `auto` makes a version of each step where it costs nothing more */
        .frees_all = !engine->plan_in.stored || engine->versions.every <= 1,
    };
}

/* There are second slots, or nothing needs one: the store has all of it that does not wait for the
 * norm on a GPU anyway. */
static bool may_choose(const struct hst_engine *engine)
{
    const struct update_wish wish = optimistic_wish(engine);
    if (!update_may_change(&wish, &engine->placement))
        return false;
    if (engine->plan_in.second_slots)
        return true;
    for (uint32_t u = 0; u < engine->layout.unit_count; u++) {
        const struct unit_placement *home = &engine->placement.units[u];
        const bool waits =
            placement_is_resident(&engine->placement, u) || engine->layout.units[u].frozen;
        const bool kept = home->nvme_states < home->tile_count ||
                          (home->weights.tier != HST_TIER_NVME && !engine->plan_in.derived_weights);
        if (!waits && home->tile_count > 0 && (!engine->plan_in.stored || kept))
            return false;
    }
    return update_uses_host(&engine->placement);
}

int optimistic_check(struct hst_engine *engine)
{
    struct versions *v = &engine->versions;
    engine->chooses =
        engine->ranks.ranks == 1 && may_choose(engine); /* by measured times, which differ */
    if (engine->chooses && !engine->config.plan)
        report_log(&engine->report, HST_LOG_INFO,
                   "I602 --update auto: an update is made beside the next forward (deferred) or in "
                   "the backward (optimistic), whichever makes steps shorter; the log tells which");
    if (!optimistic_wants_slots(engine))
        return 0;
    if (!update_uses_host(&engine->placement))
        return refuse(engine, "the GPU updates what is in its memory, where it has one slot");
    if (engine->plan_in.stored && update_uses_drives(&engine->placement)) {
        const char *durability = engine->config.durability;
        if (!durability || strcmp(durability, "auto") == 0)
            v->every = 1; /* what `auto` had left open */
        if (v->every != 1)
            return refuse(engine, "what lives on drives has a second slot only with --durability "
                                  "step, or none");
    }
    engine->optimistic = true;
    return 0;
}

bool optimistic_step_ended(struct hst_engine *engine, const struct hst_step_stats *stats)
{
    if (!engine->chooses)
        return false;
    bool clips = engine->config.clip > 0 && !(stats->grad_norm <= engine->config.clip);
    update_choice_note(&engine->choice, stats->seconds, clips || stats->skipped);
    return engine->choice.optimistic != engine->exec.verdict.optimistic;
}
