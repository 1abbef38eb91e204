/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Brings a DeepSpeed configuration and the command line together: the command line wins, and what
 * it wins over is told.
 */
#include "verbs/train/config.h"

#include "cli/message/message.h"
#include "cli/options/launch.h"
#include "verbs/train/options_file.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES 380u /* of a list in a message, which has room for 511 */

static const char *path_of(const struct train_config *tc, const struct hjson_entry *e,
                           char path[HJSON_PATH_BYTES])
{
    return hjson_path(&tc->config.hjson, (size_t)(e - tc->config.hjson.entries), path);
}

/* ---- taking ---- */

static int take(struct cli_parser *parser, struct train_config *tc, size_t i,
                struct hst_error *error)
{
    const struct ds_option *o = &tc->options.list[i];
    char why[CLI_WHY_BYTES], text[CLI_WHY_BYTES + 100];
    tc->how[i] = cli_supply(parser, o->option, o->value, why);
    if (tc->how[i] == CLI_TAKEN && !o->value)
        return ds_refuse(&tc->config, o->entry, error, o->refusal);
    if (tc->how[i] != CLI_BAD_VALUE)
        return 0;
    snprintf(text, sizeof text, "--%s %s. Fix: correct it there.", o->option, why);
    return ds_refuse(&tc->config, o->entry, error, text);
}

int train_config_scheduler(const struct train_options *o, struct schedule_peer *peer,
                           struct hst_error *error)
{
    const struct train_config *tc = o->from_file;
    const bool given = o->warmup.count > 0 || o->warmup.percent > 0;
    *peer = (struct schedule_peer){.kind = PEER_NONE};
    if (!tc || tc->options.scheduler.kind == PEER_NONE)
        return 0;
    *peer = tc->options.scheduler;
    const struct ds_key *key = ds_key_find("scheduler.params.warmup_num_steps");
    const struct hjson_entry *entry = tc->config.of[key - ds_keys];
    if (peer->warmup_steps == 0 && !given)
        return ds_refuse(&tc->config, entry, error,
                         "the command line does not say it. Fix: --warmup with the steps of the "
                         "warmup.");
    if (peer->warmup_steps > 0 && given)
        return fail(error, FAIL_VALUE, -EINVAL,
                    "--warmup is a part of --schedule, and the scheduler of --config has a warmup "
                    "of %llu steps. Fix: --schedule, which then counts in its place, or leave "
                    "--warmup out.",
                    (unsigned long long)peer->warmup_steps);
    if (peer->warmup_steps == 0)
        peer->warmup_steps = schedule_share(o->warmup, o->steps);
    if (peer->total_steps == 0)
        peer->total_steps = o->steps;
    return 0;
}

static int read_config(struct cli_parser *parser, struct train_options *options, uint32_t ranks,
                       struct hst_error *error)
{
    struct train_config *tc = calloc(1, sizeof *tc);
    if (!tc)
        return fail(error, FAIL_BUDGET, -ENOMEM, "no memory for the configuration");
    options->from_file = tc;
    const struct ds_run run = {
        .seq_len = options->seq_len,
        .ranks = ranks,
        .own_optimizer = cli_supply(parser, "optimizer", NULL, NULL) == CLI_OVERRULED,
        .own_schedule = cli_supply(parser, "schedule", NULL, NULL) == CLI_OVERRULED};
    int native = ds_config_read(&tc->config, options->config, error);
    native = native ? native : ds_config_options(&tc->config, run, &tc->options, error);
    for (size_t i = 0; i < tc->options.count && !native; i++)
        native = take(parser, tc, i, error);
    return native ? native : train_config_scheduler(options, &(struct schedule_peer){0}, error);
}

void train_config_close(struct train_options *options)
{
    if (options->from_file)
        ds_config_close(&options->from_file->config);
    free(options->from_file);
    options->from_file = NULL;
    train_options_file_close(options);
}

/* ---- --explain-config ---- */

static void print_row(const char *key, const char *file, const char *here, const char *why)
{
    printf("%-52s %-22s %-32s %s\n", key, file, here, why);
}

static void effect(const struct train_config *tc, size_t i, char here[128], char why[256])
{
    static const char *const from[] = {"", "DeepSpeed's default", "\"auto\": what Trainer takes"};
    const struct ds_option *o = &tc->options.list[i];
    snprintf(here, 128, "--%s %s", o->option, o->value ? o->value : "");
    snprintf(why, 256, "%s", from[o->why]);
    if (tc->how[i] == CLI_OVERRULED) {
        snprintf(here, 128, "--%s of the command line", o->option);
        snprintf(why, 256, "the command line wins");
    } else if (tc->how[i] == CLI_NO_OPTION) {
        snprintf(why, 256, "an option of train alone");
    }
}

static void explain_entry(const struct train_config *tc, size_t entry)
{
    const struct hjson_entry *e = &tc->config.hjson.entries[entry];
    const struct ds_key *key;
    char path[HJSON_PATH_BYTES], here[128] = "-", why[256], value[64];
    snprintf(value, sizeof value, e->type == JSN_STRING ? "\"%.40s\"" : "%.40s",
             e->type == JSN_OBJECT  ? "{...}"
             : e->type == JSN_ARRAY ? "[...]"
                                    : e->text);
    key = ds_key_find(path_of(tc, e, path));
    snprintf(why, sizeof why, "%s", key ? key->words : "its name begins with _");
    for (size_t i = 0; i < tc->options.count; i++)
        if (tc->options.list[i].entry == e)
            effect(tc, i, here, why);
    print_row(path, value, here, why);
}

static void explain(const struct train_config *tc)
{
    char here[128], why[256];
    print_row("key", "in the file", "here", "why");
    for (size_t i = 1; i < tc->config.hjson.count; i++)
        if (tc->config.place[i] == DS_AT_USED || tc->config.place[i] == DS_AT_NOTED)
            explain_entry(tc, i);
    for (size_t i = 0; i < tc->options.count; i++) {
        if (tc->options.list[i].entry)
            continue;
        effect(tc, i, here, why);
        print_row(tc->options.list[i].key->path, "absent", here, why);
    }
}

/* ---- as a part of the command line ---- */

static int more(struct cli_parser *parser, struct train_options *options, uint32_t ranks,
                bool *done, struct hst_error *error)
{
    if (!options->config && options->explain_config)
        return fail(error, FAIL_VALUE, -EINVAL,
                    "--explain-config is about --config, which is not given. Fix: --config FILE.");
    if (!options->config)
        return 0;
    const int native = read_config(parser, options, ranks, error);
    if (!native && options->explain_config)
        explain(options->from_file);
    *done = options->explain_config;
    return native;
}

int train_config_more(struct cli_parser *parser, void *context, bool *done, struct hst_error *error)
{
    struct train_options *options = context;
    struct hst_launch launch = {.ranks = 1};
    int native = train_options_file_take(parser, options, error);
    if (!native && (options->config || options->print_options))
        native = launch_read(&options->launch, &launch, error);
    native = native ? native : more(parser, options, launch.ranks, done, error);
    if (native || *done || !options->print_options)
        return native;
    *done = true;
    return launch.rank == 0 ? train_options_print(options, error) : 0;
}

int train_config_more_of(struct cli_parser *parser, struct train_options *options, uint32_t ranks,
                         bool *done, struct hst_error *error)
{
    const int native = train_options_file_take(parser, options, error);
    return native ? native : more(parser, options, ranks, done, error);
}

/* ---- telling ---- */

struct list {
    char text[LINE_BYTES];
    size_t used, left_out;
};

static void append(struct list *list, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void append(struct list *list, const char *format, ...)
{
    char item[HJSON_PATH_BYTES + 64];
    va_list args;
    va_start(args, format);
    vsnprintf(item, sizeof item, format, args);
    va_end(args);
    if (list->left_out == 0 && list->used + strlen(item) + 2 < sizeof list->text)
        list->used += (size_t)snprintf(list->text + list->used, sizeof list->text - list->used,
                                       "%s%s", list->used ? ", " : "", item);
    else
        list->left_out++;
}

static const char *rest(const struct list *list, char dst[32])
{
    dst[0] = '\0';
    if (list->left_out)
        snprintf(dst, 32, ", and %zu more", list->left_out);
    return dst;
}

static void tell_options(const struct train_config *tc)
{
    struct list taken = {.used = 0}, lost = {.used = 0};
    const enum peer_kind kind = tc->options.scheduler.kind;
    char path[HJSON_PATH_BYTES], more_of[32];
    for (size_t i = 0; i < tc->options.count; i++) {
        const struct ds_option *o = &tc->options.list[i];
        if (tc->how[i] == CLI_TAKEN)
            append(&taken, "--%s %s", o->option, o->value);
        else if (tc->how[i] == CLI_OVERRULED && o->entry)
            append(&lost, "%s (--%s)", path_of(tc, o->entry, path), o->option);
    }
    if (kind != PEER_NONE)
        append(&taken, "the rates of %s", PEER_NAMES[kind - PEER_WARMUP]);
    if (taken.used)
        cli_note(CLI_CONFIG, "%s says %s%s", tc->config.name, taken.text, rest(&taken, more_of));
    if (lost.used)
        cli_note(CLI_CONFIG, "the command line wins over %s: %s%s", tc->config.name, lost.text,
                 rest(&lost, more_of));
}

static void tell_noted(const struct train_config *tc)
{
    struct list noted = {.used = 0};
    char path[HJSON_PATH_BYTES], more_of[32];
    for (size_t i = 1; i < tc->config.hjson.count; i++)
        if (tc->config.place[i] == DS_AT_NOTED)
            append(&noted, "%s", path_of(tc, &tc->config.hjson.entries[i], path));
    if (noted.used)
        cli_note(CLI_CONFIG, "of no effect here, as --explain-config tells: %s%s", noted.text,
                 rest(&noted, more_of));
}

void train_config_tell(const struct train_options *options)
{
    const struct train_config *tc = options->from_file;
    char path[HJSON_PATH_BYTES];
    train_options_file_tell(options);
    if (!tc)
        return;
    if (tc->config.worded)
        cli_warn(CLI_CONFIG, "%s:%u: %.100s is \"%s\" in quotes, and counts as %s", tc->config.name,
                 tc->config.worded->line, path_of(tc, tc->config.worded, path),
                 tc->config.worded->text, tc->config.worded->text);
    if (options->quiet)
        return;
    tell_options(tc);
    tell_noted(tc);
}
