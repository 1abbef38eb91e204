/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This file measures what launching a layer costs: the model's own forward and backward again and
 * again, with so few tokens and so narrow that computing is nothing beside it. That is the host's
 * time to enqueue the operations or the device's to begin them, whichever is longer. The MLP is as
 * wide as the others' of this run, so that its weights come in as many blocks of rows.
 *
 * Beside it: from how many tokens on computing the full layer takes longer, were all of it as fast
 * as the large product. It is not, so that computing takes longer from fewer tokens on.
 */
#include "bench/ground.h"
#include "model/layer/blocks.h"

#include <stdio.h>

#define TOKENS 16u
#define HIDDEN 8u /* 16 bytes: rows stay aligned */

struct launches {
    struct ground *g;
    struct llama *model, *full; /* the layer that is launched; the one that is counted */
    struct hst_param_view param[LAYER_PARAM_MAX];
    struct layer_work work;
    void *x, *dx, *memory;
    size_t memory_bytes;
};

static struct pass pass_of(const struct launches *l)
{
    return (struct pass){.model = l->model,
                         .device = l->g->dev,
                         .stream = l->g->stream,
                         .dtype = l->model->dtype,
                         .param = l->param,
                         .tokens = TOKENS,
                         .sequences = 1,
                         .op_work = l->work.op};
}

static int forward(void *arg)
{
    struct launches *l = arg;
    struct pass p = pass_of(l);
    layer_forward(&p, &l->work, l->x);
    return p.rc;
}

static int backward(void *arg)
{
    struct launches *l = arg;
    struct pass p = pass_of(l);
    layer_backward(&p, &l->work, l->x, l->dx);
    return p.rc;
}

static int describe(struct launches *l)
{
    const struct ground_sizes *s = &l->g->sizes;
    struct llama_config config = {.hidden = (uint32_t)s->hidden,
                                  .intermediate = (uint32_t)s->inner,
                                  .layers = 1,
                                  .heads = (uint32_t)s->heads,
                                  .kv_heads = (uint32_t)s->kv_heads,
                                  .head_dim = (uint32_t)s->head_dim,
                                  .vocab = 1,
                                  .max_positions = (uint32_t)s->seq,
                                  .rms_norm_eps = 1e-5};
    int rc =
        llama_create(&config,
                     &(struct llama_run){
                         .seq_len = s->seq, .batch_tokens = s->seq, .micro_batch_tokens = s->seq},
                     &l->full, l->g->error);
    config.hidden = HIDDEN;
    config.heads /= config.kv_heads;
    config.kv_heads = 1;
    rc = rc ? rc
            : llama_create(&config,
                           &(struct llama_run){.seq_len = TOKENS,
                                               .batch_tokens = TOKENS,
                                               .micro_batch_tokens = TOKENS},
                           &l->model, l->g->error);
    if (rc)
        return rc;
    l->model->dtype = HST_BF16;
    struct pass p = pass_of(l);
    p.measure = &l->model->layer_op_bytes;
    layer_forward(&p, &l->work, NULL);
    layer_backward(&p, &l->work, NULL, NULL);
    return 0;
}

/* Base null: measures. Returns the bytes. */
static size_t carve(struct launches *l, void *base)
{
    struct work_area area = {.base = base};
    struct llama *m = l->model;
    size_t angles = TOKENS * (size_t)m->config.head_dim / 2;
    for (size_t i = 0; i < llama_layer_place(m, LAYER_PARAM_MAX); i++) {
        size_t count = llama_tensor(m, 1 + i)->count;
        l->param[i].data = work_take(&area, count, hst_dtype_bytes(m->dtype));
        l->param[i].grad = work_take(&area, count, sizeof(float));
    }
    m->device.cos = work_take(&area, angles, sizeof(float));
    m->device.sin = work_take(&area, angles, sizeof(float));
    l->x = work_take(&area, (size_t)TOKENS * HIDDEN, hst_dtype_bytes(m->dtype));
    l->dx = work_take(&area, (size_t)TOKENS * HIDDEN, hst_dtype_bytes(m->dtype));
    layer_work_carve(m, LAYER_WHOLE, &area, &l->work);
    return area.size_bytes;
}

/* Zeros compute to zeros: nothing has to be filled, and calls may follow each other for ever. */
static int take_memory(struct launches *l)
{
    l->memory_bytes = carve(l, NULL);
    int rc = hst_dev_mem_alloc(l->g->dev, l->memory_bytes, &l->memory);
    if (rc)
        return bench_device_failed(l->g->dev, rc, "making a layer", l->g->error);
    carve(l, l->memory);
    return 0;
}

static int tell(struct launches *l, const char *what, int (*enqueue)(void *arg), double flops)
{
    const struct ground *g = l->g;
    struct bench_figure figure = {.group = "launches", .name = what, .unit = "s"};
    struct bench_timing timing;
    int rc = ground_time(l->g, &figure, enqueue, l, &timing);
    if (rc || figure.note)
        return rc;
    figure.value = timing.median_s;
    figure.least = timing.least_s;
    figure.most = timing.most_s;
    g->teller->tell(g->teller->context, &figure);
    char name[96];
    snprintf(name, sizeof name, "%s %zux%zu computes longer from", what, g->sizes.hidden,
             g->sizes.inner);
    double per_s = g->gemm_flops_per_s / flops; /* tokens */
    struct bench_figure tokens = {.group = figure.group,
                                  .name = name,
                                  .value = per_s * figure.value,
                                  .least = per_s * figure.least,
                                  .most = per_s * figure.most,
                                  .unit = "tokens",
                                  .note = per_s > 0 ? NULL : "the large product has no rate"};
    g->teller->tell(g->teller->context, &tokens);
    return 0;
}

int ground_launches(struct ground *g)
{
    struct launches l = {.g = g};
    int rc = describe(&l);
    rc = rc ? rc : take_memory(&l);
    double flops = rc ? 0 : (double)llama_layer_flops(l.full, 0);
    rc = rc ? rc : tell(&l, "layer forward", forward, flops);
    /* without what it computes again, as everywhere */
    rc = rc ? rc : tell(&l, "layer backward", backward, 2 * flops);
    if (l.memory)
        hst_dev_mem_free(g->dev, l.memory, l.memory_bytes);
    llama_destroy(&l.model);
    llama_destroy(&l.full);
    return rc;
}
