/* SPDX-License-Identifier: Apache-2.0 */
/* The host's own work, on this thread and the workers: norms, updates, and the decisions between
 * both. */
#include "base/clock.h"
#include "exec/lanes/lanes.h"
#include "exec/program.h"
#include "exec/update/optimizer.h"
#include "exec/update/verdict.h"

unsigned host_phases_behind(const struct executor *exec)
{
    const struct executor_owner *owner = &exec->in.owner;
    return (unsigned)PHASE_FORWARD | PHASE_BACKWARD | exec->verdict.left |
           owner->phases(owner->context, exec->in.standing->number + 1);
}

int host_clip(struct executor *exec)
{
    struct scheduler *scheduler = &exec->step.scheduler;
    const uint64_t behind = exec->turn.step_window + 1;
    int rc = verdict_judge(exec);
    if (rc == 0 && exec->verdict.skipped && scheduler->opened > behind)
        scheduler_narrow(scheduler, behind, host_phases_behind(exec));
    return rc;
}

static int run(struct executor *exec, struct scheduled at)
{
    switch ((enum node_kind)program_node(exec, at)->kind) {
    case NODE_NORM:
        return optimizer_norm(exec, at);
    case NODE_CLIP:
        return host_clip(exec);
    case NODE_REVERT:
        return exec->in.owner.revert(exec->in.owner.context);
    default:
        optimizer_update(exec, at);
        return 0;
    }
}

int host_start(struct executor *exec, enum lane lane, bool *moved)
{
    struct scheduler *scheduler = &exec->now->scheduler;
    struct scheduled at;
    if (!scheduler_next(scheduler, lane, &at) || !scheduler_ready(scheduler, at))
        return 0;
    double start_s = clock_seconds();
    scheduler_start(scheduler, at);
    int rc = run(exec, at);
    if (rc)
        return rc;
    program_finish(exec, at, start_s);
    *moved = true;
    return 0;
}
