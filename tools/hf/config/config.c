/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides whether a model can be trained here, from config.json alone. Keys that change what is
 * trained must have a value that is built (config_keys.c lists them all); the others are left
 * alone. A key without which the model is another one must be there: the defaults of other programs
 * changed between their versions.
 */
#include "hf/config/config.h"

#include "hf/config/keys.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    ARCHITECTURES,
    MODEL_TYPE,
    AUTO_MAP,
    QUANTIZATION,
    TIE,
    HIDDEN,
    INTERMEDIATE,
    LAYERS,
    HEADS,
    KV_HEADS,
    HEAD_DIM,
    VOCAB,
    POSITIONS,
    PAD,
    INITIALIZER_RANGE,
    EPS,
    ROPE_THETA,
    ROPE_SCALING,
    ROPE_PARAMETERS,
    ROPE_ORIGINAL,
    SLIDING_WINDOW,
    USE_SLIDING_WINDOW,
    MAX_WINDOW_LAYERS,
    LAYER_TYPES,
    DTYPE,
    TORCH_DTYPE,
    KEY_COUNT
};
static const char *const keys[KEY_COUNT] = {
    [ARCHITECTURES] = "architectures",
    [MODEL_TYPE] = "model_type",
    [AUTO_MAP] = "auto_map",
    [QUANTIZATION] = "quantization_config",
    [TIE] = "tie_word_embeddings",
    [HIDDEN] = "hidden_size",
    [INTERMEDIATE] = "intermediate_size",
    [LAYERS] = "num_hidden_layers",
    [HEADS] = "num_attention_heads",
    [KV_HEADS] = "num_key_value_heads",
    [HEAD_DIM] = "head_dim",
    [VOCAB] = "vocab_size",
    [POSITIONS] = "max_position_embeddings",
    [PAD] = "pad_token_id",
    [INITIALIZER_RANGE] = "initializer_range",
    [EPS] = "rms_norm_eps",
    [ROPE_THETA] = "rope_theta",
    [ROPE_SCALING] = "rope_scaling",
    [ROPE_PARAMETERS] = "rope_parameters",
    [ROPE_ORIGINAL] = "original_max_position_embeddings",
    [SLIDING_WINDOW] = "sliding_window",
    [USE_SLIDING_WINDOW] = "use_sliding_window",
    [MAX_WINDOW_LAYERS] = "max_window_layers",
    [LAYER_TYPES] = "layer_types",
    [DTYPE] = "dtype",
    [TORCH_DTYPE] = "torch_dtype",
};

/* Architectures whose layers are a Llama's but for what is said here. */
struct architecture {
    const char *name, *type;
    bool qk_norm, qkv_bias;
    int windowed; /* the key without which there is no window; -1: there never is one */
    double theta; /* of a rope_theta that is missing, as in files older than the key; 0: none */
    int needs[2]; /* keys that other programs take for another value than a Llama's; -1: none */
};
static const struct architecture architectures[] = {
    {"LlamaForCausalLM", "llama", false, false, -1, 10000, {-1, -1}},
    {"MistralForCausalLM", "mistral", false, false, SLIDING_WINDOW, 0, {KV_HEADS, -1}},
    {"Qwen2ForCausalLM", "qwen2", false, true, USE_SLIDING_WINDOW, 0, {KV_HEADS, -1}},
    {"Qwen3ForCausalLM", "qwen3", true, false, USE_SLIDING_WINDOW, 0, {KV_HEADS, HEAD_DIM}},
};
#define SUPPORTED                                                                                  \
    "supported: LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM"

#define refuse(code, ...) fail(s->error, code, -EBADMSG, __VA_ARGS__)

/* It returns how much of a value a message shows. */
static int shown(struct jsn_value v)
{
    return (int)(v.end - v.begin < 40 ? v.end - v.begin : 40);
}

bool config_has(struct jsn_value v)
{
    return v.type != JSN_ERROR && v.type != JSN_NULL;
}

int config_real(const struct config_source *s, const char *key, struct jsn_value v, double least,
                double greatest, double *out)
{
    double value;
    if (!config_has(v))
        return refuse(FAIL_CONFIG_VALUE, "%s: %s is missing. Fix: add it", s->path, key);
    if (!jsn_real(s->text, v, &value) || !(value >= least && value <= greatest)) {
        v = jsn_shown(v);
        return refuse(FAIL_CONFIG_VALUE, "%s: %s is %.*s, want a number from %g to %g", s->path,
                      key, shown(v), s->text + v.begin, least, greatest);
    }
    *out = value;
    return 0;
}

struct size_key {
    int key;
    size_t offset; /* in struct llama_config */
    uint32_t greatest;
    bool optional;
};
static const struct size_key size_keys[] = {
    {HIDDEN, offsetof(struct llama_config, hidden), 1u << 20, false},
    {INTERMEDIATE, offsetof(struct llama_config, intermediate), 1u << 22, false},
    /* a layer's description takes a kilobyte, before anything else is known of the model */
    {LAYERS, offsetof(struct llama_config, layers), 1u << 14, false},
    {HEADS, offsetof(struct llama_config, heads), 1u << 16, false},
    {KV_HEADS, offsetof(struct llama_config, kv_heads), 1u << 16, true},
    {HEAD_DIM, offsetof(struct llama_config, head_dim), 1u << 16, true},
    {VOCAB, offsetof(struct llama_config, vocab), 1u << 24, false},
    {POSITIONS, offsetof(struct llama_config, max_positions), INT32_MAX, false},
};

static int read_sizes(const struct config_source *s, const struct jsn_value *values,
                      struct llama_config *c)
{
    for (size_t i = 0; i < sizeof size_keys / sizeof *size_keys; i++) {
        const struct size_key *k = &size_keys[i];
        struct jsn_value v = values[k->key];
        uint64_t value;
        if (!config_has(v)) {
            if (k->optional)
                continue;
            return refuse(FAIL_CONFIG_VALUE, "%s: %s is missing. Fix: add it", s->path,
                          keys[k->key]);
        }
        if (!jsn_u64(s->text, v, &value) || value < 1 || value > k->greatest) {
            v = jsn_shown(v);
            return refuse(FAIL_CONFIG_VALUE, "%s: %s is %.*s, want a whole number from 1 to %u",
                          s->path, keys[k->key], shown(v), s->text + v.begin, k->greatest);
        }
        *(uint32_t *)((char *)c + k->offset) = (uint32_t)value;
    }
    return 0;
}

/* Each of the largest tensors has at most this many elements, as the engine's have. */
#define ELEMENTS_MAX (UINT64_C(1) << 40)

static int check_elements(const struct config_source *s, const struct llama_config *c)
{
    const uint64_t rows[] = {c->vocab, c->intermediate, (uint64_t)c->heads * c->head_dim};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i] > ELEMENTS_MAX / c->hidden)
            return refuse(FAIL_CONFIG_VALUE,
                          "%s: a tensor would have %llu x hidden_size %u elements, at most 2^40 "
                          "allowed",
                          s->path, (unsigned long long)rows[i], c->hidden);
    return 0;
}

static int check_sizes(const struct config_source *s, struct llama_config *c)
{
    assert(c->heads > 0); /* read_sizes refuses 0 */
    if (!c->head_dim && c->hidden % c->heads)
        return refuse(FAIL_CONFIG_VALUE,
                      "%s: hidden_size %u is no multiple of num_attention_heads %u", s->path,
                      c->hidden, c->heads);
    if (!c->kv_heads)
        c->kv_heads = c->heads;
    if (c->heads % c->kv_heads)
        return refuse(FAIL_CONFIG_VALUE,
                      "%s: num_attention_heads %u is no multiple of num_key_value_heads %u",
                      s->path, c->heads, c->kv_heads);
    if (!c->head_dim)
        c->head_dim = c->hidden / c->heads;
    if (c->head_dim % 2)
        return refuse(FAIL_CONFIG_VALUE,
                      "%s: head_dim is %u, want an even number (rotary embedding turns pairs)",
                      s->path, c->head_dim);
    /* 32 bytes: more than weights, gradients and states of one parameter together. */
    uint64_t attention = ((uint64_t)c->heads + c->kv_heads) * 2 * c->head_dim; /* < 2^34 */
    uint64_t layer = 3ull * c->intermediate + 2, bytes = 2ull * c->vocab, all;
    if (__builtin_add_overflow(layer, attention, &layer) ||
        __builtin_mul_overflow(layer, c->layers, &all) ||
        __builtin_add_overflow(all, bytes + 1, &all) ||
        __builtin_mul_overflow(all, c->hidden, &all) || __builtin_mul_overflow(all, 32u, &all) ||
        all > INT64_MAX)
        return refuse(FAIL_CONFIG_VALUE,
                      "%s: the model's size in bytes overflows (%u layers, hidden_size %u, "
                      "intermediate_size %u)",
                      s->path, c->layers, c->hidden, c->intermediate);
    return check_elements(s, c);
}

static int read_bool(const struct config_source *s, int key, struct jsn_value v, bool *out)
{
    *out = false;
    if (!config_has(v))
        return 0;
    if (v.type != JSN_TRUE && v.type != JSN_FALSE) {
        v = jsn_shown(v);
        return refuse(FAIL_CONFIG_VALUE, "%s: %s is %.*s, want true or false", s->path, keys[key],
                      shown(v), s->text + v.begin);
    }
    *out = v.type == JSN_TRUE;
    return 0;
}

static const struct architecture *architecture_of(const struct config_source *s,
                                                  struct jsn_value name)
{
    for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++)
        if (jsn_equals(s->text, name, architectures[i].name))
            return &architectures[i];
    return NULL;
}

static int check_architecture(const struct config_source *s, const struct jsn_value *values,
                              const struct architecture **architecture)
{
    struct jsn_value v = values[ARCHITECTURES], name = {0};
    if (v.type == JSN_ARRAY) {
        struct jsn_reader r = jsn_reader(s->text + v.begin, v.end - v.begin);
        jsn_next(&r);
        name = jsn_next_value(&r);
        name.begin += v.begin;
        name.end += v.begin;
        if (jsn_next(&r).type != JSN_ARRAY_END)
            name.type = JSN_ERROR;
    }
    if (name.type != JSN_STRING)
        return refuse(FAIL_ARCHITECTURE,
                      "%s: architectures does not name one architecture; " SUPPORTED, s->path);
    const struct architecture *a = architecture_of(s, name);
    if (!a)
        return refuse(FAIL_ARCHITECTURE, "%s: architecture %.*s is not supported; " SUPPORTED,
                      s->path, shown(name), s->text + name.begin);
    *architecture = a;
    v = values[MODEL_TYPE];
    if (config_has(v) && !jsn_equals(s->text, v, a->type))
        return refuse(FAIL_ARCHITECTURE, "%s: model_type is %.*s, want %s", s->path, shown(v),
                      s->text + v.begin, a->type);
    if (config_has(values[AUTO_MAP]))
        return refuse(FAIL_ARCHITECTURE,
                      "%s: auto_map asks for code that comes with the model; none is ever run",
                      s->path);
    if (config_has(values[QUANTIZATION]))
        return refuse(FAIL_ARCHITECTURE,
                      "%s: quantization_config: quantized weights cannot be trained. Fix: use the "
                      "model it was made from",
                      s->path);
    return 0;
}

static int check_needed(const struct config_source *s, const struct jsn_value *values,
                        const struct architecture *a)
{
    for (size_t i = 0; i < sizeof a->needs / sizeof *a->needs && a->needs[i] >= 0; i++) {
        const int key = a->needs[i];
        /* null heads of keys are as many as there are heads, in every architecture */
        if (key == KV_HEADS ? values[key].type == JSN_ERROR : !config_has(values[key]))
            return refuse(FAIL_CONFIG_VALUE, "%s: %s is missing, which a %s must have. Fix: add it",
                          s->path, keys[key], a->name);
    }
    return 0;
}

/*
 * The row of the embedding that look-ups do not train. Negative ids count from the end of the
 * vocabulary; out of it transformers has no such model.
 */
static int read_pad(const struct config_source *s, struct jsn_value v, struct llama_config *c)
{
    uint64_t id;
    if (!config_has(v))
        return 0;
    const bool negative = v.type == JSN_NUMBER && s->text[v.begin] == '-';
    struct jsn_value digits = v;
    digits.begin += negative;
    if (!jsn_u64(s->text, digits, &id) || id > c->vocab || (!negative && id == c->vocab)) {
        v = jsn_shown(v);
        return refuse(FAIL_CONFIG_VALUE,
                      "%s: pad_token_id is %.*s, want null or a whole number from -%u to %u. Fix: "
                      "null, where no row of the embedding is for padding",
                      s->path, shown(v), s->text + v.begin, c->vocab, c->vocab - 1);
    }
    c->has_pad = true;
    c->pad = (uint32_t)(negative && id ? c->vocab - id : id);
    return 0;
}

static int read_initializer(const struct config_source *s, struct jsn_value v,
                            struct llama_config *c)
{
    return config_has(v) ? config_real(s, "initializer_range", v, 0, 1, &c->initializer_range) : 0;
}

static void take_window(struct llama_config *c, uint64_t layer)
{
    if (layer < LLAMA_MOST_LAYERS) /* more are refused when the model is described */
        c->windowless[layer / 64] |= UINT64_C(1) << layer % 64;
}

static int check_count(const struct config_source *s, uint64_t count, uint32_t layers)
{
    if (count == layers)
        return 0;
    return refuse(FAIL_CONFIG_VALUE, "%s: layer_types has %llu layers, num_hidden_layers is %u",
                  s->path, (unsigned long long)count, layers);
}

/* Which layers have a window: where they `count`; else they are only looked at. */
static int read_layer_types(const struct config_source *s, struct jsn_value v, bool count,
                            struct llama_config *c)
{
    const bool window = c->window > 0;
    uint64_t layer = 0;
    if (v.type != JSN_ARRAY) {
        v = jsn_shown(v);
        return refuse(FAIL_CONFIG_VALUE, "%s: layer_types is %.*s, want a list", s->path, shown(v),
                      s->text + v.begin);
    }
    struct jsn_value type;
    struct jsn_reader r = jsn_reader(s->text + v.begin, v.end - v.begin);
    jsn_next(&r);
    for (; (type = jsn_next_value(&r)).type != JSN_ARRAY_END; layer++) {
        type.begin += v.begin;
        type.end += v.begin;
        bool text = type.type == JSN_STRING;
        bool slides = text && window && jsn_equals(s->text, type, "sliding_attention");
        if (!slides && count)
            take_window(c, layer);
        if (slides || (text && jsn_equals(s->text, type, "full_attention")))
            continue;
        type = jsn_shown(type);
        return refuse(FAIL_ARCHITECTURE, "%s: layer_types has %.*s, supported: full_attention%s",
                      s->path, shown(type), s->text + type.begin,
                      window ? ", sliding_attention" : "");
    }
    return count && window ? check_count(s, layer, c->layers) : 0;
}

/* Layers from the one that max_window_layers counts on have a window. */
static int count_layers(const struct config_source *s, struct jsn_value first,
                        struct llama_config *c)
{
    uint64_t without = 0;
    if (c->window && !config_has(first))
        return refuse(FAIL_CONFIG_VALUE,
                      "%s: max_window_layers is missing, and layer_types too: which layers have "
                      "the window is not said. Fix: add layer_types",
                      s->path);
    if (config_has(first) && !jsn_u64(s->text, first, &without)) {
        first = jsn_shown(first);
        return refuse(FAIL_CONFIG_VALUE, "%s: max_window_layers is %.*s, want a whole number",
                      s->path, shown(first), s->text + first.begin);
    }
    for (uint64_t layer = 0; layer < without && layer < c->layers; layer++)
        take_window(c, layer);
    return 0;
}

/* Some layers may have the window where they are counted, or none; else all. */
static int check_layers(const struct config_source *s, const struct jsn_value *values,
                        const struct architecture *a, struct llama_config *c)
{
    const struct jsn_value types = values[LAYER_TYPES];
    const bool count = a->windowed == USE_SLIDING_WINDOW;
    bool any = false;
    int rc = config_has(types) ? read_layer_types(s, types, count, c)
             : count           ? count_layers(s, values[MAX_WINDOW_LAYERS], c)
                               : 0;
    if (rc)
        return rc;
    for (uint32_t layer = 0; layer < c->layers && layer < LLAMA_MOST_LAYERS; layer++)
        any = any || llama_config_window(c, layer);
    c->window = any ? c->window : 0;
    if (!any)
        memset(c->windowless, 0, sizeof c->windowless);
    return 0;
}

static int read_window(const struct config_source *s, const struct jsn_value *values,
                       const struct architecture *a, struct llama_config *c)
{
    struct jsn_value v = values[SLIDING_WINDOW];
    uint64_t value = 0;
    bool used = a->windowed == SLIDING_WINDOW;
    if (a->windowed < 0)
        return 0;
    int rc = used ? 0 : read_bool(s, USE_SLIDING_WINDOW, values[USE_SLIDING_WINDOW], &used);
    if (rc)
        return rc;
    if (used && v.type == JSN_ERROR)
        return refuse(FAIL_CONFIG_VALUE,
                      "%s: sliding_window is missing. Fix: add it (null: a token attends to all "
                      "before it)",
                      s->path);
    used = used && config_has(v);
    if (used && (!jsn_u64(s->text, v, &value) || value < 1 || value > INT32_MAX)) {
        v = jsn_shown(v);
        return refuse(FAIL_CONFIG_VALUE,
                      "%s: sliding_window is %.*s, want null or a whole number from 1 to %d",
                      s->path, shown(v), s->text + v.begin, INT32_MAX);
    }
    c->window = used ? (uint32_t)value : 0;
    return check_layers(s, values, a, c);
}

int config_parse(const char *path, const char *text, size_t size, struct llama_config *config,
                 char dtype[16], struct hst_error *error)
{
    const struct config_source source = {path, text, error}, *s = &source;
    struct jsn_fault fault;
    int rc = jsn_check(text, size, 65536, &fault);
    if (rc == -ENOMEM)
        return fail(error, FAIL_CONFIG_FILE, rc, "%s: no memory to read it", path);
    if (rc && fault.key[0])
        return refuse(FAIL_CONFIG_FILE, "%s: it has %s: %s", path, fault.why, fault.key);
    if (rc)
        return refuse(FAIL_CONFIG_FILE, "%s: not valid JSON: it has %s at byte %zu", path,
                      fault.why, fault.at);
    struct jsn_value v[KEY_COUNT];
    jsn_members(text, size, keys, KEY_COUNT, v);
    struct llama_config c = {0};
    const struct architecture *architecture = NULL;
    rc = check_architecture(s, v, &architecture);
    if (rc)
        return rc;
    assert(architecture); /* one of the table */
    rc = config_keys_check(s, size, architecture->qkv_bias);
    if (!rc)
        rc = check_needed(s, v, architecture);
    if (!rc)
        rc = read_sizes(s, v, &c);
    if (!rc)
        rc = check_sizes(s, &c);
    if (!rc)
        rc = read_pad(s, v[PAD], &c);
    if (!rc)
        rc = read_initializer(s, v[INITIALIZER_RANGE], &c);
    if (!rc)
        rc = config_real(s, "rms_norm_eps", v[EPS], 1e-20, 1, &c.rms_norm_eps);
    if (!rc)
        rc = read_bool(s, TIE, v[TIE], &c.tied_embeddings);
    if (!rc)
        rc = read_window(s, v, architecture, &c);
    if (!rc)
        rc = config_rope(s,
                         &(struct rope_keys){.theta = v[ROPE_THETA],
                                             .scaling = v[ROPE_SCALING],
                                             .parameters = v[ROPE_PARAMETERS],
                                             .original = v[ROPE_ORIGINAL],
                                             .theta_default = architecture->theta},
                         &c.rope);
    if (rc)
        return rc;
    c.qk_norm = architecture->qk_norm;
    c.qkv_bias = architecture->qkv_bias;
    struct jsn_value type = v[DTYPE].type == JSN_STRING ? v[DTYPE] : v[TORCH_DTYPE];
    dtype[0] = '\0';
    if (type.type == JSN_STRING && type.end - type.begin < 16)
        jsn_unescape(text + type.begin, type.end - type.begin, dtype);
    *config = c;
    return 0;
}
