/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/optimistic.h"

#include "exec/failure.h"
#include "exec/memory.h"
#include "exec/optimizer.h"
#include "store/store.h"

#include <errno.h>
#include <string.h>

/* ---- where it can be ---- */

bool optimistic_wants_slots(const struct hst_engine *engine)
{
    return engine->plan_in.deferred && engine->config.update_time == HST_UPDATE_OPTIMISTIC;
}

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
        .either = engine->config.update_time == HST_UPDATE_AUTO && engine->plan_in.deferred &&
                  engine->config.keep == 0,
        .frees = !engine->plan_in.stored || engine->versions.every == 1,
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
    for (uint32_t tile = 0; tile < engine->layout.tile_count; tile++) {
        uint32_t unit = layout_tile(&engine->layout, tile).unit;
        bool waits = placement_is_resident(&engine->placement, unit);
        if (!waits && (!engine->plan_in.stored || memory_save_count(engine, tile) > 0))
            return false;
    }
    return update_uses_host(&engine->placement);
}

int optimistic_check(struct hst_engine *engine)
{
    struct versions *v = &engine->versions;
    engine->run.chooses = may_choose(engine);
    if (engine->run.chooses && !engine->config.plan)
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
    engine->run.optimistic = true;
    return 0;
}

/* ---- step by step ---- */

int optimistic_step_begins(struct hst_engine *engine)
{
    struct execute *run = &engine->run;
    run->left = PHASE_UPDATE; /* of which a graph may have nothing */
    return run->deferred ? 0 : optimizer_coefs(engine, 0, &run->early);
}

static bool are_equal(const struct hst_adam_coef *a, const struct hst_adam_coef *b)
{
    return a->grad_scale == b->grad_scale; /* the rest follows from the step */
}

int optimistic_judge(struct hst_engine *engine, double stored_norm)
{
    struct execute *run = &engine->run;
    int rc = run->skipped ? 0 : optimizer_coefs(engine, stored_norm, &run->coefs);
    run->left = run->skipped ? 0 : PHASE_UPDATE;
    if (rc || !run->optimistic)
        return rc;
    bool stands = !run->skipped && are_equal(&run->coefs.plain, &run->early.plain);
    if (!stands)
        run->left |= run->skipped ? (unsigned)PHASE_REVERT : (unsigned)PHASE_REVERT | PHASE_REDO;
    run->slot ^= !run->skipped;
    run->stale = stands ? UINT64_MAX : run->step_window + 1;
    return 0;
}

bool optimistic_step_ended(struct hst_engine *engine, const struct hst_step_stats *stats)
{
    struct execute *run = &engine->run;
    if (!run->chooses)
        return false;
    bool clips = engine->config.clip > 0 && !(stats->grad_norm <= engine->config.clip);
    update_choice_note(&run->choice, stats->seconds, clips || stats->skipped);
    return run->choice.optimistic != run->optimistic;
}

/* Without a store all that is on drives is scratch. */
void optimistic_settle(struct hst_engine *engine)
{
    if (engine->extents && !engine->versions.store)
        scratch_settle(engine->extents);
}

int optimistic_revert(struct hst_engine *engine)
{
    int rc = engine->versions.store ? store_revert(engine->versions.store)
             : engine->extents      ? scratch_revert(engine->extents)
                                    : 0;
    return rc ? engine_fail_extents(engine, rc) : 0;
}
