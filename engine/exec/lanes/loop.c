/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop. Each round takes what has completed, starts what may start in each lane, and does one
 * node of the host's own work; with nothing to do it sleeps until a lane is done with something.
 * Which node may start is not decided here but in plan/graph/scheduler.c, and how it is begun and
 * ended is the lane's.
 */
#include "exec/lanes/loop.h"

#include "base/clock.h"
#include "exec/lanes/lanes.h"
#include "exec/program.h"

#include <errno.h>
#include <poll.h>
#include <time.h>

/* While more than one lane is busy, the loop looks at those that have no short wait this often. */
#define LOOK_NS 100000u

/* It sleeps on descriptors for so long at most. */
#define LONG_LOOK_MS 100

/* In which order they are looked at, and in which they start; the host's own work comes last, when
   all others have what to do. */
static const enum lane POLLED[] = {LANE_READ, LANE_NET, LANE_COMPUTE,
                                   LANE_H2D,  LANE_D2H, LANE_DEVICE_UPDATE};
static const enum lane STARTED[] = {LANE_READ, LANE_WRITE, LANE_H2D,    LANE_DEVICE_UPDATE,
                                    LANE_D2H,  LANE_NET,   LANE_COMPUTE};
enum {
    POLLED_COUNT = sizeof POLLED / sizeof POLLED[0],
    STARTED_COUNT = sizeof STARTED / sizeof STARTED[0],
    DESCRIPTORS = 2 * STRIPE_DRIVES_MAX + 5, /* of drives, and one of each other lane */
};

void loop_forget_stalls(struct executor *exec)
{
    exec->stalls = (struct stalls){0};
}

/* The step window behind the one at hand is opened as soon as may be, so that its reads run ahead.
 * It is taken for a step that follows; whatever else comes takes phases away from it. Where
 * nothing of it may begin before the norm is known, what it has to do is known too. While a unit is
 * served on demand, the step's own graph stands still. */
static void look_ahead(struct executor *exec)
{
    struct scheduler *scheduler = &exec->step.scheduler;
    if (exec->turn.in_step && exec->now == &exec->step &&
        (!exec->verdict.optimistic || exec->verdict.is_known) &&
        scheduler->opened == exec->turn.step_window + 1 && scheduler_may_open(scheduler))
        scheduler_open(scheduler, host_phases_behind(exec));
}

static int start_all(struct executor *exec, bool *moved)
{
    int rc = 0;
    look_ahead(exec);
    for (int i = 0; i < POLLED_COUNT && rc == 0; i++)
        rc = lane_ops(POLLED[i])->poll(exec, POLLED[i], moved);
    for (int i = 0; i < STARTED_COUNT && rc == 0; i++)
        rc = lane_ops(STARTED[i])->start(exec, STARTED[i], moved);
    return rc;
}

/* ---- the host's own work ---- */

/* One node, if one is ready. Where the device has nothing to do meanwhile, it waits for it. */
static int run_host(struct executor *exec, bool *moved)
{
    bool idle = exec->passages[LANE_COMPUTE].count == 0, did = false;
    double start_s = idle ? clock_seconds() : 0;
    int rc = lane_ops(LANE_UPDATE)->start(exec, LANE_UPDATE, &did);
    if (did && idle)
        exec->stalls.update_s += clock_seconds() - start_s;
    *moved = *moved || did;
    return rc;
}

/* ---- waits ---- */

/* It counts the lanes that have anything under way; *lane is the first of them. */
static int lanes_under_way(const struct executor *exec, enum lane *lane)
{
    int count = 0;
    for (int i = POLLED_COUNT; i-- > 0;)
        if (lane_ops(POLLED[i])->is_under_way(exec, POLLED[i])) {
            *lane = POLLED[i];
            count++;
        }
    return count;
}

static bool is_busy(const struct executor *exec, enum lane lane)
{
    const struct drives *d = &exec->drives;
    if (exec->passages[lane].count > 0 || (lane == LANE_NET && exec->net.count > 0))
        return true;
    for (uint32_t i = 0; i < DRIVE_JOBS && d->flying > 0; i++)
        if (d->jobs[i].used && program_node(exec, d->jobs[i].at)->lane == lane)
            return true;
    return false;
}

/* The lane that an idle device waits for: what its next computation waits for, what that waits for,
 * and so on until something is being done. Each wait is for an earlier node, so this ends. */
static enum lane blamed(struct executor *exec)
{
    struct scheduler *scheduler = &exec->now->scheduler;
    struct scheduled head, on;
    enum lane lane = LANE_COMPUTE;
    while (!is_busy(exec, lane) && scheduler_next(scheduler, lane, &head) &&
           scheduler_waits_for(scheduler, head, &on))
        lane = (enum lane)program_node(exec, on)->lane;
    return lane;
}

static double *stall_of(struct executor *exec, enum lane lane)
{
    bool copies = exec->passages[LANE_H2D].count + exec->passages[LANE_D2H].count > 0;
    bool drive = lane == LANE_READ || lane == LANE_WRITE;
    if (lane == LANE_NET)
        return &exec->stalls.net_s;
    if (lane == LANE_DEVICE_UPDATE)
        return &exec->stalls.update_s;
    return copies && !drive ? &exec->stalls.copy_s : &exec->stalls.nvme_s;
}

/* False where a lane with anything under way has no descriptor. Else it sleeps until one of them
 * tells: on the host a thread that looks by turns takes from those that compute. */
static bool sleep_for_all(struct executor *exec)
{
    struct pollfd polled[DESCRIPTORS];
    int fds[DESCRIPTORS];
    uint32_t count = 0;
    for (int i = 0; i < POLLED_COUNT; i++) {
        const struct lane_ops *ops = lane_ops(POLLED[i]);
        if (!ops->is_under_way(exec, POLLED[i]))
            continue;
        int more = ops->descriptors(exec, POLLED[i], fds + count, DESCRIPTORS - count);
        if (more < 0)
            return false;
        count += (uint32_t)more;
    }
    for (uint32_t i = 0; i < count; i++)
        polled[i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
    (void)poll(polled, count, LONG_LOOK_MS); /* a signal only has it look sooner */
    return true;
}

/* One lane is slept for where it is all there is, or can be waited for shortly, or is what an idle
 * device wants first; else what is under way is looked at in turn. */
static int sleep_for(struct executor *exec, enum lane wanted)
{
    enum lane lane = LANE_COMPUTE;
    int lanes = lanes_under_way(exec, &lane);
    if (lanes > 1 && sleep_for_all(exec))
        return 0;
    if (lanes == 1 || lane_ops(lane)->timed)
        return lane_ops(lane)->wait(exec, lane, lanes > 1 ? LOOK_NS : LANE_WAIT_LONG);
    if (exec->passages[LANE_COMPUTE].count == 0 && exec->passages[wanted].count > 0)
        return lane_ops(wanted)->wait(exec, wanted, LANE_WAIT_LONG);
    const struct timespec look = {.tv_nsec = LOOK_NS};
    (void)nanosleep(&look, NULL); /* a signal only has it look sooner */
    return 0;
}

/* Nothing can be started: waits for what is under way. */
static int wait_for_any(struct executor *exec)
{
    enum lane lane;
    if (lanes_under_way(exec, &lane) > 0) {
        bool stalled = exec->passages[LANE_COMPUTE].count == 0;
        enum lane wanted = stalled ? blamed(exec) : LANE_COMPUTE;
        double *stall = stalled ? stall_of(exec, wanted) : NULL, start = clock_seconds();
        int rc = sleep_for(exec, wanted);
        if (stall)
            *stall += clock_seconds() - start;
        return rc;
    }
    return report_fail(exec->in.report, HST_E_DEVICE, -EDEADLK,
                       "the step graph stands still in step window %llu: a defect of the engine",
                       (unsigned long long)exec->turn.step_window);
}

/* ---- the loop ---- */

int loop_until(struct executor *exec, loop_end *end)
{
    for (;;) {
        bool moved = false;
        int rc = start_all(exec, &moved);
        if (rc || end(exec))
            return rc;
        rc = run_host(exec, &moved);
        if (rc == 0 && !moved)
            rc = wait_for_any(exec);
        if (rc)
            return rc;
    }
}

int loop_to_rest(struct executor *exec)
{
    for (;;) {
        bool moved = false;
        int rc = start_all(exec, &moved);
        rc = rc ? rc : run_host(exec, &moved);
        enum lane lane;
        if (rc || (!moved && lanes_under_way(exec, &lane) == 0))
            return rc;
        rc = moved ? 0 : wait_for_any(exec);
        if (rc)
            return rc;
    }
}

bool loop_is_idle(struct executor *exec)
{
    return scheduler_is_idle(&exec->now->scheduler);
}

int loop_start(struct executor *exec)
{
    bool moved = false;
    return start_all(exec, &moved);
}
