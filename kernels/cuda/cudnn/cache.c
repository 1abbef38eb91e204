/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A shape without a plan is remembered like one with it: the question is asked at every call. Only
 * what is not the shape's doing is forgotten: a shortage of memory, a cuDNN that is not whole.
 */
#include "cache.h"

#include "cut.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <time.h>

static bool shapes_equal(const struct sdpa_shape *a, const struct sdpa_shape *b)
{
    return a->batch == b->batch && a->seq == b->seq && a->heads == b->heads &&
           a->kv_heads == b->kv_heads && a->head_dim == b->head_dim &&
           a->all_heads == b->all_heads && a->all_kv_heads == b->all_kv_heads && a->type == b->type;
}

static struct cached *find(struct cache *cache, enum sdpa_form form, const struct sdpa_shape *shape)
{
    for (size_t i = 0; i < cache->count; i++)
        if (cache->entries[i]->form == form && shapes_equal(&cache->entries[i]->shape, shape))
            return cache->entries[i];
    return NULL;
}

static void destroy(struct cached *entry)
{
    if (entry->rc == 0)
        plan_destroy(&entry->plan);
    free(entry);
}

static void evict_oldest(struct cache *cache)
{
    size_t oldest = 0;
    for (size_t i = 1; i < cache->count; i++)
        if (cache->entries[i]->used < cache->entries[oldest]->used)
            oldest = i;
    struct cached *entry = cache->entries[oldest];
    if (entry->rc == 0 && cache->wait)
        cache->wait(); /* its kernels may be running; an error is the streams' to report */
    destroy(entry);
    cache->entries[oldest] = cache->entries[--cache->count];
}

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Errors: -ENOMEM, and -ENODEV where cuDNN is not whole. */
static int add(struct cache *cache, const struct cudnn_target *target, enum sdpa_form form,
               const struct sdpa_shape *shape, struct cached **added,
               struct hst_dev_failure *failure)
{
    struct cached *entry = calloc(1, sizeof *entry);
    if (!entry)
        return cudnn_fail(failure, -ENOMEM, HST_DEV_MEMORY, 0, "no host memory for a plan");
    entry->form = form;
    entry->shape = *shape;
    double begin_s = now_s();
    int rc = plan_build(&entry->plan, target, form, shape, cut_work_bytes(form, shape), failure);
    cache->built_s += now_s() - begin_s;
    cache->built++;
    entry->rc = rc;
    if (rc == -ENOMEM || rc == -ENODEV) {
        free(entry);
        return rc;
    }
    if (cache->count == CACHE_PLANS)
        evict_oldest(cache);
    cache->entries[cache->count++] = entry;
    *added = entry;
    return 0;
}

int cache_get(struct cache *cache, const struct cudnn_target *target, enum sdpa_form form,
              const struct sdpa_shape *shape, struct plan **plan, struct hst_dev_failure *failure)
{
    struct cached *entry = find(cache, form, shape);
    int rc = entry ? 0 : add(cache, target, form, shape, &entry, failure);
    if (rc)
        return rc;
    assert(entry);
    entry->used = ++cache->clock;
    if (entry->rc)
        return cudnn_fail(failure, -ENOTSUP, HST_DEV_LIBRARY, 0, "cuDNN has no plan of this shape");
    *plan = &entry->plan;
    return 0;
}

void cache_clear(struct cache *cache)
{
    while (cache->count)
        destroy(cache->entries[--cache->count]);
}
