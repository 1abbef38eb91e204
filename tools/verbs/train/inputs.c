/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This file reads what a run is made from, and refuses all that can be refused: nothing is written
 * here. Files are read to the end of what will ever be parsed of them before any device is asked
 * for.
 */
#include "cli/log/runlog.h"
#include "cli/message/message.h"
#include "cli/message/voice.h"
#include "cli/options/store.h"
#include "hf/folder.h"
#include "verbs/train/run.h"

#include <errno.h>
#include <hoistway/plan.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

void train_tell_model(const struct train *t)
{
    const struct hf_note *note;
    for (size_t i = 0; (note = hf_model_note(t->source, i)); i++) {
        if (note->warning)
            cli_warn((enum cli_code)note->code, "%s", note->text);
        else if (!t->options->quiet)
            cli_note((enum cli_code)note->code, "%s", note->text);
    }
}

void train_tell_micro_batch(const struct train *t)
{
    uint64_t wish = t->options->engine.micro_batch_tokens;
    char in_ways[TRAIN_NEAR_BYTES];
    if (wish && wish != t->run.micro_batch_tokens && !t->options->quiet)
        cli_note(CLI_VALUE,
                 "--grain %" PRIu64 " becomes %" PRIu64 ": whole sequences of --seq-len %" PRIu64
                 ", and no more than --batch-tokens%s.",
                 wish, t->run.micro_batch_tokens, t->run.seq_len,
                 train_ways_words(t->run.ways, in_ways));
}

static int open_model(struct train *t)
{
    const struct train_options *o = t->options;
    if (hst_shape_find(o->model) && !folder_is_there(o->model))
        return fail(t->error, FAIL_CONFIG_FILE, -ENOENT,
                    "--model '%.100s' is a model that plan knows by name, and no directory: train "
                    "needs the model's files. Fix: download the model and name its directory.",
                    o->model);
    int native = hf_model_open(o->model, o->init != TRAIN_INIT_RANDOM, &t->source, t->error);
    if (!native)
        train_tell_model(t);
    return native;
}

int train_weights_check(struct hf_model *source, struct hst_error *error)
{
    const struct llama_run least = {.seq_len = 1,
                                    .batch_tokens = 1,
                                    .micro_batch_tokens = 1}; /* names and shapes do not depend on
                                                                 it */
    const struct llama_tensor *tensor;
    struct llama *model = NULL;
    int native = llama_create(hf_model_config(source), &least, &model, error);
    for (size_t i = 0; !native && (tensor = llama_tensor(model, i)); i++)
        native = hf_model_require(source, tensor->name, tensor->dim_count, tensor->dims, error);
    llama_destroy(&model);
    return native;
}

static int check_weights(struct train *t)
{
    const struct train_options *o = t->options;
    if (o->init == TRAIN_INIT_RANDOM)
        return 0;
    int native = train_weights_check(t->source, t->error);
    size_t count = 0;
    const char *unused = native ? NULL : hf_model_unused(t->source, &count);
    if (count == 1)
        cli_warn(CLI_TENSOR,
                 "%.200s holds '%.100s', which its architecture does not use: it is neither "
                 "trained nor exported.",
                 o->model, unused);
    else if (unused)
        cli_warn(CLI_TENSOR,
                 "%.200s holds %zu tensors that its architecture does not use ('%.100s' is the "
                 "first): they are neither trained nor exported.",
                 o->model, count, unused);
    return native;
}

#define U16_IDS 65536u

/*
 * Ids that stay far below the vocabulary are another tokenizer's, or were cut to fewer bits. Ids of
 * 16 bits are suspect wherever they cannot name all of it, however large they are.
 */
static void tell_other_ids(const struct train *t, uint64_t vocab)
{
    uint64_t largest = data_largest_id(t->data);
    if (t->options->quiet)
        return;
    if (data_has_u16(t->data) && vocab > U16_IDS)
        cli_note(CLI_SMALL_IDS,
                 "the data's token ids have 16 bits, which cannot name all of the model's %" PRIu64
                 " ids (the largest in its first MiB is %" PRIu64
                 "): is the data of this model's tokenizer?",
                 vocab, largest);
    else if (largest < vocab / 4)
        cli_note(CLI_SMALL_IDS,
                 "the largest token id of the data's first MiB is %" PRIu64 ", and the model has "
                 "%" PRIu64 ": is the data of this model's tokenizer?",
                 largest, vocab);
}

struct data_config train_data_config(const struct train *t, const struct llama_config *model)
{
    const struct train_options *o = t->options;
    return (struct data_config){
        .files = o->data,
        .format = o->data_format,
        .token_dtype = o->token_dtype,
        .order = o->order,
        .seed = o->seed,
        .seq_len = o->seq_len,
        .split = o->eval_split,
        .may_shorten = o->default_seq_len,
        .vocab = model->vocab,
        .pack = o->pack,
        .longer = o->longer,
        .tokenizer = t->source ? hf_model_tokenizer(t->source) : NULL,
        .model = o->allow_other_tokenizer ? NULL : o->model,
        .stopped = o->stopped,
    };
}

int train_data_open(struct train *t, const struct llama_config *model)
{
    const struct data_config config = train_data_config(t, model);
    int native = data_open(&config, &t->data, t->error);
    if (native)
        return native;
    tell_other_ids(t, config.vocab);
    native = train_settle(t);
    native = native ? native : train_eval_open(t, model);
    return native ? native : train_samples_open(t);
}

enum hst_precision train_precision(const struct train *t)
{
    if (t->options->engine.precision != HST_PRECISION_DEFAULT)
        return t->options->engine.precision;
    return t->device.gpu ? HST_PRECISION_BF16 : HST_PRECISION_FP32;
}

enum hst_dtype train_dtype(const struct train *t)
{
    enum hst_precision precision = train_precision(t);
    return precision == HST_PRECISION_FP32   ? HST_F32
           : precision == HST_PRECISION_BF16 ? HST_BF16
                                             : HST_F16;
}

uint64_t train_weight_bytes(const struct train *t)
{
    return train_dtype(t) == HST_F32 ? 4 : 2;
}

/* A frozen tensor has no states, which of the others keep what bf16 cuts off. */
void train_warn_rounded(const struct train *t)
{
    uint32_t count = 0;
    const struct llama_tensor *tensor;
    if (t->options->init == TRAIN_INIT_RANDOM || !t->source || train_dtype(t) != HST_BF16)
        return;
    for (size_t i = 0; (tensor = llama_tensor(t->model, i)) != NULL; i++) {
        const char *type = hf_model_tensor_type(t->source, tensor->name);
        count += type && strcmp(type, "BF16") != 0 && hst_engine_is_frozen(t->engine, tensor->name);
    }
    if (count)
        cli_warn(CLI_TENSOR,
                 "%" PRIu32 " frozen tensor%s of %.150s %s F32 or F16: what bf16 cannot hold of "
                 "%s is rounded, also in an export. Fix: --precision fp32 keeps %s.",
                 count, text_s(count), t->options->model, count == 1 ? "is" : "are",
                 count == 1 ? "it" : "them", count == 1 ? "it" : "them");
}

static bool keeps_versions(const struct train_options *o)
{
    const char *durability = o->engine.durability;
    return !durability || strcmp(durability, "none") != 0;
}

static int check_outputs(struct train *t)
{
    const struct train_options *o = t->options;
    int native = 0;
    t->export = (struct train_export){
        .directory = o->export_directory,
        .source = t->source,
        .model = t->model,
        .working = train_dtype(t),
        .dtype = export_dtype(o->export_dtype, t->source, train_dtype(t)),
        /* no rank waits for room while the others wait for it */
        .stopped = train_options_ranks(o) == 1 ? o->stopped : NULL,
        .progress = &t->progress,
    };
    if (o->export_directory && !voice_is_other())
        native = train_export_check(&t->export, t->error);
    if (!native)
        native = run_log_check(o->log, t->error);
    if (!native)
        native = trace_check(o->trace, t->error);
    if (!native)
        native = views_check(&o->views, t->error);
    const char *store = train_store(t);
    t->store_made = store != NULL;
    for (struct store_list list = {.rest = store}; !native && store_next(&list);) {
        native = store_check_local(list.directory, t->error);
        t->store_made = t->store_made && access(list.directory, F_OK) < 0;
    }
    if (!native && store &&
        keeps_versions(o)) /* before its engine is made, which does not know that it begins */
        native = hst_store_check(store, !o->resume, t->error);
    return native;
}

const char *train_store(const struct train *t)
{
    const char *store = t->options->engine.store;
    if (t->engine)
        return hst_engine_store(t->engine);
    return store_has_words(store) ? NULL : store;
}

/* It looks at what the engine has not: that knows this rank's files, and no output. */
int train_inputs_check_store(struct train *t)
{
    struct train_options own = *t->options;
    own.engine.store = train_store(t);
    int native = train_options_check_outputs(&own, t->error);
    for (struct store_list list = {.rest = own.engine.store}; !native && store_next(&list);)
        native = store_check_local(list.directory, t->error);
    return native;
}

int train_inputs_open(struct train *t)
{
    int native = train_options_check(t->options, t->error);
    if (!native)
        native = open_model(t);
    if (!native)
        native = check_weights(t);
    return native ? native : train_data_open(t, hf_model_config(t->source));
}

int train_inputs_check(struct train *t)
{
    int native = llama_create(hf_model_config(t->source), &t->run, &t->model, t->error);
    if (native)
        return native;
    train_tell_micro_batch(t);
    return check_outputs(t);
}
