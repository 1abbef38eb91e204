/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of a GPU and page-locked memory for its copies. A budget counts the bytes asked for,
 * exactly. The runtime gives device memory in pieces of 2 MiB, aligned so, but does not promise it:
 * what is not aligned is asked for again with room to move in. Host memory is mapped, placed near
 * the GPU, made real and only then registered, so that want of memory shows here and not in a step.
 * (A kernel that overcommits may kill the process instead of refusing.) Device memory is taken in
 * whole 2 MiB, the budget counts what was asked for.
 */
#include "cuda.h"
#include "cudnn/sdpa.h"
#include "populate.h"
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { NODES_MAX = 1024, MPOL_PREFERRED_NODE = 1 };

struct cuda_block {
    struct cuda_block *next;
    void *memory; /* what the caller has */
    void *start;  /* what cudaMalloc gave */
};

void cuda_dev_usage(const struct hst_dev *dev, struct hst_dev_usage *usage)
{
    /* the lock is the only thing changed */
    hst_book_usage(&cuda_dev_of((struct hst_dev *)(uintptr_t)dev)->book, usage);
}

int cuda_dev_budget(struct hst_dev *dev, uint64_t memory_bytes, uint64_t host_bytes)
{
    struct cuda_dev *cuda = cuda_dev_of(dev);
    int rc = hst_book_budget(&cuda->book, memory_bytes, host_bytes);
    if (!rc && cuda->sdpa)
        hst_sdpa_budget(cuda->sdpa, memory_bytes);
    return rc;
}

/* ---- device memory --------------------------------------------------------------------------- */

static int out_of_memory(struct cuda_dev *dev, cudaError_t error, size_t size_bytes)
{
    struct hst_dev_failure failure;
    size_t free_bytes = 0, total_bytes = 0;
    (void)cudaGetLastError();
    (void)cudaMemGetInfo(&free_bytes, &total_bytes);
    (void)cudaGetLastError();
    struct hst_dev_usage usage;
    hst_book_usage(&dev->book, &usage);
    uint64_t held = usage.memory_bytes - size_bytes;
    cuda_failure_set(&failure, HST_DEV_MEMORY, error,
                     "GPU %d (%s) is out of memory: %zu bytes were asked for; of %zu, %zu are free "
                     "and %llu held here; another process may hold the rest",
                     dev->index, dev->info.model, size_bytes, total_bytes, free_bytes,
                     (unsigned long long)held);
    cuda_failure_keep(dev, &failure);
    return -ENOMEM;
}

/* Writes block->start and block->memory. */
static int allocate_aligned(struct cuda_dev *dev, size_t size_bytes, struct cuda_block *block)
{
    size_t whole = (size_bytes + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    cudaError_t error = cudaMalloc(&block->start, whole);
    if (!error && (uintptr_t)block->start % HUGE_PAGE_BYTES) {
        (void)cudaFree(block->start);
        error = cudaMalloc(&block->start, whole + HUGE_PAGE_BYTES);
    }
    if (error)
        return error == cudaErrorMemoryAllocation ? out_of_memory(dev, error, size_bytes)
                                                  : cuda_failed(dev, error, "cudaMalloc");
    uintptr_t start = (uintptr_t)block->start;
    block->memory = (char *)block->start + (-start % HUGE_PAGE_BYTES);
    return 0;
}

static int zero(struct cuda_dev *dev, void *memory, size_t size_bytes)
{
    cudaError_t error = cudaMemsetAsync(memory, 0, size_bytes, dev->own);
    if (!error)
        error = cudaStreamSynchronize(dev->own);
    return error ? cuda_failed(dev, error, "zeroing new memory") : 0;
}

int cuda_mem_alloc(struct hst_dev *dev, size_t size_bytes, void **memory)
{
    struct cuda_dev *cuda = cuda_dev_of(dev);
    int rc = hst_book_take(&cuda->book, BOOK_MEMORY, size_bytes);
    if (rc)
        return rc;
    rc = -ENOMEM;
    struct cuda_block *block = calloc(1, sizeof *block);
    if (!block)
        goto err_unbook;
    rc = cuda_enter(cuda);
    if (!rc)
        rc = allocate_aligned(cuda, size_bytes, block);
    if (rc)
        goto err_block;
    rc = zero(cuda, block->memory, size_bytes);
    if (rc)
        goto err_memory;
    hst_book_keep(&cuda->book, BOOK_MEMORY);
    pthread_mutex_lock(&cuda->lock);
    block->next = cuda->blocks;
    cuda->blocks = block;
    pthread_mutex_unlock(&cuda->lock);
    *memory = block->memory;
    return 0;
err_memory:
    (void)cudaFree(block->start);
err_block:
    free(block);
err_unbook:
    hst_book_give(&cuda->book, BOOK_MEMORY, size_bytes);
    return rc;
}

static struct cuda_block *take_block(struct cuda_dev *dev, const void *memory)
{
    pthread_mutex_lock(&dev->lock);
    struct cuda_block **link = &dev->blocks;
    while (*link && (*link)->memory != memory)
        link = &(*link)->next;
    struct cuda_block *block = *link;
    if (block)
        *link = block->next;
    pthread_mutex_unlock(&dev->lock);
    return block;
}

void cuda_mem_free(struct hst_dev *dev, void *memory, size_t size_bytes)
{
    struct cuda_dev *cuda = cuda_dev_of(dev);
    struct cuda_block *block = take_block(cuda, memory);
    assert(block);
    cudaError_t error = cuda_enter(cuda) ? cudaSuccess : cudaFree(block->start);
    if (error)
        (void)cuda_failed(cuda, error, "cudaFree");
    free(block);
    hst_book_give(&cuda->book, BOOK_MEMORY, size_bytes);
}

/* ---- host memory ----------------------------------------------------------------------------- */

/* On the GPU's node: a wish, whose refusal only makes copies slower. */
static void place(void *memory, size_t size_bytes, int node)
{
    if (node < 0 || node >= NODES_MAX)
        return;
    unsigned long nodes[NODES_MAX / (8 * sizeof(unsigned long))] = {0};
    nodes[(size_t)node / (8 * sizeof *nodes)] = 1ul << (size_t)node % (8 * sizeof *nodes);
    (void)syscall(SYS_mbind, memory, size_bytes, MPOL_PREFERRED_NODE, nodes,
                  (unsigned long)NODES_MAX, 0u);
}

static int no_host_memory(struct cuda_dev *dev, size_t size_bytes, int error)
{
    struct hst_dev_failure failure;
    cuda_failure_set(&failure, HST_DEV_LOCKED_MEMORY, 0,
                     "GPU %d: no host memory: %zu bytes were asked for, to be page-locked: %s",
                     dev->index, size_bytes, strerror(error));
    cuda_failure_keep(dev, &failure);
    return -ENOMEM;
}

static int not_locked(struct cuda_dev *dev, cudaError_t error, size_t size_bytes)
{
    struct hst_dev_failure failure;
    struct rlimit limit = {0};
    (void)cudaGetLastError();
    (void)getrlimit(RLIMIT_MEMLOCK, &limit);
    cuda_failure_set(&failure, HST_DEV_LOCKED_MEMORY, error,
                     "GPU %d: %zu bytes of host memory cannot be page-locked: %s (%s); the limit "
                     "of locked memory (RLIMIT_MEMLOCK) is %lld bytes, -1 is none",
                     dev->index, size_bytes, cudaGetErrorName(error), cudaGetErrorString(error),
                     (long long)limit.rlim_cur);
    cuda_failure_keep(dev, &failure);
    return cuda_errno(error);
}

int cuda_host_alloc(struct hst_dev *dev, size_t size_bytes, const struct hst_host_pages *pages,
                    void **memory)
{
    struct cuda_dev *cuda = cuda_dev_of(dev);
    int rc = hst_book_take(&cuda->book, BOOK_HOST, size_bytes);
    if (rc)
        return rc;
    void *mapped = hst_map_aligned(size_bytes);
    if (!mapped) {
        rc = no_host_memory(cuda, size_bytes, errno);
        goto err_unbook;
    }
    place(mapped, size_bytes, cuda->info.numa_node);
    rc = pages ? pages->place(pages->context, mapped) : 0;
    if (rc)
        goto err_unmap;
    /* A wish too: the GPU reads and writes these very pages, of which a child needs none. */
    (void)madvise(mapped, size_bytes, MADV_DONTFORK);
    rc = cuda_populate(mapped, size_bytes);
    if (rc) {
        rc = no_host_memory(cuda, size_bytes, -rc);
        goto err_unmap;
    }
    rc = cuda_enter(cuda);
    if (rc)
        goto err_unmap;
    cudaError_t error = cudaHostRegister(mapped, size_bytes, cudaHostRegisterPortable);
    if (error) {
        rc = not_locked(cuda, error, size_bytes);
        goto err_unmap;
    }
    hst_book_keep(&cuda->book, BOOK_HOST);
    *memory = mapped;
    return 0;
err_unmap:
    hst_unmap_aligned(mapped, size_bytes);
err_unbook:
    hst_book_give(&cuda->book, BOOK_HOST, size_bytes);
    return rc;
}

void cuda_host_free(struct hst_dev *dev, void *memory, size_t size_bytes)
{
    struct cuda_dev *cuda = cuda_dev_of(dev);
    cudaError_t error = cuda_enter(cuda) ? cudaSuccess : cudaHostUnregister(memory);
    if (error)
        (void)cuda_failed(cuda, error, "cudaHostUnregister");
    hst_unmap_aligned(memory, size_bytes);
    hst_book_give(&cuda->book, BOOK_HOST, size_bytes);
}

int cuda_host_lock(struct hst_dev *dev, void *memory, size_t size_bytes)
{
    struct cuda_dev *cuda = cuda_dev_of(dev);
    int rc = cuda_enter(cuda);
    if (rc)
        return rc;
    cudaError_t error = cudaHostRegister(memory, size_bytes, cudaHostRegisterPortable);
    return error ? not_locked(cuda, error, size_bytes) : 0;
}

int cuda_host_unlock(struct hst_dev *dev, void *memory, size_t size_bytes)
{
    struct cuda_dev *cuda = cuda_dev_of(dev);
    int rc = cuda_enter(cuda);
    (void)size_bytes;
    if (rc)
        return rc;
    cudaError_t error = cudaHostUnregister(memory);
    return error ? cuda_failed(cuda, error, "cudaHostUnregister") : 0;
}
