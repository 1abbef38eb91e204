/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop. Each round takes what has completed, starts what may start in each lane, and does one
 * node of the host's own work; with nothing to do it sleeps until a drive or the device is done
 * with something. Which node may start is not decided here but in plan/scheduler.c.
 */
#include "exec/loop.h"

#include "base/clock.h"
#include "exec/copies.h"
#include "exec/failure.h"
#include "exec/measure.h"
#include "exec/moves.h"
#include "exec/optimistic.h"
#include "exec/optimizer.h"
#include "exec/versions.h"

#include <errno.h>
#include <time.h>

/* While more than one of drives, computation and copies is busy, the loop looks at the device this
 * often. */
#define LOOK_NS 100000u

static const enum lane DEVICE_LANES[] = {LANE_COMPUTE, LANE_H2D, LANE_D2H};
enum { DEVICE_LANES_COUNT = sizeof DEVICE_LANES / sizeof DEVICE_LANES[0] };

static const struct node *node_of(const struct execute *run, struct scheduled at)
{
    return &run->graph.nodes[at.node];
}

/* A started node has nothing to read: its buffer came with its contents. */
static bool is_kept(const struct execute *run, struct scheduled at)
{
    return node_kind_is_retained(node_of(run, at)->kind) && at.step_window != run->stale &&
           scheduler_was_retained(&run->scheduler, at);
}

/* A node is done: what the lane has been doing since it could begin with it. */
static void finish(struct hst_engine *engine, struct scheduled at, double start_s)
{
    struct execute *run = &engine->run;
    const struct node *node = node_of(run, at);
    double end_s = clock_seconds(), free_s = run->lane_end_s[node->lane];
    struct hst_trace_event event = {
        .lane = lane_name((enum lane)node->lane),
        .what = node_kind_name((enum node_kind)node->kind),
        .unit = node->kind == NODE_CLIP || node->kind == NODE_REVERT || node->kind == NODE_COMMIT
                    ? NULL
                    : engine->layout.units[node->unit].name,
        .step = engine->step.number + 1,
        .tile = node->tile,
        .tile_count = node->tile_count,
        .start_s = start_s > free_s ? start_s : free_s,
        .end_s = end_s,
        .work = is_kept(run, at) ? 0 : node->work,
    };
    run->lane_end_s[node->lane] = end_s;
    if (engine->config.trace)
        engine->config.trace(engine->config.trace_context, &event);
    scheduler_done(&run->scheduler, at);
}

/* ---- drives: extents of started nodes ---- */

static void job_finish(struct hst_engine *engine, uint32_t number)
{
    struct execute *run = &engine->run;
    struct job *job = &run->jobs[number];
    job->used = false;
    finish(engine, job->at, job->start_s);
}

/* The version that is on its way counts as one extent in flight. */
static int look_at_version(struct hst_engine *engine, bool *moved)
{
    struct execute *run = &engine->run;
    bool made;
    int rc = versions_poll(engine, &made);
    if (rc || !made)
        return rc;
    run->flying--;
    job_finish(engine, run->committing);
    run->committing = EXECUTE_JOBS;
    *moved = true;
    return 0;
}

static int start_commit(struct hst_engine *engine, uint32_t job, uint64_t step_window)
{
    bool made;
    int rc = versions_begin(engine, step_window, &made);
    if (rc)
        return rc;
    if (made) {
        job_finish(engine, job);
        return 0;
    }
    engine->run.committing = job;
    engine->run.flying++;
    return 0;
}

/* Takes the extents that have landed. *moved: whether any node is done. */
static int land(struct hst_engine *engine, uint64_t wait_ns, bool *moved)
{
    struct execute *run = &engine->run;
    if (run->flying == 0)
        return 0;
    int rc = engine->extents->ops->progress(engine->extents, wait_ns);
    if (rc)
        return engine_fail_extents(engine, rc);
    rc = run->committing < EXECUTE_JOBS ? look_at_version(engine, moved) : 0;
    if (rc)
        return rc;
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
    struct scheduled at;
    for (;;) {
        int rc = run->issuing[lane] < EXECUTE_JOBS ? issue(engine, lane) : 0;
        uint32_t number = free_job(run);
        if (rc || run->issuing[lane] < EXECUTE_JOBS || number == EXECUTE_JOBS)
            return rc;
        if (!scheduler_next(&run->scheduler, lane, &at) || !scheduler_ready(&run->scheduler, at))
            return 0;
        scheduler_start(&run->scheduler, at);
        *moved = true;
        run->jobs[number] = (struct job){
            .at = at,
            .count = is_kept(run, at) ? 0 : moves_count(engine, at),
            .start_s = clock_seconds(),
            .used = true,
        };
        if (node_of(run, at)->kind == NODE_COMMIT)
            rc = start_commit(engine, number, at.step_window);
        else if (run->jobs[number].count == 0)
            job_finish(engine, number);
        else
            run->issuing[lane] = number;
        if (rc)
            return rc;
    }
}

/* ---- device: computations and copies that were enqueued ---- */

static struct passage *oldest_of(struct execute *run, enum lane lane)
{
    return &run->passages[lane].ring[run->passages[lane].first];
}

static int take_passage(struct hst_engine *engine, enum lane lane, int rc)
{
    struct passages *passages = &engine->run.passages[lane];
    struct passage *oldest = oldest_of(&engine->run, lane);
    if (rc < 0)
        return engine_fail_device(engine, rc,
                                  lane == LANE_COMPUTE ? "the computation of a unit"
                                                       : "a copy between host and device");
    if (lane == LANE_COMPUTE)
        measure_passage(engine, oldest);
    finish(engine, oldest->at, oldest->start_s);
    passages->first = (passages->first + 1) % EXECUTE_PASSAGES;
    passages->count--;
    return 0;
}

int loop_take_oldest(struct hst_engine *engine, enum lane lane)
{
    return take_passage(engine, lane, hst_event_sync(oldest_of(&engine->run, lane)->passed));
}

static int look_at_lane(struct hst_engine *engine, enum lane lane, bool *moved)
{
    struct execute *run = &engine->run;
    while (run->passages[lane].count > 0) {
        int rc = hst_event_query(oldest_of(run, lane)->passed);
        if (rc == 0)
            return 0;
        rc = take_passage(engine, lane, rc);
        if (rc)
            return rc;
        *moved = true;
    }
    return 0;
}

static int look_at_device(struct hst_engine *engine, bool *moved)
{
    int rc = 0;
    for (int i = 0; i < DEVICE_LANES_COUNT && rc == 0; i++)
        rc = look_at_lane(engine, DEVICE_LANES[i], moved);
    return rc;
}

/* It counts those of the device's lanes that have anything under way; *lane is one of them. */
static int lanes_under_way(const struct execute *run, enum lane *lane)
{
    int count = 0;
    for (int i = 0; i < DEVICE_LANES_COUNT; i++) {
        if (run->passages[DEVICE_LANES[i]].count == 0)
            continue;
        *lane = DEVICE_LANES[i];
        count++;
    }
    return count;
}

/* Updates on a device that holds what it updates are enqueued like computations, ahead of the
 * client's; those of streamed tiles beside them. */
static int run_device_updates(struct hst_engine *engine, enum lane lane, bool *moved)
{
    struct execute *run = &engine->run;
    struct scheduled at;
    while (scheduler_next(&run->scheduler, lane, &at) && node_of(run, at)->kind == NODE_UPDATE &&
           scheduler_ready(&run->scheduler, at)) {
        scheduler_start(&run->scheduler, at);
        int rc = lane == LANE_COMPUTE ? optimizer_device_update(engine, at)
                                      : optimizer_streamed_update(engine, at);
        if (rc)
            return rc;
        finish(engine, at, clock_seconds());
        *moved = true;
    }
    return 0;
}

/* ---- host: norms and updates ---- */

/* The step window behind the one at hand is run with these. */
static unsigned phases_behind(const struct hst_engine *engine)
{
    return (unsigned)PHASE_FORWARD | PHASE_BACKWARD | engine->run.left |
           versions_phases(engine, engine->step.number + 1);
}

int loop_clip(struct hst_engine *engine)
{
    struct execute *run = &engine->run;
    double stored = optimizer_grad_norm(engine);
    run->grad_norm = stored / (double)engine->step.scale.value;
    run->skipped = optimizer_skips(engine, stored);
    run->clip_done = true;
    int rc = run->skipped ? 0 : optimizer_check_norm(engine, stored);
    rc = rc ? rc : optimistic_judge(engine, stored);
    if (rc == 0 && run->skipped && run->scheduler.opened > run->step_window + 1)
        scheduler_narrow(&run->scheduler, run->step_window + 1, phases_behind(engine));
    return rc;
}

static int run_host_node(struct hst_engine *engine, struct scheduled at)
{
    const struct node *node = node_of(&engine->run, at);
    switch ((enum node_kind)node->kind) {
    case NODE_NORM:
        return optimizer_norm(engine, at);
    case NODE_CLIP:
        return loop_clip(engine);
    case NODE_REVERT:
        return optimistic_revert(engine);
    default:
        optimizer_update(engine, at);
        return 0;
    }
}

/* One node of the host's lane, if one is ready. */
static int run_host_lane(struct hst_engine *engine, bool *moved)
{
    struct execute *run = &engine->run;
    struct scheduled at;
    if (!scheduler_next(&run->scheduler, LANE_UPDATE, &at) || !scheduler_ready(&run->scheduler, at))
        return 0;
    bool idle = run->passages[LANE_COMPUTE].count == 0;
    double start = clock_seconds();
    scheduler_start(&run->scheduler, at);
    int rc = run_host_node(engine, at);
    if (rc)
        return rc;
    finish(engine, at, start);
    engine->step.update_s += idle ? clock_seconds() - start : 0;
    *moved = true;
    return 0;
}

/* ---- the loop ---- */

/* The step window behind the one at hand is opened as soon as may be, so that its reads run ahead.
 * It is taken for a step that follows; whatever else comes takes phases away from it. Where
 * nothing of it may begin before the norm is known, what it has to do is known too. */
static void look_ahead(struct hst_engine *engine)
{
    struct execute *run = &engine->run;
    if (run->in_step && (!run->optimistic || run->clip_done) &&
        run->scheduler.opened == run->step_window + 1 && scheduler_may_open(&run->scheduler))
        scheduler_open(&run->scheduler, phases_behind(engine));
}

static int start_all(struct hst_engine *engine, bool *moved)
{
    look_ahead(engine);
    int rc = land(engine, 0, moved);
    rc = rc ? rc : look_at_device(engine, moved);
    rc = rc ? rc : run_drive_lane(engine, LANE_READ, moved);
    rc = rc ? rc : run_drive_lane(engine, LANE_WRITE, moved);
    rc = rc ? rc : copies_start(engine, LANE_H2D, moved);
    rc = rc ? rc : run_device_updates(engine, LANE_DEVICE_UPDATE, moved);
    rc = rc ? rc : copies_start(engine, LANE_D2H, moved);
    return rc ? rc : run_device_updates(engine, LANE_COMPUTE, moved);
}

static bool is_busy(const struct execute *run, enum lane lane)
{
    if (run->passages[lane].count > 0)
        return true;
    for (uint32_t i = 0; i < EXECUTE_JOBS && run->flying > 0; i++)
        if (run->jobs[i].used && node_of(run, run->jobs[i].at)->lane == lane)
            return true;
    return false;
}

/* The lane that an idle device waits for: what its next computation waits for, what that waits for,
 * and so on until something is being done. Each wait is for an earlier node, so this ends. */
static enum lane blamed(struct execute *run)
{
    struct scheduled head, on;
    enum lane lane = LANE_COMPUTE;
    while (!is_busy(run, lane) && scheduler_next(&run->scheduler, lane, &head) &&
           scheduler_waits_for(&run->scheduler, head, &on))
        lane = (enum lane)node_of(run, on)->lane;
    return lane;
}

static double *stall_of(struct hst_engine *engine, enum lane lane)
{
    const struct passages *passages = engine->run.passages;
    bool copies = passages[LANE_H2D].count + passages[LANE_D2H].count > 0;
    bool drive = lane == LANE_READ || lane == LANE_WRITE;
    return copies && !drive ? &engine->step.stall_copy_s : &engine->step.stall_nvme_s;
}

/* One thing is slept for where it is all there is, or what an idle device wants first; else what is
 * under way is looked at in turn. */
static int sleep_for(struct hst_engine *engine, enum lane wanted)
{
    struct execute *run = &engine->run;
    enum lane lane = LANE_COMPUTE;
    bool ignored;
    int lanes = lanes_under_way(run, &lane);
    if (run->flying > 0)
        return land(engine, lanes ? LOOK_NS : UINT64_MAX, &ignored);
    if (lanes == 1)
        return loop_take_oldest(engine, lane);
    if (run->passages[LANE_COMPUTE].count == 0 && run->passages[wanted].count > 0)
        return loop_take_oldest(engine, wanted);
    const struct timespec look = {.tv_nsec = LOOK_NS};
    (void)nanosleep(&look, NULL); /* a signal only has it look sooner */
    return 0;
}

/* Nothing can be started: waits for what is under way. */
static int wait_for_any(struct hst_engine *engine)
{
    struct execute *run = &engine->run;
    enum lane lane;
    if (run->flying > 0 || lanes_under_way(run, &lane) > 0) {
        bool stalled = run->passages[LANE_COMPUTE].count == 0;
        enum lane wanted = stalled ? blamed(run) : LANE_COMPUTE;
        double *stall = stalled ? stall_of(engine, wanted) : NULL, start = clock_seconds();
        int rc = sleep_for(engine, wanted);
        if (stall)
            *stall += clock_seconds() - start;
        return rc;
    }
    return report_fail(&engine->report, HST_E_DEVICE, -EDEADLK,
                       "the step graph stands still in step window %llu: a defect of the engine",
                       (unsigned long long)run->step_window);
}

int loop_until(struct hst_engine *engine, loop_end *end)
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

int loop_to_rest(struct hst_engine *engine)
{
    for (;;) {
        bool moved = false;
        int rc = start_all(engine, &moved);
        rc = rc ? rc : run_host_lane(engine, &moved);
        enum lane lane;
        if (rc || (!moved && engine->run.flying == 0 && !lanes_under_way(&engine->run, &lane)))
            return rc;
        rc = moved ? 0 : wait_for_any(engine);
        if (rc)
            return rc;
    }
}

bool loop_is_idle(struct hst_engine *engine)
{
    return scheduler_is_idle(&engine->run.scheduler);
}

int loop_start(struct hst_engine *engine)
{
    bool moved = false;
    return start_all(engine, &moved);
}
