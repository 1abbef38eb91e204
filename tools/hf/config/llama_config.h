/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_LLAMA_CONFIG_H
#define HOISTWAY_TOOLS_LLAMA_CONFIG_H
/* It holds what config.json says about a LlamaForCausalLM or one of its kin, checked and complete:
   no key is looked at elsewhere. */
#include <stdbool.h>
#include <stdint.h>

/* The description of a layer takes a kilobyte: a hostile configuration must not take the
 * machine's memory. */
#define LLAMA_MOST_LAYERS 16384u

enum rope_type { ROPE_DEFAULT = 0, ROPE_LINEAR, ROPE_LLAMA3 };

struct rope_config {
    enum rope_type type;
    double theta;
    double factor;                            /* LINEAR, LLAMA3 */
    double low_freq_factor, high_freq_factor; /* LLAMA3 */
    double original_max_positions;            /* LLAMA3 */
};

struct llama_config {
    uint32_t hidden, intermediate, layers, heads, kv_heads, head_dim, vocab, max_positions;
    double rms_norm_eps;
    bool tied_embeddings;
    double initializer_range; /* of --init random; 0: 0.02 */
    bool has_pad;             /* look-ups give the row `pad` of the embedding no gradient */
    uint32_t pad;
    bool qk_norm;    /* each head of q and k is normed before it is rotated (Qwen3) */
    bool qkv_bias;   /* q, k and v have a bias (Qwen2) */
    uint32_t window; /* of keys that a token attends to, itself one of them; 0: all before it */
    uint64_t windowless[LLAMA_MOST_LAYERS / 64]; /* a bit for each layer: it has no window */
    struct rope_config rope;
};

/** The window of a layer; 0: it has none. */
static inline uint32_t llama_config_window(const struct llama_config *config, uint32_t layer)
{
    return config->windowless[layer / 64] >> layer % 64 & 1 ? 0 : config->window;
}
#endif
