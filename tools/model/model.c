/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Describes a Llama: its tensors in the order of its units, its sizes, its constants. Everything
 * that can overflow is bounded here once, so that no later product needs a check.
 */
#include "model/model.h"

#include "base/fail.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* A tensor of the engine has at most 2^40 elements; no buffer of a micro-batch is allowed to have
 * more. Twenty such buffers of 4 bytes stay far below 2^63. */
#define MAX_ELEMENTS (UINT64_C(1) << 40)

uint64_t llama_micro_batch_tokens(uint64_t wish, uint64_t seq_len, uint64_t way_tokens)
{
    uint64_t sequences = wish / seq_len;
    uint64_t most = way_tokens / seq_len;
    if (sequences > most)
        sequences = most;
    return seq_len * (sequences ? sequences : 1);
}

static uint64_t part_of(uint64_t tokens, uint32_t parts)
{
    return parts ? tokens / parts : tokens;
}

/* All ways have whole sequences, as many as each other, and no less than a micro-batch has. */
static bool batch_divides(const struct llama_run *r)
{
    const uint64_t way = part_of(r->batch_tokens, r->ways);
    return r->seq_len > 0 && r->micro_batch_tokens > 0 && way > 0 &&
           (r->ways == 0 || r->batch_tokens % r->ways == 0) && way % r->seq_len == 0 &&
           r->micro_batch_tokens % r->seq_len == 0 && r->micro_batch_tokens <= way;
}

static bool exceeds(uint64_t a, uint64_t b, uint64_t limit)
{
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) || product > limit;
}

static int check_config(const struct llama_config *c, struct hst_error *error)
{
    if (!c->hidden || !c->intermediate || !c->layers || !c->heads || !c->kv_heads || !c->vocab)
        return fail(error, FAIL_CONFIG_VALUE, -EINVAL, "config.json: a size of the model is 0");
    if (c->heads % c->kv_heads != 0)
        return fail(error, FAIL_CONFIG_VALUE, -EINVAL,
                    "config.json: num_key_value_heads %" PRIu32
                    " does not divide num_attention_heads %" PRIu32,
                    c->kv_heads, c->heads);
    if (c->head_dim == 0 || c->head_dim % 2 != 0)
        return fail(error, FAIL_CONFIG_VALUE, -EINVAL,
                    "config.json: head_dim %" PRIu32
                    " is not even, rotary position embeddings turn pairs",
                    c->head_dim);
    if (c->layers > LLAMA_MOST_LAYERS)
        return fail(error, FAIL_CONFIG_VALUE, -EINVAL,
                    "config.json: num_hidden_layers %" PRIu32 " is more than %u", c->layers,
                    LLAMA_MOST_LAYERS);
    uint64_t q_width = (uint64_t)c->heads * c->head_dim;
    if (exceeds(c->vocab, c->hidden, MAX_ELEMENTS) || exceeds(q_width, c->hidden, MAX_ELEMENTS) ||
        exceeds(c->intermediate, c->hidden, MAX_ELEMENTS))
        return fail(error, FAIL_CONFIG_VALUE, -EOVERFLOW,
                    "config.json: a tensor would have more than 2^40 elements");
    return 0;
}

static int check_run(const struct llama_config *c, const struct llama_run *r,
                     struct hst_error *error)
{
    if (!batch_divides(r))
        return fail(error, FAIL_VALUE, -EINVAL,
                    "--batch-tokens %" PRIu64 " in each of %" PRIu32
                    " ways, and the micro-batch of %" PRIu64
                    " tokens, must be multiples of --seq-len %" PRIu64
                    ". Fix: --batch-tokens, --ways and --grain that are.",
                    r->batch_tokens, r->ways ? r->ways : 1, r->micro_batch_tokens, r->seq_len);
    if (r->seq_len > c->max_positions)
        return fail(error, FAIL_VALUE, -EINVAL,
                    "--seq-len %" PRIu64 " is beyond the model's max_position_embeddings %" PRIu32
                    ". Fix: --seq-len %" PRIu32 " or less.",
                    r->seq_len, c->max_positions, c->max_positions);
    uint64_t width = (uint64_t)c->heads * c->head_dim;
    if (width < c->hidden)
        width = c->hidden;
    if (width < c->intermediate)
        width = c->intermediate;
    if (exceeds(r->micro_batch_tokens, width, MAX_ELEMENTS) ||
        exceeds(LOGIT_CHUNK_TOKENS, c->vocab, MAX_ELEMENTS) ||
        exceeds(r->seq_len, c->head_dim, MAX_ELEMENTS) || r->batch_tokens > MAX_ELEMENTS)
        return fail(error, FAIL_VALUE, -EOVERFLOW,
                    "a micro-batch of %" PRIu64 " tokens of a model %" PRIu64
                    " wide is more than 2^40 elements. Fix: a smaller --grain or --seq-len.",
                    r->micro_batch_tokens, width);
    return 0;
}

/* A vector where `columns` is 0. */
static void set_tensor(struct llama *m, size_t i, uint64_t rows, uint64_t columns)
{
    struct llama_tensor *t = &m->tensors[i];
    *t = (struct llama_tensor){
        .name = m->names[i].text,
        .dim_count = columns ? 2 : 1,
        .dims = {rows, columns},
        .count = columns ? rows * columns : rows,
    };
}

static const char *const layer_names[LAYER_PARAM_MAX] = {
    [LAYER_INPUT_NORM] = "input_layernorm.weight",
    [LAYER_Q] = "self_attn.q_proj.weight",
    [LAYER_K] = "self_attn.k_proj.weight",
    [LAYER_V] = "self_attn.v_proj.weight",
    [LAYER_O] = "self_attn.o_proj.weight",
    [LAYER_POST_NORM] = "post_attention_layernorm.weight",
    [LAYER_GATE] = "mlp.gate_proj.weight",
    [LAYER_UP] = "mlp.up_proj.weight",
    [LAYER_DOWN] = "mlp.down_proj.weight",
    [LAYER_Q_NORM] = "self_attn.q_norm.weight",
    [LAYER_K_NORM] = "self_attn.k_norm.weight",
    [LAYER_Q_BIAS] = "self_attn.q_proj.bias",
    [LAYER_K_BIAS] = "self_attn.k_proj.bias",
    [LAYER_V_BIAS] = "self_attn.v_proj.bias",
};

static bool layer_has(const struct llama *model, size_t param)
{
    return param < LAYER_Q_NORM ||
           (param < LAYER_Q_BIAS ? model->config.qk_norm : model->config.qkv_bias);
}

bool llama_part_has(const struct llama *model, enum layer_part part, enum layer_param param)
{
    const bool mlp = param >= LAYER_POST_NORM && param <= LAYER_DOWN;
    return layer_has(model, param) && (part == LAYER_WHOLE || (part == LAYER_MLP ? mlp : !mlp));
}

size_t llama_part_place(const struct llama *model, enum layer_part part, enum layer_param param)
{
    size_t place = 0;
    for (size_t i = 0; i < (size_t)param; i++)
        place += llama_part_has(model, part, (enum layer_param)i);
    return place;
}

size_t llama_layer_place(const struct llama *model, enum layer_param param)
{
    return llama_part_place(model, LAYER_WHOLE, param);
}

uint32_t llama_layer_units(const struct llama *model)
{
    return model->run.halves ? 2 : 1;
}

uint32_t llama_unit_count(const struct llama *model)
{
    return model->config.layers * llama_layer_units(model) + 3;
}

struct unit_place llama_unit_place(const struct llama *model, uint32_t index)
{
    const uint32_t each = llama_layer_units(model), count = llama_unit_count(model);
    if (index == 0)
        return (struct unit_place){.kind = UNIT_EMBEDDING};
    if (index + 2 >= count)
        return (struct unit_place){.kind = index + 2 == count ? UNIT_NORM : UNIT_HEAD};
    const uint32_t at = index - 1;
    return (struct unit_place){.kind = UNIT_LAYER,
                               .layer = at / each,
                               .part = each == 1        ? LAYER_WHOLE
                                       : at % each == 0 ? LAYER_ATTENTION
                                                        : LAYER_MLP};
}

static void describe_layer(struct llama *m, uint32_t layer)
{
    uint64_t h = m->config.hidden, f = m->config.intermediate, d = m->config.head_dim;
    uint64_t q = m->q_width, kv = m->kv_width;
    const uint64_t dims[LAYER_PARAM_MAX][2] = {
        [LAYER_INPUT_NORM] = {h}, [LAYER_Q] = {q, h},    [LAYER_K] = {kv, h},
        [LAYER_V] = {kv, h},      [LAYER_O] = {h, q},    [LAYER_POST_NORM] = {h},
        [LAYER_GATE] = {f, h},    [LAYER_UP] = {f, h},   [LAYER_DOWN] = {h, f},
        [LAYER_Q_NORM] = {d},     [LAYER_K_NORM] = {d},  [LAYER_Q_BIAS] = {q},
        [LAYER_K_BIAS] = {kv},    [LAYER_V_BIAS] = {kv},
    };
    size_t at = 1 + layer * llama_layer_place(m, LAYER_PARAM_MAX);
    for (size_t i = 0; i < LAYER_PARAM_MAX; i++) {
        if (!layer_has(m, i))
            continue;
        snprintf(m->names[at].text, sizeof m->names[0].text, "model.layers.%" PRIu32 ".%s", layer,
                 layer_names[i]);
        set_tensor(m, at++, dims[i][0], dims[i][1]);
    }
}

size_t llama_norm_tensor(const struct llama *model)
{
    return 1 + model->config.layers * llama_layer_place(model, LAYER_PARAM_MAX);
}

static void describe(struct llama *m)
{
    uint64_t h = m->config.hidden, vocab = m->config.vocab;
    size_t norm = llama_norm_tensor(m);
    m->names[0] = (struct tensor_name){"model.embed_tokens.weight"};
    set_tensor(m, 0, vocab, h);
    for (uint32_t i = 0; i < m->config.layers; i++)
        describe_layer(m, i);
    m->names[norm] = (struct tensor_name){"model.norm.weight"};
    set_tensor(m, norm, h, 0);
    if (m->config.tied_embeddings)
        return;
    m->names[norm + 1] = (struct tensor_name){"lm_head.weight"};
    set_tensor(m, norm + 1, vocab, h);
}

int llama_create(const struct llama_config *config, const struct llama_run *run,
                 struct llama **model, struct hst_error *error)
{
    int rc = check_config(config, error);
    if (rc == 0)
        rc = check_run(config, run, error);
    if (rc < 0)
        return rc;
    struct llama *m = calloc(1, sizeof *m);
    if (!m)
        return fail(error, FAIL_CONFIG_VALUE, -ENOMEM, "out of memory");
    m->config = *config;
    m->run = *run;
    m->q_width = (size_t)config->heads * config->head_dim;
    m->kv_width = (size_t)config->kv_heads * config->head_dim;
    m->tensor_count = llama_norm_tensor(m) + (config->tied_embeddings ? 1 : 2);
    m->tensors = calloc(m->tensor_count, sizeof *m->tensors);
    m->names = calloc(m->tensor_count, sizeof *m->names);
    if (!m->tensors || !m->names) {
        llama_destroy(&m);
        return fail(error, FAIL_CONFIG_VALUE, -ENOMEM,
                    "out of memory for the description of the model (%" PRIu32 " layers)",
                    config->layers);
    }
    describe(m);
    *model = m;
    return 0;
}

void llama_destroy(struct llama **model)
{
    struct llama *m = *model;
    if (!m)
        return;
    free(m->tensors);
    free(m->names);
    free(m);
    *model = NULL;
}

const struct llama_tensor *llama_tensor(const struct llama *model, size_t i)
{
    return i < model->tensor_count ? &model->tensors[i] : NULL;
}

const struct llama_config *llama_model_config(const struct llama *model)
{
    return &model->config;
}

uint64_t llama_part_tokens(const struct llama *model)
{
    return part_of(model->run.batch_tokens, model->run.ranks);
}

uint64_t llama_way_tokens(const struct llama *model)
{
    return part_of(model->run.batch_tokens, model->run.ways);
}

uint64_t llama_parameter_count(const struct llama *model)
{
    uint64_t count = 0;
    for (size_t i = 0; i < model->tensor_count; i++)
        count += model->tensors[i].count;
    return count;
}

size_t llama_layer_window(const struct llama *model, uint32_t layer)
{
    const uint32_t window = llama_config_window(&model->config, layer);
    return window < model->run.seq_len ? window : 0;
}

void llama_window_layers(const struct llama *model, uint32_t layers[2])
{
    layers[0] = layers[1] = 0;
    for (uint32_t layer = 0; layer < model->config.layers; layer++)
        layers[llama_layer_window(model, layer) > 0]++;
}

uint64_t llama_seen_tokens(const struct llama *model)
{
    const struct llama_run *run = &model->run;
    const bool shorter = run->document_tokens && run->document_tokens < run->seq_len;
    return run->documents && shorter ? run->document_tokens : run->seq_len;
}

double llama_seen_pairs(uint64_t tokens, uint64_t window)
{
    const double all = (double)tokens, most = window && window < tokens ? (double)window : all;
    return most * (most + 1) / 2 + (all - most) * most;
}

uint64_t llama_document_tokens(double pairs, double tokens)
{
    const double length = 2 * pairs / tokens - 1; /* each of L tokens sees (L + 1)/2 */
    return length > 1 ? (uint64_t)(length + 0.5) : 1;
}

static uint64_t attention_flops(const struct llama *model, uint32_t layer)
{
    const uint64_t h = model->config.hidden;
    const uint64_t weights = 2 * h * model->q_width + 2 * h * model->kv_width;
    const uint64_t tokens = llama_seen_tokens(model);
    const double pairs = llama_seen_pairs(tokens, llama_layer_window(model, layer));
    /* Scores and their use: 2·2·q for each of the keys that a token sees, the mean of all. */
    return 2 * weights + (uint64_t)(4 * pairs * (double)model->q_width / (double)tokens);
}

uint64_t llama_part_flops(const struct llama *model, uint32_t layer, enum layer_part part)
{
    const uint64_t h = model->config.hidden, f = model->config.intermediate;
    return (part == LAYER_MLP ? 0 : attention_flops(model, layer)) +
           (part == LAYER_ATTENTION ? 0 : 2 * 3 * h * f);
}

uint64_t llama_layer_flops(const struct llama *model, uint32_t layer)
{
    return llama_part_flops(model, layer, LAYER_WHOLE);
}

uint64_t llama_head_flops(const struct llama *model)
{
    return 2 * (uint64_t)model->config.hidden * model->config.vocab;
}

double llama_step_flops(const struct llama *model)
{
    double forward = (double)llama_head_flops(model);
    for (uint32_t layer = 0; layer < model->config.layers; layer++)
        forward += (double)llama_layer_flops(model, layer);
    return 3.0 * forward * (double)model->run.batch_tokens;
}
