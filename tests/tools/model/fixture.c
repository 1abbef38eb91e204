/* SPDX-License-Identifier: Apache-2.0 */
/* See fixture.h. GOLDEN_DIR comes from the build. */
#include "fixture.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <glob.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A safetensors file in memory. */
struct fixture_file {
    struct fixture_file *next;
    char *bytes;
    json_t *header;
    size_t data_offset;
};

static json_t *load_json(const char *name, const char *file)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s/%s", GOLDEN_DIR, name, file);
    json_error_t why;
    json_t *object = json_load_file(path, 0, &why);
    if (!object)
        fail_msg("%s: %s", path, why.text);
    return object;
}

static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value))
        fail_msg("no number \"%s\"", key);
    return json_number_value(value);
}

static uint32_t integer(const json_t *object, const char *key)
{
    return (uint32_t)number(object, key);
}

/* Both dialects: transformers 5 puts everything under rope_parameters. */
static struct rope_config read_rope(const json_t *config)
{
    const json_t *v5 = json_object_get(config, "rope_parameters");
    struct rope_config rope = {.type = ROPE_DEFAULT, .theta = 10000};
    if (json_object_get(v5 ? v5 : config, "rope_theta"))
        rope.theta = number(v5 ? v5 : config, "rope_theta");
    if (!v5 || strcmp(json_string_value(json_object_get(v5, "rope_type")), "default") == 0)
        return rope;
    assert_string_equal(json_string_value(json_object_get(v5, "rope_type")), "llama3");
    rope.type = ROPE_LLAMA3;
    rope.factor = number(v5, "factor");
    rope.low_freq_factor = number(v5, "low_freq_factor");
    rope.high_freq_factor = number(v5, "high_freq_factor");
    rope.original_max_positions = number(v5, "original_max_position_embeddings");
    return rope;
}

static void read_config(const char *name, struct llama_config *c)
{
    json_t *config = load_json(name, "config.json");
    *c = (struct llama_config){
        .hidden = integer(config, "hidden_size"),
        .intermediate = integer(config, "intermediate_size"),
        .layers = integer(config, "num_hidden_layers"),
        .heads = integer(config, "num_attention_heads"),
        .kv_heads = integer(config, "num_key_value_heads"),
        .vocab = integer(config, "vocab_size"),
        .max_positions = integer(config, "max_position_embeddings"),
        .rms_norm_eps = number(config, "rms_norm_eps"),
        .tied_embeddings = json_is_true(json_object_get(config, "tie_word_embeddings")),
        .rope = read_rope(config),
        .qk_norm = strcmp(json_string_value(json_object_get(config, "model_type")), "qwen3") == 0,
        .qkv_bias = strcmp(json_string_value(json_object_get(config, "model_type")), "qwen2") == 0,
    };
    const json_t *pad = json_object_get(config, "pad_token_id");
    c->has_pad = json_is_integer(pad);
    const json_int_t row = json_integer_value(pad);
    c->pad = (uint32_t)(row < 0 ? row + c->vocab : row);
    if (json_is_integer(json_object_get(config, "sliding_window")))
        c->window = integer(config, "sliding_window");
    c->head_dim =
        json_object_get(config, "head_dim") ? integer(config, "head_dim") : c->hidden / c->heads;
    json_decref(config);
}

static void read_golden(const char *name, struct fixture *f)
{
    json_t *golden = load_json(name, "golden.json");
    const json_t *betas = json_object_get(golden, "betas");
    const json_t *steps = json_object_get(golden, "steps");
    f->run = (struct llama_run){
        .seq_len = integer(golden, "seq_len"),
        .batch_tokens = integer(golden, "batch_tokens"),
        .micro_batch_tokens = integer(golden, "grain_tokens"),
    };
    f->engine = (struct hst_config){
        .size = sizeof f->engine,
        .precision = HST_PRECISION_FP32,
        .batch_tokens = f->run.batch_tokens,
        .micro_batch_tokens = f->run.micro_batch_tokens,
        .beta1 = json_number_value(json_array_get(betas, 0)),
        .beta2 = json_number_value(json_array_get(betas, 1)),
        .eps = number(golden, "eps"),
        .weight_decay = number(golden, "weight_decay"),
        .clip = number(golden, "clip"),
    };
    f->lr = number(golden, "lr");
    f->step_count = json_array_size(steps);
    assert_int_equal(f->step_count, 12);
    f->steps = calloc(f->step_count, sizeof *f->steps);
    assert_non_null(f->steps);
    for (size_t i = 0; i < f->step_count; i++) {
        const json_t *step = json_array_get(steps, i);
        f->steps[i] = (struct fixture_step){number(step, "loss"), number(step, "grad_norm")};
    }
    const json_t *documents = json_object_get(golden, "documents");
    f->document_count = json_array_size(documents);
    assert_true(f->document_count <= sizeof f->documents / sizeof *f->documents);
    for (size_t i = 0; i < f->document_count; i++)
        f->documents[i] = (size_t)json_integer_value(json_array_get(documents, i));
    f->run.documents = f->document_count > 0;
    const char *learned = json_string_value(json_object_get(golden, "learned"));
    snprintf(f->learned, sizeof f->learned, "%s", learned ? learned : "1");
    json_decref(golden);
}

static void open_weights(const char *path, struct fixture *f)
{
    struct fixture_file *file = calloc(1, sizeof *file);
    FILE *stream = fopen(path, "rb");
    assert_true(file && stream);
    assert_int_equal(fseek(stream, 0, SEEK_END), 0);
    size_t size = (size_t)ftell(stream);
    rewind(stream);
    file->bytes = malloc(size);
    assert_non_null(file->bytes);
    assert_int_equal(fread(file->bytes, 1, size, stream), size);
    fclose(stream);
    uint64_t header_bytes;
    memcpy(&header_bytes, file->bytes, 8);
    file->header = json_loadb(file->bytes + 8, header_bytes, 0, NULL);
    assert_non_null(file->header);
    file->data_offset = 8 + header_bytes;
    file->next = f->weights;
    f->weights = file;
}

void fixture_open(const char *name, struct fixture *f)
{
    *f = (struct fixture){0};
    read_config(name, &f->model);
    read_golden(name, f);
    char path[512];
    snprintf(path, sizeof path, "%s/%s/*.safetensors", GOLDEN_DIR, name);
    glob_t found;
    assert_int_equal(glob(path, 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++)
        open_weights(found.gl_pathv[i], f);
    globfree(&found);
    snprintf(path, sizeof path, "%s/%s/tokens.bin", GOLDEN_DIR, name);
    struct data_config config = {
        .files = path,
        .order = DATA_SEQUENTIAL,
        .seq_len = f->run.seq_len,
        .vocab = f->model.vocab,
    };
    assert_int_equal(data_open(&config, &f->data, NULL), 0);
    f->batch = calloc(4 * f->run.batch_tokens, sizeof *f->batch);
    assert_non_null(f->batch);
}

/* Of one sequence: columns of its documents, one after another, then padding. */
static void cut_documents(const struct fixture *f, uint32_t *inputs, uint32_t *targets,
                          uint32_t *first, uint32_t *position)
{
    uint32_t column = 0;
    for (size_t d = 0; d < f->document_count; d++) {
        const uint32_t begin = column;
        for (; column < begin + f->documents[d]; column++) {
            first[column] = begin;
            position[column] = column - begin;
        }
    }
    for (; column < f->run.seq_len; column++) {
        inputs[column] = position[column] = 0;
        targets[column] = HST_NO_TARGET;
        first[column] = column;
    }
}

struct llama_batch fixture_batch(struct fixture *f, size_t step)
{
    const size_t all = f->run.batch_tokens, seq = f->run.seq_len, count = all / seq;
    uint32_t *inputs = f->batch, *targets = inputs + all, *first = targets + all,
             *position = first + all;
    const struct data_batch rows = {.inputs = inputs, .targets = targets};
    assert_int_equal(data_read(f->data, step * count, count, &rows, NULL), 0);
    for (size_t t = 0; t < all; t++) {
        const size_t sequence = data_order_sequence(f->data, step * count + t / seq);
        const size_t place = sequence * seq + t % seq + 1;
        if (f->learned[place % strlen(f->learned)] != '1')
            targets[t] = HST_NO_TARGET;
    }
    if (!f->document_count)
        return (struct llama_batch){.inputs = inputs, .targets = targets};
    for (size_t t = 0; t < all; t += seq)
        cut_documents(f, inputs + t, targets + t, first + t, position + t);
    return (struct llama_batch){
        .inputs = inputs, .targets = targets, .first = first, .position = position};
}

void fixture_close(struct fixture *f)
{
    data_close(&f->data);
    free(f->steps);
    free(f->batch);
    while (f->weights) {
        struct fixture_file *file = f->weights;
        f->weights = file->next;
        json_decref(file->header);
        free(file->bytes);
        free(file);
    }
}

static void widen(const char *src, bool bf16, float *dst, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t bits = 0;
        memcpy((char *)&bits + (bf16 ? 2 : 0), src + i * (bf16 ? 2 : 4), bf16 ? 2 : 4);
        memcpy(&dst[i], &bits, 4);
    }
}

int fixture_read(void *context, const struct hst_param_ref *param, uint64_t offset, float *dst,
                 size_t count)
{
    const struct fixture *f = context;
    for (const struct fixture_file *file = f->weights; file; file = file->next) {
        const json_t *entry = json_object_get(file->header, param->name);
        if (!entry)
            continue;
        const json_t *shape = json_object_get(entry, "shape");
        assert_int_equal(json_array_size(shape), param->dim_count);
        for (uint32_t d = 0; d < param->dim_count; d++)
            assert_int_equal(json_integer_value(json_array_get(shape, d)), param->dims[d]);
        bool bf16 = strcmp(json_string_value(json_object_get(entry, "dtype")), "BF16") == 0;
        size_t begin =
            (size_t)json_integer_value(json_array_get(json_object_get(entry, "data_offsets"), 0));
        widen(file->bytes + file->data_offset + begin + offset * (bf16 ? 2 : 4), bf16, dst, count);
        return 0;
    }
    fail_msg("no tensor %s", param->name);
    return -1;
}
