/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gathers by integers: each rank makes integers and scales of its exact shard, sends them to the
 * others, and puts into the row what they give back, of its own shard as of the others'. A piece
 * at a time, integers first and its scales behind them, in the two buffers of an exchange.
 */
#include "comm/mpi/mpi_comm.h"

#include <errno.h>

static size_t size_of(const struct comm_op *op)
{
    return hst_dtype_bytes(op->dtype);
}

static int to_integers(struct mpi *m, const struct comm_op *op, size_t at, size_t n, char *message)
{
    const struct hst_quantise args = {op->quant, op->dtype,
                                      n,         (const char *)op->in + at * size_of(op),
                                      message,   (float *)(void *)(message + n)};
    return m->config.quantise(&args);
}

/* Into the row, where that rank's shard is. */
static int give_back(struct mpi *m, const struct comm_op *op, uint32_t rank, size_t at, size_t n,
                     const char *message)
{
    const struct hst_dequantise args = {op->quant,
                                        op->dtype,
                                        n,
                                        message,
                                        (const float *)(const void *)(message + n),
                                        (char *)op->out + rank * op->count + at * size_of(op)};
    mpi_beat(m);
    return m->config.dequantise(&args);
}

/* Elements of a piece of which `messages` fit the two buffers. */
static size_t piece_of(const struct mpi *m, uint32_t messages)
{
    const size_t block = comm_quant_bytes(HST_QUANT_BLOCK);
    return 2 * m->config.piece_bytes / messages / block * HST_QUANT_BLOCK;
}

static int piece_fails(struct mpi *m)
{
    return mpi_fail(m, -EINVAL, COMM_NOBODY, "pieces of %zu bytes are too small for %u ranks",
                    m->config.piece_bytes, m->info.ranks);
}

int mpi_give_back_own(struct mpi *m, const struct comm_op *op)
{
    const size_t count = op->count / size_of(op), most = piece_of(m, 1);
    int rc = most ? mpi_take_rings(m) : piece_fails(m);
    for (size_t at = 0; !rc && at < count; at += most) {
        const size_t n = count - at < most ? count - at : most;
        rc = to_integers(m, op, at, n, m->ring[0]);
        rc = rc ? rc : give_back(m, op, m->info.rank, at, n, m->ring[0]);
    }
    return rc;
}

/* Its own piece is in front, those of the others behind it. */
static int gather_piece(struct mpi *m, const struct comm_op *op, struct turn turn, size_t at,
                        size_t n)
{
    const size_t bytes = comm_quant_bytes(n);
    char *own = m->ring[0];
    turn.request = m->request;
    turn.type = MPI_DATATYPE_NULL;
    turn.size = 1;
    turn.count = bytes;
    turn.send = own;
    turn.receive = own + bytes;
    turn.receive_stride = bytes;
    int rc = to_integers(m, op, at, n, own);
    rc = rc ? rc : mpi_turn_begin(m, &turn);
    rc = rc ? rc : give_back(m, op, m->info.rank, at, n, own);
    rc = rc ? rc : mpi_turn_finish(m, &turn);
    for (uint32_t i = 0; !rc && i < turn.peers; i++)
        if (i != turn.self)
            rc = give_back(m, op, turn.first + i * turn.stride, at, n,
                           turn.receive + i * turn.receive_stride);
    return rc;
}

int mpi_turn_quantised(struct mpi *m, const struct comm_op *op, struct turn turn)
{
    const size_t count = op->count / size_of(op), most = piece_of(m, turn.peers + 1);
    int rc = most ? mpi_take_rings(m) : piece_fails(m);
    for (size_t at = 0; !rc && at < count; at += most)
        rc = gather_piece(m, op, turn, at, count - at < most ? count - at : most);
    return rc;
}
