/* SPDX-License-Identifier: Apache-2.0 */
/* hoistway ckpt: what a store holds, and what can be done with it beside training. */
#include "verbs/ckpt/ckpt.h"

#include "cli/message/message.h"
#include "cli/message/voice.h"
#include "cli/options/launch.h"
#include "cli/options/verb.h"
#include "hf/hf.h"
#include "model/llama.h"
#include "verbs/train/run.h"
#include "verbs/verbs.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int ckpt_store(const struct cli_operands *operands, char store[CKPT_STORE_BYTES],
               struct hst_error *error)
{
    size_t n = 0;
    for (size_t i = 0; i < operands->count && n < CKPT_STORE_BYTES; i++)
        n += (size_t)snprintf(store + n, CKPT_STORE_BYTES - n, "%s%s", i ? "," : "",
                              operands->values[i]);
    if (operands->count == 0)
        return fail(error, FAIL_MISSING, -EINVAL,
                    "no store is named. Fix: name the directories that --store had.");
    return n < CKPT_STORE_BYTES ? 0
                                : fail(error, FAIL_VALUE, -EINVAL,
                                       "the store's directories have more than %u characters. Fix: "
                                       "name them from a directory nearby.",
                                       CKPT_STORE_BYTES);
}

/* ---- progress ---- */

void ckpt_progress_begin(struct ckpt_progress *progress, const char *what, bool quiet)
{
    *progress = (struct ckpt_progress){.stopped = stop_catch()};
    progress_init(&progress->progress, quiet || voice_is_other());
    progress_begin(&progress->progress, what);
}

int ckpt_progress_stopped(void *context, uint64_t done_bytes, uint64_t total_bytes)
{
    const struct ckpt_progress *p = context;
    (void)done_bytes;
    (void)total_bytes;
    return *p->stopped != 0;
}

int ckpt_progress_show(void *context, uint64_t done_bytes, uint64_t total_bytes)
{
    const struct ckpt_progress *p = context;
    progress_bytes(&p->progress, done_bytes, total_bytes);
    return *p->stopped != 0;
}

/* ---- the model of a store ---- */

/* It checks what train says of a model beside its shapes; stores of other programs do not. */
static int check_model_line(const char *directory, const struct llama_config *config,
                            const struct hst_ckpt_info *info, struct hst_error *error)
{
    char is[TRAIN_CURSOR_BYTES];
    const char *was = info->cursor;
    const size_t bytes = train_model_line(config, is), word = strlen("model ");
    if (info->cursor_bytes < word || memcmp(was, is, word) != 0 ||
        (info->cursor_bytes >= bytes && memcmp(was, is, bytes) == 0))
        return 0;
    const char *end = memchr(was, '\n', info->cursor_bytes);
    if (end && train_model_pad_alone((struct train_line){was, (int)(end - was)},
                                     (struct train_line){is, (int)bytes - 1}))
        return 0; /* an export holds the row, however it was trained */
    return fail(error, (enum fail_code)HST_E_STORE_OTHER, -EINVAL,
                "the store was trained with '%.*s', %.200s has '%.*s'. Fix: the config.json of "
                "that run.",
                end ? (int)(end - was) : 0, was, directory, (int)bytes - 1, is);
}

int ckpt_model_open(const char *directory, struct hst_ckpt *ckpt, struct ckpt_model *model,
                    struct hst_error *error)
{
    struct hst_ckpt_info info;
    *model = (struct ckpt_model){.source = NULL};
    hst_ckpt_info(ckpt, &info);
    int native = hf_model_open(directory, false, &model->source, error);
    if (native)
        return native;
    const struct llama_run run = {.seq_len = 1,
                                  .batch_tokens = 1,
                                  .micro_batch_tokens = 1, /* nothing is run: the least that can
                                                              be */
                                  .halves = train_layers_halved(info.cursor, info.cursor_bytes)};
    native = llama_create(hf_model_config(model->source), &run, &model->llama, error);
    if (native)
        return native;
    /* Tensors are described to an engine; this one is never sealed, and takes nothing. */
    const struct hst_config *config =
        hst_config(.precision = info.precision, .state = info.state, .batch_tokens = 1,
                   .micro_batch_tokens = 1, .threads = 1, .durability = "none", .error = error);
    native = hst_engine_create(config, &model->engine);
    native = native ? native : llama_add_units(model->llama, model->engine);
    if (native && !error->code)
        *error = *hst_engine_error(model->engine);
    native = native ? native : hst_ckpt_model(ckpt, model->engine, error);
    if (native)
        return native;
    return check_model_line(directory, hf_model_config(model->source), &info, error);
}

void ckpt_model_close(struct ckpt_model *model)
{
    hst_engine_destroy(&model->engine);
    llama_destroy(&model->llama);
    hf_model_close(&model->source);
}

/* ---- list ---- */

struct list_options {
    bool json;
};

static const struct hst_option list_table[] = {
    {.name = "json",
     .group = "output",
     .type = HST_OPTION_FLAG,
     .offset = offsetof(struct list_options, json),
     .help = "one JSON object"},
};

static int verb_list(int argc, char **argv)
{
    struct list_options options = {.json = false};
    struct cli_operands operands = {.argument = "STORE..."};
    const struct cli_verb verb = {
        .name = "ckpt list",
        .about = "Lists the versions that a store holds: its last one, and kept copies.",
        .sets = {{list_table, sizeof list_table / sizeof list_table[0], &options}},
        .set_count = 1,
        .operands = &operands,
    };
    struct hst_error error = {0};
    struct ckpt_source source = {.ranks = NULL};
    int code;
    if (!cli_ready(&verb, argc, argv, &code))
        return code;
    int native = ckpt_source_open(&source, &operands, "ckpt list", &error);
    bool goes_on = ckpt_source_goes_on(&source, native, &error);
    if (native == 0)
        native = ckpt_list(&source, options.json, SIZE_MAX, &goes_on, &error);
    code = native ? ckpt_source_fail(&source, goes_on, &error) : CLI_EXIT_OK;
    return ckpt_source_close(&source, goes_on, code);
}

/* ---- the verb ---- */

static const struct {
    const char *name, *about;
    int (*run)(int argc, char **argv);
} verbs[] = {
    {"list", "the versions that a store holds", verb_list},
    {"verify", "read every byte and compare it with its hash", ckpt_verb_verify},
    {"export", "the weights as a Hugging Face directory", ckpt_verb_export},
    {"reshard", "the same version for another number of ranks", ckpt_verb_reshard},
};
#define VERB_COUNT (sizeof verbs / sizeof verbs[0])

static void print_help(void)
{
    printf("usage: hoistway ckpt WHAT STORE... [options]\n\n"
           "Works on what a run has committed. STORE are the directories that --store had, in "
           "their order;\nnothing is written to them. Under mpirun each rank reads the files that "
           "its node has.\n\n");
    for (size_t i = 0; i < VERB_COUNT; i++)
        printf("  %-10s %s\n", verbs[i].name, verbs[i].about);
    printf("\n'hoistway ckpt WHAT --help' lists the options.\n");
}

int verb_ckpt(int argc, char **argv)
{
    struct hst_error error = {0};
    const char *names[VERB_COUNT];
    launch_speak(NULL);
    for (size_t i = 0; i < VERB_COUNT; i++) {
        names[i] = verbs[i].name;
        if (argc > 0 && strcmp(argv[0], verbs[i].name) == 0)
            return verbs[i].run(argc - 1, argv + 1);
    }
    if (argc > 0 && (strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0)) {
        print_help();
        return CLI_EXIT_OK;
    }
    const char *nearest = argc > 0 ? cli_nearest(argv[0], names, VERB_COUNT) : NULL;
    fail(&error, FAIL_USAGE, -EINVAL,
         "ckpt can list, verify, export and reshard (got '%.60s'). Fix: hoistway ckpt %s STORE.",
         argc > 0 ? argv[0] : "", nearest ? nearest : "list");
    return cli_fail(&error);
}
