/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operations, on the comm's thread. In shared memory of one node a rank reads the others' parts
 * where they lie, between two meetings: all have come, all are through. Elsewhere parts travel as
 * messages from each rank to each, in pieces; an exchange receives one piece while it adds up the
 * one before. Between nodes whose numbers of ranks allow it, hops.c takes over.
 */
#include "comm/mpi/mpi_comm.h"

#include <errno.h>
#include <string.h>

enum { CHUNK_ELEMENTS = 1 << 18, ALIGN = 64 };

static uint32_t each_of(const struct mpi *m, const struct comm_op *op)
{
    return op->tree.ways / m->info.ranks;
}

size_t mpi_sizes(const struct hst_sum_ways *sum, size_t *size)
{
    size_t most = 1; /* no element is smaller */
    for (uint32_t i = 0; i < sum->inputs; i++) {
        const struct hst_sum_node node = {sum->first + i * sum->each, sum->each};
        size[i] = hst_dtype_bytes(hst_sum_type(&sum->tree, node));
        most = size[i] > most ? size[i] : most;
    }
    return most;
}

int mpi_sum(struct mpi *m, const struct hst_sum_ways *sum, void *out, size_t count)
{
    struct hst_sum_ways args = *sum;
    args.in = m->input;
    args.out = out;
    args.count = count;
    return m->config.sum(&args);
}

/* block: where the row lies in shared memory; null: elsewhere. */
static struct tag tag_of(const struct comm_op *op, const struct block *block, const void *row)
{
    struct tag tag = {.kind = op->kind, .count = op->count};
    if (block) {
        tag.where = block->number;
        tag.at = (uint64_t)((const char *)row - block->memory);
    }
    return tag;
}

/* ---- gather ---------------------------------------------------------------------------------- */

static int gather_in_place(struct mpi *m, const struct comm_op *op, const struct tag *tag)
{
    char *whole = op->out;
    for (uint32_t step = 1; step < m->info.ranks; step++) {
        const uint32_t r = (m->info.rank + step) % m->info.ranks;
        memcpy(whole + r * op->count, m->row[r] + r * op->count, op->count);
        mpi_beat(m);
    }
    return mpi_meet(m, tag);
}

static int gather_by_messages(struct mpi *m, const struct comm_op *op)
{
    char *whole = op->out;
    const struct turn turn = {
        .peers = m->info.ranks,
        .self = m->info.rank,
        .stride = 1,
        .send = whole + m->info.rank * op->count,
        .receive = whole,
        .receive_stride = op->count,
        .count = op->count,
    };
    return op->quant ? mpi_turn_quantised(m, op, turn) : mpi_turn_gather(m, turn);
}

/* In place a node has it once from each other one, and spreads it as elements. */
static void count_gather(struct mpi *m, const struct comm_op *op, bool in_place)
{
    const uint64_t others = m->info.ranks - 1,
                   from = in_place ? m->info.nodes - 1 : m->info.ranks - m->info.locals;
    const uint64_t part =
        op->quant ? comm_quant_bytes(op->count / hst_dtype_bytes(op->dtype)) : op->count;
    const uint64_t in_node = (others - from) * (in_place ? op->count : part);
    const struct taken bytes = {
        .net = from * part + in_node, .between = from * part, .in_place = in_place ? in_node : 0};
    mpi_count(m, bytes);
}

/* From where the ranks of the node have their parts, or by messages among them. */
static int take_parts(struct mpi *m, const struct comm_op *op, const struct tag *tag, bool in_place)
{
    const uint32_t locals = m->info.locals, local = m->info.local;
    char *whole = op->out;
    memcpy(whole + local * op->count, op->in, op->count);
    if (!in_place)
        return mpi_turn_gather(m, (struct turn){
                                      .peers = locals,
                                      .self = local,
                                      .first = m->info.rank - local,
                                      .stride = 1,
                                      .send = op->in,
                                      .receive = whole,
                                      .receive_stride = op->count,
                                      .count = op->count,
                                  });
    for (uint32_t step = 1; step < locals; step++) {
        const uint32_t i = (local + step) % locals;
        memcpy(whole + i * op->count, m->row[i], op->count);
        mpi_beat(m);
    }
    return mpi_meet(m, tag);
}

static int gather_near(struct mpi *m, const struct comm_op *op)
{
    const struct block *block = m->uniform ? mpi_block_of(m, op->in, op->count) : NULL;
    const struct tag tag = tag_of(op, block, op->in);
    const uint64_t bytes = (m->info.locals - 1) * op->count;
    int rc = mpi_meet(m, &tag);
    if (rc)
        return rc;
    mpi_count(m, (struct taken){.net = bytes, .in_place = block ? bytes : 0});
    if (block)
        mpi_find_rows(m, block);
    return take_parts(m, op, &tag, block != NULL);
}

static int gather(struct mpi *m, const struct comm_op *op)
{
    if (op->near)
        return gather_near(m, op);
    const struct block *block =
        m->uniform ? mpi_block_of(m, op->out, op->count * m->info.ranks) : NULL;
    const struct tag tag = tag_of(op, block, op->out);
    /* of one node all ranks read this one's shard from the meeting on */
    int rc = op->quant && block && m->info.nodes == 1 ? mpi_give_back_own(m, op) : 0;
    rc = rc ? rc : mpi_meet(m, &tag);
    if (rc)
        return rc;
    count_gather(m, op, block != NULL);
    if (!block)
        return gather_by_messages(m, op);
    mpi_find_rows(m, block);
    return m->info.nodes > 1 ? mpi_gather_hops(m, op, &tag) : gather_in_place(m, op, &tag);
}

/* ---- exchange -------------------------------------------------------------------------------- */

static int exchange_in_place(struct mpi *m, const struct comm_op *op,
                             const struct hst_sum_ways *sum, const struct tag *tag)
{
    const size_t out_bytes = hst_dtype_bytes(op->tree.root);
    int rc = 0;
    for (size_t at = 0; !rc && at < op->count; at += CHUNK_ELEMENTS) {
        const size_t n = op->count - at < CHUNK_ELEMENTS ? op->count - at : CHUNK_ELEMENTS;
        for (uint32_t r = 0; r < m->info.ranks; r++)
            m->input[r] = m->row[r] + (m->info.rank * op->count + at) * m->size[r];
        rc = mpi_sum(m, sum, (char *)op->out + at * out_bytes, n);
        mpi_beat(m);
    }
    return rc ? rc : mpi_meet(m, tag);
}

/* Pieces of an exchange: elements [k · most, …) of every shard. */
struct pieces {
    const struct comm_op *op;
    const struct hst_sum_ways *sum;
    size_t widest; /* bytes of an element, of the rank that has the widest */
    size_t most;   /* elements of a piece */
};

static size_t piece_elements(const struct pieces *p, size_t k)
{
    const size_t at = k * p->most;
    return at >= p->op->count ? 0 : p->op->count - at < p->most ? p->op->count - at : p->most;
}

static struct turn piece_turn(const struct mpi *m, const struct pieces *p, size_t k)
{
    const size_t own = m->size[m->info.rank];
    return (struct turn){.request = m->request + k % 2 * 2 * m->info.ranks,
                         .type = MPI_DATATYPE_NULL,
                         .peers = m->info.ranks,
                         .self = m->info.rank,
                         .stride = 1,
                         .send = (const char *)p->op->in + k * p->most * own,
                         .send_stride = p->op->count * own,
                         .receive = m->ring[k % 2],
                         .receive_stride = p->most * p->widest,
                         .count = piece_elements(p, k),
                         .size = own,
                         .sizes = m->size};
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
                (r == m->info.rank ? own : now.receive + r * now.receive_stride) + at * m->size[r];
        rc = mpi_sum(m, p->sum, out + at * out_bytes, n);
        if (!rc && next.count)
            rc = mpi_turn_push(m, &next, &done);
        mpi_beat(m);
    }
    return rc;
}

static int exchange_by_messages(struct mpi *m, const struct comm_op *op,
                                const struct hst_sum_ways *sum, size_t widest)
{
    struct pieces p = {.op = op, .sum = sum, .widest = widest};
    p.most = m->config.piece_bytes / m->info.ranks / widest / ALIGN * ALIGN;
    if (!p.most)
        return mpi_fail(m, -EINVAL, COMM_NOBODY, "pieces of %zu bytes are too small for %u ranks",
                        m->config.piece_bytes, m->info.ranks);
    int rc = mpi_take_rings(m);
    struct turn turn = piece_turn(m, &p, 0);
    rc = rc || !op->count ? rc : mpi_turn_begin(m, &turn);
    for (size_t k = 0; !rc && piece_elements(&p, k); k++) {
        turn = piece_turn(m, &p, k);
        rc = mpi_turn_finish(m, &turn);
        turn = piece_turn(m, &p, k + 1);
        rc = rc || !turn.count ? rc : mpi_turn_begin(m, &turn);
        rc = rc ? rc : sum_piece(m, &p, k);
    }
    return rc;
}

/* Counts all other ranks' parts, and those on other nodes. */
static void count_exchange(struct mpi *m, const struct comm_op *op, bool in_place)
{
    const uint32_t rank = m->info.rank, head = rank - m->info.local;
    struct taken bytes = {0};
    for (uint32_t r = 0; r < m->info.ranks; r++) {
        const bool here = r >= head && r < head + m->info.locals;
        bytes.net += r == rank ? 0 : op->count * m->size[r];
        bytes.between += here ? 0 : op->count * m->size[r];
    }
    bytes.in_place = in_place ? bytes.net : 0;
    mpi_count(m, bytes);
}

static int exchange(struct mpi *m, const struct comm_op *op)
{
    const struct hst_sum_ways sum = {
        .tree = op->tree, .each = each_of(m, op), .inputs = m->info.ranks};
    const size_t widest = mpi_sizes(&sum, m->size);
    const size_t bytes = op->count * m->info.ranks * m->size[m->info.rank];
    const bool hops = m->info.nodes > 1 && m->group > 1;
    const struct block *block = m->info.nodes == 1 || hops ? mpi_block_of(m, op->in, bytes) : NULL;
    const struct tag tag = tag_of(op, block, op->in);
    int rc = mpi_meet(m, &tag);
    if (rc)
        return rc;
    if (block)
        mpi_find_rows(m, block);
    if (op->tree.quant && (hops || !block))
        return mpi_exchange_quantised(m, op, (struct first_hop){hops, block != NULL}, &tag);
    if (hops)
        return mpi_exchange_hops(m, op, block != NULL, &tag);
    count_exchange(m, op, block != NULL);
    return block ? exchange_in_place(m, op, &sum, &tag) : exchange_by_messages(m, op, &sum, widest);
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
    const struct tag tag = {.kind = op->kind | (uint64_t)op->root << 8, .count = op->count};
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

int mpi_run(struct mpi *m, const struct comm_op *op)
{
    return op->kind == COMM_GATHER     ? gather(m, op)
           : op->kind == COMM_EXCHANGE ? exchange(m, op)
                                       : small(m, op);
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
