/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gathers on device memory: of parts as they are, of the integers of parts, and within the node.
 * All of one is in the comm's stream, one behind the other: a kernel makes integers and scales of
 * the rank's own part, NCCL brings those of all ranks, and kernels put into the row what they give
 * back, of its own part as of the others'. A piece at a time, in the buffer that exchanges receive
 * into: integers of all ranks in front, their scales behind them, so that both are aligned.
 */
#include "comm/nccl/nccl_comm.h"

#include <errno.h>

static int all_gather(struct nccl *n, struct nccl_comm *comm, const char *own, char *all,
                      size_t bytes)
{
    return nccl_settle(n, comm,
                       n->library.ncclAllGather(own, all, bytes, NCCL_INT8, comm, n->native),
                       "ncclAllGather");
}

/* In the order of a group, whose end begins it. */
static int all_gather_later(struct nccl *n, const char *own, char *all, size_t bytes)
{
    const enum nccl_result result =
        n->library.ncclAllGather(own, all, bytes, NCCL_INT8, n->world, n->native);
    return result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS
               ? 0
               : nccl_settle(n, n->world, result, "ncclAllGather");
}

static int copy(struct nccl *n, char *to, const char *from, size_t bytes)
{
    int rc = n->ops->stream_copy(n->stream, to, from, bytes);
    return rc ? nccl_device_failed(n, rc, "a copy of gathered parts") : 0;
}

/* ---- as integers ----------------------------------------------------------------------------- */

/* Elements of a piece of each part: with those of all ranks it fits the buffer. */
static size_t piece_of(const struct nccl *n)
{
    return n->config.piece_bytes / n->info.ranks / comm_quant_bytes(COMM_DEVICE_QUANT) *
           COMM_DEVICE_QUANT;
}

static size_t scales_bytes(size_t count)
{
    return comm_quant_bytes(count) - count;
}

static char *codes_of(const struct nccl *n, uint32_t rank, size_t count)
{
    return n->ring + rank * count;
}

static char *scales_of(const struct nccl *n, uint32_t rank, size_t count)
{
    return n->ring + n->info.ranks * count + rank * scales_bytes(count);
}

/* Elements [at, at + count) of a rank's part, where the row has them. */
static char *values_of(const struct comm_op *op, uint32_t rank, size_t at)
{
    return (char *)op->out + rank * op->count + at * hst_dtype_bytes(op->dtype);
}

/* The rank's own part: at home, or in its place in the row. */
static const char *own_part(const struct nccl *n, const struct comm_op *op)
{
    return op->in ? op->in : (const char *)op->out + n->info.rank * op->count;
}

static int to_integers(struct nccl *n, const struct comm_op *op, size_t at, size_t count)
{
    const uint32_t own = n->info.rank;
    const struct hst_quantise args = {.bits = op->quant,
                                      .dtype = op->dtype,
                                      .count = count,
                                      .values = own_part(n, op) + at * hst_dtype_bytes(op->dtype),
                                      .codes = codes_of(n, own, count),
                                      .scales = (float *)(void *)scales_of(n, own, count)};
    int rc = n->config.device_quantise(n->stream, &args);
    return rc ? nccl_device_failed(n, rc, "integers of weights cannot be made") : 0;
}

static int give_back(struct nccl *n, const struct comm_op *op, uint32_t rank, size_t at,
                     size_t count)
{
    const struct hst_dequantise args = {.bits = op->quant,
                                        .dtype = op->dtype,
                                        .count = count,
                                        .codes = codes_of(n, rank, count),
                                        .scales = (float *)(void *)scales_of(n, rank, count),
                                        .values = values_of(op, rank, at)};
    int rc = n->config.device_dequantise(n->stream, &args);
    return rc ? nccl_device_failed(n, rc, "integers of weights cannot be given back") : 0;
}

/* The group's end begins all of it, whatever went wrong in between. */
static int bring_integers(struct nccl *n, size_t count)
{
    const uint32_t own = n->info.rank;
    n->library.ncclGroupStart();
    int rc = all_gather_later(n, codes_of(n, own, count), codes_of(n, 0, count), count);
    rc = rc ? rc
            : all_gather_later(n, scales_of(n, own, count), scales_of(n, 0, count),
                               scales_bytes(count));
    const enum nccl_result result = n->library.ncclGroupEnd();
    return rc ? rc : nccl_settle(n, n->world, result, "ncclGroupEnd");
}

static int gather_piece(struct nccl *n, const struct comm_op *op, size_t at, size_t count)
{
    int rc = to_integers(n, op, at, count);
    rc = rc ? rc : bring_integers(n, count);
    for (uint32_t r = 0; !rc && r < n->info.ranks; r++)
        rc = give_back(n, op, r, at, count);
    return rc;
}

static int gather_integers(struct nccl *n, const struct comm_op *op)
{
    const size_t count = op->count / hst_dtype_bytes(op->dtype), most = piece_of(n);
    int rc = most ? 0 : nccl_too_small(n);
    for (size_t at = 0; !rc && at < count; at += most)
        rc = gather_piece(n, op, at, count - at < most ? count - at : most);
    return rc;
}

/* ---- as they are ----------------------------------------------------------------------------- */

static int gather_parts(struct nccl *n, const struct comm_op *op)
{
    return all_gather(n, n->world, own_part(n, op), op->out, op->count);
}

/* A rank that is alone on its node has all of the row. */
static int gather_near(struct nccl *n, const struct comm_op *op)
{
    struct nccl_comm *node = nccl_node(n);
    int rc = node ? all_gather(n, node, op->in, op->out, op->count)
                  : copy(n, op->out, op->in, op->count);
    if (!rc)
        nccl_count(n, op->count * (n->info.locals - 1), 0);
    return rc;
}

/* The part of the row that the rank has among its node's: of whole rows, whoever had it. */
static int keep_part(struct nccl *n, const struct comm_op *op)
{
    const size_t part = n->info.ranks * op->count / n->info.locals;
    return op->keep ? copy(n, op->keep, (const char *)op->out + n->info.local * part, part) : 0;
}

int nccl_gather(struct nccl *n, const struct comm_op *op)
{
    const size_t sent =
        op->quant ? comm_quant_bytes(op->count / hst_dtype_bytes(op->dtype)) : op->count;
    if (op->near)
        return gather_near(n, op);
    int rc = op->quant ? gather_integers(n, op) : gather_parts(n, op);
    rc = rc ? rc : keep_part(n, op);
    if (!rc)
        nccl_count(n, sent * (n->info.ranks - 1), sent * (n->info.ranks - n->info.locals));
    return rc;
}
