/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A GPU that is not here, for plans: it knows sizes. Operations have no entry in its tables, since
 * whoever plans asks for their workspaces alone, and gets no memory to call them with.
 */
#include "base/object.h"
#include "cuda/work_bytes.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct planned_dev {
    struct hst_dev base;
    struct hst_dev_planned planned;
    uint64_t budget_bytes;
};

static struct planned_dev *of(const struct hst_dev *dev)
{
    return (struct planned_dev *)(uintptr_t)dev;
}

static void close_it(struct hst_dev *dev)
{
    free(of(dev));
}

static int allocate(struct hst_dev *dev, size_t size_bytes, void **memory)
{
    (void)dev, (void)size_bytes, (void)memory;
    return -ENOTSUP;
}

static int allocate_host(struct hst_dev *dev, size_t size_bytes, const struct hst_host_pages *pages,
                         void **memory)
{
    (void)dev, (void)size_bytes, (void)pages, (void)memory;
    return -ENOTSUP;
}

static void release(struct hst_dev *dev, void *memory, size_t size_bytes)
{
    (void)dev, (void)memory, (void)size_bytes;
}

static int lock_pages(struct hst_dev *dev, void *memory, size_t size_bytes)
{
    (void)dev, (void)memory, (void)size_bytes;
    return -ENOTSUP;
}

static void tell_usage(const struct hst_dev *dev, struct hst_dev_usage *usage)
{
    (void)dev;
    *usage = (struct hst_dev_usage){0};
}

static int set_budget(struct hst_dev *dev, uint64_t memory_bytes, uint64_t host_bytes)
{
    (void)host_bytes;
    struct planned_dev *p = of(dev);
    p->budget_bytes = memory_bytes ? memory_bytes : p->planned.memory_bytes;
    return 0;
}

static void tell_info(struct hst_dev *dev, struct hst_dev_info *info)
{
    const struct hst_dev_planned *p = &of(dev)->planned;
    *info = (struct hst_dev_info){.numa_node = -1,
                                  .memory_total_bytes = p->memory_bytes,
                                  .memory_free_bytes = p->memory_bytes,
                                  .compute_major = p->compute_major};
}

static void tell_failure(struct hst_dev *dev, struct hst_dev_failure *failure)
{
    (void)dev;
    *failure = (struct hst_dev_failure){.why = HST_DEV_OK};
}

static void tell_math(struct hst_dev *dev, char *text, size_t text_bytes)
{
    (void)dev;
    snprintf(text, text_bytes, "a GPU that is planned");
}

/* ---- streams, on which nothing is ever queued ---- */

static int create_stream(struct hst_dev *dev, const char *name, struct hst_stream **stream)
{
    (void)name;
    *stream = malloc(sizeof **stream);
    if (!*stream)
        return -ENOMEM;
    (*stream)->dev = dev;
    return 0;
}

static void destroy_stream(struct hst_stream *stream)
{
    free(stream);
}

static int sync_stream(struct hst_stream *stream)
{
    (void)stream;
    return 0;
}

/* ---- workspaces ---- */

/* Own products, which the environment may ask for (cuda/matmul.h), have no workspace. */
static size_t products(struct hst_dev *dev, const struct hst_matmul *args)
{
    (void)args;
    const char *wish = getenv("HOISTWAY_MATMUL");
    if (wish && strcmp(wish, "own") == 0)
        return 0;
    const unsigned major = of(dev)->planned.compute_major;
    return work_products_bytes(major ? major : UINT_MAX) + WORK_PRODUCTS_ALIGNMENT_BYTES;
}

static size_t rmsnorm_backward(struct hst_dev *dev, size_t tokens, size_t width)
{
    (void)dev;
    return work_rmsnorm_backward_bytes(tokens, width);
}

static size_t bias_backward(struct hst_dev *dev, size_t tokens, size_t width)
{
    (void)dev;
    return work_bias_backward_bytes(tokens, width);
}

static size_t embedding_backward(struct hst_dev *dev, size_t tokens, size_t vocab)
{
    (void)dev, (void)vocab;
    return work_embedding_backward_bytes(tokens);
}

/* Own kernels serve some calls and cuDNN others, as the plugin has it: there is room for both. */
static size_t attention(struct hst_dev *dev, const struct hst_attention *args)
{
    const struct planned_dev *p = of(dev);
    size_t own = work_attention_bytes(args->batch, args->heads, args->seq), other = 0;
    if (args->dtype != HST_F32)
        other = work_cudnn_attention_bytes(args->batch, args->heads, args->kv_heads, args->seq,
                                           args->head_dim, p->budget_bytes);
    return own > other ? own : other;
}

/* ---- opening ---- */

static const struct hst_dev_ops planned_ops = {
    .size = sizeof(struct hst_dev_ops),
    .name = "cuda",
    .close = close_it,
    .mem_alloc = allocate,
    .mem_free = release,
    .host_alloc = allocate_host,
    .host_free = release,
    .host_lock = lock_pages,
    .host_unlock = lock_pages,
    .usage = tell_usage,
    .budget = set_budget,
    .info = tell_info,
    .failure = tell_failure,
    .math = tell_math,
    .stream_create = create_stream,
    .stream_destroy = destroy_stream,
    .stream_sync = sync_stream,
    .matmul_work_bytes = products,
    .rmsnorm_backward_work_bytes = rmsnorm_backward,
    .bias_backward_work_bytes = bias_backward,
    .embedding_backward_work_bytes = embedding_backward,
    .attention_work_bytes = attention,
};

int hst_dev_planned_open(const struct hst_dev_planned *planned, struct hst_dev **dev)
{
    if (!planned || !dev || !planned->memory_bytes)
        return -EINVAL;
    struct planned_dev *p = calloc(1, sizeof *p);
    if (!p)
        return -ENOMEM;
    p->base.ops = &planned_ops;
    p->planned = *planned;
    p->budget_bytes = planned->memory_bytes;
    *dev = &p->base;
    return 0;
}
