/* SPDX-License-Identifier: Apache-2.0 */
/* Faults around a comm: at the n-th operation that this rank begins, what was planned happens. */
#include "comm/wrap.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct faulty {
    struct wrap wrap;
    struct comm_ops ops;
    struct comm_fault faults[COMM_FAULTS_MOST];
    size_t count;
    uint64_t begun;   /* operations */
    uint64_t struck;  /* of the fault that has happened last; a begin that is refused comes again */
    uint64_t dropped; /* ticket of the first one that never ends; 0: none */
    uint64_t last;    /* ticket that was given out last */
    struct comm_failure failure;
};

static const struct comm_fault *fault_of(const struct faulty *f)
{
    for (size_t i = 0; i < f->count; i++)
        if (f->faults[i].nth == f->begun + 1 && f->faults[i].nth != f->struck)
            return &f->faults[i];
    return NULL;
}

static void wait_for(double seconds)
{
    struct timespec left = {.tv_sec = (time_t)seconds,
                            .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        continue;
}

static int strike(struct faulty *f, const struct comm_fault *fault, const struct comm_op *op)
{
    struct comm_info info;
    f->struck = fault->nth;
    switch (fault->what) {
    case COMM_FAULT_FAIL:
        comm_info(f->wrap.inner, &info);
        return comm_fail(&f->failure, -EIO, (int)info.rank,
                         "rank %u failed in the %s of %.40s, as was planned", info.rank,
                         comm_kind_name(op->kind), op->name ? op->name : "data");
    case COMM_FAULT_DELAY:
        wait_for(fault->seconds);
        return 0;
    case COMM_FAULT_DROP:
        f->dropped = f->last + 1;
        return 0;
    default:
        return raise(SIGKILL);
    }
}

static int fault_begin(struct comm *comm, const struct comm_op *op, uint64_t *ticket)
{
    struct faulty *f = (struct faulty *)comm;
    const struct comm_fault *fault = fault_of(f);
    int rc = f->failure.native;
    if (!rc && fault)
        rc = strike(f, fault, op);
    if (rc)
        return rc;
    if (f->dropped)
        f->last++;
    else
        rc = comm_begin(f->wrap.inner, op, &f->last);
    if (!rc) {
        f->begun++;
        *ticket = f->last;
    }
    return rc;
}

static int fault_test(struct comm *comm, uint64_t ticket)
{
    struct faulty *f = (struct faulty *)comm;
    if (f->dropped && ticket >= f->dropped)
        return ticket > f->last ? -EINVAL : -EAGAIN;
    int rc = comm_test(f->wrap.inner, ticket);
    return rc == -EAGAIN && f->failure.native ? f->failure.native : rc;
}

static void fault_failure(struct comm *comm, struct comm_failure *failure)
{
    struct faulty *f = (struct faulty *)comm;
    if (f->failure.native)
        *failure = f->failure;
    else
        comm_failure(f->wrap.inner, failure);
}

int comm_fault_wrap(struct comm **comm, const struct comm_fault *faults, size_t count)
{
    if (!comm || !*comm || (count && !faults) || count > COMM_FAULTS_MOST)
        return -EINVAL;
    for (size_t i = 0; i < count; i++)
        if (faults[i].what < COMM_FAULT_FAIL || faults[i].what > COMM_FAULT_DIE || !faults[i].nth ||
            !(faults[i].seconds >= 0))
            return -EINVAL;
    struct faulty *f = calloc(1, sizeof *f);
    if (!f)
        return -ENOMEM;
    f->wrap.inner = *comm;
    f->ops = wrap_ops();
    f->ops.begin = fault_begin;
    f->ops.test = fault_test;
    f->ops.failure = fault_failure;
    f->wrap.base.ops = &f->ops;
    f->count = count;
    if (count)
        memcpy(f->faults, faults, count * sizeof *faults);
    *comm = &f->wrap.base;
    return 0;
}
