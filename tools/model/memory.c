/* SPDX-License-Identifier: Apache-2.0 */
/* Carves and fills the model's own memory: see memory.h. */
#include "model/memory.h"

#include "model/layer/rope.h"
#include "model/work.h"

#include <string.h>

/* Logits go through their room too, and cannot with less; no more than what it is rounded to. */
#define LOSSES_LEAST 64u

static size_t table_count(const struct llama *model)
{
    return (size_t)model->run.seq_len * (model->config.head_dim / 2);
}

size_t llama_memory_loss_count(const struct llama *model)
{
    const size_t tokens = (size_t)llama_part_tokens(model);
    return tokens > LOSSES_LEAST ? tokens : LOSSES_LEAST;
}

/* Base null: measures. Returns the bytes. */
static size_t carve(const struct llama *model, void *base, struct llama_memory *memory)
{
    struct work_area area = {.base = base};
    size_t tokens = (size_t)llama_part_tokens(model);
    memory->cos = work_take(&area, table_count(model), sizeof(float));
    memory->sin = work_take(&area, table_count(model), sizeof(float));
    memory->inputs = work_take(&area, tokens, sizeof(uint32_t));
    memory->targets = work_take(&area, tokens, sizeof(uint32_t));
    const bool documents = model->run.documents || model->run.evaluates_other;
    const size_t placed = documents ? tokens : 0;
    memory->first = work_take(&area, placed, sizeof(uint32_t));
    memory->position = work_take(&area, placed, sizeof(uint32_t));
    memory->losses = work_take(&area, llama_memory_loss_count(model), sizeof(float));
    return area.size_bytes;
}

int llama_memory_ask(struct llama *model, struct hst_engine *engine)
{
    size_t bytes = carve(model, NULL, &model->device);
    return hst_client_memory_set(engine, bytes, bytes);
}

int llama_memory_take(struct llama *model, struct hst_engine *engine)
{
    struct hst_client_memory memory;
    int rc = hst_client_memory(engine, &memory);
    if (rc)
        return rc;
    struct llama_memory device;
    carve(model, memory.device, &device);
    carve(model, memory.host, &model->host);
    rope_tables(&model->config.rope, model->config.head_dim, (size_t)model->run.seq_len,
                model->host.cos, model->host.sin);
    struct hst_stream *stream = hst_engine_stream(engine);
    size_t bytes = table_count(model) * sizeof(float);
    rc = hst_stream_copy(stream, device.cos, model->host.cos, bytes);
    rc = rc ? rc : hst_stream_copy(stream, device.sin, model->host.sin, bytes);
    if (rc == 0)
        model->device = device; /* now there: llama_step does not ask again */
    return rc;
}

int llama_memory_batch(struct llama *model, struct hst_stream *stream,
                       const struct llama_batch *batch)
{
    const struct llama_memory *host = &model->host;
    const size_t bytes = (size_t)llama_part_tokens(model) * sizeof(uint32_t);
    memcpy(host->inputs, batch->inputs, bytes);
    memcpy(host->targets, batch->targets, bytes);
    const uint32_t *last = host->targets;
    if (batch->first) {
        memcpy(host->first, batch->first, bytes);
        memcpy(host->position, batch->position, bytes);
        last = host->position;
    }
    const size_t all = (size_t)((const char *)last - (const char *)host->inputs) + bytes;
    return hst_stream_copy(stream, model->device.inputs, host->inputs, all);
}

int llama_memory_losses(struct llama *model, struct hst_stream *stream)
{
    size_t bytes = (size_t)llama_part_tokens(model) * sizeof(float);
    return hst_stream_copy(stream, model->host.losses, model->device.losses, bytes);
}
