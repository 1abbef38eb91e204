/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host device's life and memory. A budget counts the bytes asked for, exactly; memory is mapped
 * rather than malloc'ed so that it is zero without being touched, starts on a huge page, and leaves
 * with its bytes.
 */
#include "host.h"
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { HUGE_PAGE_BYTES = 2 << 20 };

int host_dev_open(const struct hst_dev_config *config, const struct host_math *math,
                  struct hst_dev **dev)
{
    if (!dev || !config || config->size != sizeof *config || config->index)
        return -EINVAL;
    if (config->parallel && (!config->parallel->run || !config->parallel->width))
        return -EINVAL;
    struct host_dev *host = calloc(1, sizeof *host);
    if (!host)
        return -ENOMEM;
    int rc = host_blas_prepare();
    if (rc) {
        free(host);
        return rc;
    }
    host->base.ops = &host_ops;
    host->math = math;
    if (config->parallel)
        host->parallel = *config->parallel;
    else
        host->parallel.width = 1;
    host->memory_budget_bytes = config->memory_bytes;
    host->host_budget_bytes = config->host_bytes;
    pthread_mutex_init(&host->lock,
                       NULL); /* a default mutex on Linux needs nothing that can fail */
    *dev = &host->base;
    return 0;
}

int hst_dev_host_open(const struct hst_dev_config *config, struct hst_dev **dev)
{
    return host_dev_open(config, host_math_usable()[0], dev);
}

void host_dev_close(struct hst_dev *dev)
{
    struct host_dev *host = host_dev_of(dev);
    assert(host->stream_count == 0 && host->event_count == 0);
    assert(host->usage.memory_bytes == 0 && host->usage.host_bytes == 0);
    pthread_mutex_destroy(&host->lock);
    free(host);
}

void host_dev_usage(const struct hst_dev *dev, struct hst_dev_usage *usage)
{
    struct host_dev *host =
        (struct host_dev *)(uintptr_t)dev; /* the lock is the only thing changed */
    pthread_mutex_lock(&host->lock);
    *usage = host->usage;
    pthread_mutex_unlock(&host->lock);
}

int host_dev_budget(struct hst_dev *dev, uint64_t memory_bytes, uint64_t host_bytes)
{
    struct host_dev *host = host_dev_of(dev);
    pthread_mutex_lock(&host->lock);
    bool room = host->usage.memory_bytes <= memory_bytes && host->usage.host_bytes <= host_bytes;
    if (room) {
        host->memory_budget_bytes = memory_bytes;
        host->host_budget_bytes = host_bytes;
    }
    pthread_mutex_unlock(&host->lock);
    return room ? 0 : -ENOSPC;
}

/* A host has no card to tell of; its memory is the machine's, which its owner knows better. */
void host_dev_info(struct hst_dev *dev, struct hst_dev_info *info)
{
    (void)dev;
    *info = (struct hst_dev_info){.numa_node = -1};
}

/* All that can fail here fails in the call itself. */
void host_dev_failure(struct hst_dev *dev, struct hst_dev_failure *failure)
{
    (void)dev;
    *failure = (struct hst_dev_failure){.why = HST_DEV_OK};
}

static size_t page_round(size_t size_bytes)
{
    return (size_bytes + 4095) & ~(size_t)4095;
}

/* Maps more than asked for and gives back what lies before and after the aligned part. */
static void *map_aligned(size_t size_bytes)
{
    size_t kept = page_round(size_bytes), mapped = kept + HUGE_PAGE_BYTES;
    char *start = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED)
        return NULL;
    size_t before = -(uintptr_t)start % HUGE_PAGE_BYTES;
    if (before)
        munmap(start, before);
    munmap(start + before + kept, HUGE_PAGE_BYTES - before);
    (void)madvise(start + before, kept,
                  MADV_HUGEPAGE); /* a kernel without huge pages is only slower */
    return start + before;
}

struct account {
    uint64_t *held, *peak;
    uint64_t budget_bytes;
};

static int allocate(struct host_dev *host, struct account account, size_t size_bytes, void **memory)
{
    pthread_mutex_lock(&host->lock);
    bool room = size_bytes <= account.budget_bytes - *account.held;
    uint64_t peak = *account.peak;
    if (room) {
        *account.held += size_bytes;
        if (*account.held > peak)
            *account.peak = *account.held;
    }
    pthread_mutex_unlock(&host->lock);
    if (!room)
        return -ENOSPC;
    void *mapped = map_aligned(size_bytes);
    if (!mapped) {
        pthread_mutex_lock(&host->lock);
        *account.held -= size_bytes;
        pthread_mutex_unlock(&host->lock);
        return -ENOMEM;
    }
    *memory = mapped;
    return 0;
}

static void release(struct host_dev *host, uint64_t *held, void *memory, size_t size_bytes)
{
    munmap(memory, page_round(size_bytes));
    pthread_mutex_lock(&host->lock);
    assert(*held >= size_bytes);
    *held -= size_bytes;
    pthread_mutex_unlock(&host->lock);
}

int host_dev_mem_alloc(struct hst_dev *dev, size_t size_bytes, void **memory)
{
    struct host_dev *host = host_dev_of(dev);
    struct account account = {&host->usage.memory_bytes, &host->usage.memory_peak_bytes,
                              host->memory_budget_bytes};
    return allocate(host, account, size_bytes, memory);
}

void host_dev_mem_free(struct hst_dev *dev, void *memory, size_t size_bytes)
{
    release(host_dev_of(dev), &host_dev_of(dev)->usage.memory_bytes, memory, size_bytes);
}

int host_dev_host_alloc(struct hst_dev *dev, size_t size_bytes, void **memory)
{
    struct host_dev *host = host_dev_of(dev);
    struct account account = {&host->usage.host_bytes, &host->usage.host_peak_bytes,
                              host->host_budget_bytes};
    return allocate(host, account, size_bytes, memory);
}

void host_dev_host_free(struct hst_dev *dev, void *memory, size_t size_bytes)
{
    release(host_dev_of(dev), &host_dev_of(dev)->usage.host_bytes, memory, size_bytes);
}

void host_split(struct host_dev *dev, size_t count,
                void (*body)(void *arg, size_t index, unsigned worker), void *arg)
{
    if (count > 1 && dev->parallel.run) {
        dev->parallel.run(dev->parallel.context, count, body, arg);
        return;
    }
    for (size_t i = 0; i < count; i++)
        body(arg, i, 0);
}
