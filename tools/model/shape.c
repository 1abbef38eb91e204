/* SPDX-License-Identifier: Apache-2.0 */
/* This file has what a known model's name says of it; nothing else of a model is asked for
 * there. */
#include "model/llama.h"

#include <hoistway/plan.h>

struct llama_config llama_config_of(const struct hst_shape *s)
{
    return (struct llama_config){.hidden = s->hidden,
                                 .intermediate = s->intermediate,
                                 .layers = s->layers,
                                 .heads = s->heads,
                                 .kv_heads = s->kv_heads,
                                 .head_dim = s->head_dim,
                                 .vocab = s->vocab,
                                 .max_positions = INT32_MAX,
                                 .tied_embeddings = s->tied,
                                 .qk_norm = s->qk_norm,
                                 .qkv_bias = s->qkv_bias};
}
