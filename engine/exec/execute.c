/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/execute.h"

#include "exec/moves.h"
#include "exec/optimizer.h"
#include "plan/step_graph.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* While both drives and device are busy the loop sleeps for the drives, and looks at the device
 * this often. */
#define LOOK_NS 100000u

static const struct node *node_of(const struct execute *run, struct walk_at at)
{
    return &run->graph.nodes[at.node];
}

/* ---- drives: extents of started nodes ---- */

static void job_finish(struct hst_engine *engine, uint32_t number)
{
    struct execute *run = &engine->run;
    struct job *job = &run->jobs[number];
    job->used = false;
    walk_done(&run->walk, job->at);
}

/* Takes the extents that have landed. *moved: whether any node is done. */
static int land(struct hst_engine *engine, uint64_t wait_ns, bool *moved)
{
    struct execute *run = &engine->run;
    if (run->flying == 0)
        return 0;
    int rc = engine->extents->ops->progress(engine->extents, wait_ns);
    if (rc)
        return engine_fail(engine, HST_E_READ, rc, "the I/O backend broke down");
    for (uint32_t i = 0; i < run->flight_count; i++) {
        struct flight *flight = &run->flights[i];
        if (!flight->used || flight->transfer.active)
            continue;
        flight->used = false;
        run->flying--;
        if (flight->transfer.error)
            return engine_fail_transfer(engine, &flight->transfer);
        struct job *job = &run->jobs[flight->job];
        if (--job->flying == 0 && job->begun == job->count) {
            job_finish(engine, flight->job);
            *moved = true;
        }
    }
    return 0;
}

static struct flight *free_flight(struct execute *run)
{
    for (uint32_t i = 0; run->flying < run->flight_count && i < run->flight_count; i++)
        if (!run->flights[i].used)
            return &run->flights[i];
    return NULL;
}

/* Begins as many of the job's extents as there are flights. */
static int issue(struct hst_engine *engine, enum lane lane)
{
    struct execute *run = &engine->run;
    struct job *job = &run->jobs[run->issuing[lane]];
    struct flight *flight;
    while (job->begun < job->count && (flight = free_flight(run))) {
        struct move move = moves_at(engine, job->at, job->begun);
        int (*begin)(struct extents *, enum extent_kind, uint32_t, void *, struct transfer *) =
            move.write ? extents_write : extents_read;
        int rc = begin(engine->extents, move.kind, move.index, move.memory, &flight->transfer);
        if (rc)
            return engine_fail_transfer(engine, &flight->transfer);
        flight->used = true;
        flight->job = run->issuing[lane];
        run->flying++;
        job->begun++;
        job->flying++;
    }
    if (job->begun == job->count)
        run->issuing[lane] = EXECUTE_JOBS;
    return 0;
}

static uint32_t free_job(const struct execute *run)
{
    uint32_t i = 0;
    while (i < EXECUTE_JOBS && run->jobs[i].used)
        i++;
    return i;
}

/* Starts the lane's nodes as long as they are ready and there is room for them. */
static int run_drive_lane(struct hst_engine *engine, enum lane lane, bool *moved)
{
    struct execute *run = &engine->run;
    struct walk_at at;
    for (;;) {
        int rc = run->issuing[lane] < EXECUTE_JOBS ? issue(engine, lane) : 0;
        uint32_t number = free_job(run);
        if (rc || run->issuing[lane] < EXECUTE_JOBS || number == EXECUTE_JOBS)
            return rc;
        if (!walk_next(&run->walk, lane, &at) || !walk_ready(&run->walk, at))
            return 0;
        walk_start(&run->walk, at);
        *moved = true;
        bool kept = node_of(run, at)->kind == NODE_READ_WEIGHTS && walk_was_kept(&run->walk, at);
        run->jobs[number] = (struct job){
            .at = at,
            .count = kept ? 0 : moves_count(engine, node_of(run, at)),
            .start_s = clock_seconds(),
            .used = true,
        };
        if (run->jobs[number].count == 0)
            job_finish(engine, number);
        else
            run->issuing[lane] = number;
    }
}

/* ---- device: computations that were enqueued ---- */

static struct passage *passage_at(struct execute *run, uint32_t i)
{
    return &run->passages[(run->first_passage + i) % EXECUTE_PASSAGES];
}

static int take_passage(struct hst_engine *engine, int rc)
{
    struct execute *run = &engine->run;
    struct passage *oldest = passage_at(run, 0);
    if (rc < 0)
        return engine_fail_device(engine, rc, "the computation of a unit");
    run->compute_end_s = clock_seconds();
    walk_done(&run->walk, oldest->at);
    run->first_passage = (run->first_passage + 1) % EXECUTE_PASSAGES;
    run->passage_count--;
    return 0;
}

static int look_at_device(struct hst_engine *engine, bool *moved)
{
    struct execute *run = &engine->run;
    while (run->passage_count > 0) {
        int rc = hst_event_query(passage_at(run, 0)->passed);
        if (rc == 0)
            return 0;
        rc = take_passage(engine, rc);
        if (rc)
            return rc;
        *moved = true;
    }
    return 0;
}

/* Updates on a device that holds everything are enqueued like computations, ahead of the client's.
 */
static int run_device_updates(struct hst_engine *engine, bool *moved)
{
    struct execute *run = &engine->run;
    struct walk_at at;
    while (walk_next(&run->walk, LANE_COMPUTE, &at) && node_of(run, at)->kind == NODE_UPDATE &&
           walk_ready(&run->walk, at)) {
        walk_start(&run->walk, at);
        const struct node *node = node_of(run, at);
        int rc = optimizer_device_update(engine, node->tile, node->tile_count);
        if (rc)
            return rc;
        walk_done(&run->walk, at);
        *moved = true;
    }
    return 0;
}

/* ---- host: norms and updates ---- */

static int clip(struct hst_engine *engine)
{
    struct execute *run = &engine->run;
    run->grad_norm = optimizer_grad_norm(engine);
    int rc = optimizer_check_norm(engine, run->grad_norm);
    if (rc == 0 && run->deferred)
        rc = optimizer_coefs(engine, run->grad_norm, &run->coefs);
    run->clip_done = true;
    return rc;
}

static int run_host_node(struct hst_engine *engine, struct walk_at at)
{
    const struct node *node = node_of(&engine->run, at);
    switch ((enum node_kind)node->kind) {
    case NODE_NORM:
        return optimizer_norm(engine, at);
    case NODE_CLIP:
        return clip(engine);
    default:
        optimizer_update(engine, at);
        return 0;
    }
}

/* One node of the host's lane, if one is ready. */
static int run_host_lane(struct hst_engine *engine, bool *moved)
{
    struct execute *run = &engine->run;
    struct walk_at at;
    if (!walk_next(&run->walk, LANE_UPDATE, &at) || !walk_ready(&run->walk, at))
        return 0;
    bool idle = run->passage_count == 0;
    double start = clock_seconds();
    walk_start(&run->walk, at);
    int rc = run_host_node(engine, at);
    if (rc)
        return rc;
    walk_done(&run->walk, at);
    engine->step.update_s += idle ? clock_seconds() - start : 0;
    *moved = true;
    return 0;
}

/* ---- the loop ---- */

/* The period behind the one at hand is opened as soon as may be, so that its reads run ahead. It is
 * taken for a step that follows; whatever else comes takes parts away from it. */
static void look_ahead(struct execute *run)
{
    if (run->in_step && run->walk.opened == run->period + 1 && walk_may_open(&run->walk))
        walk_open(&run->walk, PARTS_TRAIN);
}

static int start_all(struct hst_engine *engine, bool *moved)
{
    look_ahead(&engine->run);
    int rc = land(engine, 0, moved);
    rc = rc ? rc : look_at_device(engine, moved);
    rc = rc ? rc : run_drive_lane(engine, LANE_READ, moved);
    rc = rc ? rc : run_drive_lane(engine, LANE_WRITE, moved);
    return rc ? rc : run_device_updates(engine, moved);
}

/* Nothing can be started: waits for what is under way. */
static int wait_for_any(struct hst_engine *engine)
{
    struct execute *run = &engine->run;
    bool ignored;
    if (run->flying > 0) {
        bool stalled = run->passage_count == 0;
        double start = clock_seconds();
        int rc = land(engine, stalled ? UINT64_MAX : LOOK_NS, &ignored);
        engine->step.stall_nvme_s += stalled ? clock_seconds() - start : 0;
        return rc;
    }
    if (run->passage_count > 0)
        return take_passage(engine, hst_event_sync(passage_at(run, 0)->passed));
    return engine_fail(engine, HST_E_DEVICE, -EDEADLK,
                       "the step graph stands still in period %llu: a defect of the engine",
                       (unsigned long long)run->period);
}

typedef bool end_fn(struct hst_engine *engine);

static int run_until(struct hst_engine *engine, end_fn *end)
{
    for (;;) {
        bool moved = false;
        int rc = start_all(engine, &moved);
        if (rc || end(engine))
            return rc;
        rc = run_host_lane(engine, &moved);
        if (rc == 0 && !moved)
            rc = wait_for_any(engine);
        if (rc)
            return rc;
    }
}

/* ---- ends ---- */

static bool may_open(struct hst_engine *engine)
{
    return walk_may_open(&engine->run.walk);
}

static bool is_idle(struct hst_engine *engine)
{
    struct walk_at at; /* lanes pass what is not run */
    for (int l = 0; l < LANE_COUNT; l++)
        walk_next(&engine->run.walk, (enum lane)l, &at);
    return walk_is_idle(&engine->run.walk);
}

static bool compute_is_ready(struct hst_engine *engine)
{
    struct walk_at at;
    return walk_next(&engine->run.walk, LANE_COMPUTE, &at) &&
           node_of(&engine->run, at)->kind != NODE_UPDATE && walk_ready(&engine->run.walk, at);
}

static bool clip_is_done(struct hst_engine *engine)
{
    return engine->run.clip_done;
}

/* ---- the client's calls ---- */

static int open_period(struct hst_engine *engine, unsigned parts)
{
    struct execute *run = &engine->run;
    int rc = run_until(engine, may_open);
    if (rc)
        return rc;
    run->period = run->walk.opened;
    walk_open(&run->walk, parts);
    return 0;
}

/* What was opened for a step that does not come now is left to the update alone, or to nothing. */
int execute_drain(struct hst_engine *engine)
{
    struct execute *run = &engine->run;
    unsigned parts = run->update_pending ? PART_UPDATE : 0;
    int rc = 0;
    if (run->evaluating || run->prepared)
        walk_narrow(&run->walk, run->period, parts);
    else if (parts)
        rc = open_period(engine, parts);
    rc = rc ? rc : run_until(engine, is_idle);
    run->evaluating = run->prepared = run->update_pending = false;
    return rc;
}

int execute_begin(struct hst_engine *engine)
{
    struct execute *run = &engine->run;
    int rc = run->evaluating ? execute_drain(engine) : 0;
    if (rc == 0 && !run->deferred)
        rc = optimizer_coefs(engine, 0, &run->coefs);
    if (rc == 0 && !run->prepared)
        rc = open_period(engine,
                         run->update_pending ? PARTS_TRAIN : PARTS_TRAIN & ~(unsigned)PART_UPDATE);
    run->prepared = run->clip_done = false;
    run->in_step = rc == 0;
    return rc;
}

/* True where the unit's node comes in the compute lane of this period. */
static bool is_ahead(struct execute *run, uint32_t unit, enum node_kind kind)
{
    const struct graph *graph = &run->graph;
    struct walk_at at;
    if (!walk_next(&run->walk, LANE_COMPUTE, &at) || at.period != run->period)
        return false;
    for (uint32_t i = run->walk.lane[LANE_COMPUTE].at; i < graph->lane_count[LANE_COMPUTE]; i++) {
        at.node = graph->lane[LANE_COMPUTE][i];
        const struct node *node = node_of(run, at);
        if (node->unit == unit && node->kind == kind && walk_is_run(&run->walk, at))
            return true;
    }
    return false;
}

/* A visit that the client leaves out. */
static void pass_over(struct execute *run, struct walk_at at)
{
    walk_start(&run->walk, at);
    walk_done(&run->walk, at);
}

int execute_reach(struct hst_engine *engine, uint32_t unit, enum hst_sweep sweep)
{
    struct execute *run = &engine->run;
    enum node_kind kind = sweep == HST_BACKWARD ? NODE_BACKWARD : NODE_FORWARD;
    bool fresh = sweep == HST_EVAL && !(run->evaluating && is_ahead(run, unit, kind));
    int rc = fresh ? execute_drain(engine) : 0;
    if (rc == 0 && fresh)
        rc = open_period(engine, PART_EVAL);
    run->evaluating = sweep == HST_EVAL;
    if (rc)
        return rc;
    if (!is_ahead(run, unit, kind))
        return -EINVAL;
    for (;;) {
        struct walk_at at;
        rc = run_until(engine, compute_is_ready);
        if (rc)
            return rc;
        walk_next(&run->walk, LANE_COMPUTE, &at);
        const struct node *node = node_of(run, at);
        if (node->unit == unit && node->kind == kind) {
            walk_start(&run->walk, at);
            run->computing = at;
            run->computing_start_s = clock_seconds();
            return 0;
        }
        pass_over(run, at);
    }
}

int execute_leave(struct hst_engine *engine, struct hst_stream *stream)
{
    struct execute *run = &engine->run;
    int rc = 0;
    if (run->passage_count == EXECUTE_PASSAGES)
        rc = take_passage(engine, hst_event_sync(passage_at(run, 0)->passed));
    if (rc)
        return rc;
    struct passage *passage = passage_at(run, run->passage_count);
    rc = hst_event_record(passage->passed, stream);
    rc = rc ? rc : hst_event_record(engine->unit_passed, stream);
    if (rc)
        return engine_fail_device(engine, rc, "the computation of a unit");
    passage->at = run->computing;
    passage->start_s = run->computing_start_s;
    run->passage_count++;
    bool moved;
    return start_all(engine, &moved);
}

int execute_end(struct hst_engine *engine)
{
    struct execute *run = &engine->run;
    int rc = run_until(engine, clip_is_done);
    if (rc)
        return rc;
    run->in_step = false;
    run->update_pending = run->deferred;
    run->period++;
    run->prepared = run->walk.opened > run->period;
    return 0;
}

/* ---- opening ---- */

static uint32_t flights_wanted(const struct hst_engine *engine)
{
    uint32_t drives = engine->drive_count ? engine->drive_count : 1;
    return drives * EXTENTS_IN_FLIGHT;
}

int execute_open(struct hst_engine *engine)
{
    struct execute *run = &engine->run;
    run->deferred = engine->plan_in.deferred;
    for (int l = 0; l < LANE_COUNT; l++)
        run->issuing[l] = EXECUTE_JOBS;
    run->flight_count = flights_wanted(engine);
    run->flights = calloc(run->flight_count, sizeof *run->flights);
    if (!run->flights)
        return -ENOMEM;
    int rc = step_graph(&engine->plan_in, &engine->placement, &run->graph);
    rc = rc ? rc : walk_init(&run->walk, &run->graph);
    for (uint32_t i = 0; rc == 0 && i < EXECUTE_PASSAGES; i++)
        rc = hst_event_create(engine->dev, &run->passages[i].passed);
    return rc;
}

void execute_close(struct hst_engine *engine)
{
    struct execute *run = &engine->run;
    for (uint32_t i = 0; i < EXECUTE_PASSAGES; i++)
        hst_event_destroy(&run->passages[i].passed);
    walk_free(&run->walk);
    graph_free(&run->graph);
    free(run->flights);
    run->flights = NULL;
}
