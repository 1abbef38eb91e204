/* SPDX-License-Identifier: Apache-2.0 */
/* hoistway ckpt verify: every byte of every version, at the drives' rate. */
#include "base/text.h"
#include "cli/log/json.h"
#include "cli/message/activity.h"
#include "cli/message/message.h"
#include "cli/options/verb.h"
#include "verbs/ckpt/ckpt.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* A script's next act depends on whether another drive could still give the bytes. */
enum { EXIT_DATA = 65, EXIT_IO = 74 };

#define KEPT_MAX 1024u
enum { WHICH_BYTES = 40 };

struct options {
    const char *model;
    bool json, quiet;
};

static const struct hst_option table[] = {
    {.name = "model",
     .group = "input",
     .type = HST_OPTION_TEXT,
     .offset = offsetof(struct options, model),
     .argument = "DIR",
     .default_text = "tiles have numbers",
     .help = "Hugging Face directory: tells which tensor a damaged block is of"},
    {.name = "json",
     .group = "output",
     .type = HST_OPTION_FLAG,
     .offset = offsetof(struct options, json),
     .help = "one JSON object"},
    {.name = "quiet",
     .group = "output",
     .type = HST_OPTION_FLAG,
     .offset = offsetof(struct options, quiet),
     .help = "no progress"},
};

struct run {
    const struct options *options;
    struct ckpt_source source;
    struct json_writer json;
    struct ckpt_progress progress;
    uint64_t unread; /* damaged blocks that cannot be read at all */
    uint64_t damaged;
    int exit_code; /* of versions that could not be verified */
    bool goes_on;  /* with the other ranks */
};

static void print_damage(const struct hst_ckpt_damage *d)
{
    printf("damaged: %s of tile %" PRIu64, d->what, d->tile);
    if (d->unit)
        printf(" (%s%s%s)", d->unit, d->param ? ", " : "", d->param ? d->param : "");
    printf(": %s/%s, offset %" PRIu64 ", %" PRIu64 " byte%s: %s\n", d->directory, d->file,
           d->offset, d->bytes, text_s(d->bytes),
           d->error == -EBADMSG ? "not those that were written" : strerror(-d->error));
}

static void damage(void *context, const struct hst_ckpt_damage *d)
{
    struct run *run = context;
    char path[4096];
    run->unread += d->error != -EBADMSG;
    if (!run->options->json) {
        activity_hold();
        print_damage(d);
        activity_release();
        return;
    }
    snprintf(path, sizeof path, "%s/%s", d->directory, d->file);
    json_put_object(&run->json, NULL);
    json_put_text(&run->json, "what", d->what);
    json_put_whole(&run->json, "tile", d->tile);
    json_put_text(&run->json, "unit", d->unit);
    json_put_text(&run->json, "tensor", d->param);
    json_put_whole(&run->json, "rank", d->rank);
    json_put_text(&run->json, "file", path);
    json_put_whole(&run->json, "offset", d->offset);
    json_put_whole(&run->json, "bytes", d->bytes);
    json_put_text(&run->json, "why",
                  d->error == -EBADMSG ? "not what was written" : strerror(-d->error));
    json_put_end(&run->json);
}

static int progress(void *context, uint64_t done_bytes, uint64_t total_bytes)
{
    struct run *run = context;
    return ckpt_progress_show(&run->progress, done_bytes, total_bytes);
}

/* A line says this of a version that is not the store's own last one. */
static void name_version(uint32_t replica, bool kept, char text[WHICH_BYTES])
{
    snprintf(text, WHICH_BYTES, "%s", kept ? " (a kept copy)" : "");
    if (replica > 0)
        snprintf(text, WHICH_BYTES, " (%sreplica %" PRIu32 ")", kept ? "a kept copy, " : "",
                 replica);
}

static int verify_opened(struct run *run, struct hst_ckpt *ckpt, uint32_t replica,
                         struct hst_error *error)
{
    struct hst_ckpt_info info;
    char size[TEXT_BYTES], what[64], which[WHICH_BYTES];
    uint64_t damaged = 0;
    hst_ckpt_info(ckpt, &info);
    name_version(replica, info.kept, which);
    snprintf(what, sizeof what, "verify step %" PRIu64, info.step);
    ckpt_progress_begin(&run->progress, what, run->options->quiet);
    if (run->options->json) {
        json_put_object(&run->json, NULL);
        json_put_whole(&run->json, "step", info.step);
        json_put_text(&run->json, "kind", info.kept ? "kept" : "committed");
        if (replica > 0)
            json_put_whole(&run->json, "replica", replica);
        json_put_whole(&run->json, "bytes", info.weights_bytes + info.states_bytes);
        json_put_whole(&run->json, "damaged_copies", info.damaged_copies);
        json_put_bool(&run->json, "stepped_back", info.stepped_back);
        json_put_array(&run->json, "damaged");
    }
    const struct hst_ckpt_watch watch = {progress, damage, run};
    const int native = hst_ckpt_verify(ckpt, &watch, &damaged, error);
    progress_end(&run->progress.progress);
    run->damaged += damaged;
    if (run->options->json) {
        json_put_end(&run->json);
        json_put_end(&run->json);
    } else if (native == 0 && damaged == 0) {
        printf("step %" PRIu64 ": every byte of %s is as it was written%s\n", info.step,
               text_size(info.weights_bytes + info.states_bytes, size), which);
    } else if (native == 0) {
        printf("step %" PRIu64 ": %" PRIu64 " block%s damaged%s\n", info.step, damaged,
               damaged == 1 ? " is" : "s are", which);
    }
    if (info.damaged_copies > 0 || info.stepped_back) {
        run->exit_code = EXIT_DATA > run->exit_code ? EXIT_DATA : run->exit_code;
        if (!run->options->json && info.damaged_copies > 0)
            printf("step %" PRIu64 ": %u damaged cop%s a good one%s\n", info.step,
                   info.damaged_copies,
                   info.damaged_copies == 1 ? "y of a table, with" : "ies of tables, each with",
                   which);
    }
    return native;
}

static int exit_of(const struct run *run, int native, struct hst_error *error)
{
    const bool goes_on = ckpt_source_goes_on(&run->source, native, error);
    const int code = ckpt_source_fail(&run->source, goes_on, error);
    if (error->native == -ECANCELED)
        return code;
    switch (error->code) {
    case HST_E_STORE_FORMAT:
    case HST_E_STORE_MIXED:
    case HST_E_STORE_DAMAGED:
    case HST_E_STORE_TAKEN: /* a directory of something else */
    case HST_E_STORE_EMPTY: /* a kept copy that has lost a file */
        return EXIT_DATA;
    case HST_E_READ:
        return EXIT_IO;
    default:
        return code;
    }
}

/* Tells why it could not be verified. Returns whether the next version may be all the same. */
static bool verify_one(struct run *run, uint64_t step, uint32_t replica)
{
    struct hst_ckpt *ckpt = NULL;
    struct ckpt_model model = {.source = NULL};
    struct hst_error error = {0};
    int native = replica > 0 ? ckpt_source_replica(&run->source, step, replica, &ckpt, &error)
                             : ckpt_source_version(&run->source, step, true, &ckpt, &error);
    if (native == 0 && run->options->model)
        native = ckpt_model_open(run->options->model, ckpt, &model, &error);
    native = native ? native : verify_opened(run, ckpt, replica, &error);
    hst_ckpt_close(&ckpt);
    ckpt_model_close(&model);
    const int code = native ? exit_of(run, native, &error) : CLI_EXIT_OK;
    run->goes_on = ckpt_source_goes_on(&run->source, native, &error);
    run->exit_code = code > run->exit_code ? code : run->exit_code;
    return run->goes_on && (code == CLI_EXIT_OK || code == EXIT_DATA || code == EXIT_IO);
}

/* It ends all where something cannot be asked for. Returns whether what comes next may be begun. */
static bool refuse_all(struct run *run, int native, struct hst_error *error)
{
    run->exit_code = exit_of(run, native, error);
    run->goes_on = false;
    return false;
}

/* It reads what the other replicas have of a step. */
static bool verify_replicas(struct run *run, uint64_t step)
{
    uint32_t numbers[KEPT_MAX];
    size_t count = 0;
    struct hst_error error = {0};
    const int native = ckpt_source_replicas(&run->source, step, numbers, KEPT_MAX, &count, &error);
    bool goes_on = native == 0 || refuse_all(run, native, &error);
    for (size_t k = 0; k < count && k < KEPT_MAX && goes_on; k++)
        goes_on = verify_one(run, step, numbers[k]);
    return goes_on;
}

/* The store's last version, then those that are kept, and what other replicas have of both. */
static void verify_all(struct run *run)
{
    uint64_t steps[KEPT_MAX];
    size_t found;
    struct hst_error error = {0};
    int native = ckpt_source_kept(&run->source, steps, KEPT_MAX, &found, &error);
    if (native) {
        refuse_all(run, native, &error);
        return;
    }
    if (run->options->json) {
        json_put_object(&run->json, NULL);
        json_put_text(&run->json, "store", run->source.store);
        json_put_array(&run->json, "versions");
    }
    bool goes_on = verify_one(run, HST_NO_VERSION, 0);
    for (size_t k = 0; k < found && k < KEPT_MAX && goes_on; k++)
        goes_on = verify_one(run, steps[k], 0);
    goes_on = goes_on && verify_replicas(run, HST_NO_VERSION);
    if (goes_on && (native = ckpt_source_copies(&run->source, steps, KEPT_MAX, &found, &error)))
        goes_on = refuse_all(run, native, &error);
    for (size_t k = 0; k < found && k < KEPT_MAX && goes_on; k++)
        goes_on = verify_replicas(run, steps[k]);
    if (run->options->json) {
        json_put_end(&run->json);
        json_put_whole(&run->json, "damaged_blocks", run->damaged);
        json_put_bool(&run->json, "complete", run->exit_code == CLI_EXIT_OK);
        json_put_end(&run->json);
        putchar('\n');
    }
}

int ckpt_verb_verify(int argc, char **argv)
{
    struct options options = {.json = false};
    struct cli_operands operands = {.argument = "STORE..."};
    const struct cli_verb verb = {
        .name = "ckpt verify",
        .about = "Reads every byte of a store's versions and compares it with what was written.\n"
                 "Ends with 65 where some are others, 74 where some cannot be read.",
        .sets = {{table, sizeof table / sizeof table[0], &options}},
        .set_count = 1,
        .operands = &operands,
    };
    struct hst_error error = {0};
    int code;
    if (!cli_ready(&verb, argc, argv, &code))
        return code;
    struct run run = {.options = &options, .json = {.out = stdout}};
    const int native = ckpt_source_open(&run.source, &operands, "ckpt verify", &error);
    if (native) {
        code = exit_of(&run, native, &error);
        return ckpt_source_close(&run.source, ckpt_source_goes_on(&run.source, native, &error),
                                 code);
    }
    verify_all(&run);
    code = run.unread > 0 ? EXIT_IO : run.damaged > 0 ? EXIT_DATA : CLI_EXIT_OK;
    code = code > run.exit_code ? code : run.exit_code;
    return ckpt_source_close(&run.source, run.goes_on, code);
}
