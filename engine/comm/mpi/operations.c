/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operations, on the comm's thread. In shared memory of one node a rank reads the others' parts
 * where they lie, between two meetings: all have come, all are through. Elsewhere parts travel as
 * messages from each rank to each, in pieces; an exchange receives one piece while it adds up the
 * one before.
 */
#include "comm/mpi/mpi_comm.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

enum { TAG = 7, CHUNK_ELEMENTS = 1 << 18, ALIGN = 64 };

static uint32_t each_of(const struct mpi *m, const struct comm_op *op)
{
    return op->tree.ways / m->info.ranks;
}

/* The type that values of ranks have in an exchange. */
static enum hst_dtype type_of(const struct mpi *m, const struct comm_op *op)
{
    const uint32_t each = each_of(m, op);
    return sum_type(&op->tree, (struct sum_node){m->info.rank * each, each});
}

/* Number of the allocation and offset in it: the same on all ranks, or no way to read in place. */
static uint64_t where_of(const struct block *block, const void *memory)
{
    const uint64_t offset = block ? (uint64_t)((const char *)memory - block->memory) : 0;
    return block ? block->number << 48 ^ (offset + 1) : 0;
}

/* ---- messages -------------------------------------------------------------------------------- */

/* One turn of messages: a piece to each other rank, one from each. */
struct turn {
    MPI_Request *request; /* [2 · ranks]: received from r at r, sent to r at ranks + r */
    const char *send;     /* what rank r gets lies at send + r · send_stride */
    size_t send_stride;
    char *receive;
    size_t receive_stride;
    size_t bytes;
};

static int begin_turn(struct mpi *m, const struct turn *t)
{
    const uint32_t ranks = m->info.ranks;
    int rc = 0;
    for (uint32_t r = 0; r < 2 * ranks; r++)
        t->request[r] = MPI_REQUEST_NULL;
    for (uint32_t step = 1; !rc && step < ranks; step++) {
        const uint32_t from = (m->info.rank + ranks - step) % ranks;
        rc = mpi_check(m,
                       MPI_Irecv(t->receive + from * t->receive_stride, (int)t->bytes, MPI_BYTE,
                                 (int)from, TAG, m->world, &t->request[from]),
                       "MPI_Irecv");
    }
    for (uint32_t step = 1; !rc && step < ranks; step++) {
        const uint32_t to = (m->info.rank + step) % ranks;
        rc = mpi_check(m,
                       MPI_Isend(t->send + to * t->send_stride, (int)t->bytes, MPI_BYTE, (int)to,
                                 TAG, m->world, &t->request[ranks + to]),
                       "MPI_Isend");
    }
    return rc;
}

/* Moves what can be moved; *done: all of it was. */
static int push_turn(struct mpi *m, const struct turn *t, int *done)
{
    return mpi_check(m, MPI_Testall(2 * (int)m->info.ranks, t->request, done, MPI_STATUSES_IGNORE),
                     "MPI_Testall");
}

/* Who has not sent, else who has not received; there is one. */
static int late_rank(const struct mpi *m, const struct turn *t)
{
    const uint32_t ranks = m->info.ranks;
    for (uint32_t r = 0; r < 2 * ranks; r++) {
        int done = 0;
        if (t->request[r] != MPI_REQUEST_NULL &&
            (MPI_Request_get_status(t->request[r], &done, MPI_STATUS_IGNORE) || !done))
            return (int)(r % ranks);
    }
    return COMM_NOBODY;
}

static int finish_turn(struct mpi *m, const struct turn *t)
{
    int rc, done = 0;
    mpi_wait_begin(m);
    while (!(rc = push_turn(m, t, &done)) && !done) {
        if (mpi_nap(m))
            return mpi_late(m, late_rank(m, t), "has not sent or received its part");
    }
    return rc;
}

/* ---- gather ---------------------------------------------------------------------------------- */

static int gather_in_place(struct mpi *m, const struct comm_op *op, const struct block *block,
                           const struct tag *tag)
{
    const size_t offset = (size_t)((char *)op->out - block->memory);
    for (uint32_t step = 1; step < m->info.ranks; step++) {
        const uint32_t r = (m->info.rank + step) % m->info.ranks;
        const size_t at = offset + r * op->count;
        memcpy(block->memory + at, block->peer[r] + at, op->count);
        mpi_beat(m);
    }
    return mpi_meet(m, tag);
}

static int gather_by_messages(struct mpi *m, const struct comm_op *op)
{
    char *whole = op->out;
    const size_t most = m->config.piece_bytes;
    int rc = 0;
    for (size_t at = 0; !rc && at < op->count; at += most) {
        const struct turn turn = {
            .request = m->request,
            .send = whole + m->info.rank * op->count + at,
            .receive = whole + at,
            .receive_stride = op->count,
            .bytes = op->count - at < most ? op->count - at : most,
        };
        rc = begin_turn(m, &turn);
        rc = rc ? rc : finish_turn(m, &turn);
    }
    return rc;
}

static int gather(struct mpi *m, const struct comm_op *op)
{
    const struct block *block =
        m->info.nodes == 1 ? mpi_block_of(m, op->out, op->count * m->info.ranks) : NULL;
    const struct tag tag = {op->kind, op->count, where_of(block, op->out)};
    int rc = mpi_meet(m, &tag);
    if (rc)
        return rc;
    return block ? gather_in_place(m, op, block, &tag) : gather_by_messages(m, op);
}

/* ---- exchange -------------------------------------------------------------------------------- */

static int exchange_in_place(struct mpi *m, const struct comm_op *op, const struct block *block,
                             const struct tag *tag)
{
    const size_t in_bytes = hst_dtype_bytes(type_of(m, op));
    const size_t out_bytes = hst_dtype_bytes(op->tree.root);
    const size_t first =
        (size_t)((const char *)op->in - block->memory) + m->info.rank * op->count * in_bytes;
    const struct sum_ways sum = {op->tree, 0, each_of(m, op), m->info.ranks};
    int rc = 0;
    for (size_t at = 0; !rc && at < op->count; at += CHUNK_ELEMENTS) {
        const size_t n = op->count - at < CHUNK_ELEMENTS ? op->count - at : CHUNK_ELEMENTS;
        for (uint32_t r = 0; r < m->info.ranks; r++)
            m->input[r] = block->peer[r] + first + at * in_bytes;
        rc = m->config.sum(&sum, m->input, (char *)op->out + at * out_bytes, n);
        mpi_beat(m);
    }
    return rc ? rc : mpi_meet(m, tag);
}

/* Pieces of an exchange: elements [k · most, …) of every shard. */
struct pieces {
    const struct comm_op *op;
    struct sum_ways sum;
    size_t in_bytes, most; /* most: elements of a piece */
};

static size_t piece_elements(const struct pieces *p, size_t k)
{
    const size_t at = k * p->most;
    return at >= p->op->count ? 0 : p->op->count - at < p->most ? p->op->count - at : p->most;
}

static struct turn piece_turn(const struct mpi *m, const struct pieces *p, size_t k)
{
    return (struct turn){.request = m->request + k % 2 * 2 * m->info.ranks,
                         .send = (const char *)p->op->in + k * p->most * p->in_bytes,
                         .send_stride = p->op->count * p->in_bytes,
                         .receive = m->ring[k % 2],
                         .receive_stride = p->most * p->in_bytes,
                         .bytes = piece_elements(p, k) * p->in_bytes};
}

/* Adds up piece k, and keeps the next one moving meanwhile. */
static int sum_piece(struct mpi *m, const struct pieces *p, size_t k)
{
    const size_t count = piece_elements(p, k), out_bytes = hst_dtype_bytes(p->op->tree.root);
    const struct turn now = piece_turn(m, p, k), next = piece_turn(m, p, k + 1);
    const char *own = now.send + m->info.rank * now.send_stride;
    char *out = (char *)p->op->out + k * p->most * out_bytes;
    int rc = 0, done;
    for (size_t at = 0; !rc && at < count; at += CHUNK_ELEMENTS) {
        const size_t n = count - at < CHUNK_ELEMENTS ? count - at : CHUNK_ELEMENTS;
        for (uint32_t r = 0; r < m->info.ranks; r++)
            m->input[r] =
                (r == m->info.rank ? own : now.receive + r * now.receive_stride) + at * p->in_bytes;
        rc = m->config.sum(&p->sum, m->input, out + at * out_bytes, n);
        if (!rc && next.bytes)
            rc = push_turn(m, &next, &done);
        mpi_beat(m);
    }
    return rc;
}

static int take_rings(struct mpi *m)
{
    for (int i = 0; i < 2; i++) {
        if (m->ring[i])
            continue;
        void *memory = mmap(NULL, m->config.piece_bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
            return mpi_fail(m, -ENOMEM, COMM_NOBODY, "no memory for %zu bytes to receive into",
                            m->config.piece_bytes);
        m->ring[i] = memory;
    }
    return 0;
}

static int exchange_by_messages(struct mpi *m, const struct comm_op *op)
{
    struct pieces p = {.op = op,
                       .sum = {op->tree, 0, each_of(m, op), m->info.ranks},
                       .in_bytes = hst_dtype_bytes(type_of(m, op))};
    p.most = m->config.piece_bytes / m->info.ranks / p.in_bytes / ALIGN * ALIGN;
    if (!p.most)
        return mpi_fail(m, -EINVAL, COMM_NOBODY, "pieces of %zu bytes are too small for %u ranks",
                        m->config.piece_bytes, m->info.ranks);
    int rc = take_rings(m);
    struct turn turn = piece_turn(m, &p, 0);
    rc = rc || !op->count ? rc : begin_turn(m, &turn);
    for (size_t k = 0; !rc && piece_elements(&p, k); k++) {
        turn = piece_turn(m, &p, k);
        rc = finish_turn(m, &turn);
        turn = piece_turn(m, &p, k + 1);
        rc = rc || !turn.bytes ? rc : begin_turn(m, &turn);
        rc = rc ? rc : sum_piece(m, &p, k);
    }
    return rc;
}

static int exchange(struct mpi *m, const struct comm_op *op)
{
    const size_t bytes = op->count * m->info.ranks * hst_dtype_bytes(type_of(m, op));
    const struct block *block = m->info.nodes == 1 ? mpi_block_of(m, op->in, bytes) : NULL;
    const struct tag tag = {op->kind, op->count, where_of(block, op->in)};
    int rc = mpi_meet(m, &tag);
    if (rc)
        return rc;
    return block ? exchange_in_place(m, op, block, &tag) : exchange_by_messages(m, op);
}

/* ---- small ones ------------------------------------------------------------------------------ */

static int broadcast(struct mpi *m, const struct comm_op *op)
{
    const size_t most = m->config.piece_bytes;
    int rc = 0;
    for (size_t at = 0; !rc && at < op->count; at += most) {
        MPI_Request request;
        const size_t n = op->count - at < most ? op->count - at : most;
        rc = mpi_check(
            m,
            MPI_Ibcast((char *)op->out + at, (int)n, MPI_BYTE, (int)op->root, m->world, &request),
            "MPI_Ibcast");
        rc = rc ? rc : mpi_finish(m, &request);
    }
    return rc;
}

static int small(struct mpi *m, const struct comm_op *op)
{
    const struct tag tag = {op->kind | (uint64_t)op->root << 8, op->count, 0};
    MPI_Request request;
    int rc = mpi_meet(m, &tag);
    if (rc)
        return rc;
    if (op->kind == COMM_BCAST)
        return broadcast(m, op);
    if (op->kind == COMM_SUM64)
        rc = mpi_check(m,
                       MPI_Iallreduce(MPI_IN_PLACE, op->out, (int)op->count, MPI_INT64_T, MPI_SUM,
                                      m->world, &request),
                       "MPI_Iallreduce");
    else
        rc = mpi_check(m,
                       MPI_Iallgather(op->in, (int)op->count, MPI_BYTE, op->out, (int)op->count,
                                      MPI_BYTE, m->world, &request),
                       "MPI_Iallgather");
    return rc ? rc : mpi_finish(m, &request);
}

/* ---- all of them ----------------------------------------------------------------------------- */

static void count_bytes(struct mpi *m, const struct comm_op *op)
{
    const uint64_t bytes = comm_op_bytes(op, m->info.ranks);
    if (op->kind != COMM_GATHER && op->kind != COMM_EXCHANGE)
        return;
    pthread_mutex_lock(&m->lock);
    m->info.net_bytes += bytes;
    m->info.between_bytes += bytes / (m->info.ranks - 1) * (m->info.ranks - m->info.locals);
    pthread_mutex_unlock(&m->lock);
}

int mpi_run(struct mpi *m, const struct comm_op *op)
{
    int rc = op->kind == COMM_GATHER     ? gather(m, op)
             : op->kind == COMM_EXCHANGE ? exchange(m, op)
                                         : small(m, op);
    if (!rc)
        count_bytes(m, op);
    return rc;
}

int mpi_library(struct mpi *m, const struct comm_op *op)
{
    if (op->kind == COMM_GATHER)
        return mpi_check(m,
                         MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, op->out,
                                       (int)(op->count / sizeof(float)), MPI_FLOAT, m->world),
                         "MPI_Allgather");
    return mpi_check(
        m, MPI_Reduce_scatter_block(op->in, op->out, (int)op->count, MPI_FLOAT, MPI_SUM, m->world),
        "MPI_Reduce_scatter_block");
}
