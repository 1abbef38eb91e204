/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device memory that the comm gives out: NCCL's own, which all of its ways to move bytes take,
 * registered as a window where the library has windows. The budget of the device does not know of
 * it.
 */
#include "comm/nccl/nccl_comm.h"

#include <errno.h>

static int register_window(struct nccl *n, struct nccl_block *block, size_t size_bytes)
{
    if (!n->library.ncclCommWindowRegister)
        return 0;
    return nccl_settle(n, n->world,
                       n->library.ncclCommWindowRegister(n->world, block->memory, size_bytes,
                                                         &block->window, NCCL_WIN_COLL_SYMMETRIC),
                       "ncclCommWindowRegister");
}

/* The window is NCCL's matter while NCCL is there; after an end by force it has gone with it. */
static int give_back(struct nccl *n, struct nccl_block *block, bool together)
{
    int rc = 0;
    if (together && block->window)
        rc = nccl_settle(n, n->world, n->library.ncclCommWindowDeregister(n->world, block->window),
                         "ncclCommWindowDeregister");
    if (!rc)
        n->library.ncclMemFree(block->memory);
    *block = (struct nccl_block){0};
    return rc;
}

static int zero(struct nccl *n, void *memory, size_t size_bytes)
{
    int rc = n->ops->stream_zero(n->stream, memory, size_bytes);
    rc = rc ? rc : n->ops->stream_sync(n->stream);
    return rc ? nccl_device_failed(n, rc, "device memory cannot be zeroed") : 0;
}

static int take(struct nccl *n, struct nccl_block *block, size_t size_bytes)
{
    /* A call that enqueues makes the device's GPU this thread's, and NCCL takes memory of that. */
    int rc = n->ops->event_record(n->mark, n->stream);
    if (rc)
        return nccl_device_failed(n, rc, "device memory cannot be had");
    const enum nccl_result result = n->library.ncclMemAlloc(&block->memory, size_bytes);
    if (result != NCCL_SUCCESS)
        return nccl_fail(n, -ENOMEM, COMM_NOBODY,
                         "ncclMemAlloc of %zu bytes of device memory failed: %s", size_bytes,
                         n->library.ncclGetErrorString(result));
    return zero(n, block->memory, size_bytes);
}

/* A window is all ranks' or none's: where one has no memory the others would wait for it. Without
   MPI they do, until the launcher ends them. */
int nccl_alloc(struct nccl *n, size_t size_bytes, void **memory)
{
    struct nccl_block *block = n->block;
    while (block < n->block + NCCL_WINDOWS && block->memory)
        block++;
    if (block == n->block + NCCL_WINDOWS)
        return -ENOMEM;
    int rc = take(n, block, size_bytes);
    if (n->control)
        rc = comm_spread_failure(n->control, "device memory", rc, &n->failure);
    rc = rc ? rc : register_window(n, block, size_bytes);
    if (!rc)
        *memory = block->memory;
    return rc;
}

int nccl_free(struct nccl *n, void *memory)
{
    for (struct nccl_block *block = n->block; block < n->block + NCCL_WINDOWS; block++)
        if (block->memory == memory)
            return give_back(n, block, true);
    return -EINVAL;
}

void nccl_free_all(struct nccl *n, bool together)
{
    for (struct nccl_block *block = n->block; block < n->block + NCCL_WINDOWS; block++)
        if (block->memory)
            give_back(n, block, together);
    if (n->stage)
        n->ops->mem_free(n->dev, n->stage, NCCL_STAGE_BYTES * n->info.ranks);
    if (n->pinned)
        n->ops->host_free(n->dev, n->pinned, NCCL_STAGE_BYTES * n->info.ranks);
    n->stage = n->pinned = n->ring = NULL;
}

int nccl_take_ring(struct nccl *n)
{
    void *memory = NULL;
    int rc = nccl_alloc(n, n->config.piece_bytes, &memory);
    n->ring = memory;
    return rc;
}

int nccl_free_ring(struct nccl *n)
{
    void *memory = n->ring;
    n->ring = NULL;
    return nccl_free(n, memory);
}

int nccl_take_stage(struct nccl *n)
{
    const size_t bytes = NCCL_STAGE_BYTES * n->info.ranks;
    void *memory;
    int rc = n->ops->host_alloc(n->dev, bytes, NULL, &memory);
    if (rc)
        return nccl_fail(n, rc, COMM_NOBODY, "no %zu bytes of pinned memory for agreements", bytes);
    n->pinned = memory;
    rc = n->ops->mem_alloc(n->dev, bytes, &memory);
    if (rc)
        return nccl_fail(n, rc, COMM_NOBODY, "no %zu bytes of device memory for agreements", bytes);
    n->stage = memory;
    return 0;
}
