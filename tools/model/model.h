/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_MODEL_MODEL_H
#define HOISTWAY_TOOLS_MODEL_MODEL_H
/* The files of the model share this: the model itself, and the layout of its units' parameters. */
#include "model/llama.h"

/* Parts of the numbers, not of the machine (never set by a budget): see README.md. */
#define LOGIT_CHUNK_TOKENS 2048u
#define WEIGHT_BLOCK_ROWS  8192u

/* Units in their order; layers as many as the model has, or twice as many halves, one of each of
 * the others. */
enum unit_kind { UNIT_EMBEDDING, UNIT_LAYER, UNIT_NORM, UNIT_HEAD, UNIT_KIND_COUNT };

/* A layer has these, though not every model's; each of the other units has one parameter. K and V,
 * GATE and UP are neighbours: layer.c uses each two together. */
enum layer_param {
    LAYER_INPUT_NORM,
    LAYER_Q,
    LAYER_K,
    LAYER_V,
    LAYER_O,
    LAYER_POST_NORM,
    LAYER_GATE,
    LAYER_UP,
    LAYER_DOWN,
    LAYER_Q_NORM,
    LAYER_K_NORM,
    LAYER_Q_BIAS,
    LAYER_K_BIAS,
    LAYER_V_BIAS,
    LAYER_PARAM_MAX,
};

/* A unit is so much of a layer: all of it, or with llama_run.halves the attention block or the MLP
 * block, each with its norm and its residual addition. */
enum layer_part { LAYER_WHOLE, LAYER_ATTENTION, LAYER_MLP };

struct tensor_name {
    char text[64];
};

/* The model's own memory (memory.h), on the device or on the host. */
struct llama_memory {
    float *cos, *sin; /* f32[seq_len, head_dim/2] */
    /* u32[llama_part_tokens], one behind another: a step's batch is one copy */
    uint32_t *inputs, *targets;
    uint32_t *first, *position; /* null without documents */
    float *losses; /* f32[llama_memory_loss_count], behind them: as many at least */
};

struct llama {
    struct llama_config config;
    struct llama_run run;
    size_t q_width, kv_width; /* heads·head_dim, kv_heads·head_dim */

    size_t tensor_count; /* in the order of the units; the tied head's is left out */
    struct llama_tensor *tensors;
    struct tensor_name *names;

    struct llama_memory device, host; /* device.cos is null until the first step */
    uint64_t target_count;            /* of the step that is computed, of all ranks */

    /* Known when the units have been added to an engine. */
    uint32_t first_unit;
    enum hst_dtype dtype;
    /* workspace of the operations of a unit */
    size_t embedding_op_bytes, layer_op_bytes, norm_op_bytes, head_op_bytes;
};

/** It gives the place of a parameter among those of a layer of this model; LAYER_PARAM_MAX: how
 * many. */
size_t llama_layer_place(const struct llama *model, enum layer_param param);
/** These tell the same of a part of a layer: the place, and whether a part has it. */
size_t llama_part_place(const struct llama *model, enum layer_part part, enum layer_param param);
bool llama_part_has(const struct llama *model, enum layer_part part, enum layer_param param);

/** A layer is so many units. */
uint32_t llama_layer_units(const struct llama *model);
/** All units: those of layers, and embedding, norm and head. */
uint32_t llama_unit_count(const struct llama *model);
/** It tells what the unit of this index is, 0 being the embedding; of a layer: which, and how much
 * of it. */
struct unit_place {
    enum unit_kind kind;
    uint32_t layer;
    enum layer_part part;
};
struct unit_place llama_unit_place(const struct llama *model, uint32_t index);

/** Tokens of a step that this rank has, and those of a way, in which micro-batches are cut. */
uint64_t llama_part_tokens(const struct llama *model);
uint64_t llama_way_tokens(const struct llama *model);

/** Place among llama_tensor's of the final norm; the head's own weight, if it has one, follows. */
size_t llama_norm_tensor(const struct llama *model);

/** Tokens that a query of this layer sees, itself among them; 0: all that are before it. */
size_t llama_layer_window(const struct llama *model, uint32_t layer);
/** It tells how many layers have no window that tells ([0]), and how many have ([1]). */
void llama_window_layers(const struct llama *model, uint32_t layers[2]);
/** Tokens of a sequence as attention sees it: of packed rows a document's, of mean cost. */
uint64_t llama_seen_tokens(const struct llama *model);
/** Queries and keys that see each other in a sequence of so many tokens; window 0: none. Pure. */
double llama_seen_pairs(uint64_t tokens, uint64_t window);
/** FLOPs of the forward per token of a layer, attention included, of a part of it, and of the
 * head. */
uint64_t llama_layer_flops(const struct llama *model, uint32_t layer);
uint64_t llama_part_flops(const struct llama *model, uint32_t layer, enum layer_part part);
uint64_t llama_head_flops(const struct llama *model);
#endif
