/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/update/verdict.h"

#include "exec/update/optimizer.h"

#include <math.h>

void verdict_open(struct executor *exec, bool optimistic)
{
    struct verdict *v = &exec->verdict;
    v->optimistic = optimistic;
    v->deferred = exec->in.plan_in->deferred && !optimistic;
    v->stale = UINT64_MAX;
}

int verdict_step_begins(struct executor *exec)
{
    struct verdict *v = &exec->verdict;
    v->is_known = v->skipped = v->early_begun = false;
    v->left = PHASE_UPDATE; /* of which a graph may have nothing */
    return v->deferred ? 0 : optimizer_coefs(exec, 0, &v->early);
}

void verdict_early_begins(struct executor *exec)
{
    exec->verdict.early_begun = true;
}

/* This is what it means for the update, which is made already where it is optimistic. */
static int follow(struct executor *exec, double stored_norm)
{
    struct verdict *v = &exec->verdict;
    int rc = v->skipped ? 0 : optimizer_coefs(exec, stored_norm, &v->coefs);
    v->left = v->skipped ? 0 : PHASE_UPDATE;
    if (rc || !v->optimistic)
        return rc;
    bool stands = !v->skipped && optimizer_coefs_agree(&v->coefs, &v->early);
    if (!stands)
        v->left |= v->skipped ? (unsigned)PHASE_REVERT : (unsigned)PHASE_REVERT | PHASE_REDO;
    v->slot ^= !v->skipped;
    v->stale = stands ? UINT64_MAX : exec->turn.step_window + 1;
    return 0;
}

/* It is of the stored gradients of all ranks, and may be non-finite. */
static double squared_norm(struct executor *exec)
{
    struct exact_sum sum = {.unsettled = 0};
    if (exec->in.comm)
        return exact_value(&exec->net.norm);
    optimizer_sum_norm(exec, &sum);
    return exact_value(&sum);
}

int verdict_judge(struct executor *exec)
{
    struct verdict *v = &exec->verdict;
    const double stored_norm = sqrt(squared_norm(exec));
    v->grad_norm = stored_norm / (double)exec->in.standing->scale.value;
    v->skipped = optimizer_skips(exec, stored_norm);
    v->is_known = true;
    int rc = v->skipped ? 0 : optimizer_check_norm(exec, stored_norm);
    return rc ? rc : follow(exec, stored_norm);
}
