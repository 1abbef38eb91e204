/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host device's life and memory. Memory is mapped rather than malloc'ed so that it is zero
 * without being touched, starts on a huge page, and leaves with its bytes.
 */
#include "blas.h"
#include "host.h"
#include <assert.h>
#include <errno.h>
#include <gnu/libc-version.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int host_dev_open(const struct hst_dev_config *config, const struct host_math *math,
                  struct hst_dev **dev, struct hst_dev_failure *failure)
{
    if (!dev || !config || config->size != sizeof *config || config->index)
        return -EINVAL;
    if (config->parallel && (!config->parallel->run || !config->parallel->width))
        return -EINVAL;
    struct host_dev *host = calloc(1, sizeof *host);
    if (!host)
        return -ENOMEM;
    const unsigned workers = config->parallel ? config->parallel->width : 0;
    struct host_wish wish;
    int rc = host_wish_read(config->host_math, &wish, failure);
    rc = rc ? rc : host_blas_open(*wish.core ? wish.core : NULL, workers + 1, failure);
    rc = rc ? rc : host_gemm_bf16_choose(&wish, &host->gemm_bf16, failure);
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
    hst_book_open(&host->book, config);
    pthread_mutex_init(&host->lock,
                       NULL); /* a default mutex on Linux needs nothing that can fail */
    *dev = &host->base;
    return 0;
}

int hst_dev_host_open(const struct hst_dev_config *config, struct hst_dev **dev)
{
    struct hst_dev_failure failure = {.why = HST_DEV_OK};
    return host_dev_open(config, host_math_usable()[0], dev, &failure);
}

void host_dev_close(struct hst_dev *dev)
{
    struct host_dev *host = host_dev_of(dev);
    assert(host->stream_count == 0 && host->event_count == 0);
    hst_book_close(&host->book);
    pthread_mutex_destroy(&host->lock);
    free(host);
}

void host_dev_usage(const struct hst_dev *dev, struct hst_dev_usage *usage)
{
    /* the lock is the only thing changed */
    hst_book_usage(&host_dev_of((struct hst_dev *)(uintptr_t)dev)->book, usage);
}

int host_dev_budget(struct hst_dev *dev, uint64_t memory_bytes, uint64_t host_bytes)
{
    return hst_book_budget(&host_dev_of(dev)->book, memory_bytes, host_bytes);
}

/* A host has no card to tell of; its memory is the machine's, which its owner knows better. */
void host_dev_info(struct hst_dev *dev, struct hst_dev_info *info)
{
    (void)dev;
    *info = (struct hst_dev_info){.numa_node = -1};
}

/* GEMMs are OpenBLAS's but those of bf16 by an own kernel: each has the same bits but that by AMX.
   Where none was asked for, that is no difference. Logarithms, sines and cosines are the C
   library's. The rest is our own and has the same bits on every processor. */
void host_dev_math(struct hst_dev *dev, char *text, size_t text_bytes)
{
    const struct host_dev *host = host_dev_of(dev);
    host_blas_name(text, text_bytes);
    size_t used = strlen(text);
    snprintf(text + used, text_bytes - used, "%s, glibc %s",
             host->bf16_asked ? host_gemm_bf16_words(host->gemm_bf16) : "", gnu_get_libc_version());
}

/* All that can fail here fails in the call itself. */
void host_dev_failure(struct hst_dev *dev, struct hst_dev_failure *failure)
{
    (void)dev;
    *failure = (struct hst_dev_failure){.why = HST_DEV_OK};
}

static int allocate(struct host_dev *host, enum book_side side, size_t size_bytes, void **memory)
{
    int rc = hst_book_take(&host->book, side, size_bytes);
    if (rc)
        return rc;
    void *mapped = hst_map_aligned(size_bytes);
    if (!mapped) {
        hst_book_give(&host->book, side, size_bytes);
        return -ENOMEM;
    }
    hst_book_keep(&host->book, side);
    *memory = mapped;
    return 0;
}

static void release(struct host_dev *host, enum book_side side, void *memory, size_t size_bytes)
{
    hst_unmap_aligned(memory, size_bytes);
    hst_book_give(&host->book, side, size_bytes);
}

int host_dev_mem_alloc(struct hst_dev *dev, size_t size_bytes, void **memory)
{
    return allocate(host_dev_of(dev), BOOK_MEMORY, size_bytes, memory);
}

void host_dev_mem_free(struct hst_dev *dev, void *memory, size_t size_bytes)
{
    release(host_dev_of(dev), BOOK_MEMORY, memory, size_bytes);
}

int host_dev_host_alloc(struct hst_dev *dev, size_t size_bytes, const struct hst_host_pages *pages,
                        void **memory)
{
    int rc = allocate(host_dev_of(dev), BOOK_HOST, size_bytes, memory);
    if (rc || !pages)
        return rc;
    rc = pages->place(pages->context, *memory);
    if (rc)
        release(host_dev_of(dev), BOOK_HOST, *memory, size_bytes);
    return rc;
}

void host_dev_host_free(struct hst_dev *dev, void *memory, size_t size_bytes)
{
    release(host_dev_of(dev), BOOK_HOST, memory, size_bytes);
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
