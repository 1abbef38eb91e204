/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values in host memory, where there is no other transport for them: they go by way of the card, in
 * pieces, and who begins the operation waits until it has ended. Sums are of integers, so whatever
 * order NCCL adds in has the same result. Where ranks may come late all have come before it begins
 * (signs.c).
 */
#include "comm/nccl/nccl_comm.h"

#include <errno.h>
#include <string.h>

/* All that the stream holds. */
static int wait_for_stream(struct nccl *n, const struct comm_op *op, uint64_t since_ns,
                           struct hst_event *event)
{
    const struct hst_dev_ops *ops = n->ops;
    int rc = ops->event_record(event, n->stream);
    while (!rc) {
        const int passed = ops->event_query(event);
        if (passed > 0)
            return 0;
        rc = passed < 0 ? passed : nccl_look(n);
        rc = rc ? rc : nccl_check_end(n);
        rc = rc ? rc : nccl_check_time(n, op, since_ns);
        if (!rc)
            nccl_nap();
    }
    return n->failure.native ? rc : nccl_device_failed(n, rc, "values of ranks on the device");
}

/* One collective in place, of each_bytes for each rank. */
static int collective(struct nccl *n, const struct comm_op *op, size_t each_bytes)
{
    const struct nccl_library *lib = &n->library;
    if (op->kind == COMM_SUM64)
        return nccl_settle(n, n->world,
                           lib->ncclAllReduce(n->stage, n->stage, each_bytes / sizeof(int64_t),
                                              NCCL_INT64, NCCL_SUM, n->world, n->native),
                           "ncclAllReduce");
    if (op->kind == COMM_BCAST)
        return nccl_settle(n, n->world,
                           lib->ncclBroadcast(n->stage, n->stage, each_bytes, NCCL_INT8,
                                              (int)op->root, n->world, n->native),
                           "ncclBroadcast");
    return nccl_settle(n, n->world,
                       lib->ncclAllGather(n->stage + n->info.rank * each_bytes, n->stage,
                                          each_bytes, NCCL_INT8, n->world, n->native),
                       "ncclAllGather");
}

/* This rank brings it: of a gather it is in its place. */
static const char *own_part(const struct nccl *n, const struct comm_op *op)
{
    if (op->kind == COMM_GATHER)
        return (const char *)op->out + n->info.rank * op->count;
    return op->kind == COMM_SHARE ? op->in : op->out;
}

static int one_piece(struct nccl *n, const struct comm_op *op, size_t at, size_t bytes)
{
    const struct hst_dev_ops *ops = n->ops;
    const bool share = op->kind == COMM_SHARE || op->kind == COMM_GATHER;
    const size_t own = share ? n->info.rank * bytes : 0;
    const size_t all = share ? n->info.ranks * bytes : bytes;
    memcpy(n->pinned + own, own_part(n, op) + at, bytes);
    int rc = ops->stream_copy(n->stream, n->stage + own, n->pinned + own, bytes);
    if (rc)
        return nccl_device_failed(n, rc, "copy of values of ranks");
    rc = collective(n, op, bytes);
    if (rc)
        return rc;
    rc = ops->stream_copy(n->stream, n->pinned, n->stage, all);
    if (rc)
        return nccl_device_failed(n, rc, "copy of values of ranks");
    rc = wait_for_stream(n, op, nccl_now_ns(), n->entry[n->begun % COMM_IN_FLIGHT].passed);
    if (rc)
        return rc;
    if (!share)
        memcpy((char *)op->out + at, n->pinned, bytes);
    for (uint32_t r = 0; share && r < n->info.ranks; r++)
        memcpy((char *)op->out + r * op->count + at, n->pinned + r * bytes, bytes);
    return 0;
}

int nccl_sum_one(struct nccl *n, const struct comm_op *op, uint64_t since_ns, int64_t *value)
{
    const struct comm_op sum = {.kind = COMM_SUM64};
    memcpy(n->pinned, value, sizeof *value);
    int rc = n->ops->stream_copy(n->stream, n->stage, n->pinned, sizeof *value);
    if (rc)
        return nccl_device_failed(n, rc, "copy of a value of ranks");
    rc = collective(n, &sum, sizeof *value);
    if (rc)
        return rc;
    rc = n->ops->stream_copy(n->stream, n->pinned, n->stage, sizeof *value);
    if (rc)
        return nccl_device_failed(n, rc, "copy of a value of ranks");
    rc = wait_for_stream(n, op, since_ns, n->signs.passed);
    if (!rc)
        memcpy(value, n->pinned, sizeof *value);
    return rc;
}

int nccl_small(struct nccl *n, const struct comm_op *op)
{
    const size_t total = op->kind == COMM_SUM64 ? op->count * sizeof(int64_t) : op->count;
    int rc = 0;
    for (size_t at = 0; !rc && at < total; at += NCCL_STAGE_BYTES) {
        const size_t left = total - at;
        rc = one_piece(n, op, at, left < NCCL_STAGE_BYTES ? left : NCCL_STAGE_BYTES);
    }
    if (!rc && op->kind == COMM_GATHER)
        nccl_count(n, op->count * (n->info.ranks - 1),
                   op->count * (n->info.ranks - n->info.locals));
    return rc;
}
