/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that ranks of one node read of each other: the comm's own, and the owner's, which pages of
 * a window are mapped over. Room is agreed on before any is taken: where it is too small for one
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
#define TOUCH_BYTES   ((size_t)64 << 20) /* between signs of life */

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

static uint64_t used_room(void)
{
    struct statvfs status;
    if (statvfs(SHARED_FOLDER, &status) != 0)
        return 0;
    return (uint64_t)(status.f_blocks - status.f_bavail) * status.f_frsize;
}

/* Memory cannot be shared for one of these reasons, the worst first. */
enum room { ROOM_NOT_WANTED, ROOM_NO_PAGES, ROOM_NO_SHM, ROOM_NO_ADDRESSES, ROOM_ENOUGH };

/* A limit of addresses (ulimit -v) would make MPI fail on one rank, and others wait for it. */
static bool has_addresses(size_t bytes)
{
    void *map = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        return false;
    munmap(map, bytes);
    return true;
}

/* For the parts of all ranks of the node, and this rank's a second time where it is exposed. */
static enum room look_for_room(const struct mpi *m, uint64_t bytes)
{
    const uint64_t locals = m->info.locals;
    bytes += page_bytes(); /* see take_window */
    return m->config.messages                     ? ROOM_NOT_WANTED
           : bytes * locals > free_room()         ? ROOM_NO_SHM
           : !has_addresses(bytes * (locals + 1)) ? ROOM_NO_ADDRESSES
                                                  : ROOM_ENOUGH;
}

/* *least ← the least of all ranks'. */
static int agree_on_least(struct mpi *m, int own, int *least)
{
    MPI_Request request;
    int rc = mpi_check(m, MPI_Iallreduce(&own, least, 1, MPI_INT, MPI_MIN, m->world, &request),
                       "MPI_Iallreduce");
    return rc ? rc : mpi_finish(m, &request);
}

/* The owner may ask at any time. */
static void tell_shared(struct mpi *m, bool shared, bool lacks_room, const char *why_not)
{
    pthread_mutex_lock(&m->lock);
    m->info.shared = shared;
    m->info.lacks_room = lacks_room;
    m->info.room_used_bytes = lacks_room ? used_room() : 0;
    snprintf(m->info.why_not_shared, sizeof m->info.why_not_shared, "%s", why_not);
    pthread_mutex_unlock(&m->lock);
}

/* *agreed: every rank of the world sees room; `own` is what this one sees. */
static int agree_on_room(struct mpi *m, enum room own, uint64_t bytes, bool *agreed)
{
    int room = ROOM_ENOUGH;
    int rc = agree_on_least(m, (int)own, &room);
    *agreed = !rc && room == ROOM_ENOUGH;
    if (rc)
        return rc;
    char why[sizeof m->info.why_not_shared];
    const unsigned long long kib = (bytes + 1023) / 1024;
    snprintf(why, sizeof why,
             room == ROOM_ENOUGH       ? ""
             : room == ROOM_NOT_WANTED ? "messages were asked for"
             : room == ROOM_NO_PAGES   ? "a rank's system has pages of more than 4 KiB"
             : room == ROOM_NO_SHM ? "a node's %s is too small for %llu KiB of each of its ranks"
                                   : "a rank has too few addresses (ulimit -v) to map a node's "
                                     "%s, %llu KiB of each rank",
             SHARED_FOLDER, kib);
    tell_shared(m, *agreed, room == ROOM_NO_SHM, why);
    return 0;
}

static char *page_up(char *address)
{
    const size_t page = page_bytes();
    return address + (page - (uintptr_t)address % page) % page;
}

/*
 * peer[i] ← where local rank i has `bytes`, from a page on. Each part of the window is whole pages,
 * but Open MPI begins the first one behind data of its own: a page more holds all that is wanted,
 * from the same page on for all ranks.
 */
static int take_window(struct mpi *m, size_t bytes, MPI_Win *window, char **peer)
{
    void *own;
    MPI_Info hints;
    MPI_Info_create(&hints);
    MPI_Info_set(hints, "alloc_shared_noncontig", "true");
    const char *before = mpi_call(m, "allocation of a node's shared memory");
    int rc = mpi_check(
        m,
        MPI_Win_allocate_shared((MPI_Aint)(bytes + page_bytes()), 1, hints, m->node, &own, window),
        "MPI_Win_allocate_shared");
    mpi_call(m, before);
    MPI_Info_free(&hints);
    for (uint32_t i = 0; !rc && i < m->info.locals; i++) {
        MPI_Aint size;
        int unit;
        rc = mpi_check(m, MPI_Win_shared_query(*window, (int)i, &size, &unit, &peer[i]),
                       "MPI_Win_shared_query");
        if (!rc) {
            peer[i] = page_up(peer[i]);
            (void)madvise(peer[i], bytes, MADV_DONTDUMP); /* a core dump would hold it all */
        }
    }
    return rc;
}

int mpi_take_pages(struct mpi *m, struct slot **slot)
{
    const size_t bytes = page_bytes();
    const bool messages = m->config.messages;
    bool agreed = false;
    m->config.messages = false;
    int rc = agree_on_room(m, look_for_room(m, bytes), bytes, &agreed);
    m->config.messages = messages;
    tell_shared(m, false, false, ""); /* nothing was allocated yet */
    if (!rc && !agreed)
        rc = mpi_fail(m, -ENOMEM, COMM_NOBODY,
                      "%s has %llu bytes free, too few for a page of each rank of the node",
                      SHARED_FOLDER, (unsigned long long)free_room());
    rc = rc ? rc : take_window(m, bytes, &m->control, (char **)slot);
    if (!rc)
        memset(slot[m->info.local], 0, bytes);
    return rc;
}

/*
 * Takes the room now, not in the middle of a step. False: others have taken it meanwhile; writing
 * there would end the process (SIGBUS). Kernels before 5.14 cannot ask and are written to.
 */
static bool take_room(struct mpi *m, char *memory, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += TOUCH_BYTES) {
        const size_t some = bytes - at < TOUCH_BYTES ? bytes - at : TOUCH_BYTES;
        if (madvise(memory + at, some, MADV_POPULATE_WRITE) != 0) {
            if (errno != EINVAL)
                return false;
            memset(memory + at, 0, some);
        }
        mpi_beat(m);
    }
    return true;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void link_block(struct mpi *m, struct block *block)
{
    block->number = ++m->block_count;
    block->next = m->blocks;
    m->blocks = block;
}

static int take_block(struct mpi *m, struct block *block)
{
    block->peer = calloc(m->info.locals, sizeof *block->peer);
    if (!block->peer)
        return mpi_fail(m, -ENOMEM, COMM_NOBODY, "no memory for %u ranks", m->info.locals);
    return take_window(m, block->size_bytes, &block->window, block->peer);
}

int mpi_alloc(struct mpi *m, struct block *block)
{
    const size_t bytes = block->size_bytes;
    bool agreed = false;
    block->window = MPI_WIN_NULL;
    int rc = mpi_meet(m, &(struct tag){.kind = TAG_ALLOC, .count = bytes});
    rc = rc ? rc : agree_on_room(m, look_for_room(m, bytes), bytes, &agreed);
    if (rc)
        return rc;
    if (agreed) {
        rc = take_block(m, block);
        block->memory = rc ? NULL : block->peer[m->info.local];
        if (!rc && !take_room(m, block->memory, bytes))
            rc = mpi_fail(m, -ENOMEM, COMM_NOBODY, "%s has been filled by others meanwhile",
                          SHARED_FOLDER);
    } else {
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

static int free_window(struct mpi *m, MPI_Win *window)
{
    const char *before = mpi_call(m, "free of a node's shared memory");
    const int rc = mpi_check(m, MPI_Win_free(window), "MPI_Win_free");
    mpi_call(m, before);
    return rc;
}

/* Exposed memory stays mapped: it is the owner's. */
static int drop_block(struct mpi *m, struct block *block)
{
    int rc = 0;
    struct block **link = &m->blocks;
    while (*link != block)
        link = &(*link)->next;
    *link = block->next;
    if (block->window != MPI_WIN_NULL)
        rc = free_window(m, &block->window);
    else
        munmap(block->memory, block->size_bytes);
    free(block->peer);
    free(block);
    return rc;
}

int mpi_free(struct mpi *m, struct block *block)
{
    int rc = mpi_meet(
        m, &(struct tag){.kind = TAG_FREE, .count = block->size_bytes, .where = block->number});
    return rc ? rc : drop_block(m, block);
}

void mpi_drop_blocks(struct mpi *m)
{
    while (m->blocks)
        drop_block(m, m->blocks);
}

/* ---- memory of the owner --------------------------------------------------------------------- */

/*
 * The same pages at a second address, advised to be huge and not dumped as the owner's are. Null:
 * this kernel has none, or no room for them any more. A length of 0 asks for it.
 */
static char *map_twin(struct mpi *m, char *part, size_t bytes)
{
    void *twin = mremap(part, 0, bytes, MREMAP_MAYMOVE);
    if (twin == MAP_FAILED)
        return NULL;
    (void)madvise(twin, bytes, MADV_DONTDUMP);
    (void)madvise(twin, bytes, MADV_HUGEPAGE);
    if (take_room(m, twin, bytes))
        return twin;
    munmap(twin, bytes);
    return NULL;
}

/* The twin takes the place of the owner's pages. */
static int put_in_place(struct mpi *m, struct block *block, char *twin)
{
    const size_t bytes = block->size_bytes;
    if (mremap(twin, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, block->memory) == MAP_FAILED)
        return mpi_fail(m, -ENOMEM, COMM_NOBODY, "shared memory cannot be moved into place: %s",
                        strerror(errno));
    block->peer[m->info.local] = block->memory;
    block->exposed = true;
    link_block(m, block);
    return 0;
}

static int give_back(struct mpi *m, struct block *block, char *twin)
{
    if (twin)
        munmap(twin, block->size_bytes);
    tell_shared(m, false, false,
                "a rank cannot map shared memory a second time, or others have filled it");
    free(block->peer);
    block->peer = NULL;
    return free_window(m, &block->window);
}

/* All ranks have their twins, or none: an operation reads what all have. */
static int share_block(struct mpi *m, struct block *block)
{
    int all = 0;
    int rc = take_block(m, block);
    if (rc)
        return rc;
    char *twin = map_twin(m, block->peer[m->info.local], block->size_bytes);
    rc = agree_on_least(m, twin != NULL, &all);
    if (rc)
        return rc;
    return all ? put_in_place(m, block, twin) : give_back(m, block, twin);
}

static enum room look_to_share(const struct mpi *m, const struct block *block)
{
    const bool whole = ((uintptr_t)block->memory | block->size_bytes) % page_bytes() == 0;
    return whole ? look_for_room(m, block->size_bytes) : ROOM_NO_PAGES;
}

/* Nothing is read in place where a node has one rank, or nodes have different numbers of them. */
int mpi_expose(struct mpi *m, struct block *block)
{
    bool agreed = false;
    int rc = mpi_meet(m, &(struct tag){.kind = TAG_EXPOSE, .count = block->size_bytes});
    if (rc)
        return rc;
    if (!m->uniform || m->info.locals == 1) {
        tell_shared(m, false, false, m->uniform ? "" : "nodes have different numbers of ranks");
        return 0;
    }
    rc = agree_on_room(m, look_to_share(m, block), block->size_bytes, &agreed);
    return rc || !agreed ? rc : share_block(m, block);
}

/* ---- where memory lies ----------------------------------------------------------------------- */

const struct block *mpi_block_of(const struct mpi *m, const void *memory, size_t bytes)
{
    const char *at = memory;
    for (const struct block *block = m->blocks; block; block = block->next)
        if (block->peer && at >= block->memory && at < block->memory + block->size_bytes &&
            bytes <= (size_t)(block->memory + block->size_bytes - at))
            return block;
    return NULL;
}
