/* SPDX-License-Identifier: Apache-2.0 */
/* Extents of started nodes, on their way to and from drives. The version that is being made counts
 * as one of them. */
#include "base/clock.h"
#include "exec/lanes/lanes.h"
#include "exec/moves.h"

#include <errno.h>
#include <stdlib.h>

int drives_open(struct executor *exec)
{
    struct drives *d = &exec->drives;
    for (int l = 0; l < LANE_COUNT; l++)
        d->issuing[l] = DRIVE_JOBS;
    d->committing = DRIVE_JOBS;
    d->flight_count = (exec->in.drive_count ? exec->in.drive_count : 1) * EXTENTS_IN_FLIGHT;
    d->flights = calloc(d->flight_count, sizeof *d->flights);
    return d->flights ? 0 : -ENOMEM;
}

void drives_close(struct executor *exec)
{
    free(exec->drives.flights);
    exec->drives.flights = NULL;
}

/* ---- ends ---- */

static void job_finish(struct executor *exec, uint32_t number)
{
    struct job *job = &exec->drives.jobs[number];
    job->used = false;
    program_finish(exec, job->at, job->start_s);
}

static int look_at_version(struct executor *exec, bool *moved)
{
    struct drives *d = &exec->drives;
    bool made;
    int rc = exec->in.owner.commit_poll(exec->in.owner.context, &made);
    if (rc || !made)
        return rc;
    d->flying--;
    job_finish(exec, d->committing);
    d->committing = DRIVE_JOBS;
    *moved = true;
    return 0;
}

/* Takes the extents that have landed. *moved: whether any node is done. */
static int land(struct executor *exec, uint64_t wait_ns, bool *moved)
{
    struct drives *d = &exec->drives;
    if (d->flying == 0)
        return 0;
    int rc = exec->extents->ops->progress(exec->extents, wait_ns);
    if (rc)
        return executor_fail_extents(exec, rc);
    rc = d->committing < DRIVE_JOBS ? look_at_version(exec, moved) : 0;
    if (rc)
        return rc;
    for (uint32_t i = 0; i < d->flight_count; i++) {
        struct flight *flight = &d->flights[i];
        if (!flight->used || flight->transfer.active)
            continue;
        flight->used = false;
        d->flying--;
        if (flight->transfer.error)
            return executor_fail_transfer(exec, &flight->transfer);
        struct job *job = &d->jobs[flight->job];
        if (--job->flying == 0 && job->begun == job->count) {
            job_finish(exec, flight->job);
            *moved = true;
        }
    }
    return 0;
}

int drives_poll(struct executor *exec, enum lane lane, bool *moved)
{
    (void)lane;
    return land(exec, 0, moved);
}

int drives_wait(struct executor *exec, enum lane lane, uint64_t wait_ns)
{
    bool ignored = false;
    (void)lane;
    return land(exec, wait_ns, &ignored);
}

/* These do not tell all that a version which is being made waits for. */
int drives_descriptors(struct executor *exec, enum lane lane, int *fds, uint32_t room)
{
    const struct extents_ops *ops = exec->extents->ops;
    (void)lane;
    if (exec->drives.committing < DRIVE_JOBS || !ops->descriptors)
        return -ENOTSUP;
    return ops->descriptors(exec->extents, fds, room);
}

bool drives_under_way(const struct executor *exec, enum lane lane)
{
    (void)lane;
    return exec->drives.flying > 0;
}

/* ---- starts ---- */

static int start_commit(struct executor *exec, uint32_t job, uint64_t step_window)
{
    bool made;
    int rc = exec->in.owner.commit_begin(exec->in.owner.context, step_window, &made);
    if (rc)
        return rc;
    if (made) {
        job_finish(exec, job);
        return 0;
    }
    exec->drives.committing = job;
    exec->drives.flying++;
    return 0;
}

static struct flight *free_flight(struct drives *d)
{
    for (uint32_t i = 0; d->flying < d->flight_count && i < d->flight_count; i++)
        if (!d->flights[i].used)
            return &d->flights[i];
    return NULL;
}

/* Begins as many of the job's extents as there are flights. */
static int issue(struct executor *exec, enum lane lane)
{
    struct drives *d = &exec->drives;
    struct job *job = &d->jobs[d->issuing[lane]];
    struct flight *flight;
    while (job->begun < job->count && (flight = free_flight(d))) {
        struct move move = moves_at(exec, job->at, job->begun);
        int (*begin)(struct extents *, enum extent_kind, uint32_t, void *, struct transfer *) =
            move.write ? extents_write : extents_read;
        int rc = begin(exec->extents, move.kind, move.index, move.memory, &flight->transfer);
        if (rc)
            return executor_fail_transfer(exec, &flight->transfer);
        flight->used = true;
        flight->job = d->issuing[lane];
        d->flying++;
        job->begun++;
        job->flying++;
    }
    if (job->begun == job->count)
        d->issuing[lane] = DRIVE_JOBS;
    return 0;
}

static uint32_t free_job(const struct drives *d)
{
    uint32_t i = 0;
    while (i < DRIVE_JOBS && d->jobs[i].used)
        i++;
    return i;
}

static int start_job(struct executor *exec, enum lane lane, uint32_t number, struct scheduled at)
{
    struct drives *d = &exec->drives;
    d->jobs[number] = (struct job){
        .at = at,
        .count = program_is_kept(exec, at) ? 0 : moves_count(exec, at),
        .start_s = clock_seconds(),
        .used = true,
    };
    if (program_node(exec, at)->kind == NODE_COMMIT)
        return start_commit(exec, number, at.step_window);
    if (d->jobs[number].count == 0)
        job_finish(exec, number);
    else
        d->issuing[lane] = number;
    return 0;
}

int drives_start(struct executor *exec, enum lane lane, bool *moved)
{
    struct drives *d = &exec->drives;
    struct scheduler *scheduler = &exec->now->scheduler;
    struct scheduled at;
    for (;;) {
        int rc = d->issuing[lane] < DRIVE_JOBS ? issue(exec, lane) : 0;
        uint32_t number = free_job(d);
        if (rc || d->issuing[lane] < DRIVE_JOBS || number == DRIVE_JOBS)
            return rc;
        if (!scheduler_next(scheduler, lane, &at) || !scheduler_ready(scheduler, at))
            return 0;
        scheduler_start(scheduler, at);
        *moved = true;
        rc = start_job(exec, lane, number, at);
        if (rc)
            return rc;
    }
}
