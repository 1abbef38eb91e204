/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides which keys of config.json may change what is trained. The table holds every attribute of
 * a configuration that transformers' modelling, mask, rope, cache and loss code reads for the
 * classes that can be trained here (versions 4.57.6 and 5.23.0; a test compares it with their
 * sources). What is not in it is read by nobody.
 */
#include "hf/config/keys.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define GENERATION "it says how text is generated"
#define TOLD       "it says how results are handed out"
#define TASK       "it belongs to classification"
#define TOKENIZER  "it belongs to the tokenizer"
#define ORIGIN     "it says where the file comes from"
#define KERNELS    "it chooses among programs of one computation"
#define MEMORY     "it says where things live, not what they are"
#define OWN        "transformers sets it itself"
#define CACHE      "it lays out a cache of keys, which is empty where training begins"
#define OTHERS     "only other architectures have it"
#define MTP        "heads that predict more tokens are no part of these classes"
#define INIT       "initializer_range is there in its place"
#define ENCODER    "these classes have no encoder"

static const struct config_key table[] = {
    {"_attn_implementation", CONFIG_NO_EFFECT, NULL, KERNELS},
    {"_attn_implementation_internal", CONFIG_NO_EFFECT, NULL, KERNELS},
    {"_attn_was_changed", CONFIG_NO_EFFECT, NULL, OWN},
    {"_auto_class", CONFIG_NO_EFFECT, NULL, OWN},
    {"_commit_hash", CONFIG_NO_EFFECT, NULL, ORIGIN},
    {"_experts_implementation", CONFIG_NO_EFFECT, NULL, OTHERS},
    {"_experts_implementation_internal", CONFIG_NO_EFFECT, NULL, OTHERS},
    {"_is_quantized", CONFIG_NO_EFFECT, NULL, OWN},
    {"_name_or_path", CONFIG_NO_EFFECT, NULL, ORIGIN},
    {"_output_attentions", CONFIG_NO_EFFECT, NULL, TOLD},
    {"_post_init_done", CONFIG_NO_EFFECT, NULL, OWN},
    {"_pre_quantization_dtype", CONFIG_NO_EFFECT, NULL, OWN},
    {"_rope_type_labels", CONFIG_NO_EFFECT, NULL,
     "it names keys of a nested rope_parameters, which is refused"},
    {"add_cross_attention", CONFIG_NO_EFFECT, NULL, ENCODER},
    {"alibi", CONFIG_NO_EFFECT, NULL, "it only forbids one program of attention"},
    {"architectures", CONFIG_BUILT, NULL, NULL},
    {"attention_bias", CONFIG_REFUSED, "false", "other linear layers have a bias"},
    {"attention_chunk_size", CONFIG_NO_EFFECT, NULL,
     "layers whose type is chunked_attention are refused"},
    {"attention_dropout", CONFIG_REFUSED, "0", "weights of attention are dropped at random"},
    {"attn_implementation", CONFIG_NO_EFFECT, NULL, KERNELS},
    {"auto_map", CONFIG_BUILT, NULL, NULL},
    {"bos_token_id", CONFIG_NO_EFFECT, NULL, TOKENIZER},
    {"chunk_size_feed_forward", CONFIG_NO_EFFECT, NULL, OTHERS},
    {"cross_attention_hidden_size", CONFIG_NO_EFFECT, NULL, ENCODER},
    {"decoder_start_token_id", CONFIG_NO_EFFECT, NULL, GENERATION},
    {"default_rope_type", CONFIG_REFUSED, "default", "rope becomes another one"},
    {"distributed_config", CONFIG_NO_EFFECT, NULL, MEMORY},
    {"dtype", CONFIG_BUILT, NULL, NULL},
    {"embed_dim", CONFIG_NO_EFFECT, NULL, "it is only compared with other keys"},
    {"eos_token_id", CONFIG_NO_EFFECT, NULL, TOKENIZER},
    {"experts_implementation", CONFIG_NO_EFFECT, NULL, OTHERS},
    {"finetuning_task", CONFIG_NO_EFFECT, NULL, TASK},
    {"first_k_dense_replace", CONFIG_NO_EFFECT, NULL, OTHERS},
    {"fusion_config", CONFIG_NO_EFFECT, NULL, KERNELS},
    {"gradient_checkpointing", CONFIG_NO_EFFECT, NULL, MEMORY},
    {"head_dim", CONFIG_BUILT, NULL, NULL},
    {"hidden_act", CONFIG_REFUSED, "silu swish", "the activation is another function"},
    {"hidden_size", CONFIG_BUILT, NULL, NULL},
    {"id2label", CONFIG_NO_EFFECT, NULL, TASK},
    {"ignore_keys_at_rope_validation", CONFIG_NO_EFFECT, NULL, "it only silences a warning"},
    {"init_std", CONFIG_NO_EFFECT, NULL, INIT},
    {"initializer_factor", CONFIG_NO_EFFECT, NULL, INIT},
    {"initializer_range", CONFIG_BUILT, NULL, NULL},
    {"intermediate_size", CONFIG_BUILT, NULL, NULL},
    {"is_causal", CONFIG_REFUSED, "true", "tokens attend to those after them"},
    {"is_decoder", CONFIG_NO_EFFECT, NULL, "these classes are decoders whatever it says"},
    {"is_encoder_decoder", CONFIG_REFUSED, "false", "the model has an encoder"},
    {"is_heterogeneous", CONFIG_NO_EFFECT, NULL, "per_layer_config, which sets it, is refused"},
    {"kv_sharing_modes", CONFIG_NO_EFFECT, NULL, CACHE},
    {"label2id", CONFIG_NO_EFFECT, NULL, TASK},
    {"layer_types", CONFIG_BUILT, NULL, NULL},
    {"max_position_embeddings", CONFIG_BUILT, NULL, NULL},
    {"max_window_layers", CONFIG_BUILT, NULL, NULL},
    {"mlp_bias", CONFIG_REFUSED, "false", "other linear layers have a bias"},
    {"mlp_layer_types", CONFIG_NO_EFFECT, NULL, OTHERS},
    {"model_type", CONFIG_BUILT, NULL, NULL},
    {"mtp_layer_types", CONFIG_NO_EFFECT, NULL, MTP},
    {"mtp_mlp_layer_types", CONFIG_NO_EFFECT, NULL, MTP},
    {"mtp_per_layer_config", CONFIG_NO_EFFECT, NULL, MTP},
    {"name_or_path", CONFIG_NO_EFFECT, NULL, ORIGIN},
    {"num_attention_heads", CONFIG_BUILT, NULL, NULL},
    {"num_heads", CONFIG_NO_EFFECT, NULL, "it is only compared with other keys"},
    {"num_hidden_layers", CONFIG_BUILT, NULL, NULL},
    {"num_key_value_heads", CONFIG_BUILT, NULL, NULL},
    {"num_kv_shared_layers", CONFIG_NO_EFFECT, NULL, CACHE},
    {"num_labels", CONFIG_NO_EFFECT, NULL, TASK},
    {"num_mtp_layers", CONFIG_NO_EFFECT, NULL, MTP},
    {"original_max_position_embeddings", CONFIG_BUILT, NULL, NULL},
    {"output_attentions", CONFIG_NO_EFFECT, NULL, TOLD},
    {"output_hidden_states", CONFIG_NO_EFFECT, NULL, TOLD},
    {"pad_token_id", CONFIG_BUILT, NULL, NULL},
    {"partial_rotary_factor", CONFIG_REFUSED, "1", "only a part of each head is rotated"},
    {"per_layer_config", CONFIG_REFUSED, "{}", "layers differ from each other"},
    {"prefix", CONFIG_NO_EFFECT, NULL, GENERATION},
    {"pretraining_tp", CONFIG_NO_EFFECT, NULL, "it only cuts sums into parts"},
    {"problem_type", CONFIG_NO_EFFECT, NULL, TASK},
    {"pruned_heads", CONFIG_REFUSED, "{}", "heads of attention are taken out"},
    {"quantization_config", CONFIG_BUILT, NULL, NULL},
    {"return_dict", CONFIG_NO_EFFECT, NULL, TOLD},
    {"rms_norm_eps", CONFIG_BUILT, NULL, NULL},
    {"rope_parameters", CONFIG_BUILT, NULL, NULL},
    {"rope_scaling", CONFIG_BUILT, NULL, NULL},
    {"rope_theta", CONFIG_BUILT, NULL, NULL},
    {"sep_token_id", CONFIG_NO_EFFECT, NULL, TOKENIZER},
    {"sliding_window", CONFIG_BUILT, NULL, NULL},
    {"task_specific_params", CONFIG_NO_EFFECT, NULL, GENERATION},
    {"tf_legacy_loss", CONFIG_NO_EFFECT, NULL, "it is TensorFlow's"},
    {"tie_encoder_decoder", CONFIG_NO_EFFECT, NULL, ENCODER},
    {"tie_word_embeddings", CONFIG_BUILT, NULL, NULL},
    {"tokenizer_class", CONFIG_NO_EFFECT, NULL, TOKENIZER},
    {"torch_dtype", CONFIG_BUILT, NULL, NULL},
    {"torchscript", CONFIG_REFUSED, "false", "tied weights become two, each trained by itself"},
    {"transformers_version", CONFIG_NO_EFFECT, NULL, ORIGIN},
    {"transformers_weights", CONFIG_REFUSED, "model.safetensors model.safetensors.index.json",
     "weights are read from another file"},
    {"use_alibi", CONFIG_NO_EFFECT, NULL, "it only forbids one program of attention"},
    {"use_bfloat16", CONFIG_NO_EFFECT, NULL, "it is TensorFlow's"},
    {"use_cache", CONFIG_NO_EFFECT, NULL, CACHE},
    {"use_sliding_window", CONFIG_BUILT, NULL, NULL},
    {"vocab_size", CONFIG_BUILT, NULL, NULL},
};
enum { KEYS = sizeof table / sizeof *table };

const struct config_key *config_key(size_t i)
{
    return i < KEYS ? &table[i] : NULL;
}

/* Nothing between its brackets. */
static bool is_empty(const char *text, struct jsn_value v)
{
    if (v.type != JSN_OBJECT && v.type != JSN_ARRAY)
        return false;
    return v.begin + 1 + strspn(text + v.begin + 1, " \t\r\n") == v.end - 1;
}

/* It tells whether a value is what `word` says. */
static bool is_word(const char *text, struct jsn_value v, const char *word)
{
    double number;
    char *end;
    switch (v.type) {
    case JSN_TRUE:
        return strcmp(word, "true") == 0;
    case JSN_FALSE:
        return strcmp(word, "false") == 0;
    case JSN_STRING:
        return jsn_equals(text, v, word);
    case JSN_NUMBER:
        return jsn_real(text, v, &number) && number == strtod(word, &end) && end > word && !*end;
    default:
        return strcmp(word, "{}") == 0 && is_empty(text, v);
    }
}

static bool is_one_of(const char *text, struct jsn_value v, const char *values)
{
    char word[64];
    for (const char *at = values; *at; at += strspn(at, " ")) {
        size_t n = strcspn(at, " ");
        memcpy(word, at, n);
        word[n] = '\0';
        if (is_word(text, v, word))
            return true;
        at += n;
    }
    return false;
}

int config_keys_check(const struct config_source *s, size_t size, bool attention_bias)
{
    const char *names[KEYS];
    struct jsn_value values[KEYS];
    for (size_t i = 0; i < KEYS; i++)
        names[i] = table[i].name;
    jsn_members(s->text, size, names, KEYS, values);
    for (size_t i = 0; i < KEYS; i++) {
        const struct config_key *k = &table[i];
        struct jsn_value v = values[i];
        if (k->kind != CONFIG_REFUSED || !config_has(v) || is_one_of(s->text, v, k->values))
            continue;
        if (attention_bias && v.type == JSN_TRUE && strcmp(k->name, "attention_bias") == 0)
            continue;
        size_t shown = v.end - v.begin;
        return fail(s->error, FAIL_ARCHITECTURE, -EBADMSG,
                    "%s: %s is %.*s, supported: %s. With it %s", s->path, k->name,
                    (int)(shown < 40 ? shown : 40), s->text + v.begin, k->values, k->why);
    }
    return 0;
}
