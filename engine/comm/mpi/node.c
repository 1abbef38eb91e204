/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of one node: their numbers, and the page in which each shows how far it is. */
#include "comm/mpi/mpi_comm.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

/* ---- numbers and pages ----------------------------------------------------------------------- */

/* All ranks know by now that there are several nodes. The table stays where it is. */
static int share_hosts(struct mpi *m)
{
    char own[COMM_HOST_BYTES];
    if (m->info.nodes == 1)
        return 0;
    m->host = m->host ? m->host : calloc(m->info.ranks, sizeof *m->host);
    if (!m->host)
        return mpi_fail(m, -ENOMEM, COMM_NOBODY, "no memory for %u ranks", m->info.ranks);
    comm_own_host(own);
    m->info.host = (const char(*)[COMM_HOST_BYTES])m->host;
    MPI_Request request;
    int rc = mpi_check(m,
                       MPI_Iallgather(own, sizeof own, MPI_BYTE, m->host, sizeof own, MPI_BYTE,
                                      m->world, &request),
                       "MPI_Iallgather");
    return rc ? rc : mpi_finish(m, &request);
}

/* Nodes in the order of their least keys; ranks of one in the order of theirs. */
static int number_ranks(struct mpi *m, int rank)
{
    int local, locals, first = 0, node = 0, nodes = 0;
    int rc = mpi_check(
        m, MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &m->node),
        "MPI_Comm_split_type");
    if (rc)
        return rc;
    MPI_Comm_rank(m->node, &local);
    MPI_Comm_size(m->node, &locals);
    rc = mpi_check(m, MPI_Comm_split(MPI_COMM_WORLD, local ? MPI_UNDEFINED : 0, rank, &m->heads),
                   "MPI_Comm_split");
    if (rc)
        return rc;
    if (!local) {
        MPI_Comm_rank(m->heads, &node);
        MPI_Comm_size(m->heads, &nodes);
        MPI_Exscan(&locals, &first, 1, MPI_INT, MPI_SUM, m->heads);
        first = node ? first : 0;
        if (nodes == 1)
            MPI_Comm_free(&m->heads);
    }
    int most = 0, least = 0, told[3] = {first, node, nodes};
    MPI_Allreduce(&locals, &most, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    MPI_Allreduce(&locals, &least, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    m->uniform = most == least;
    m->group = m->uniform ? (uint32_t)(locals & -locals) : 1; /* its lowest bit */
    MPI_Bcast(told, 3, MPI_INT, 0, m->node);
    m->info.local = (uint32_t)local;
    m->info.locals = (uint32_t)locals;
    m->info.rank = (uint32_t)(told[0] + local);
    m->info.ranks = m->config.launch.ranks;
    m->info.node = (uint32_t)told[1];
    m->info.nodes = (uint32_t)told[2];
    rc = mpi_check(m, MPI_Comm_split(MPI_COMM_WORLD, 0, (int)m->info.rank, &m->world),
                   "MPI_Comm_split");
    return rc ? rc : share_hosts(m);
}

static int open_node(struct mpi *m, int key)
{
    int rc = number_ranks(m, key);
    if (rc)
        return rc;
    struct slot **slot = calloc(m->info.locals, sizeof *slot);
    m->request = calloc(4ul * m->info.ranks, sizeof *m->request);
    m->input = calloc(m->info.ranks, sizeof *m->input);
    m->size = calloc(2ul * m->info.ranks, sizeof *m->size);
    m->row = calloc(m->info.locals, sizeof *m->row);
    if (!slot || !m->request || !m->input || !m->size || !m->row) {
        free(slot);
        return mpi_fail(m, -ENOMEM, COMM_NOBODY, "no memory for %u ranks", m->info.ranks);
    }
    rc = mpi_take_pages(m, slot);
    /* until all have cleared their pages, nobody may write to his */
    rc = rc ? rc : mpi_check(m, MPI_Barrier(m->node), "MPI_Barrier");
    if (rc) {
        free(slot);
        return rc;
    }
    m->slot = slot;
    mpi_wait_open(m);
    return mpi_check(m, MPI_Barrier(m->node), "MPI_Barrier");
}

int mpi_node_open(struct mpi *m, int key)
{
    const char *before = mpi_call(m, "numbering of ranks");
    const int rc = open_node(m, key);
    mpi_call(m, before);
    return rc;
}

/* Numbers decide this: all but what was heard of nodes. */
static void close_numbers(struct mpi *m)
{
    mpi_pulse_close(m);
    mpi_drop_blocks(m);
    if (m->slot)
        MPI_Win_free(&m->control);
    free(m->slot);
    m->slot = NULL;
    if (m->ring[0])
        munmap(m->ring[0], 2 * m->config.piece_bytes);
    free(m->request);
    free(m->input);
    free(m->size);
    free(m->row);
    MPI_Comm_free(&m->world);
    MPI_Comm_free(&m->node);
}

void mpi_node_close(struct mpi *m)
{
    mpi_pulse_forget(m);
    close_numbers(m);
    mpi_pulse_forget(m);
}

/* Nothing is under way when all have met; a sign of life that is goes to the heads of before. */
int mpi_number(struct mpi *m, uint32_t rank)
{
    int rc = mpi_meet_all(m);
    if (rc)
        return rc;
    const char *before = mpi_call(m, "end of their old numbers");
    close_numbers(m);
    mpi_call(m, before);
    m->ring[0] = m->ring[1] = NULL;
    m->step = 0;
    rc = mpi_node_open(m, (int)rank);
    if (rc == 0 && m->info.rank != rank)
        rc = mpi_fail(m, -EPIPE, COMM_NOBODY,
                      "rank %u is number %u where ranks are numbered node by node", rank,
                      m->info.rank);
    return rc;
}

/* ---- meetings -------------------------------------------------------------------------------- */

struct tag_text {
    char text[128];
};

static struct tag_text describe_tag(const struct tag *tag)
{
    const uint64_t kind = tag->kind & 0xff;
    const char *name = kind == TAG_ALLOC    ? "allocation"
                       : kind == TAG_EXPOSE ? "sharing of memory"
                       : kind == TAG_FREE   ? "free"
                       : kind == TAG_CLOSE  ? "closing"
                                            : comm_kind_name((enum comm_kind)kind);
    struct tag_text told;
    int length = snprintf(told.text, sizeof told.text, "%s of %" PRIu64, name, tag->count);
    char *end = told.text + length;
    const size_t left = sizeof told.text - (size_t)length;
    if (kind == COMM_BCAST)
        snprintf(end, left, " from rank %" PRIu64, tag->kind >> 8);
    else if (tag->where)
        snprintf(end, left, " in allocation %" PRIu64, tag->where);
    return told;
}

static int compare_tags(struct mpi *m, uint32_t local, const struct tag *mine)
{
    const struct tag *other = &m->slot[local]->tag[m->step % 2];
    if (other->kind == mine->kind && other->count == mine->count && other->where == mine->where)
        return 0;
    const uint32_t rank = m->info.rank - m->info.local + local;
    char name[COMM_RANK_BYTES];
    return mpi_fail(m, -EPIPE, (int)rank,
                    "%s has begun another operation than this rank (%s; here %s): ranks begin the "
                    "same in the same order",
                    comm_rank_text(&m->info, rank, name), describe_tag(other).text,
                    describe_tag(mine).text);
}

int mpi_meet(struct mpi *m, const struct tag *tag)
{
    struct slot *own = m->slot[m->info.local];
    m->step++;
    own->tag[m->step % 2] = *tag;
    mpi_come(m);
    mpi_wait_begin(m);
    for (uint32_t i = 0; i < m->info.locals; i++) {
        const int rank = (int)(m->info.rank - m->info.local + i);
        while (atomic_load_explicit(&m->slot[i]->step, memory_order_acquire) < m->step) {
            if (mpi_sleep(m, i))
                return mpi_late(m, rank, "has not come this far");
        }
        int rc = compare_tags(m, i, tag);
        if (rc)
            return rc;
    }
    return 0;
}

/* Tags of a meeting last until the one after the next, which a rank comes to behind this one. */
void mpi_find_rows(struct mpi *m, const struct block *block)
{
    for (uint32_t i = 0; i < m->info.locals; i++)
        m->row[i] = block->peer[i] + m->slot[i]->tag[m->step % 2].at;
}

/* Ranks of the node are named; the barrier waits for all others. */
int mpi_meet_all(struct mpi *m)
{
    MPI_Request request;
    int rc = mpi_meet(m, &(struct tag){.kind = TAG_CLOSE});
    rc = rc ? rc : mpi_check(m, MPI_Ibarrier(m->world, &request), "MPI_Ibarrier");
    return rc ? rc : mpi_finish(m, &request);
}
