/* SPDX-License-Identifier: Apache-2.0 */
/* This is what was decided, as notes in the log of a run. Of a plan hst_engine_decision says it. */
#include "session/tell_plan.h"

#include "session/predict.h"

#include <hoistway/predict.h>

/* ---- homes ---- */

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

void tell_home_tiers(struct hst_engine *engine)
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
        report_log(
            &engine->report, HST_LOG_INFO,
            "I305 --gpu-update %g has nothing to share: no tile that is offloaded from the GPU "
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
                   "others are recomputed",
                   saved, able);
    if (every > 1)
        report_log(&engine->report, HST_LOG_INFO,
                   "I303 the activation checkpoint of one unit in %u is kept; from it the others "
                   "are recomputed in the backward",
                   every);
}

/* ---- the update ---- */

/* It tells how much of an update that need not wait the next forward has. */
static void tell_late(struct hst_engine *engine)
{
    uint32_t eighths = engine->placement.late_eighths;
    if (eighths > 0 && !engine->config.plan)
        report_log(&engine->report, HST_LOG_INFO,
                   "I307 of the tiles that can wait in %s update %u in 8 are left to the next "
                   "forward, which hides them",
                   engine->plan_in.deferred ? "an optimistic" : "an", eighths);
}

/* It tells that fewer threads update than there are. */
static void tell_threads(struct hst_engine *engine)
{
    uint32_t threads = engine->placement.update_threads[engine_is_optimistic(engine)];
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

void tell_update(struct hst_engine *engine)
{
    tell_late(engine);
    tell_threads(engine);
    tell_start_up(engine);
}
