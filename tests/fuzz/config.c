/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.json: whatever is accepted is a model whose bytes can be counted, and the copy that an
 * export writes says the same.
 */
#include "fuzz.h"

#include "hf/config/config.h"

static void check_accepted(const struct llama_config *c)
{
    MUST(c->hidden && c->intermediate && c->layers && c->heads && c->kv_heads && c->head_dim);
    MUST(c->vocab && c->max_positions);
    MUST(c->heads % c->kv_heads == 0 && c->head_dim % 2 == 0);
    MUST(c->rms_norm_eps > 0 && c->rms_norm_eps <= 1);
}

static bool is_same(const struct llama_config *a, const struct llama_config *b)
{
    const struct rope_config *r = &a->rope, *q = &b->rope;
    return a->hidden == b->hidden && a->intermediate == b->intermediate && a->layers == b->layers &&
           a->heads == b->heads && a->kv_heads == b->kv_heads && a->head_dim == b->head_dim &&
           a->vocab == b->vocab && a->max_positions == b->max_positions &&
           a->rms_norm_eps == b->rms_norm_eps && a->tied_embeddings == b->tied_embeddings &&
           r->type == q->type && r->theta == q->theta && r->factor == q->factor &&
           r->low_freq_factor == q->low_freq_factor && r->high_freq_factor == q->high_freq_factor &&
           r->original_max_positions == q->original_max_positions;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = exact_copy(data, size), dtype[16];
    struct llama_config config;
    struct hst_error error = {0};
    if (config_parse("file", text, size, &config, dtype, &error)) {
        must_be_told(&error, FAIL_CONFIG_FILE, FAIL_ARCHITECTURE);
        free(text);
        return 0;
    }
    check_accepted(&config);
    size_t patched_size;
    char *patched = config_with_dtype(text, size, "bfloat16", &patched_size);
    MUST(patched);
    char *again = exact_copy(patched, patched_size);
    struct llama_config same;
    MUST(config_parse("file", again, patched_size, &same, dtype, &error) == 0);
    MUST(is_same(&same, &config) && strcmp(dtype, "bfloat16") == 0);
    free(again);
    free(patched);
    free(text);
    return 0;
}
