/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This is what ranks of one node share: their numbers, a page in which each shows how far it is,
 * and memory. Room in /dev/shm is agreed on before any is taken: where it is too small for one
 * rank, MPI makes that one fail and the others hang.
 */
#include "comm/mpi/mpi_comm.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define SHARED_FOLDER "/dev/shm"

static size_t page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

/* ---- room ------------------------------------------------------------------------------------ */

/* Nine tenths of what is free: others take some too. */
static uint64_t free_room(void)
{
    struct statvfs status;
    if (statvfs(SHARED_FOLDER, &status) != 0)
        return 0;
    return (uint64_t)status.f_bavail * status.f_frsize / 10 * 9;
}

/* True where every rank of the world sees room for the parts of all ranks of its node. */
static int agree_on_room(struct mpi *m, MPI_Comm among, uint64_t bytes, int *agreed)
{
    int room = !m->config.messages && bytes <= free_room() / m->info.locals;
    MPI_Request request;
    int rc = mpi_check(m, MPI_Iallreduce(&room, agreed, 1, MPI_INT, MPI_MIN, among, &request),
                       "MPI_Iallreduce");
    return rc ? rc : mpi_finish(m, &request);
}

static int take_window(struct mpi *m, size_t bytes, MPI_Win *window, char **own, char **peer)
{
    MPI_Info hints;
    MPI_Info_create(&hints);
    MPI_Info_set(hints, "alloc_shared_noncontig", "true"); /* each part begins at a page */
    int rc = mpi_check(m, MPI_Win_allocate_shared((MPI_Aint)bytes, 1, hints, m->node, own, window),
                       "MPI_Win_allocate_shared");
    MPI_Info_free(&hints);
    for (uint32_t i = 0; !rc && i < m->info.locals; i++) {
        MPI_Aint size;
        int unit;
        rc = mpi_check(m, MPI_Win_shared_query(*window, (int)i, &size, &unit, &peer[i]),
                       "MPI_Win_shared_query");
    }
    if (!rc)
        memset(*own, 0, bytes); /* takes the room now, not in the middle of a step */
    return rc;
}

/* ---- numbers and pages ----------------------------------------------------------------------- */

/* Nodes in the order of their first ranks; ranks of one in their order. */
static int number_ranks(struct mpi *m)
{
    int rank, local, locals, first = 0, node = 0, nodes = 0;
    MPI_Comm heads;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    int rc = mpi_check(
        m, MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &m->node),
        "MPI_Comm_split_type");
    if (rc)
        return rc;
    MPI_Comm_rank(m->node, &local);
    MPI_Comm_size(m->node, &locals);
    rc = mpi_check(m, MPI_Comm_split(MPI_COMM_WORLD, local ? MPI_UNDEFINED : 0, rank, &heads),
                   "MPI_Comm_split");
    if (rc)
        return rc;
    if (!local) {
        MPI_Comm_rank(heads, &node);
        MPI_Comm_size(heads, &nodes);
        MPI_Exscan(&locals, &first, 1, MPI_INT, MPI_SUM, heads);
        first = node ? first : 0;
        MPI_Comm_free(&heads);
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
    return mpi_check(m, MPI_Comm_split(MPI_COMM_WORLD, 0, (int)m->info.rank, &m->world),
                     "MPI_Comm_split");
}

int mpi_node_open(struct mpi *m)
{
    int agreed = 0;
    char *own = NULL;
    int rc = number_ranks(m);
    if (rc)
        return rc;
    const bool messages = m->config.messages;
    m->config.messages = false; /* the page is shared in any case */
    rc = agree_on_room(m, m->world, page_bytes(), &agreed);
    m->config.messages = messages;
    if (!rc && !agreed)
        rc = mpi_fail(m, -ENOMEM, COMM_NOBODY,
                      "%s has %llu bytes free, too few for a page of each rank of the node",
                      SHARED_FOLDER, (unsigned long long)free_room());
    if (rc)
        return rc;
    struct slot **slot = calloc(m->info.locals, sizeof *slot);
    m->request = calloc(4ul * m->info.ranks, sizeof *m->request);
    m->input = calloc(m->info.ranks, sizeof *m->input);
    m->size = calloc(2ul * m->info.ranks, sizeof *m->size);
    if (!slot || !m->request || !m->input || !m->size) {
        free(slot);
        return mpi_fail(m, -ENOMEM, COMM_NOBODY, "no memory for %u ranks", m->info.ranks);
    }
    rc = take_window(m, page_bytes(), &m->control, &own, (char **)slot);
    /* until all have cleared their pages, nobody may write to his */
    rc = rc ? rc : mpi_check(m, MPI_Barrier(m->node), "MPI_Barrier");
    if (rc) {
        free(slot);
        return rc;
    }
    m->slot = slot;
    mpi_beat(m);
    return mpi_check(m, MPI_Barrier(m->node), "MPI_Barrier");
}

static int drop_block(struct mpi *m, struct block *block)
{
    int rc = 0;
    struct block **link = &m->blocks;
    while (*link != block)
        link = &(*link)->next;
    *link = block->next;
    if (block->window != MPI_WIN_NULL)
        rc = mpi_check(m, MPI_Win_free(&block->window), "MPI_Win_free");
    else
        munmap(block->memory, block->size_bytes);
    free(block->peer);
    free(block);
    return rc;
}

void mpi_node_close(struct mpi *m)
{
    while (m->blocks)
        drop_block(m, m->blocks);
    if (m->slot)
        MPI_Win_free(&m->control);
    free(m->slot);
    m->slot = NULL;
    if (m->ring[0])
        munmap(m->ring[0], 2 * m->config.piece_bytes);
    free(m->request);
    free(m->input);
    free(m->size);
    MPI_Comm_free(&m->world);
    MPI_Comm_free(&m->node);
}

/* ---- meetings -------------------------------------------------------------------------------- */

static const char *tag_name(const struct tag *tag)
{
    const uint64_t kind = tag->kind & 0xff;
    return kind == TAG_ALLOC   ? "allocation"
           : kind == TAG_FREE  ? "free"
           : kind == TAG_CLOSE ? "closing"
                               : comm_kind_name((enum comm_kind)kind);
}

static int compare_tags(struct mpi *m, uint32_t local, const struct tag *mine)
{
    const struct tag *other = &m->slot[local]->tag[m->step % 2];
    if (memcmp(other, mine, sizeof *mine) == 0)
        return 0;
    const int rank = (int)(m->info.rank - m->info.local + local);
    return mpi_fail(
        m, -EPIPE, rank,
        "rank %d has begun another operation than this rank (%s of %llu, of memory "
        "%llx; here %s of %llu, of memory %llx): ranks begin the same in the same order",
        rank, tag_name(other), (unsigned long long)other->count, (unsigned long long)other->where,
        tag_name(mine), (unsigned long long)mine->count, (unsigned long long)mine->where);
}

int mpi_meet(struct mpi *m, const struct tag *tag)
{
    struct slot *own = m->slot[m->info.local];
    m->step++;
    own->tag[m->step % 2] = *tag;
    atomic_store_explicit(&own->step, m->step, memory_order_release);
    mpi_wait_begin(m);
    for (uint32_t i = 0; i < m->info.locals; i++) {
        const int rank = (int)(m->info.rank - m->info.local + i);
        while (atomic_load_explicit(&m->slot[i]->step, memory_order_acquire) < m->step) {
            if (mpi_is_lost(m, rank) || mpi_nap(m))
                return mpi_late(m, rank, "has not come this far");
        }
        int rc = compare_tags(m, i, tag);
        if (rc)
            return rc;
    }
    return 0;
}

/* Those of the node are named; the barrier waits for all others. */
int mpi_meet_all(struct mpi *m)
{
    MPI_Request request;
    int rc = mpi_meet(m, &(struct tag){TAG_CLOSE, 0, 0});
    rc = rc ? rc : mpi_check(m, MPI_Ibarrier(m->world, &request), "MPI_Ibarrier");
    return rc ? rc : mpi_finish(m, &request);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void link_block(struct mpi *m, struct block *block)
{
    block->number = ++m->block_count;
    block->next = m->blocks;
    m->blocks = block;
}

int mpi_alloc(struct mpi *m, struct block *block)
{
    int agreed = 0;
    block->window = MPI_WIN_NULL;
    int rc = mpi_meet(m, &(struct tag){TAG_ALLOC, block->size_bytes, 0});
    rc = rc ? rc : agree_on_room(m, m->world, block->size_bytes, &agreed);
    if (rc)
        return rc;
    m->info.shared = agreed;
    m->info.why_not_shared[0] = '\0';
    if (agreed) {
        block->peer = calloc(m->info.locals, sizeof *block->peer);
        if (!block->peer)
            return mpi_fail(m, -ENOMEM, COMM_NOBODY, "no memory for %u ranks", m->info.locals);
        rc = take_window(m, block->size_bytes, &block->window, &block->memory, block->peer);
    } else {
        snprintf(m->info.why_not_shared, sizeof m->info.why_not_shared,
                 m->config.messages ? "messages were asked for"
                                    : "a node's %s is too small for %zu bytes of each rank",
                 SHARED_FOLDER, block->size_bytes);
        void *memory = mmap(NULL, block->size_bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
            return mpi_fail(m, -ENOMEM, COMM_NOBODY, "no memory for %zu bytes", block->size_bytes);
        block->memory = memory;
    }
    if (!rc)
        link_block(m, block);
    return rc;
}

int mpi_free(struct mpi *m, struct block *block)
{
    int rc = mpi_meet(m, &(struct tag){TAG_FREE, block->size_bytes, block->number << 48});
    return rc ? rc : drop_block(m, block);
}

const struct block *mpi_block_of(const struct mpi *m, const void *memory, size_t bytes)
{
    const char *at = memory;
    for (const struct block *block = m->blocks; block; block = block->next)
        if (block->peer && at >= block->memory && at < block->memory + block->size_bytes &&
            bytes <= (size_t)(block->memory + block->size_bytes - at))
            return block;
    return NULL;
}
