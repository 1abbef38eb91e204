/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns of messages: each of some ranks sends a part to each other one, and receives one from it;
 * what parts are received into, and how many bytes there were.
 */
#include "comm/mpi/mpi_comm.h"

#include <errno.h>
#include <sys/mman.h>

enum { TAG = 7 };

static int rank_of(const struct turn *t, uint32_t peer)
{
    return (int)(t->first + peer * t->stride);
}

int mpi_turn_begin(struct mpi *m, const struct turn *t)
{
    const uint32_t peers = t->peers;
    int rc = 0;
    for (uint32_t i = 0; i < 2 * peers; i++)
        t->request[i] = MPI_REQUEST_NULL;
    for (uint32_t step = 1; !rc && step < peers; step++) {
        const uint32_t from = (t->self + peers - step) % peers;
        const size_t bytes = t->count * (t->sizes ? t->sizes[from] : t->size);
        rc = mpi_check(m,
                       MPI_Irecv(t->receive + from * t->receive_stride, (int)bytes, MPI_BYTE,
                                 rank_of(t, from), TAG, m->world, &t->request[from]),
                       "MPI_Irecv");
    }
    for (uint32_t step = 1; !rc && step < peers; step++) {
        const uint32_t to = (t->self + step) % peers;
        const bool whole = t->type == MPI_DATATYPE_NULL;
        rc = mpi_check(m,
                       MPI_Isend(t->send + to * t->send_stride,
                                 whole ? (int)(t->count * t->size) : 1, whole ? MPI_BYTE : t->type,
                                 rank_of(t, to), TAG, m->world, &t->request[peers + to]),
                       "MPI_Isend");
    }
    return rc;
}

int mpi_turn_push(struct mpi *m, const struct turn *t, int *done)
{
    return mpi_check(m, MPI_Testall(2 * (int)t->peers, t->request, done, MPI_STATUSES_IGNORE),
                     "MPI_Testall");
}

/* Who has not sent, else who has not received; there is one. */
static int late_rank(const struct turn *t)
{
    for (uint32_t i = 0; i < 2 * t->peers; i++) {
        int done = 0;
        if (t->request[i] != MPI_REQUEST_NULL &&
            (MPI_Request_get_status(t->request[i], &done, MPI_STATUS_IGNORE) || !done))
            return rank_of(t, i < t->peers ? i : i - t->peers);
    }
    return COMM_NOBODY;
}

int mpi_turn_finish(struct mpi *m, const struct turn *t)
{
    int rc, done = 0;
    mpi_wait_begin(m);
    while (!(rc = mpi_turn_push(m, t, &done)) && !done)
        if (mpi_nap(m))
            return mpi_late(m, late_rank(t), "has not sent or received its part");
    return rc;
}

int mpi_turn_gather(struct mpi *m, struct turn turn)
{
    const size_t most = m->config.piece_bytes;
    size_t left = turn.count;
    int rc = 0;
    turn.request = m->request;
    turn.type = MPI_DATATYPE_NULL;
    turn.size = 1;
    for (; !rc && left > 0; left -= turn.count) {
        turn.count = left < most ? left : most;
        rc = mpi_turn_begin(m, &turn);
        rc = rc ? rc : mpi_turn_finish(m, &turn);
        turn.send += turn.count;
        turn.receive += turn.count;
    }
    return rc;
}

int mpi_take_rings(struct mpi *m)
{
    if (m->ring[0])
        return 0;
    void *memory = mmap(NULL, 2 * m->config.piece_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return mpi_fail(m, -ENOMEM, COMM_NOBODY, "no memory for %zu bytes to receive into",
                        2 * m->config.piece_bytes);
    m->ring[0] = memory;
    m->ring[1] = m->ring[0] + m->config.piece_bytes;
    return 0;
}

void mpi_count(struct mpi *m, struct taken bytes)
{
    pthread_mutex_lock(&m->lock);
    m->info.net_bytes += bytes.net;
    m->info.between_bytes += bytes.between;
    m->info.in_place_bytes += bytes.in_place;
    pthread_mutex_unlock(&m->lock);
}
