/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides which ids end what a model says: those of generation_config.json alone where there is
 * one, which may be none, else those of config.json. So does transformers, for which a file that is
 * no JSON is not there, too. An id that the model lacks is left out, as it cannot be said.
 */
#include "hf/json/json.h"
#include "hf/model.h"

#include <stdlib.h>
#include <string.h>

#define MOST_BYTES (1u << 20)
#define MOST_KEYS  4096u

struct ends {
    uint32_t *ids;
    size_t most, count;
};

static void take(struct ends *ends, const struct hf_model *model, const char *text,
                 struct jsn_value value)
{
    uint64_t id;
    if (value.type == JSN_NUMBER && jsn_u64(text, value, &id) && id < model->config.vocab &&
        ends->count < ends->most)
        ends->ids[ends->count++] = (uint32_t)id;
}

/* One id, or a list of them. */
static void take_all(struct ends *ends, const struct hf_model *model, const char *text, size_t size)
{
    static const char *const keys[] = {"eos_token_id"};
    struct jsn_value v = {0}, one;
    jsn_members(text, size, keys, 1, &v);
    if (v.type != JSN_ARRAY) {
        take(ends, model, text, v);
        return;
    }
    struct jsn_reader r = jsn_reader(text + v.begin, v.end - v.begin);
    jsn_next(&r);
    while ((one = jsn_next_value(&r)).type != JSN_ARRAY_END && one.type != JSN_ERROR)
        take(ends, model, text + v.begin, one);
}

static const struct input *generation_config(const struct hf_model *model)
{
    for (size_t i = 0; i < model->extra_count; i++)
        if (strcmp(model->extras[i].name, "generation_config.json") == 0)
            return &model->extras[i].input;
    return NULL;
}

size_t hf_model_ends(const struct hf_model *model, uint32_t *ids, size_t most)
{
    struct ends ends = {.ids = ids, .most = most};
    const struct input *input = generation_config(model);
    struct jsn_fault fault;
    char *text = NULL;
    if (input && input_read_all(input, MOST_BYTES, &text) == 0 &&
        jsn_check(text, (size_t)input->size_bytes, MOST_KEYS, &fault) == 0)
        take_all(&ends, model, text, (size_t)input->size_bytes);
    else
        take_all(&ends, model, model->config_text, model->config_bytes);
    free(text);
    return ends.count;
}
