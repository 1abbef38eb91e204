/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides what of a file of options counts beside the command line, which wins, and how the options
 * of a run are written, so that the same bits are trained from them.
 */
#include "verbs/train/options_file.h"

#include "cli/message/message.h"
#include "verbs/train/config.h"

#include <errno.h>
#include <hoistway/plan.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_one_of(const char *name, const char *const *list)
{
    while (*list && strcmp(*list, name) != 0)
        list++;
    return *list != NULL;
}

/* ---- taking ---- */

static void append(char list[TRAIN_OPTIONS_LINE_BYTES], const char *name)
{
    const size_t used = strlen(list);
    snprintf(list + used, TRAIN_OPTIONS_LINE_BYTES - used, "%s--%s", used ? ", " : "", name);
}

/* The alternative on the command line wins over the other one, too. */
struct said {
    bool length; /* --steps or --epochs */
    bool times;  /* --eval-every */
};

static bool is_given(struct cli_parser *parser, const char *option)
{
    return cli_supply(parser, option, NULL, NULL) == CLI_OVERRULED;
}

static bool is_length(const char *option)
{
    return strcmp(option, "steps") == 0 || strcmp(option, "epochs") == 0;
}

static int take(struct cli_parser *parser, struct train_options_file *own, struct said said,
                const struct hjson_entry *entry, struct hst_error *error)
{
    char place[OPTIONS_PLACE_BYTES], why[CLI_WHY_BYTES];
    bool *taken = &own->taken[entry - own->file.hjson.entries];
    const struct hst_option *kin, *option = cli_option_find(parser, entry->key, &kin);
    const char *text;
    options_file_place(&own->file, entry, place);
    if (!option && !kin)
        return cli_option_unknown(parser, entry->key, place);
    if (strcmp(entry->key, "options") == 0)
        return fail(error, FAIL_VALUE, -EINVAL,
                    "%s--options: a file of options names no other one. Fix: leave it out.", place);
    const int native = options_file_value(&own->file, entry, option ? option : kin, &text, error);
    if (native)
        return native;
    if (kin)
        append(own->idle, entry->key);
    else if ((said.length && is_length(entry->key)) || is_given(parser, entry->key))
        append(own->overruled, entry->key);
    else if (cli_supply(parser, entry->key, text, why) == CLI_BAD_VALUE) /* of null: nothing */
        return fail(error, FAIL_VALUE, -EINVAL, "%s--%s: %s. Fix: correct it there.", place,
                    entry->key, why);
    else
        *taken = text != NULL;
    return 0;
}

/*
 * A log has no paths: that of --eval is to be given again, as that of --data is. Without, how often
 * it was evaluated changes no weight and says nothing. What ends a run or chooses its weights does.
 */
static int settle_evaluation(struct train_options *options, struct said said,
                             struct train_options_file *own, struct hst_error *error)
{
    static const char *const decisive[] = {"keep-best", "patience", NULL};
    char place[OPTIONS_PLACE_BYTES];
    const struct hjson_entry *entry = &own->file.hjson.entries[own->file.at];
    if (options->eval || options->eval_split > 0)
        return 0;
    while ((entry = options_file_next(&own->file, entry)) != NULL)
        if (is_one_of(entry->key, decisive) && (options->keep_best || options->patience) &&
            !strstr(own->overruled, entry->key))
            return fail(error, FAIL_VALUE, -EINVAL,
                        "%s--%s: it is of a run that evaluates, and what on is a path, which a log "
                        "leaves out. Fix: --eval FILE, as that run had it.",
                        options_file_place(&own->file, entry, place), entry->key);
    own->unseen = !said.times && (options->eval_every.count > 0 || options->eval_every.percent > 0);
    if (own->unseen)
        options->eval_every = (struct hst_share){.count = 0};
    return 0;
}

int train_options_file_take(struct cli_parser *parser, struct train_options *options,
                            struct hst_error *error)
{
    const struct said said = {is_given(parser, "steps") || is_given(parser, "epochs"),
                              is_given(parser, "eval-every")};
    if (!options->options_path)
        return 0;
    struct train_options_file *own = calloc(1, sizeof *own);
    if (!own)
        return fail(error, FAIL_BUDGET, -ENOMEM, "no memory for the options");
    options->from_options = own;
    int native = options_file_read(&own->file, options->options_path, error);
    if (native)
        return native;
    const struct hjson_entry *entry = &own->file.hjson.entries[own->file.at];
    while (!native && (entry = options_file_next(&own->file, entry)) != NULL)
        native = take(parser, own, said, entry, error);
    return native ? native : settle_evaluation(options, said, own, error);
}

void train_options_file_tell(const struct train_options *options)
{
    const struct train_options_file *own = options->from_options;
    if (!own || options->quiet)
        return;
    if (own->overruled[0])
        cli_note(CLI_VALUE, "the command line wins over %s: %s", own->file.name, own->overruled);
    if (own->idle[0])
        cli_note(CLI_VALUE, "of no effect on a plan: %s of %s", own->idle, own->file.name);
    if (own->unseen)
        cli_note(CLI_VALUE, "of no effect without --eval: --eval-every of %s", own->file.name);
}

void train_options_file_close(struct train_options *options)
{
    if (options->from_options)
        options_file_close(&options->from_options->file);
    free(options->from_options);
    options->from_options = NULL;
}

/* ---- writing ---- */

/* Paths, which are of one machine, what goes with --resume, and what ends or is each rank's own. */
static const char *const beside[] = {"model",          "data",
                                     "eval",           "store",
                                     "export",         "log",
                                     "trace",          "csv",
                                     "tfevents",       "html",
                                     "config",         "options",
                                     "resume",         "print-options",
                                     "world",          "rank",
                                     "explain-config", "allow-config-change",
                                     "rendezvous",     NULL};
/* Their defaults are the data's or the machine's to decide, or are for others that were given. */
static const char *const dependent[] = {"batch-tokens", "grain",         "loss-scale", "decay",
                                        "keep-every",   "sample-tokens", NULL};
static const char *const scheduled[] = {"schedule", "lr-end", "decay", NULL};

/* The default where it is a value, in the words of one that was given; of a text it may be a word
 * about one. Null: none. */
static const char *default_of(const struct hst_option *option, char dst[CLI_TEXT_BYTES])
{
    struct hst_option alone = *option;
    union {
        double pair[2];
        struct hst_share share;
        const char *text;
    } value;
    char why[CLI_WHY_BYTES];
    alone.offset = 0;
    if (option->type == HST_OPTION_TEXT || option->type == HST_OPTION_FLAG ||
        !option->default_text || is_one_of(option->name, dependent) ||
        hst_option_parse(&alone, option->default_text, &value, why, sizeof why))
        return NULL;
    const char *text = cli_option_text(&alone, &value, dst);
    return text ? text : option->default_text;
}

static bool is_number(const struct hst_option *option, const char *text)
{
    return option->type != HST_OPTION_TEXT && option->type != HST_OPTION_TEXTS &&
           option->type != HST_OPTION_CHOICE && option->type != HST_OPTION_PAIR &&
           !strchr(text, '%');
}

static void put_option(struct json_writer *json, const struct hst_option *option,
                       const void *target)
{
    char dst[CLI_TEXT_BYTES];
    const char *text = cli_option_text(option, target, dst);
    text = text ? text : default_of(option, dst);
    if (!text)
        return;
    if (option->type == HST_OPTION_FLAG)
        json_put_bool(json, option->name, true);
    else if (is_number(option, text))
        json_put_number(json, option->name, text);
    else
        json_put_text(json, option->name, text);
}

/* A count of the scheduler; 0: what the command line says. */
static int count_text(char *dst, size_t bytes, const char *key, uint64_t count)
{
    return count ? snprintf(dst, bytes, ", \"%s\": %llu", key, (unsigned long long)count)
                 : snprintf(dst, bytes, ", \"%s\": \"auto\"", key);
}

/* Its rates do not depend on the keys that are left out: the peak is --lr. */
static void put_scheduler(struct json_writer *json, const struct schedule_peer *peer)
{
    char text[512];
    const bool cosine = peer->kind == PEER_WARMUP_COSINE;
    int n = snprintf(text, sizeof text,
                     "{\"scheduler\": {\"type\": \"%s\", \"params\": {\"warmup_type\": \"%s\", "
                     "\"%s\": %.17g",
                     PEER_NAMES[peer->kind - PEER_WARMUP], peer->linear ? "linear" : "log",
                     cosine ? "warmup_min_ratio" : "warmup_min_lr", peer->lr_begin);
    n += count_text(text + n, sizeof text - (size_t)n, "warmup_num_steps", peer->warmup_steps);
    if (cosine)
        n +=
            snprintf(text + n, sizeof text - (size_t)n, ", \"cos_min_ratio\": %.17g", peer->lr_end);
    if (peer->kind != PEER_WARMUP)
        n += count_text(text + n, sizeof text - (size_t)n, "total_num_steps", peer->total_steps);
    snprintf(text + n, sizeof text - (size_t)n, "}}}");
    json_put_text(json, "config", text);
}

void train_options_put(struct json_writer *json, const struct train_options *options,
                       const struct schedule_peer *peer)
{
    struct train_options all = *options;
    struct cli_set sets[CLI_MAX_SETS];
    const size_t count = train_options_sets(&all, sets);
    char why[HST_WHY_BYTES];
    (void)hst_config_optimizer(&all.engine, why); /* who begins a run tells what cannot be */
    const bool other = peer->kind != PEER_NONE;
    for (size_t s = 0; s < count; s++)
        for (size_t i = 0; i < sets[s].count; i++) {
            const struct hst_option *option = &sets[s].options[i];
            const bool theirs =
                other && (is_one_of(option->name, scheduled) ||
                          (peer->warmup_steps > 0 && strcmp(option->name, "warmup") == 0));
            if (!theirs && !is_one_of(option->name, beside))
                put_option(json, option, sets[s].target);
        }
    if (other)
        put_scheduler(json, peer);
}

int train_options_print(const struct train_options *options, struct hst_error *error)
{
    struct hst_config engine = options->engine;
    char why[HST_WHY_BYTES];
    if (!hst_config_optimizer(&engine, why))
        return fail(error, FAIL_VALUE, -EINVAL, "%s.", why);
    struct json_writer json = {.out = stdout};
    const struct train_config *config = options->from_file;
    const struct schedule_peer none = {.kind = PEER_NONE};
    json_put_object(&json, NULL);
    train_options_put(&json, options, config ? &config->options.scheduler : &none);
    json_put_end(&json);
    putchar('\n');
    return 0;
}
