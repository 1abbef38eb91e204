/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tells the engine what the model consists of: the embedding, the layers whole or in halves, the
 * final norm, the head. The workspace of a unit is found by running its own passes in measure mode.
 */
#include "model/layer/blocks.h"
#include "model/memory.h"

#include <errno.h>
#include <stdio.h>

static struct hst_param_desc param_of(const struct llama_tensor *t)
{
    return (struct hst_param_desc){
        .name = t->name,
        .dim_count = t->dim_count,
        .dims = {t->dims[0], t->dims[1]},
        .flags = t->dim_count >= 2 ? HST_PARAM_DECAY : 0,
    };
}

static struct pass measuring_pass(const struct llama *model, struct hst_engine *engine,
                                  const struct hst_param_view *no_data, size_t *measure)
{
    return (struct pass){
        .model = model,
        .device = hst_engine_device(engine),
        .dtype = model->dtype,
        .param = no_data,
        .rows = model->config.vocab,
        .tokens = (size_t)model->run.micro_batch_tokens,
        .sequences = (size_t)(model->run.micro_batch_tokens / model->run.seq_len),
        .measure = measure,
    };
}

static void measure_tokens(struct pass *p, const struct layer_work *layer, uint64_t tokens,
                           bool backward)
{
    if (tokens == 0)
        return;
    p->tokens = (size_t)tokens;
    p->sequences = (size_t)(tokens / p->model->run.seq_len);
    layer_forward(p, layer, NULL);
    if (backward)
        layer_backward(p, layer, NULL, NULL);
}

static void measure_windows(struct pass *p, const struct layer_work *layer, uint64_t tokens,
                            bool backward)
{
    uint32_t layers[2];
    llama_window_layers(p->model, layers);
    for (int windowed = 0; windowed < 2; windowed++) {
        p->window = windowed ? p->model->config.window : 0;
        if (layers[windowed])
            measure_tokens(p, layer, tokens, backward);
    }
}

/* Every number of tokens that a step has: the last of a way may be shorter, which needs no more,
 * but a library that prepares itself for a shape does so when it is first asked, and not in a step.
 * The same of evaluations, whose sequences may be others. */
static void measure_layer(struct pass *p, const struct layer_work *layer)
{
    static const uint32_t given[1]; /* for whether there is one: nothing reads it */
    const struct llama_run *run = &p->model->run;
    const uint64_t shorter = llama_way_tokens(p->model) % run->micro_batch_tokens;
    for (int evaluates = 0; evaluates <= run->evaluates_other; evaluates++) {
        const bool documents = run->documents != (evaluates == 1);
        p->first = documents ? given : NULL;
        p->position = documents ? given : NULL;
        measure_windows(p, layer, run->micro_batch_tokens, !evaluates);
        measure_windows(p, layer, shorter, !evaluates);
    }
}

static enum hst_dev_why trouble_of(struct hst_dev *dev)
{
    struct hst_dev_failure failure = {.why = HST_DEV_OK};
    hst_dev_failure(dev, &failure);
    return failure.why;
}

/* A library that fails while it is asked would be asked again within a step, for more memory than
 * was planned. Of what the device reported before nothing is made. */
static int measure_operations(struct llama *model, struct hst_engine *engine)
{
    struct hst_dev *dev = hst_engine_device(engine);
    const bool sound = trouble_of(dev) == HST_DEV_OK;
    const struct hst_param_view no_data[LAYER_PARAM_MAX] = {{0}};
    const struct layer_work layer = {0};
    const struct norm_work norm = {0};
    const struct head_work head = {0};
    struct pass p = measuring_pass(model, engine, no_data, &model->embedding_op_bytes);
    model->embedding_op_bytes = 0;
    embedding_backward(&p, NULL, NULL);
    p = measuring_pass(model, engine, no_data, &model->layer_op_bytes);
    model->layer_op_bytes = 0;
    measure_layer(&p, &layer);
    p = measuring_pass(model, engine, no_data, &model->norm_op_bytes);
    model->norm_op_bytes = 0;
    norm_forward(&p, &norm, NULL);
    norm_backward(&p, &norm, NULL, NULL);
    p = measuring_pass(model, engine, no_data, &model->head_op_bytes);
    model->head_op_bytes = 0;
    head_loss(&p, &head, &(struct head_io){0});
    const enum hst_dev_why why = trouble_of(dev);
    if (!sound || why == HST_DEV_OK)
        return 0;
    return hst_engine_device_failed(engine, why == HST_DEV_MEMORY ? -ENOMEM : -ENODEV,
                                    "preparing a layer's operations");
}

/* It is of a token; the checkpoint of a recomputable unit is the hidden state as it arrives. */
static uint64_t hidden_bytes(const struct llama *model)
{
    return (uint64_t)model->config.hidden * hst_dtype_bytes(model->dtype);
}

static int add_embedding(struct llama *model, struct hst_engine *engine, uint32_t *unit)
{
    struct work_area area = {0};
    struct embedding_work work;
    embedding_work_carve(model, &area, &work);
    struct hst_param_desc param = param_of(&model->tensors[0]);
    struct hst_unit_desc desc = {
        .name = "embedding",
        .params = &param,
        .param_count = 1,
        .work_bytes = area.size_bytes,
        .flags = HST_UNIT_BLIND_BACKWARD,
        .slices = {.block_rows = WEIGHT_BLOCK_ROWS, .work_bytes = area.size_bytes},
    };
    return hst_unit_add(engine, &desc, unit);
}

/* Tensors of a layer stay in one order, of which a half has some. */
static uint32_t params_of(const struct llama *model, const struct unit_place *at,
                          struct hst_param_desc params[LAYER_PARAM_MAX])
{
    const size_t first = 1 + at->layer * llama_layer_place(model, LAYER_PARAM_MAX);
    uint32_t count = 0;
    for (size_t i = 0; i < LAYER_PARAM_MAX; i++)
        if (llama_part_has(model, at->part, (enum layer_param)i))
            params[count++] =
                param_of(&model->tensors[first + llama_layer_place(model, (enum layer_param)i)]);
    return count;
}

static int add_layer(struct llama *model, struct hst_engine *engine, const struct unit_place *at,
                     uint32_t *unit)
{
    static const char *const parts[] = {
        [LAYER_WHOLE] = "", [LAYER_ATTENTION] = ".self_attn", [LAYER_MLP] = ".mlp"};
    struct work_area area = {0}, saved = {0};
    struct layer_work work;
    layer_work_carve(model, at->part, &area, &work);
    layer_saved_carve(model, at->part, &saved, &work);
    struct hst_param_desc params[LAYER_PARAM_MAX];
    char name[32];
    snprintf(name, sizeof name, "layers.%u%s", (unsigned)at->layer, parts[at->part]);
    struct hst_unit_desc desc = {
        .name = name,
        .params = params,
        .param_count = params_of(model, at, params),
        .flops_per_token = llama_part_flops(model, at->layer, at->part),
        .act_bytes_per_token = hidden_bytes(model),
        .work_bytes = area.size_bytes,
        .flags = HST_UNIT_RECOMPUTE | HST_UNIT_WRITES_GRADS,
        .saved_bytes = saved.size_bytes,
    };
    return hst_unit_add(engine, &desc, unit);
}

/* Its FLOPs are none beside a layer's. */
static int add_norm(struct llama *model, struct hst_engine *engine, uint32_t *unit)
{
    struct work_area area = {0};
    struct norm_work work;
    norm_work_carve(model, &area, &work);
    struct hst_param_desc param = param_of(&model->tensors[llama_norm_tensor(model)]);
    struct hst_unit_desc desc = {
        .name = "norm",
        .params = &param,
        .param_count = 1,
        .act_bytes_per_token = hidden_bytes(model),
        .work_bytes = area.size_bytes,
        .flags = HST_UNIT_RECOMPUTE | HST_UNIT_WRITES_GRADS,
    };
    return hst_unit_add(engine, &desc, unit);
}

static int add_head(struct llama *model, struct hst_engine *engine, uint32_t *unit)
{
    struct work_area area = {0}, slice = {0};
    struct head_work work;
    head_work_carve(model, &area, &work);
    head_slice_work_carve(model, &slice, &work);
    bool tied = model->config.tied_embeddings;
    struct hst_param_desc param =
        param_of(&model->tensors[tied ? 0 : llama_norm_tensor(model) + 1]);
    if (tied) {
        param.name = "lm_head.weight";
        param.alias_of = model->tensors[0].name;
    }
    struct hst_unit_desc desc = {
        .name = "head",
        .params = &param,
        .param_count = 1,
        .flops_per_token = llama_head_flops(model),
        .work_bytes = area.size_bytes,
        .flags = HST_UNIT_NO_FORWARD | HST_UNIT_WRITES_GRADS,
        .slices = {.block_rows = WEIGHT_BLOCK_ROWS,
                   .work_bytes = slice.size_bytes,
                   .token_bytes = head_kept_bytes(model)},
    };
    return hst_unit_add(engine, &desc, unit);
}

int llama_add_units(struct llama *model, struct hst_engine *engine)
{
    model->dtype = hst_engine_dtype(engine);
    int rc = measure_operations(model, engine);
    if (rc)
        return rc;
    rc = hst_hidden_set(engine, hidden_bytes(model));
    if (rc == 0)
        rc = llama_memory_ask(model, engine);
    if (rc == 0)
        rc = add_embedding(model, engine, &model->first_unit);
    uint32_t unit = model->first_unit;
    struct unit_place at = {.kind = UNIT_LAYER};
    for (uint32_t i = 1; rc == 0 && (at = llama_unit_place(model, i)).kind == UNIT_LAYER; i++)
        rc = add_layer(model, engine, &at, &unit);
    if (rc == 0)
        rc = add_norm(model, engine, &unit);
    if (rc == 0)
        rc = add_head(model, engine, &unit);
    /* Units of another client in between would break the arithmetic on indices. */
    if (rc == 0 && unit + 1 != model->first_unit + llama_unit_count(model))
        rc = -EINVAL;
    return rc;
}
