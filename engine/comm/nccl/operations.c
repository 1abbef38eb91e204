/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations under way: each is in the comm's stream, or with the control comm, and they end in the
 * order in which they were begun. Two events of each are in the stream: when it could run, from
 * which its time counts, and when it has ended.
 */
#include "comm/nccl/nccl_comm.h"

#include <errno.h>

/* ---- begin ----------------------------------------------------------------------------------- */

static int run(struct nccl *n, const struct comm_op *op)
{
    if (!op->count)
        return 0;
    if (!op->on_device)
        return nccl_small(n, op);
    return op->kind == COMM_GATHER ? nccl_gather(n, op) : nccl_exchange(n, op);
}

int nccl_enqueue(struct nccl *n, struct entry *entry)
{
    const struct hst_dev_ops *ops = n->ops;
    int rc = entry->op.after ? ops->stream_wait(n->stream, entry->op.after) : 0;
    rc = rc ? rc : ops->event_record(entry->ready, n->stream);
    if (rc)
        return nccl_device_failed(n, rc, "an operation of ranks cannot be begun");
    rc = run(n, &entry->op);
    if (rc)
        return rc;
    rc = ops->event_record(entry->passed, n->stream);
    return rc ? nccl_device_failed(n, rc, "the end of an operation of ranks") : 0;
}

/* ---- end ------------------------------------------------------------------------------------- */

/* 0: it has ended, -EAGAIN: not yet, or the failure. */
static int test_stream(struct nccl *n, struct entry *entry)
{
    const struct hst_dev_ops *ops = n->ops;
    const int passed = ops->event_query(entry->passed);
    if (passed > 0)
        return 0;
    int rc = passed < 0 ? nccl_device_failed(n, passed, "an operation of ranks") : nccl_look(n);
    if (rc)
        return rc;
    if (!n->head_since_ns && ops->event_query(entry->ready) > 0)
        n->head_since_ns = nccl_now_ns();
    rc = n->head_since_ns ? nccl_check_time(n, &entry->op, n->head_since_ns) : 0;
    return rc ? rc : -EAGAIN;
}

static int test_control(struct nccl *n, const struct entry *entry)
{
    int rc = comm_test(n->control, entry->child);
    if (rc && rc != -EAGAIN && !n->failure.native) {
        comm_failure(n->control, &n->failure);
        n->failure.native = rc;
    }
    return rc;
}

/* The control comm's descriptor is emptied whether or not its operation is the first. */
int nccl_progress(struct nccl *n)
{
    for (uint64_t i = n->ended; i < n->begun && !n->failure.native; i++)
        if (n->entry[i % COMM_IN_FLIGHT].child) {
            (void)test_control(n, &n->entry[i % COMM_IN_FLIGHT]);
            break;
        }
    int rc = n->failure.native;
    while (!rc && n->ended < n->begun) {
        struct entry *entry = &n->entry[n->ended % COMM_IN_FLIGHT];
        rc = entry->child ? test_control(n, entry) : test_stream(n, entry);
        if (rc)
            break;
        n->ended++;
        n->head_since_ns = 0;
    }
    return rc == -EAGAIN ? 0 : rc;
}
