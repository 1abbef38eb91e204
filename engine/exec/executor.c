/* SPDX-License-Identifier: Apache-2.0 */
/* This is what an executor is given, and whom it tells of failures. */
#include "exec/executor.h"

#include "base/device_failure.h"
#include "comm/report.h"

#include <errno.h>

void executor_init(struct executor *exec, const struct executor_in *in)
{
    exec->in = *in;
}

void executor_attach(struct executor *exec, struct extents *extents, struct extents *resident)
{
    exec->extents = extents;
    exec->resident = resident;
}

int executor_fail_device(struct executor *exec, int native, const char *what)
{
    return device_fail(exec->in.report, exec->in.dev, exec->in.config->device, native, what);
}

int executor_fail_transfer(struct executor *exec, const struct transfer *transfer)
{
    return exec->in.owner.fail_transfer(exec->in.owner.context, transfer);
}

int executor_fail_extents(struct executor *exec, int native)
{
    return exec->in.owner.fail_extents(exec->in.owner.context, native);
}

int executor_fail_comm(struct executor *exec, int native)
{
    const uint64_t step = exec->turn.in_step ? exec->in.standing->number + 1 : 0;
    return comm_report(exec->in.comm, exec->in.report, step, native);
}

int executor_stopped(const struct executor *exec)
{
    return exec->in.owner.is_stopped(exec->in.owner.context) ? -ECANCELED : 0;
}
