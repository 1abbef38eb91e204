/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Divides work areas. Two buffers share bytes only where the file that uses them is done with the
 * first: the MLP's gradients are complete before the attention's begin.
 */
#include "model/work.h"

#include "model/layer/linear.h"

#define ALIGNMENT_BYTES 256u

void *work_take(struct work_area *area, size_t count, size_t element_bytes)
{
    if (count == 0)
        return NULL;
    size_t at = area->used_bytes;
    size_t bytes =
        (count * element_bytes + ALIGNMENT_BYTES - 1) / ALIGNMENT_BYTES * ALIGNMENT_BYTES;
    area->used_bytes += bytes;
    if (area->used_bytes > area->size_bytes)
        area->size_bytes = area->used_bytes;
    return area->base ? area->base + at : NULL;
}

void embedding_work_carve(const struct llama *model, struct work_area *area,
                          struct embedding_work *work)
{
    work->op.size_bytes = model->embedding_op_bytes;
    work->op.data = work_take(area, model->embedding_op_bytes, 1);
}

static size_t greater(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* A micro-batch's, as far as a part of a layer has the attention or the MLP; else 0, of which
 * work_take takes nothing. */
static size_t attention_tokens(const struct llama *model, enum layer_part part)
{
    return part == LAYER_MLP ? 0 : model->run.micro_batch_tokens;
}

static size_t mlp_tokens(const struct llama *model, enum layer_part part)
{
    return part == LAYER_ATTENTION ? 0 : model->run.micro_batch_tokens;
}

/* It takes what GEMMs and attention give, but for the MLP's. */
static void take_attention(const struct llama *model, enum layer_part part, struct work_area *area,
                           struct layer_work *work)
{
    size_t tokens = attention_tokens(model, part), element = hst_dtype_bytes(model->dtype);
    work->lse = work_take(area, tokens * model->config.heads, sizeof(float));
    work->q_made = work_take(area, tokens * model->q_width, element);
    work->k_made = work_take(area, tokens * model->kv_width, element);
    work->v = work_take(area, tokens * model->kv_width, element);
    work->o = work_take(area, tokens * model->q_width, element);
    work->x1 = work_take(area, part == LAYER_WHOLE ? tokens * model->config.hidden : 0, element);
    if (!model->config.qk_norm) {
        work->q = work->q_made;
        work->k = work->k_made;
    }
}

static void take_normed_heads(const struct llama *model, enum layer_part part,
                              struct work_area *area, struct layer_work *work)
{
    const struct llama_config *c = &model->config;
    size_t tokens = attention_tokens(model, part), element = hst_dtype_bytes(model->dtype);
    work->rstd_q = work->rstd_k = NULL;
    if (!c->qk_norm)
        return;
    work->q = work_take(area, tokens * model->q_width, element);
    work->k = work_take(area, tokens * model->kv_width, element);
    work->rstd_q = work_take(area, tokens * c->heads, sizeof(float));
    work->rstd_k = work_take(area, tokens * c->kv_heads, sizeof(float));
}

static void take_mlp(const struct llama *model, enum layer_part part, struct work_area *area,
                     struct layer_work *work)
{
    size_t count = mlp_tokens(model, part) * model->config.intermediate;
    work->gate = work_take(area, count, hst_dtype_bytes(model->dtype));
    work->up = work_take(area, count, hst_dtype_bytes(model->dtype));
}

/* Operations have as much workspace in a half as in a whole layer: a library may choose by it how
 * it computes. */
void layer_work_carve(const struct llama *model, enum layer_part part, struct work_area *area,
                      struct layer_work *work)
{
    const struct llama_config *c = &model->config;
    size_t tokens = model->run.micro_batch_tokens, h = c->hidden, f = c->intermediate;
    size_t attention = attention_tokens(model, part), mlp = mlp_tokens(model, part);
    size_t element = hst_dtype_bytes(model->dtype);
    work->rstd1 = work_take(area, attention, sizeof(float));
    work->rstd2 = work_take(area, mlp, sizeof(float));
    work->n1 = work_take(area, attention * h, element);
    work->n2 = work_take(area, mlp * h, element);
    take_normed_heads(model, part, area, work);
    take_attention(model, part, area, work);
    size_t down = linear_sum_count(mlp, (struct linear){h, f}, model->dtype);
    size_t out = linear_sum_count(attention, (struct linear){h, model->q_width}, model->dtype);
    work->sum = work_take(area, greater(tokens * h, greater(down, out)), sizeof(float));
    work->dn = model->dtype == HST_F32 ? work->sum : work_take(area, tokens * h, element);
    work->op.size_bytes = model->layer_op_bytes;
    work->op.data = work_take(area, model->layer_op_bytes, 1);
    work->saved = false;

    size_t shared = area->used_bytes;
    take_mlp(model, part, area, work);
    work->act = work_take(area, mlp * f, element);
    area->used_bytes = shared;
    work->dout = work_take(area, attention * model->q_width, element);
    work->dq = work_take(area, attention * model->q_width, element);
    work->dk = work_take(area, attention * model->kv_width, element);
    work->dv = work_take(area, attention * model->kv_width, element);
}

void layer_saved_carve(const struct llama *model, enum layer_part part, struct work_area *area,
                       struct layer_work *work)
{
    work->saved = true;
    take_attention(model, part, area, work);
    take_mlp(model, part, area, work);
}

void norm_work_carve(const struct llama *model, struct work_area *area, struct norm_work *work)
{
    size_t tokens = model->run.micro_batch_tokens, h = model->config.hidden;
    work->rstd = work_take(area, tokens, sizeof *work->rstd);
    work->y = work_take(area, tokens * h, hst_dtype_bytes(model->dtype));
    work->op.size_bytes = model->norm_op_bytes;
    work->op.data = work_take(area, model->norm_op_bytes, 1);
}

static size_t chunk_tokens(const struct llama *model)
{
    size_t tokens = model->run.micro_batch_tokens;
    return tokens < LOGIT_CHUNK_TOKENS ? tokens : LOGIT_CHUNK_TOKENS;
}

/* f32[tokens, h], where one is needed. */
static size_t head_sum_count(const struct llama *model, size_t tokens)
{
    struct linear l = {model->config.vocab, model->config.hidden};
    return linear_sum_count(tokens, l, model->dtype);
}

void head_work_carve(const struct llama *model, struct work_area *area, struct head_work *work)
{
    size_t chunk = chunk_tokens(model), element = hst_dtype_bytes(model->dtype);
    work->logits = work_take(area, chunk * model->config.vocab, element);
    work->state = work_take(area, chunk * HEAD_STATE, sizeof *work->state);
    work->sum = work_take(area, head_sum_count(model, chunk), sizeof *work->sum);
    work->op.size_bytes = model->head_op_bytes;
    work->op.data = work_take(area, model->head_op_bytes, 1);
}

void head_slice_work_carve(const struct llama *model, struct work_area *area,
                           struct head_work *work)
{
    size_t rows = model->config.vocab;
    rows = rows < WEIGHT_BLOCK_ROWS ? rows : WEIGHT_BLOCK_ROWS;
    work->logits = work_take(area, chunk_tokens(model) * rows, hst_dtype_bytes(model->dtype));
    work->op.size_bytes = model->head_op_bytes;
    work->op.data = work_take(area, model->head_op_bytes, 1);
}

size_t head_kept_bytes(const struct llama *model)
{
    return (head_sum_count(model, 1) + HEAD_STATE) * sizeof(float);
}

/* The sums of all tokens, then their states: the former are aligned as tensors are. */
void head_kept_carve(const struct llama *model, struct hst_work kept, size_t first_token,
                     struct head_work *work)
{
    float *base = kept.data;
    size_t sums = head_sum_count(model, llama_part_tokens(model));
    work->sum = sums ? base + head_sum_count(model, first_token) : NULL;
    work->state = base + sums + first_token * HEAD_STATE;
}
