/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This is what is decided when an engine is sealed: what it knows goes into a plan (plan/search),
 * and the plan into the engine. For training all of it is allocated afterwards; a plan ends here.
 */
#include "plan/graph/step_graph.h"
#include "plan/search/plan_seal.h"
#include "session/engine_state.h"
#include "session/predict.h"
#include "session/ranks/ranks.h"
#include "session/store/versions.h"
#include "session/tell_plan.h"
#include "session/update_time.h"
#include "store/files.h"
#include "store/store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int engine_fail_tables(struct hst_engine *engine, int native)
{
    return report_fail(&engine->report, HST_E_BUDGET, native,
                       "no memory for the plan's own tables: %s", strerror(-native));
}

/* ---- what is known ---- */

/* A checkpoint can only be the hidden state where both are as large. */
static int check_recompute(struct hst_engine *engine)
{
    for (uint32_t u = 0; u < engine->layout.unit_count; u++) {
        const struct layout_unit *unit = &engine->layout.units[u];
        if (!unit->recompute || (unit->act_bytes_per_token == engine->hidden_bytes_per_token &&
                                 unit->act_bytes_per_token > 0))
            continue;
        return report_fail(&engine->report, HST_E_VALUE, -EINVAL,
                           "unit \"%s\" has a checkpoint of %llu bytes per token and may be "
                           "recomputed, but the carry has %llu. Fix: make it the carry, or "
                           "leave out HST_UNIT_RECOMPUTE",
                           unit->name, (unsigned long long)unit->act_bytes_per_token,
                           (unsigned long long)engine->hidden_bytes_per_token);
    }
    return 0;
}

/* A share that is asked for needs a GPU that can. */
static int check_streams(struct hst_engine *engine)
{
    if (engine->plan_in.stream_share == 0)
        return 0;
    if (engine_computes_in_dram(engine))
        return report_fail(&engine->report, HST_E_VALUE, -EINVAL,
                           "--gpu-update is for a GPU, and the host computes. Fix: leave it out");
    if (engine->plan_in.host_updates)
        return report_fail(&engine->report, HST_E_VALUE, -EINVAL,
                           "--gpu-update is not for --state bf16, which the host updates. "
                           "Fix: leave one of the two out");
    return 0;
}

/* Beside budgets and wishes, which creating has found. */
static int complete(struct hst_engine *engine)
{
    struct placement_in *in = &engine->plan_in;
    in->optimizer = engine->optimizer;
    in->has_nvme = engine->drive_count > 0;
    in->whole_weights = engine->ranks.ranks > 1 && engine->config.zero_stage >= HST_ZERO_2;
    in->whole_grads = engine->ranks.ranks > 1 && engine->config.zero_stage >= HST_ZERO_1;
    in->quantised = engine->config.gather == HST_GATHER_INT8;
    /* where devices are joined the host's buffer has the rank's exact weights alone */
    engine->layout.exact_beside = in->quantised && !in->joined &&
                                  in->wish.fixed[HST_CLASS_WEIGHTS] &&
                                  in->wish.tier[HST_CLASS_WEIGHTS] == HST_TIER_NVME;
    in->secondary = ranks_secondary(engine);
    in->replicas = ranks_are_replicas(engine) ? engine->ranks.ranks : 0;
    in->ways = engine->ways.count;
    in->batch_tokens = engine->ways.count * engine->ways.tokens;
    in->micro_batch_tokens = engine->ways.micro_tokens;
    in->way_dtype = ranks_widest(engine);
    in->way_buffers = ways_buffers(&engine->ways);
    in->hidden_bytes_per_token = engine->hidden_bytes_per_token;
    /* one gradient that is not finite may leave out the update of all */
    in->deferred = engine->config.clip > 0 || engine->config.skip_nonfinite ||
                   engine->config.precision == HST_PRECISION_FP16;
    in->recompute = engine->config.activations == HST_ACTIVATIONS_RECOMPUTE;
    in->streams = engine->config.gpu_update != 0;
    in->stream_share = engine->config.gpu_update > 0 ? engine->config.gpu_update : 0;
    int rc = check_recompute(engine);
    rc = rc ? rc : check_streams(engine);
    rc = rc ? rc : store_dirs_rates(engine, in);
    if (rc == 0 && in->stored)
        store_dirs_there(engine, in);
    rc = rc ? rc : ranks_check_nodes(engine);
    rc = rc ? rc : ranks_plan_alike(engine, in);
    return rc ? rc : ranks_rates_alike(engine);
}

/* Tiles are those of the store where none were asked for, which may be resumed with other homes.
 */
static uint32_t tiles_wanted(const struct hst_engine *engine)
{
    const struct share_map *map = &engine->shares.map;
    uint32_t wish = engine->config.tile_elements;
    if (wish == 0 && (map->fate == SHARE_OWN || map->fate == SHARE_MOVE))
        return map->tile_elements;
    const char *store = engine->drives[0].path;
    return wish == 0 && store ? store_tile_elements_there(store, engine->ranks.rank) : wish;
}

/* Ranks have shards of slices, or of whole units. Those of the store are kept where they fit. */
static enum plan_units units_there(const struct hst_engine *engine)
{
    const struct shares *shares = &engine->shares;
    if (engine->ranks.ranks == 1 || shares->map.fate != SHARE_OWN || shares->replicas > 0)
        return PLAN_UNITS_ANY;
    return shares->map.slices ? PLAN_UNITS_SLICED : PLAN_UNITS_WHOLE;
}

static struct plan_in known(const struct hst_engine *engine)
{
    struct plan_in in = {.layout = &engine->layout,
                         .placement = engine->plan_in,
                         .share = {0, ranks_share(engine).world}, /* all ranks plan alike */
                         .tile_elements = tiles_wanted(engine),
                         .there = units_there(engine),
                         .update = optimistic_wish(engine),
                         .store_fixed = engine->plan_in.stored ? store_fixed_bytes : NULL,
                         .phases = versions_phases_simulated(engine)};
    /* an optimistic update on drives has a version of each step, see optimistic_check */
    if (in.update.optimistic && engine->plan_in.stored && engine->versions.every == 0)
        in.phases_on_drives = (unsigned)PHASE_SAVE | PHASE_COMMIT;
    in.is_known = predict_machine(engine, engine->config.rates, &in.machine);
    return in;
}

/* ---- what is decided ---- */

/* The plan becomes the engine's, with what was described as the whole of its slices. */
static void take(struct hst_engine *engine, struct plan *plan)
{
    const struct homes *homes = &plan->homes;
    if (plan->layout->whole)
        engine->whole = engine->layout;
    else
        layout_free(&engine->layout);
    engine->layout = *plan->layout;
    engine->layout.whole = plan->layout->whole ? &engine->whole : NULL;
    engine->plan_in = homes->in;
    engine->placement = homes->placement;
    engine->planned = homes->planned;
    engine->plan_in.layout = engine->placement.layout = &engine->layout;
    free(plan->layout);
    /* no more tiles than those that were planned with, so there are not too many */
    if (engine->ranks.ranks > 1)
        (void)layout_seal(&engine->layout, engine->layout.tile_elements, ranks_share(engine));
    const enum plan_units there = units_there(engine);
    engine->shares.recut = there != PLAN_UNITS_ANY &&
                           (there == PLAN_UNITS_SLICED) != layout_stores_slices(&engine->layout);
}

static int refuse_plan(struct hst_engine *engine, int rc, const char *why)
{
    if (rc == -ENOMEM)
        return engine_fail_tables(engine, rc);
    int code = rc == -EINVAL ? HST_E_VALUE : rc == -EDQUOT ? HST_E_DISK_SPACE : HST_E_BUDGET;
    return report_fail(&engine->report, code, rc == -EDQUOT ? -ENOSPC : rc, "%s", why);
}

int decide(struct hst_engine *engine)
{
    int rc = complete(engine);
    if (rc)
        return rc;
    struct plan plan;
    struct plan_in in = known(engine);
    rc = ranks_take_first(engine, &in.tile_elements, sizeof in.tile_elements);
    if (rc)
        return rc;
    rc = plan_seal(&in, &plan);
    rc = rc ? refuse_plan(engine, rc, plan.why) : 0;
    if (plan.layout)
        take(engine, &plan);
    if (rc == 0)
        tell_home_tiers(engine);
    return rc;
}

int decide_update(struct hst_engine *engine)
{
    struct planner_in in = {.placement = &engine->plan_in,
                            .phases = versions_phases_simulated(engine)};
    struct update_steps steps = {0};
    int rc = 0;
    if ((engine->chooses || engine->optimistic) &&
        predict_machine(engine, engine->config.rates, &in.machine))
        rc = planner_update(&in, &engine->placement, NULL, &steps);
    if (rc)
        return engine_fail_tables(engine, rc);
    if (engine->chooses && engine->config.plan) /* training tries both, and keeps the faster one */
        engine->optimistic = planner_is_optimistic(&steps);
    tell_update(engine);
    return 0;
}

/* A plan's graph has so many: its prediction then takes less than a second, whatever the model's
   size. */
#define PLAN_TILES 16384u

/* There is a graph of what fits, and the table of what does not. */
int decide_end(struct hst_engine *engine, int rc)
{
    if (rc == 0) {
        const uint32_t wish = engine->config.plan_tiles;
        rc = step_graph_coarse(&engine->plan_in, &engine->placement, wish ? wish : PLAN_TILES,
                               engine->optimistic, &engine->planned_graph);
        if (rc)
            return engine_fail_tables(engine, rc);
    }
    if (rc == 0 || (rc == -ENOSPC && engine->placement.units))
        engine->phase = PHASE_PLANNED;
    return rc;
}
