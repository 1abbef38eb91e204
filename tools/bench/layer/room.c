/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operands of a layer and of the head, carved as the model's units are (model/step.c), and
 * numbers in them: small ones of both signs, because a card draws less power over zeros, and
 * because sums over any width then stay finite in f16.
 */
#include "bench/layer/room.h"

#include <errno.h>

/* The numbers are from 2^-6 to less than 2^-3. */
#define EXPONENT_LEAST (-6)
#define EXPONENTS      3u

static uint16_t half_of(uint32_t random, enum hst_dtype dtype)
{
    const uint32_t sign = random >> 31 << 15, which = (random >> 24) % EXPONENTS;
    if (dtype == HST_F16)
        return (uint16_t)(sign | (uint32_t)(15 + EXPONENT_LEAST + (int)which) << 10 |
                          (random >> 8 & 0x3ff));
    return (uint16_t)(sign | (uint32_t)(127 + EXPONENT_LEAST + (int)which) << 7 |
                      (random >> 8 & 0x7f)); /* two of them are such a number in f32, too */
}

int layer_fill(struct hst_dev *dev, struct hst_stream *stream, void *memory, size_t bytes,
               enum hst_dtype dtype)
{
    uint16_t *staging = NULL;
    uint32_t random = 1;
    int rc = hst_dev_host_alloc(dev, BENCH_STAGING_BYTES, (void **)&staging);
    if (rc)
        return rc;
    for (size_t i = 0; i < BENCH_STAGING_BYTES / sizeof *staging; i++) {
        random = random * 1664525u + 1013904223u;
        staging[i] = half_of(random, dtype);
    }
    rc = bench_spread(stream, memory, bytes, staging);
    hst_dev_host_free(dev, staging, BENCH_STAGING_BYTES);
    return rc;
}

struct pass layer_room_pass(const struct layer_room *room, struct hst_stream *stream)
{
    const struct llama *m = room->model;
    return (struct pass){.model = m,
                         .device = room->dev,
                         .stream = stream,
                         .dtype = m->dtype,
                         .param = room->param,
                         .rows = m->config.vocab,
                         .tokens = (size_t)m->run.micro_batch_tokens,
                         .sequences = (size_t)(m->run.micro_batch_tokens / m->run.seq_len)};
}

/* Workspaces, found as the model itself finds them: by passes that enqueue nothing. */
static void measure(struct layer_room *r)
{
    struct llama *m = r->model;
    struct pass p = layer_room_pass(r, r->stream);
    if (!r->head) {
        p.measure = &m->layer_op_bytes;
        layer_forward(&p, &r->layer, NULL);
        layer_backward(&p, &r->layer, NULL, NULL);
        return;
    }
    p.measure = &m->norm_op_bytes;
    norm_forward(&p, &r->norm, NULL);
    norm_backward(&p, &r->norm, NULL, NULL);
    p.measure = &m->head_op_bytes;
    head_loss(&p, &r->of_head, &r->io);
}

static struct hst_param_view take_param(const struct llama *m, struct work_area *area,
                                        size_t tensor)
{
    /* a tied head is the embedding's matrix */
    const struct llama_tensor *t = llama_tensor(m, tensor);
    size_t count = (size_t)(t ? t : llama_tensor(m, 0))->count;
    return (struct hst_param_view){.data = work_take(area, count, hst_dtype_bytes(m->dtype)),
                                   .grad = work_take(area, count, sizeof(float))};
}

static void carve_layer(struct layer_room *r, struct work_area *area)
{
    struct llama *m = r->model;
    size_t angles = (size_t)m->run.seq_len * m->config.head_dim / 2;
    m->device.cos = work_take(area, angles, sizeof(float));
    m->device.sin = work_take(area, angles, sizeof(float));
    for (size_t i = 0; i < llama_layer_place(m, LAYER_PARAM_MAX); i++)
        r->param[i] = take_param(m, area, 1 + i);
    layer_work_carve(m, LAYER_WHOLE, area, &r->layer);
}

static void carve_head(struct layer_room *r, struct work_area *area)
{
    const struct llama *m = r->model;
    size_t tokens = (size_t)m->run.micro_batch_tokens, norm = llama_norm_tensor(m);
    for (size_t i = 0; i < 2; i++)
        r->param[i] = take_param(m, area, norm + i);
    r->targets = work_take(area, tokens, sizeof *r->targets);
    r->io = (struct head_io){.targets = r->targets, .grad_scale = 1 / (float)tokens};
    r->io.losses = work_take(area, tokens, sizeof(float));
    norm_work_carve(m, area, &r->norm);
    head_work_carve(m, area, &r->of_head);
}

/* Base null: measures. Returns the bytes. */
static size_t carve(struct layer_room *r, void *base)
{
    struct work_area area = {.base = base};
    const struct llama *m = r->model;
    size_t count = (size_t)m->run.micro_batch_tokens * m->config.hidden;
    void **const streams[] = {&r->x0, &r->dx0, &r->x, &r->dx};
    for (size_t i = 0; i < sizeof streams / sizeof *streams; i++)
        *streams[i] = work_take(&area, count, hst_dtype_bytes(m->dtype));
    if (r->head)
        carve_head(r, &area);
    else
        carve_layer(r, &area);
    r->io.n = r->x;
    r->io.dn = r->dx;
    return area.size_bytes;
}

/* Angles are f32, whatever the rest is; ids are of the vocabulary. */
static int fill(struct layer_room *r)
{
    const struct llama *m = r->model;
    size_t angles = (size_t)m->run.seq_len * m->config.head_dim / 2 * sizeof(float);
    int rc = layer_fill(r->dev, r->stream, r->memory, r->memory_bytes, m->dtype);
    if (r->head)
        return rc ? rc : hst_stream_zero(r->stream, r->targets, m->run.micro_batch_tokens * 4);
    rc = rc ? rc : layer_fill(r->dev, r->stream, m->device.cos, angles, HST_F32);
    return rc ? rc : layer_fill(r->dev, r->stream, m->device.sin, angles, HST_F32);
}

int layer_room_open(struct layer_room *room, const struct bench_layer_in *in, uint64_t seq,
                    struct hst_error *error)
{
    struct llama_config config = in->config;
    config.layers = 1;
    int rc = llama_create(&config,
                          &(struct llama_run){.seq_len = seq,
                                              .batch_tokens = in->tokens,
                                              .micro_batch_tokens = in->tokens},
                          &room->model, error);
    if (rc)
        return rc;
    room->model->dtype = in->dtype;
    measure(room);
    room->memory_bytes = carve(room, NULL);
    rc = hst_dev_mem_alloc(room->dev, room->memory_bytes, &room->memory);
    if (rc)
        return bench_device_failed(room->dev, rc, "making a layer", error);
    carve(room, room->memory);
    rc = fill(room);
    return rc ? bench_device_failed(room->dev, rc, "filling a layer", error) : 0;
}

void layer_room_close(struct layer_room *room)
{
    if (room->memory)
        hst_dev_mem_free(room->dev, room->memory, room->memory_bytes);
    llama_destroy(&room->model);
}

int layer_room_restore(const struct layer_room *room)
{
    const struct llama *m = room->model;
    size_t bytes = (size_t)m->run.micro_batch_tokens * m->config.hidden * hst_dtype_bytes(m->dtype);
    int rc = hst_stream_copy(room->stream, room->x, room->x0, bytes);
    return rc ? rc : hst_stream_copy(room->stream, room->dx, room->dx0, bytes);
}
