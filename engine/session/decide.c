/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is decided when an engine is sealed: tiles, homes, second slots. For training all of it is
 * allocated afterwards; a plan ends here.
 */
#include "base/saturate.h"
#include "exec/optimistic.h"
#include "exec/versions.h"
#include "plan/graph/step_graph.h"
#include "session/engine_state.h"
#include "session/predict.h"
#include "store/files.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int engine_fail_tables(struct hst_engine *engine, int native)
{
    return report_fail(&engine->report, HST_E_BUDGET, native,
                       "no memory for the plan's own tables: %s", strerror(-native));
}

/* Small for the drive's ring, large against what a version writes for it; larger where each tile is
 * a launch on a GPU. */
#define TILE_ELEMENTS_HOST   262144u
#define TILE_ELEMENTS_DEVICE (4u << 20)

static int try_homes(struct hst_engine *engine, uint32_t tile_elements, char *why, size_t why_bytes)
{
    int rc = layout_seal(&engine->layout, tile_elements, SHARE_ALL);
    snprintf(why, why_bytes, "more than 2^32 tiles. Fix: larger tile_elements");
    if (rc == 0 && engine->plan_in.stored)
        store_dirs_sizes(engine, &engine->plan_in);
    return rc ? rc : placement_try(&engine->plan_in, &engine->placement, why, why_bytes);
}

/* ---- slices ---- */

/* What was decided with whole units. */
struct decided {
    struct placement placement;
    struct planned planned;
    bool second_slots;
};

static struct decided decided_now(const struct hst_engine *engine)
{
    return (struct decided){engine->placement, engine->planned, engine->plan_in.second_slots};
}

/* Large matrices in slices, without homes. Errors: -ERANGE there are none; -ENOMEM. */
static int cut(struct hst_engine *engine, uint32_t tile_elements)
{
    struct layout slices;
    engine->whole = engine->layout;
    int rc = layout_cut(&engine->whole, tile_elements, &slices);
    if (rc) {
        engine->whole = (struct layout){0};
        return rc;
    }
    engine->layout = slices;
    engine->placement = (struct placement){0};
    return 0;
}

/* Without homes, too. */
static void uncut(struct hst_engine *engine)
{
    placement_free(&engine->placement);
    if (!engine->layout.whole)
        return;
    layout_free(&engine->layout);
    engine->layout = engine->whole;
    engine->whole = (struct layout){0};
}

/* In place of the homes at hand, of the same layout. */
static void go_back(struct hst_engine *engine, const struct decided *d)
{
    placement_free(&engine->placement);
    engine->placement = d->placement;
    engine->planned = d->planned;
    engine->plan_in.second_slots = d->second_slots;
}

static void put_back(struct hst_engine *engine, const struct decided *d)
{
    uncut(engine);
    go_back(engine, d);
}

static uint64_t beyond(uint64_t bytes, uint64_t budget)
{
    return bytes > budget ? bytes - budget : 0;
}

/* Of two placements that do not fit, whether the first one needs less beyond the budgets: memory
 * comes before drives. */
static bool lacks_less(const struct placement_in *in, const struct placement *a,
                       const struct placement *b)
{
    uint64_t of_a =
        sat_add(beyond(a->hbm_bytes, in->hbm_budget), beyond(a->dram_bytes, in->dram_budget));
    uint64_t of_b =
        sat_add(beyond(b->hbm_bytes, in->hbm_budget), beyond(b->dram_bytes, in->dram_budget));
    return of_a != of_b
               ? of_a < of_b
               : beyond(a->nvme_bytes, in->nvme_budget) < beyond(b->nvme_bytes, in->nvme_budget);
}

/* Memory or drives have too little room. */
static bool is_room(int rc)
{
    return rc == -ENOSPC || rc == -EDQUOT;
}

/* Of two ways that do not fit the one that lacks less is told of. whole: what the other one said.
 */
static int plan_slices(struct hst_engine *engine, uint32_t tile_elements, int whole, char *why,
                       size_t why_bytes)
{
    char said[384];
    struct decided d = decided_now(engine);
    int rc = cut(engine, tile_elements);
    if (rc)
        return rc == -ERANGE ? whole : rc;
    rc = try_homes(engine, tile_elements, said, sizeof said);
    if (is_room(rc) && !lacks_less(&engine->plan_in, &engine->placement, &d.placement)) {
        put_back(engine, &d);
        return whole;
    }
    placement_free(&d.placement);
    snprintf(why, why_bytes, "%s", said);
    return rc;
}

/* Units are cut where they do not fit as they are. */
static int plan_tiles(struct hst_engine *engine, uint32_t tile_elements, char *why,
                      size_t why_bytes)
{
    int rc = try_homes(engine, tile_elements, why, why_bytes);
    return is_room(rc) ? plan_slices(engine, tile_elements, rc, why, why_bytes) : rc;
}

static bool has_tiles_on_nvme(const struct placement *p)
{
    for (uint32_t u = 0; u < p->layout->unit_count; u++)
        if (p->units[u].weights.tier == HST_TIER_NVME || p->units[u].grads.tier == HST_TIER_NVME ||
            p->units[u].nvme_states > 0)
            return true;
    return false;
}

/* Where none were asked for, tiles are those of the store, which may be resumed with other homes;
 * large where a GPU updates any, and none passes through the ring of the drives. */
static int choose_tiles(struct hst_engine *engine, char *why, size_t why_bytes)
{
    uint32_t wish = engine->config.tile_elements;
    if (wish == 0 && engine->drives[0].path)
        wish = store_tile_elements_there(engine->drives[0].path, 0);
    if (wish == 0 && !engine_computes_in_dram(engine)) {
        int rc = plan_tiles(engine, TILE_ELEMENTS_DEVICE, why, why_bytes);
        if (rc == 0 && engine_has_resident(engine) && !has_tiles_on_nvme(&engine->placement))
            return 0;
        uncut(engine);
    }
    return plan_tiles(engine, wish ? wish : TILE_ELEMENTS_HOST, why, why_bytes);
}

/* In every tier and class the same, but for what second slots hold: on drives a store has its own.
 */
static bool differs_by_slots(const struct placement_in *in, const struct placement *with,
                             const struct placement *without)
{
    for (int class = 0; class < HST_CLASS_COUNT; class ++)
        for (int tier = 0; tier < HST_TIER_COUNT; tier++) {
            bool slots = tier == HST_TIER_DRAM || (tier == HST_TIER_NVME && !in->stored);
            bool twice = slots && (class == HST_CLASS_WEIGHTS || class == HST_CLASS_STATES);
            if (with->table[class][tier] != without->table[class][tier] * (twice ? 2 : 1))
                return false;
        }
    return true;
}

/* The usual homes with second slots. Errors: no room; -ENOMEM. */
static int plan_with_slots(struct hst_engine *engine)
{
    char why[384];
    engine->plan_in.second_slots = true;
    engine->placement = (struct placement){0};
    return placement_plan(&engine->plan_in, &engine->placement, why, sizeof why);
}

/* Second slots, where the budget has room for them beside all that is there. */
static void plan_spare_slots(struct hst_engine *engine)
{
    struct decided d = decided_now(engine);
    if (d.second_slots || !optimistic_could_use_slots(engine))
        return;
    if (plan_with_slots(engine) == 0 &&
        differs_by_slots(&engine->plan_in, &engine->placement, &d.placement))
        placement_free(&d.placement);
    else
        go_back(engine, &d);
}

/* What the planner has to know; false where it is not known. */
static bool planner_knows(const struct hst_engine *engine, struct planner_in *in)
{
    const struct hst_rates *rates = engine->config.rates;
    if (!rates || !predict_is_all_known(engine, rates))
        return false;
    *in = (struct planner_in){
        .placement = &engine->plan_in,
        .rates = predict_rates(engine, rates),
        .optimistic = optimistic_wants_slots(engine),
        .parts = versions_parts_simulated(engine),
        .threads = engine->config.threads,
        .half = predict_half(engine, rates),
    };
    in->streams = !engine_computes_in_dram(engine) && rates->figures[HST_RATE_SHARED].value > 0 &&
                  in->rates.device_update > 0;
    return true;
}

static void tell_search(struct hst_engine *engine)
{
    const struct planned *planned = &engine->planned;
    if (planned->better)
        report_log(&engine->report, HST_LOG_INFO,
                   "I302 %s: a step of %.3g s in simulation, %.3g s with the usual homes",
                   planned->what, planned->step_s, planned->usual_step_s);
    else if (planned->simulated > 0)
        report_log(&engine->report, HST_LOG_INFO,
                   "I302 homes are the usual ones: of %u others none is faster in simulation",
                   planned->simulated - 1);
}

/* Of a plan hst_engine_decision says it. */
static void tell_homes(struct hst_engine *engine)
{
    uint32_t every = engine->placement.segment, resident = engine->placement.resident_units;
    uint32_t cut_units, slices;
    if (engine->config.plan)
        return;
    tell_search(engine);
    layout_count_slices(&engine->layout, &cut_units, &slices);
    if (slices > 0)
        report_log(&engine->report, HST_LOG_INFO,
                   "I306 %u of %u units %s used in %u slices of %s rows", cut_units,
                   engine->whole.unit_count, cut_units == 1 ? "is" : "are", slices,
                   cut_units == 1 ? "its" : "their");
    if (resident > 0 && resident < engine->layout.unit_count)
        report_log(&engine->report, HST_LOG_INFO,
                   "I304 %u of %u units %s at home in HBM, where the GPU updates %s", resident,
                   engine->layout.unit_count, resident == 1 ? "is" : "are",
                   resident == 1 ? "it" : "them");
    if (engine->placement.streamed_tiles == 0 && engine->plan_in.stream_share > 0)
        report_log(&engine->report, HST_LOG_INFO,
                   "I305 --gpu-update %g has nothing to share: no tile that is away from the GPU "
                   "has its weights, gradients and states in DRAM",
                   engine->plan_in.stream_share);
    if (engine->placement.streamed_tiles > 0)
        report_log(&engine->report, HST_LOG_INFO,
                   "I305 the GPU updates %u of %u tiles whose home is DRAM, beside the host",
                   engine->placement.streamed_tiles, placement_tiles_in_dram(&engine->placement));
    uint32_t able = placement_savable_units(&engine->plan_in),
             saved = engine->placement.saved_units;
    if (saved > 0 && saved < able)
        report_log(&engine->report, HST_LOG_INFO,
                   "I309 activations of %u of %u units are kept for the backward; those of the "
                   "others are computed again",
                   saved, able);
    if (every > 1)
        report_log(&engine->report, HST_LOG_INFO,
                   "I303 the activation checkpoint of one unit in %u is kept; from it the others "
                   "are computed again in the backward",
                   every);
}

/* ---- homes ---- */

/* How much longer a step may be whose norm clips, so that its update is deferred: how often that
 * is, nobody knows before. */
#define CLIP_LOSS_MOST 0.05

/* Of homes with second slots, beside others without. */
static bool is_worth(const struct update_steps *slots, const struct update_steps *others)
{
    double is = planner_unclipped_s(slots), was = planner_unclipped_s(others);
    double loss_s = slots->deferred_s - others->deferred_s;
    return is < was * (1 - PLANNER_GAIN_LEAST) && was - is > loss_s &&
           loss_s < others->deferred_s * CLIP_LOSS_MOST;
}

/* What was decided for one way of cutting the model. */
struct homes {
    struct update_steps steps;
    bool second_slots;
};

static bool are_better(const struct homes *these, const struct homes *those)
{
    if (these->second_slots && !those->second_slots)
        return is_worth(&these->steps, &those->steps);
    bool loses = those->second_slots && !these->second_slots &&
                 those->steps.deferred_s > these->steps.deferred_s &&
                 !is_worth(&those->steps, &these->steps);
    return loses || planner_unclipped_s(&these->steps) <
                        planner_unclipped_s(&those->steps) * (1 - PLANNER_GAIN_LEAST);
}

/* Other homes for the sake of an update in the backward, where that may be chosen: its second slots
 * take room. *steps: on the homes at hand. */
static int plan_optimistic(struct hst_engine *engine, struct planner_in *in,
                           struct update_steps *steps)
{
    struct update_steps own;
    struct decided d = decided_now(engine);
    struct planned *planned = &engine->planned;
    if (!optimistic_could_use_slots(engine))
        return 0;
    in->optimistic = true;
    int rc = plan_with_slots(engine);
    bool fits = rc == 0;
    rc = rc ? rc : planner_improve(in, &engine->placement, planned);
    rc = rc ? rc : planner_update(in, &engine->placement, &own);
    if (rc || !optimistic_could_use_slots(engine) || !is_worth(&own, steps)) {
        go_back(engine, &d);
        return fits || rc == -ENOMEM ? rc : 0;
    }
    placement_free(&d.placement);
    size_t said = strlen(planned->what);
    snprintf(planned->what + said, sizeof planned->what - said,
             "; second slots for an optimistic update");
    planned->usual_step_s = d.planned.usual_step_s;
    planned->simulated += d.planned.simulated;
    planned->better = true;
    *steps = own;
    return 0;
}

/* The fastest homes, where enough is known of the machine. slots: some for second slots, too. */
static int plan_homes(struct hst_engine *engine, bool slots, struct homes *homes)
{
    struct planner_in in;
    *homes = (struct homes){.second_slots = false};
    plan_spare_slots(engine);
    if (!planner_knows(engine, &in))
        return 0;
    int rc = planner_improve(&in, &engine->placement, &engine->planned);
    struct update_steps steps = {engine->planned.step_s, engine->planned.step_s};
    if (rc == 0 && engine->plan_in.second_slots && !in.optimistic)
        rc = planner_update(&in, &engine->placement, &steps);
    if (rc == 0 && slots)
        rc = plan_optimistic(engine, &in, &steps);
    *homes = (struct homes){steps, engine->plan_in.second_slots};
    return rc ? engine_fail_tables(engine, rc) : 0;
}

/* With what they leave to others a step may be faster. */
static int try_slices(struct hst_engine *engine, const struct homes *whole)
{
    char why[384];
    struct homes sliced;
    struct decided d = decided_now(engine);
    if (d.planned.simulated == 0 || engine->layout.whole)
        return 0;
    uint32_t tile_elements = engine->layout.tile_elements;
    int rc = cut(engine, tile_elements);
    if (rc)
        return rc == -ERANGE ? 0 : engine_fail_tables(engine, rc);
    engine->plan_in.second_slots = optimistic_wants_slots(engine);
    rc = try_homes(engine, tile_elements, why, sizeof why);
    rc = rc ? rc : plan_homes(engine, whole->second_slots, &sliced);
    if (rc == -ENOMEM && engine->report.error.code == 0)
        engine_fail_tables(engine, rc);
    struct planned *planned = &engine->planned;
    if (rc || !are_better(&sliced, whole)) {
        put_back(engine, &d);
        return engine->report.error.native;
    }
    placement_free(&d.placement);
    planned->usual_step_s = d.planned.usual_step_s;
    planned->simulated += d.planned.simulated;
    planned->better = true;
    return 0;
}

/* A checkpoint can only be the carry where both are as large. */
static int check_recompute(struct hst_engine *engine)
{
    for (uint32_t u = 0; u < engine->layout.unit_count; u++) {
        const struct layout_unit *unit = &engine->layout.units[u];
        if (!unit->recompute || (unit->act_bytes_per_token == engine->carry_bytes_per_token &&
                                 unit->act_bytes_per_token > 0))
            continue;
        return report_fail(&engine->report, HST_E_VALUE, -EINVAL,
                           "unit \"%s\" has a checkpoint of %llu bytes per token and may be "
                           "computed again, but the carry has %llu. Fix: make it the carry, or "
                           "leave out HST_UNIT_RECOMPUTE",
                           unit->name, (unsigned long long)unit->act_bytes_per_token,
                           (unsigned long long)engine->carry_bytes_per_token);
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
                           "--gpu-update is not for --state bf16, which the host updates. Fix: "
                           "leave one of the two out");
    return 0;
}

int decide(struct hst_engine *engine)
{
    char why[384];
    struct homes homes;
    struct placement_in *in = &engine->plan_in;
    in->layout = &engine->layout;
    in->bytes = engine->update->bytes;
    in->has_nvme = engine->drive_count > 0;
    in->batch_tokens = engine->config.batch_tokens;
    in->grain_tokens = engine->config.grain_tokens;
    in->carry_bytes_per_token = engine->carry_bytes_per_token;
    /* one gradient that is not finite may leave out the update of all */
    in->deferred = engine->config.clip > 0 || engine->config.skip_nonfinite ||
                   engine->config.precision == HST_PRECISION_FP16;
    in->second_slots = optimistic_wants_slots(engine);
    in->recompute = engine->config.activations == HST_ACTIVATIONS_RECOMPUTE;
    in->streams = engine->config.gpu_update != 0;
    in->stream_share = engine->config.gpu_update > 0 ? engine->config.gpu_update : 0;
    int rc = check_recompute(engine);
    rc = rc ? rc : check_streams(engine);
    rc = rc ? rc : store_dirs_rates(engine, in);
    if (rc)
        return rc;
    rc = choose_tiles(engine, why, sizeof why);
    if (rc == -ENOMEM)
        return engine_fail_tables(engine, rc);
    if (rc)
        return report_fail(&engine->report,
                           rc == -EINVAL   ? HST_E_VALUE
                           : rc == -EDQUOT ? HST_E_DISK_SPACE
                                           : HST_E_BUDGET,
                           rc == -EDQUOT ? -ENOSPC : rc, "%s", why);
    rc = plan_homes(engine, true, &homes);
    rc = rc ? rc : try_slices(engine, &homes);
    if (rc == 0)
        tell_homes(engine);
    return rc;
}

/* How much of an update that need not wait the next forward has. */
static void tell_late(struct hst_engine *engine)
{
    uint32_t eighths = engine->placement.late_eighths;
    if (eighths > 0 && !engine->config.plan)
        report_log(&engine->report, HST_LOG_INFO,
                   "I307 of the tiles that can wait in %s update %u in 8 are left to the next "
                   "forward, which hides them",
                   engine->plan_in.deferred ? "an optimistic" : "an", eighths);
}

/* That fewer threads update than there are. */
static void tell_threads(struct hst_engine *engine)
{
    uint32_t threads = engine->placement.update_threads[engine->run.optimistic];
    if (threads > 0 && !engine->config.plan)
        report_log(&engine->report, HST_LOG_INFO,
                   "I308 %u of %u threads update: host memory then carries more for drives and "
                   "copies, which steps wait for",
                   threads, engine->config.threads);
}

#define START_UP_TOLD_S 10.0

/* Before it begins: page-locking alone may take a minute, in which nothing else is to be seen. */
static void tell_start_up(struct hst_engine *engine)
{
    char text[HST_START_UP_TEXT_BYTES];
    struct hst_start_up start_up;
    predict_start_up(engine, engine->config.rates, &start_up);
    if (start_up.seconds >= START_UP_TOLD_S && !engine->config.plan)
        report_log(&engine->report, HST_LOG_INFO, "I312 %s", hst_start_up_text(&start_up, text));
}

int decide_update(struct hst_engine *engine)
{
    struct execute *run = &engine->run;
    struct planner_in in;
    struct update_steps steps = {0};
    int rc = 0;
    if ((run->chooses || run->optimistic) && planner_knows(engine, &in))
        rc = planner_update(&in, &engine->placement, &steps);
    if (rc)
        return engine_fail_tables(engine, rc);
    if (run->chooses && engine->config.plan) /* training tries both, and keeps the faster one */
        run->optimistic = planner_is_optimistic(&steps);
    tell_late(engine);
    tell_threads(engine);
    tell_start_up(engine);
    return 0;
}

/* Of a plan's graph: its prediction then takes less than a second, whatever the model's size. */
#define PLAN_TILES 16384u

/* Of what fits there is a graph, of what does not the table. */
int decide_end(struct hst_engine *engine, int rc)
{
    struct execute *run = &engine->run;
    if (rc == 0) {
        rc = step_graph_coarse(&engine->plan_in, &engine->placement, PLAN_TILES, run->optimistic,
                               &run->graph);
        if (rc)
            return engine_fail_tables(engine, rc);
    }
    if (rc == 0 || (rc == -ENOSPC && engine->placement.units))
        engine->phase = PHASE_PLANNED;
    return rc;
}
