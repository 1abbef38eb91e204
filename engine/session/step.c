/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls of one training step, in the order in which a client makes them. This file checks that
 * order and keeps the step's account; bytes are moved by exec/.
 */
#include "base/clock.h"
#include "exec/lanes/loop.h"
#include "exec/streams.h"
#include "exec/update/optimizer.h"
#include "exec/visit/execute.h"
#include "session/engine_state.h"
#include "session/ranks/ranks.h"
#include "session/slices.h"
#include "session/store/failure.h"
#include "session/store/kept.h"
#include "session/store/versions.h"
#include "session/sums.h"
#include "session/update_time.h"
#include "session/views.h"
#include "session/way_sums.h"

#include <errno.h>
#include <math.h>
#include <string.h>

/* Ever. */
static struct hst_step_bytes moved_bytes(const struct hst_engine *engine)
{
    struct hst_step_bytes bytes = {.h2d = engine->exec.streams.copied_bytes[LANE_H2D],
                                   .d2h = engine->exec.streams.copied_bytes[LANE_D2H]};
    if (engine->extents) {
        bytes.nvme_read = engine->extents->counters.read_bytes;
        bytes.nvme_write = engine->extents->counters.written_bytes;
    }
    if (engine->comm) {
        struct comm_info info;
        comm_info(engine->comm, &info);
        bytes.net = info.net_bytes;
        bytes.net_between = info.between_bytes;
    }
    if (engine->resident) {
        bytes.d2h += engine->resident->counters.read_bytes;
        bytes.h2d += engine->resident->counters.written_bytes;
    }
    return bytes;
}

static void begin_account(struct hst_engine *engine, struct hst_step_bytes now)
{
    struct step_state *s = &engine->step;
    s->last_end_s = clock_seconds();
    loop_forget_stalls(&engine->exec);
    s->counted = now;
    s->is_interrupted = false;
}

/* Several ranks do this before a step begins. */
static int keep_if_due(struct hst_engine *engine)
{
    return kept_due(engine) ? hst_engine_drain(engine, NULL) : 0;
}

int hst_step_begin(struct hst_engine *engine, const struct hst_step_in *in, struct hst_step *step)
{
    if (engine->report.error.code)
        return engine->report.error.native;
    if (engine->phase != PHASE_LOADED || engine->acquired != NO_UNIT)
        return report_refuse(
            &engine->report,
            "a step begins after load, outside another step, with no unit acquired");
    if (!in || !step || in->size < sizeof *in || in->cursor_bytes > VERSIONS_CURSOR_BYTES ||
        !(in->lr >= 0) || !isfinite(in->lr))
        return report_refuse(
            &engine->report,
            "a step needs its size, a finite lr >= 0 and a cursor of at most %u bytes",
            VERSIONS_CURSOR_BYTES);
    int rc = keep_if_due(engine);
    if (rc)
        return rc;
    struct step_state *s = &engine->step;
    const struct standing *at = &engine->standing;
    versions_cursor(engine, false, in->cursor, in->cursor_bytes);
    engine->standing.lr = in->lr;
    s->ready_units = engine->layout.resting_units;
    for (uint32_t u = 0; u < engine->layout.unit_count; u++)
        engine->units[u].grad_ready = engine->layout.units[u].rests;
    slices_begin(engine);
    s->stream = NULL;
    /* the first step's account begins here, not with the load; another's not with an evaluation */
    if (s->last_end_s == 0 || s->is_interrupted || engine->exec.turn.evaluating)
        begin_account(engine, moved_bytes(engine));
    rc = execute_begin(&engine->exec);
    if (rc)
        return rc;
    engine->phase = PHASE_STEP;
    *step = (struct hst_step){
        .number = at->number + 1,
        .micro_count = engine->placement.micro_count,
        .loss_scale = at->scale.value,
    };
    return 0;
}

/* ---- units ---- */

/* A tied tensor is summed up over its users and rounded with its owner, which so comes last. */
static bool owns_unfinished(const struct hst_engine *engine, uint32_t unit)
{
    const struct layout *layout = &engine->layout;
    for (uint32_t i = 0; i < layout->param_count; i++) {
        const struct layout_param *param = &layout->params[i];
        if (param->owner != i && layout->params[param->owner].unit == unit &&
            !engine->units[param->unit].grad_ready)
            return true;
    }
    return false;
}

/* -EINVAL where the call cannot be served. Any order of units can; the declared one is fast. */
static int check_turn(struct hst_engine *engine, uint32_t unit, enum hst_sweep sweep)
{
    if (engine->phase < PHASE_LOADED || (engine->phase == PHASE_STEP) != (sweep != HST_EVAL))
        return report_refuse(&engine->report,
                             "forward and backward belong into a step, evaluation between steps");
    if (unit >= engine->described_count)
        return report_refuse(&engine->report, "unit %u of %u", unit, engine->described_count);
    if (engine->acquired != NO_UNIT)
        return report_refuse(&engine->report, "unit %u is still acquired",
                             slices_described(engine, engine->acquired));
    uint32_t next = slices_next(engine, unit, sweep);
    if (next != NO_UNIT && engine->layout.units[next].rests &&
        (sweep == HST_BACKWARD || sweep == HST_RECOMPUTE))
        return report_refuse(&engine->report,
                             "unit %u is frozen, and so are all before it: it has no backward. "
                             "Fix: the visits of hst_engine_visits",
                             unit);
    if (next == NO_UNIT || (sweep == HST_BACKWARD && engine->units[next].grad_ready))
        return report_refuse(&engine->report, "unit %u had its %s in this step already", unit,
                             sweep == HST_BACKWARD ? "backward" : "forward");
    if (sweep == HST_BACKWARD && owns_unfinished(engine, next))
        return report_refuse(&engine->report,
                             "unit %u has a tied tensor whose other users come first in the "
                             "backward",
                             unit);
    return 0;
}

int hst_unit_acquire(struct hst_engine *engine, uint32_t unit, enum hst_sweep sweep,
                     struct hst_stream *stream, const struct hst_unit_view **view)
{
    if (engine->report.error.code)
        return engine->report.error.native;
    if (!stream || !view || check_turn(engine, unit, sweep))
        return -EINVAL;
    if (sweep != HST_EVAL && engine->step.stream && engine->step.stream != stream)
        return report_refuse(&engine->report, "all units of one step are acquired on one stream");
    engine->step.stream = stream;
    uint32_t next = slices_next(engine, unit, sweep);
    int rc = streams_follow(&engine->exec, stream);
    rc = rc ? rc : execute_reach(&engine->exec, next, sweep);
    if (rc == 0 && sweep == HST_BACKWARD)
        rc = way_sums_begin(engine, next, stream);
    if (rc)
        return rc;
    slices_pass(engine, unit, sweep);
    views_set(engine, next, sweep);
    engine->acquired = next;
    engine->sweep = sweep;
    *view = &engine->view;
    return 0;
}

int hst_unit_grad_ready(struct hst_engine *engine, uint32_t unit)
{
    if (engine->report.error.code)
        return engine->report.error.native;
    uint32_t held = slices_held(engine, unit);
    if (held == NO_UNIT || engine->sweep != HST_BACKWARD || engine->units[held].grad_ready)
        return report_refuse(&engine->report,
                             "gradients of unit %u are complete once, while its backward holds it",
                             unit);
    int rc = way_sums_end(engine, held);
    if (rc)
        return rc;
    if (executor_norms_behind_backward(&engine->exec) && !engine->layout.units[held].frozen) {
        rc = optimizer_device_norm(&engine->exec, held);
        if (rc)
            return engine_fail_device(engine, rc, "the gradient norm");
    }
    engine->units[held].grad_ready = true;
    engine->step.ready_units++;
    return 0;
}

int hst_unit_release(struct hst_engine *engine, uint32_t unit)
{
    if (engine->report.error.code)
        return engine->report.error.native;
    uint32_t held = slices_held(engine, unit);
    if (held == NO_UNIT)
        return report_refuse(&engine->report, "unit %u is not acquired", unit);
    if (engine->sweep == HST_BACKWARD && !engine->units[held].grad_ready)
        return report_refuse(&engine->report,
                             "unit %u is released before its gradients are complete", unit);
    int rc = execute_leave(&engine->exec, engine->exec.streams.unit);
    if (rc)
        return rc;
    engine->acquired = NO_UNIT;
    return engine->sweep == HST_EVAL ? streams_follow(&engine->exec, engine->stream) : 0;
}

/* ---- activations ---- */

int hst_act_acquire(struct hst_engine *engine, uint32_t unit, uint32_t micro,
                    enum hst_act_kind kind, unsigned access, struct hst_stream *stream,
                    struct hst_act *act)
{
    if (engine->report.error.code)
        return engine->report.error.native;
    const struct placement *p = &engine->placement;
    uint32_t held = slices_held(engine, unit);
    if (held == NO_UNIT || micro >= p->micro_count || !stream || !act ||
        (access & (HST_READ | HST_WRITE)) == 0)
        return report_refuse(&engine->report,
                             "activation of micro-batch %u of unit %u, which must be acquired",
                             micro, unit);
    uint64_t per_token = engine->hidden_bytes_per_token;
    unsigned char *base = engine->arena + (kind == HST_HIDDEN_GRAD ? p->hidden_grad : p->hidden);
    if (kind == HST_CHECKPOINT && p->units[held].recomputed && (access & ~engine->view.checkpoint))
        return report_refuse(&engine->report,
                             "the checkpoint of unit %u is recomputed: this visit does not %s "
                             "it. Fix: do what its view says",
                             unit, access & HST_WRITE ? "write" : "read");
    if (kind == HST_CHECKPOINT) {
        per_token = engine->layout.units[held].act_bytes_per_token;
        base = per_token ? execute_operand(&engine->exec, EXTENT_ACTS, 0) : NULL;
    }
    if (per_token == 0 || !base)
        return report_refuse(&engine->report,
                             "unit %u declared no bytes of that kind of activation", unit);
    int rc = engine->sweep == HST_BACKWARD ? way_sums_reach(engine, held, micro) : 0;
    if (rc)
        return rc;
    uint64_t tokens = ways_micro(&engine->ways, micro).tokens;
    *act = (struct hst_act){
        .data = base + micro * placement_micro_stride(&engine->plan_in, per_token),
        .size_bytes = tokens * per_token,
        .tokens = tokens,
    };
    return 0;
}

int hst_act_release(struct hst_engine *engine, uint32_t unit, uint32_t micro,
                    enum hst_act_kind kind)
{
    (void)kind;
    if (engine->report.error.code)
        return engine->report.error.native;
    if (slices_held(engine, unit) == NO_UNIT || micro >= engine->placement.micro_count)
        return report_refuse(&engine->report,
                             "activation of micro-batch %u of unit %u was not acquired", micro,
                             unit);
    return 0;
}

/* ---- the end ---- */

static void account(struct hst_engine *engine, double grad_norm, struct hst_step_stats *stats)
{
    struct step_state *s = &engine->step;
    const struct standing *at = &engine->standing;
    const struct stalls *stalls = &engine->exec.stalls;
    struct hst_step_bytes now = moved_bytes(engine);
    struct hst_dev_usage usage;
    hst_dev_usage(engine->dev, &usage);
    double end = clock_seconds();
    *stats = (struct hst_step_stats){
        .step = at->number,
        .grad_norm = grad_norm,
        .seconds = end - s->last_end_s,
        .stall_s = {.nvme = stalls->nvme_s,
                    .copy = stalls->copy_s,
                    .update = stalls->update_s,
                    .net = stalls->net_s},
        .bytes = {.nvme_read = now.nvme_read - s->counted.nvme_read,
                  .nvme_write = now.nvme_write - s->counted.nvme_write,
                  .h2d = now.h2d - s->counted.h2d,
                  .d2h = now.d2h - s->counted.d2h,
                  .net = now.net - s->counted.net,
                  .net_between = now.net_between - s->counted.net_between},
        .skipped_steps = at->number - at->updates,
        .peak = {.hbm = usage.memory_peak_bytes,
                 .dram = usage.host_peak_bytes,
                 .nvme = engine->placement.nvme_bytes},
        .hbm_free = device_left(engine),
    };
    begin_account(engine, now);
    s->last_end_s = end;
}

int hst_step_computed(struct hst_engine *engine)
{
    if (engine->report.error.code)
        return engine->report.error.native;
    if (engine->phase != PHASE_STEP || engine->acquired != NO_UNIT ||
        engine->step.ready_units != engine->layout.unit_count)
        return report_refuse(&engine->report,
                             "a step has been computed when all units' gradients are complete (%u "
                             "of %u are)",
                             slices_ready(engine), engine->described_count);
    int rc = execute_computed(&engine->exec);
    rc = rc ? rc : hst_stream_sync(engine->exec.streams.unit);
    return rc < 0 && !engine->report.error.code ? engine_fail_device(engine, rc, "the backward")
                                                : rc;
}

/* What is decided by time is decided by that of all ranks: what the last step took, and what a
 * version takes. */
static void put_words(struct hst_engine *engine)
{
    int64_t *words = engine->words;
    words[WORD_STEP_NS] = (int64_t)(engine->step.last_s * 1e9);
    words[WORD_SAVE_NS] = (int64_t)(engine->versions.save_s * 1e9);
    words[WORD_NUMBER] = (int64_t)engine->standing.number;
    memcpy(&words[WORD_LR], &engine->standing.lr, sizeof words[WORD_LR]);
}

/* Sums of what is the same are as many times that, modulo 2^64. */
static int check_words(struct hst_engine *engine)
{
    uint64_t lr, ranks = engine->ranks.ranks;
    const int64_t *words = engine->words;
    memcpy(&lr, &engine->standing.lr, sizeof lr);
    if (!engine->comm || ((uint64_t)words[WORD_NUMBER] == engine->standing.number * ranks &&
                          (uint64_t)words[WORD_LR] == lr * ranks))
        return 0;
    return report_fail(&engine->report, HST_E_RANKS_DIFFER, -EINVAL,
                       "ranks do not agree: step %llu has learning rate %g for rank %u, and "
                       "another number or rate for others. Fix: start all of them alike",
                       (unsigned long long)engine->standing.number + 1, engine->standing.lr,
                       engine->ranks.rank);
}

int hst_step_end(struct hst_engine *engine, struct hst_step_stats *stats)
{
    if (engine->report.error.code)
        return engine->report.error.native;
    struct standing *at = &engine->standing;
    if (engine->phase != PHASE_STEP || engine->acquired != NO_UNIT ||
        engine->step.ready_units != engine->layout.unit_count || !stats)
        return report_refuse(&engine->report,
                             "a step ends when all units' gradients are complete (%u of %u are)",
                             slices_ready(engine), engine->described_count);
    put_words(engine);
    int rc = execute_end(&engine->exec);
    rc = rc ? rc : check_words(engine);
    if (rc)
        return rc;
    rc = hst_stream_sync(
        engine->exec.streams.unit); /* what the client enqueued behind the last unit */
    if (rc)
        return engine_fail_device(engine, rc, "the backward");
    rc = streams_follow(&engine->exec, engine->stream);
    if (rc)
        return rc;
    bool skipped = engine->exec.verdict.skipped;
    at->number++;
    at->updates += !skipped;
    engine->phase = PHASE_LOADED;
    account(engine, engine->exec.verdict.grad_norm, stats);
    sums_take(engine, stats->sums);
    stats->skipped = skipped;
    stats->update_time =
        engine->exec.verdict.optimistic ? HST_UPDATE_OPTIMISTIC : HST_UPDATE_DEFERRED;
    stats->redone = (engine->exec.verdict.left & PHASE_REDO) != 0;
    stats->loss_scale = (double)at->scale.value;
    if (engine->config.precision == HST_PRECISION_FP16 &&
        engine->config.loss_scaling == HST_LOSS_SCALING_DYNAMIC)
        at->scale = loss_scale_after(at->scale, !skipped);
    engine->step.last_s = stats->seconds;
    versions_step_ended(engine, stats->seconds);
    if (!optimistic_step_ended(engine, stats))
        return 0;
    rc = execute_update_as(&engine->exec, engine->choice.optimistic);
    engine->choice.optimistic =
        engine->exec.verdict.optimistic; /* an order may be beyond learning */
    return rc;
}

int hst_engine_drain(struct hst_engine *engine, struct hst_step_stats *stats)
{
    if (engine->report.error.code)
        return engine->report.error.native;
    if (engine->phase == PHASE_STEP || engine->phase == PHASE_PLANNED ||
        engine->acquired != NO_UNIT)
        return report_refuse(&engine->report, "drain comes between steps, with no unit acquired");
    slices_begin(engine);
    engine->step.is_interrupted = engine->step.is_interrupted || engine->exec.turn.evaluating;
    int rc = execute_drain(&engine->exec);
    if (rc == 0 && engine->phase == PHASE_LOADED)
        rc = ranks_meet(engine); /* versions, copies and an export take each its time */
    rc = rc || engine->phase < PHASE_LOADED ? rc : versions_now(engine);
    rc = rc ? rc : kept_follow(engine);
    if (rc)
        return rc;
    rc = hst_stream_sync(engine->stream);
    if (rc)
        return engine_fail_device(engine, rc, "the computation");
    if (rc == 0 && stats)
        account(engine, 0, stats);
    return rc;
}

int hst_engine_keep(struct hst_engine *engine, uint64_t instead_of)
{
    int rc = hst_engine_drain(engine, NULL);
    engine->step.is_interrupted = true;
    return rc ? rc : kept_instead(engine, instead_of);
}

uint64_t hst_engine_version(const struct hst_engine *engine)
{
    return versions_last(engine);
}

int hst_engine_visits(const struct hst_engine *engine, const struct hst_visit **visits,
                      size_t *count)
{
    if (engine->phase < PHASE_SEALED || !visits || !count)
        return -EINVAL;
    *visits = engine->exec.sealed;
    *count = engine->exec.sealed_count;
    return 0;
}
