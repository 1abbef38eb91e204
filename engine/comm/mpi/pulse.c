/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signs of life between nodes. The first rank of each sends one to the node before and to the one
 * behind, in a ring, and shows its own node when it has last heard of both. So who waits with
 * patience learns that a link was cut, of which MPI says nothing.
 */
#include "comm/mpi/mpi_comm.h"

#define INTERVAL_NS 1000000000ull

enum {
    TO_BEHIND,
    TO_BEFORE
}; /* tags; what comes from the node before was sent to the one behind */

static int neighbour(const struct mpi *m, bool behind)
{
    const uint32_t nodes = m->info.nodes;
    return (int)((m->info.node + (behind ? 1 : nodes - 1)) % nodes);
}

/* A failure here is not heard, and told by who waits. */
static void listen(struct mpi *m, bool behind)
{
    (void)MPI_Irecv(NULL, 0, MPI_BYTE, neighbour(m, behind), behind ? TO_BEFORE : TO_BEHIND,
                    m->heads, &m->pulse.heard[behind]);
}

static void speak(struct mpi *m, bool behind)
{
    (void)MPI_Isend(NULL, 0, MPI_BYTE, neighbour(m, behind), behind ? TO_BEHIND : TO_BEFORE,
                    m->heads, &m->pulse.said[behind]);
}

static bool is_done(MPI_Request *request)
{
    int done = 0;
    return *request != MPI_REQUEST_NULL &&
           MPI_Test(request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done;
}

void mpi_pulse_open(struct mpi *m, uint64_t at_ns)
{
    if (m->info.nodes > 1)
        atomic_store(&m->slot[m->info.local]->heard_ns, at_ns);
    if (m->heads == MPI_COMM_NULL)
        return;
    for (int behind = 0; behind < 2; behind++) {
        m->pulse.heard_ns[behind] = at_ns;
        listen(m, behind);
        speak(m, behind);
    }
}

void mpi_pulse(struct mpi *m, uint64_t at_ns)
{
    struct pulse *p = &m->pulse;
    if (m->heads == MPI_COMM_NULL || at_ns - p->at_ns < INTERVAL_NS)
        return;
    p->at_ns = at_ns;
    for (int behind = 0; behind < 2; behind++) {
        while (is_done(&p->heard[behind])) { /* all that came while this rank stood still */
            p->heard_ns[behind] = at_ns;
            listen(m, behind);
        }
        if (is_done(&p->said[behind]))
            speak(m, behind);
    }
    atomic_store(&m->slot[m->info.local]->heard_ns,
                 p->heard_ns[0] < p->heard_ns[1] ? p->heard_ns[0] : p->heard_ns[1]);
}

bool mpi_pulse_is_lost(const struct mpi *m, uint64_t at_ns, uint64_t limit_ns)
{
    return m->info.nodes > 1 && m->slot && atomic_load(&m->slot[0]->heard_ns) + limit_ns < at_ns;
}

void mpi_pulse_close(struct mpi *m)
{
    if (m->heads == MPI_COMM_NULL)
        return;
    for (int behind = 0; behind < 2; behind++) {
        if (m->pulse.heard[behind] != MPI_REQUEST_NULL) {
            MPI_Cancel(&m->pulse.heard[behind]);
            MPI_Wait(&m->pulse.heard[behind], MPI_STATUS_IGNORE);
        }
        if (m->pulse.said[behind] != MPI_REQUEST_NULL)
            MPI_Request_free(&m->pulse.said[behind]);
    }
    m->old_heads = m->heads;
    m->heads = MPI_COMM_NULL;
}

void mpi_pulse_forget(struct mpi *m)
{
    if (m->old_heads != MPI_COMM_NULL)
        MPI_Comm_free(&m->old_heads);
}
