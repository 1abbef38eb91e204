/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls of a comm that is open: arguments are checked here, once, for all transports. Plugins
 * compile this too: one of them stands on another comm.
 */
#include "comm/comm.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>

enum { SUM64_MOST = 1 << 20, SHARE_MOST = 1 << 20, LOOK_MS = 1000, PAGE = 4096 };

/* ---- life ------------------------------------------------------------------------------------ */

int comm_close(struct comm **comm)
{
    int rc = comm && *comm ? (*comm)->ops->close(*comm) : 0;
    if (comm && !rc)
        *comm = NULL;
    return rc;
}

void comm_abort(struct comm *comm, int status)
{
    comm->ops->abort(comm, status);
}

void comm_info(struct comm *comm, struct comm_info *info)
{
    comm->ops->info(comm, info);
}

int comm_number(struct comm *comm, uint32_t rank)
{
    struct comm_info info;
    if (!comm)
        return -EINVAL;
    comm->ops->info(comm, &info);
    return rank < info.ranks ? comm->ops->number(comm, rank) : -EINVAL;
}

void comm_failure(struct comm *comm, struct comm_failure *failure)
{
    comm->ops->failure(comm, failure);
}

int comm_alloc(struct comm *comm, size_t size_bytes, void **memory)
{
    if (!comm || !memory || !size_bytes)
        return -EINVAL;
    return comm->ops->alloc(comm, size_bytes, memory);
}

int comm_expose(struct comm *comm, void *memory, size_t size_bytes)
{
    if (!comm || !memory || !size_bytes || (uintptr_t)memory % PAGE || size_bytes % PAGE)
        return -EINVAL;
    return comm->ops->expose(comm, memory, size_bytes);
}

int comm_free(struct comm *comm, void *memory)
{
    return memory ? comm->ops->free(comm, memory) : 0;
}

int comm_dev_alloc(struct comm *comm, size_t size_bytes, void **memory)
{
    if (!comm || !memory || !size_bytes)
        return -EINVAL;
    return comm->ops->dev ? comm->ops->dev->alloc(comm, size_bytes, memory) : -ENOTSUP;
}

int comm_dev_free(struct comm *comm, void *memory)
{
    if (!memory)
        return 0;
    return comm->ops->dev ? comm->ops->dev->free(comm, memory) : -ENOTSUP;
}

/* ---- operations ------------------------------------------------------------------------------ */

/* True where the ranks' parts are nodes of the tree that add up to all of it. */
static bool tree_fits(const struct hst_sum_tree *tree, uint32_t ranks)
{
    if (!hst_sum_tree_valid(tree) || tree->ways % ranks)
        return false;
    const uint32_t each = tree->ways / ranks;
    return ranks == 1 || !(each & (each - 1));
}

static bool apart(const void *part, size_t part_bytes, const void *row, size_t row_bytes)
{
    const char *own = part, *whole = row;
    return own && (own + part_bytes <= whole || whole + row_bytes <= own);
}

/* A rank's own part is apart from the row that is gathered. On a device it may be in it, as on the
   host it is where nothing is made of it. */
static bool own_fits(const struct comm_op *op, uint32_t ranks)
{
    const bool inside = op->on_device ? !op->in : !op->quant;
    return op->near || inside || apart(op->in, op->count, op->out, ranks * op->count);
}

/* The elements of a shard of a gather by integers are whole blocks. */
static bool quant_fits(const struct comm_op *op)
{
    const size_t size = hst_dtype_bytes(op->dtype);
    const size_t blocks = op->on_device ? COMM_DEVICE_QUANT : HST_QUANT_BLOCK;
    return op->quant == 0 ||
           (op->quant == HST_INT8 && size > 0 && op->count % (blocks * size) == 0);
}

/* Integers are sent as whole blocks. */
static bool sum_fits(const struct comm_op *op, uint32_t ranks)
{
    const size_t blocks = op->on_device ? COMM_DEVICE_QUANT : HST_QUANT_BLOCK;
    return op->in && tree_fits(&op->tree, ranks) &&
           (op->tree.quant == 0 || op->count % blocks == 0);
}

/* A part of a node's gather is no part of its row. */
static bool near_fits(const struct comm_op *op, uint32_t locals)
{
    return !op->near ||
           (!op->quant && !op->keep && apart(op->in, op->count, op->out, locals * op->count));
}

static bool keep_fits(const struct comm_op *op, const struct comm_info *info)
{
    const size_t row = info->ranks * op->count;
    return !op->keep || (op->on_device && row % info->locals == 0 &&
                         apart(op->keep, row / info->locals, op->out, row));
}

static bool valid(struct comm *comm, const struct comm_op *op)
{
    struct comm_info info;
    comm->ops->info(comm, &info);
    if (!op->out || op->count > SIZE_MAX / 8 / info.ranks || op->within_s < 0)
        return false;
    if (op->on_device ? op->kind != COMM_GATHER && op->kind != COMM_EXCHANGE : op->after != NULL)
        return false;
    switch (op->kind) {
    case COMM_GATHER:
        return own_fits(op, info.ranks) && quant_fits(op) && near_fits(op, info.locals) &&
               keep_fits(op, &info);
    case COMM_EXCHANGE:
        return sum_fits(op, info.ranks);
    case COMM_SUM64:
        return op->count <= SUM64_MOST;
    case COMM_BCAST:
        return op->root < info.ranks;
    case COMM_SHARE:
        return op->in && op->count <= SHARE_MOST;
    default:
        return false;
    }
}

int comm_begin(struct comm *comm, const struct comm_op *op, uint64_t *ticket)
{
    if (!comm || !op || !ticket || !valid(comm, op))
        return -EINVAL;
    if (op->on_device && !comm->ops->dev)
        return -ENOTSUP;
    return comm->ops->begin(comm, op, ticket);
}

int comm_order(struct comm *comm, uint64_t ticket, struct hst_stream *stream)
{
    if (!comm || !stream)
        return -EINVAL;
    return comm->ops->dev ? comm->ops->dev->order(comm, ticket, stream) : -ENOTSUP;
}

int comm_gather(struct comm *comm, const char *name, void *whole, size_t shard_bytes,
                uint64_t *ticket)
{
    const struct comm_op op = {
        .kind = COMM_GATHER, .name = name, .out = whole, .count = shard_bytes};
    return comm_begin(comm, &op, ticket);
}

int comm_gather_quantised(struct comm *comm, const char *name, const void *own, void *whole,
                          size_t count, enum hst_dtype dtype, uint64_t *ticket)
{
    const struct comm_op op = {.kind = COMM_GATHER,
                               .name = name,
                               .in = own,
                               .out = whole,
                               .count = count * hst_dtype_bytes(dtype),
                               .quant = HST_INT8,
                               .dtype = dtype};
    return comm_begin(comm, &op, ticket);
}

int comm_gather_near(struct comm *comm, const char *name, const void *own, void *whole,
                     size_t part_bytes, uint64_t *ticket)
{
    const struct comm_op op = {.kind = COMM_GATHER,
                               .name = name,
                               .in = own,
                               .out = whole,
                               .count = part_bytes,
                               .near = true};
    return comm_begin(comm, &op, ticket);
}

int comm_exchange(struct comm *comm, const char *name, const struct hst_sum_tree *tree,
                  const void *in, void *out, size_t elements, uint64_t *ticket)
{
    if (!tree)
        return -EINVAL;
    const struct comm_op op = {.kind = COMM_EXCHANGE,
                               .name = name,
                               .in = in,
                               .out = out,
                               .count = elements,
                               .tree = *tree};
    return comm_begin(comm, &op, ticket);
}

int comm_sum64(struct comm *comm, const char *name, int64_t *values, size_t count, uint64_t *ticket)
{
    const struct comm_op op = {.kind = COMM_SUM64, .name = name, .out = values, .count = count};
    return comm_begin(comm, &op, ticket);
}

int comm_bcast(struct comm *comm, const char *name, void *memory, size_t size_bytes, uint32_t root,
               uint64_t *ticket)
{
    const struct comm_op op = {
        .kind = COMM_BCAST, .name = name, .out = memory, .count = size_bytes, .root = root};
    return comm_begin(comm, &op, ticket);
}

int comm_share(struct comm *comm, const char *name, const void *own, void *all, size_t each_bytes,
               uint64_t *ticket)
{
    const struct comm_op op = {
        .kind = COMM_SHARE, .name = name, .in = own, .out = all, .count = each_bytes};
    return comm_begin(comm, &op, ticket);
}

int comm_test(struct comm *comm, uint64_t ticket)
{
    return comm->ops->test(comm, ticket);
}

int comm_fd(struct comm *comm)
{
    return comm->ops->fd(comm);
}

int comm_wait(struct comm *comm, uint64_t ticket)
{
    int rc;
    while ((rc = comm_test(comm, ticket)) == -EAGAIN) {
        struct pollfd wait = {.fd = comm_fd(comm), .events = POLLIN};
        poll(&wait, 1, LOOK_MS); /* an interruption or a second: it looks again */
    }
    return rc;
}

/* ---- a failure of one ------------------------------------------------------------------------ */

static int wait_begun(struct comm *comm, int rc, uint64_t ticket)
{
    return rc ? rc : comm_wait(comm, ticket);
}

/* The first rank that has one, and its failure. */
static int find_failed(struct comm *comm, const char *name, const struct comm_failure *own,
                       uint32_t *rank, struct comm_failure *first)
{
    struct comm_info info;
    uint64_t ticket = 0;
    comm->ops->info(comm, &info);
    struct comm_failure *all = calloc(info.ranks, sizeof *all);
    if (!all)
        return -ENOMEM;
    int rc = comm_share(comm, name, own, all, sizeof *all, &ticket);
    rc = wait_begun(comm, rc, ticket);
    for (*rank = 0; !rc && *rank + 1 < info.ranks && !all[*rank].native;)
        ++*rank;
    *first = all[*rank];
    free(all);
    return rc;
}

static void name_failed(struct comm *comm, uint32_t rank, const struct comm_failure *first,
                        struct comm_failure *failure)
{
    struct comm_info info;
    char name[COMM_RANK_BYTES];
    comm->ops->info(comm, &info);
    comm_fail(failure, first->native, (int)rank, "%s: %.300s", comm_rank_text(&info, rank, name),
              first->text);
}

int comm_spread_failure(struct comm *comm, const char *name, int rc, struct comm_failure *failure)
{
    struct comm_failure own = {0}, first;
    int64_t failed = rc != 0;
    uint64_t ticket = 0;
    uint32_t rank;
    int below = comm_sum64(comm, name, &failed, 1, &ticket);
    below = wait_begun(comm, below, ticket);
    if (!below && !failed)
        return 0;
    if (rc)
        own = *failure;
    own.native = rc;
    below = below ? below : find_failed(comm, name, &own, &rank, &first);
    if (below && rc)
        return rc;
    if (below == -ENOMEM)
        return comm_fail(failure, below, COMM_NOBODY, "no memory for what other ranks say");
    if (below) {
        comm_failure(comm, failure);
        return below;
    }
    if (!rc)
        name_failed(comm, rank, &first, failure);
    return first.native;
}
