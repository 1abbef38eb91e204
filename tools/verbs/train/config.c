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

#define LINE_BYTES 310u /* of a list in a message, which has room for 511 */

static const char *path_of(const struct train_config *tc, const struct hjson_entry *e,
                           char path[HJSON_PATH_BYTES])
{
    return hjson_path(&tc->config.hjson, (size_t)(e - tc->config.hjson.entries), path);
}

static bool is_auto(const struct hjson_entry *e)
{
    return e->type == JSN_STRING && strcmp(e->text, "auto") == 0;
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
    const struct ds_key *type = ds_key_find("scheduler.type");
    const struct hjson_entry *entry = tc->config.of[key - ds_keys];
    char text[200];
    if (peer->warmup_steps == 0 && !given)
        return ds_refuse(&tc->config, entry, error,
                         "the command line does not say it. Fix: --warmup with the steps of the "
                         "warmup.");
    if (peer->warmup_steps > 0 && given) {
        snprintf(text, sizeof text,
                 "its warmup has %llu steps, and --warmup says others. Fix: --schedule, which then "
                 "counts in place of the scheduler, or leave --warmup out.",
                 (unsigned long long)peer->warmup_steps);
        return ds_refuse(&tc->config, entry ? entry : tc->config.of[type - ds_keys], error, text);
    }
    if (peer->warmup_steps == 0)
        peer->warmup_steps = schedule_share(o->warmup, o->steps);
    if (peer->total_steps == 0)
        peer->total_steps = o->steps;
    return 0;
}

/* *rates: those of the scheduler that counts, for a run of these options. */
static int read_config(struct cli_parser *parser, struct train_options *options, uint32_t ranks,
                       struct schedule_peer *rates, struct hst_error *error)
{
    struct train_config *tc = calloc(1, sizeof *tc);
    if (!tc)
        return fail(error, FAIL_BUDGET, -ENOMEM, "no memory for the configuration");
    options->from_file = tc;
    const struct hst_option *kin, *precision = cli_option_find(parser, "precision", &kin);
    char text[CLI_TEXT_BYTES];
    const struct ds_run run = {
        .seq_len = options->seq_len,
        .ranks = ranks,
        .precision = cli_option_text(precision, &options->engine, text),
        .own_optimizer = cli_supply(parser, "optimizer", NULL, NULL) == CLI_OVERRULED,
        .own_schedule = cli_supply(parser, "schedule", NULL, NULL) == CLI_OVERRULED};
    int native = ds_config_read(&tc->config, options->config, error);
    native = native ? native : ds_config_options(&tc->config, run, &tc->options, error);
    for (size_t i = 0; i < tc->options.count && !native; i++)
        native = take(parser, tc, i, error);
    if (!native)
        cli_origin_of(train_origin, options);
    return native ? native : train_config_scheduler(options, rates, error);
}

void train_config_close(struct train_options *options)
{
    cli_origin_of(NULL, NULL);
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

struct row {
    char here[128], why[256];
};

static void effect(const struct train_config *tc, size_t i, struct row *row)
{
    static const char *const from[] = {"", "DeepSpeed's default", "\"auto\": what Trainer takes"};
    const struct ds_option *o = &tc->options.list[i];
    snprintf(row->here, sizeof row->here, "--%s %s", o->option, o->value ? o->value : "");
    snprintf(row->why, sizeof row->why, "%s", from[o->why]);
    if (tc->how[i] == CLI_OVERRULED) {
        snprintf(row->here, sizeof row->here, "--%s of the command line", o->option);
        snprintf(row->why, sizeof row->why,
                 o->why == DS_AUTO ? "\"auto\": the command line says it"
                                   : "the command line wins");
    } else if (tc->how[i] == CLI_NO_OPTION) {
        snprintf(row->why, sizeof row->why, "an option of train alone");
    }
}

static bool is_about(const struct ds_option *o, const struct hjson_entry *e)
{
    bool also = false;
    for (size_t i = 0; i < DS_MAX_ALSO; i++)
        also = also || o->also[i] == e;
    return also || o->entry == e;
}

/* Each option that the entry is about has a row; where another key decides it, that is named. */
static void explain_options(const struct train_config *tc, const struct hjson_entry *e,
                            const char *path, const char *value)
{
    for (size_t i = 0; i < tc->options.count; i++) {
        const struct ds_option *o = &tc->options.list[i];
        char from[HJSON_PATH_BYTES];
        struct row row;
        if (!is_about(o, e))
            continue;
        effect(tc, i, &row);
        if (o->entry != e && tc->how[i] == CLI_TAKEN)
            snprintf(row.why, sizeof row.why, "see %s",
                     o->entry ? path_of(tc, o->entry, from) : o->key->path);
        print_row(path, value, row.here, row.why);
    }
}

/* The command line has an optimizer, or a schedule, and with it all that the section says; null: it
 * has none, or the path is in neither section. */
static const char *section_lost_to(const struct train_config *tc, const char *path)
{
    for (size_t i = 0; i < tc->options.count; i++) {
        const struct ds_option *o = &tc->options.list[i];
        const size_t section = strcspn(o->key->path, ".");
        if (tc->how[i] == CLI_OVERRULED &&
            (strcmp(o->option, "optimizer") == 0 || strcmp(o->option, "schedule") == 0) &&
            strncmp(path, o->key->path, section) == 0 && path[section] == '.')
            return o->option;
    }
    return NULL;
}

/* none: what is said where the run has not told them yet. */
static void steps_text(uint64_t steps, const char *none, char here[128])
{
    if (steps > 0)
        snprintf(here, 128, "%llu steps", (unsigned long long)steps);
    else
        snprintf(here, 128, "%s", none);
}

static bool is_of_scheduler(const struct ds_key *key)
{
    return strncmp(key->path, "scheduler.", strlen("scheduler.")) == 0;
}

/* A scheduler is no option: its rates are followed step by step. What has no part in them is left
 * as it is. */
static void explain_rates(const struct schedule_peer *p, const char *key, char here[128])
{
    const bool cosine = p->kind == PEER_WARMUP_COSINE;
    const char *const at = strrchr(key, '.') + 1;
    if (p->kind == PEER_NONE)
        return;
    if (strcmp(at, "type") == 0)
        snprintf(here, 128, "the rates of %s", PEER_NAMES[p->kind - PEER_WARMUP]);
    else if (strcmp(at, "warmup_type") == 0)
        snprintf(here, 128, "%s", p->linear ? "linear" : "log");
    else if (strcmp(at, cosine ? "warmup_min_ratio" : "warmup_min_lr") == 0)
        snprintf(here, 128, "%g", p->lr_begin);
    else if (strcmp(at, "cos_min_ratio") == 0 && cosine)
        snprintf(here, 128, "%g", p->lr_end);
    else if (strcmp(at, "warmup_num_steps") == 0)
        steps_text(p->warmup_steps, "those of --warmup", here);
    else if (strcmp(at, "total_num_steps") == 0 && p->kind != PEER_WARMUP)
        steps_text(p->total_steps, "all of the run", here);
}

/* A key of the file does this in a run. */
enum part {
    PART_NONE = 0,
    PART_OPTION,    /* options come from it, whoever has the last word on them */
    PART_ELSEWHERE, /* options that this verb has not */
    PART_OVERRULED, /* with its section */
    PART_RATES,     /* of a scheduler: *here is what it says there */
};

static enum part part_of(const struct train_config *tc, const struct schedule_peer *rates,
                         const struct hjson_entry *e, char here[128])
{
    char path[HJSON_PATH_BYTES];
    const struct ds_key *key = ds_key_find(path_of(tc, e, path));
    bool elsewhere = false;
    here[0] = '\0';
    for (size_t i = 0; i < tc->options.count; i++) {
        if (is_about(&tc->options.list[i], e) && tc->how[i] != CLI_NO_OPTION)
            return PART_OPTION;
        elsewhere = elsewhere || is_about(&tc->options.list[i], e);
    }
    if (elsewhere)
        return PART_ELSEWHERE;
    if (!key || key->verdict != DS_OPTION)
        return PART_NONE;
    if (section_lost_to(tc, key->path))
        return PART_OVERRULED;
    if (is_of_scheduler(key))
        explain_rates(rates, key->path, here);
    return here[0] ? PART_RATES : PART_NONE;
}

/* The words of the table, as far as they are about what the file says. Where it says of a key that
 * is refused what hoistway does anyway, there is nothing to be mended. */
static void reason(const struct ds_key *key, bool automatic, char why[256])
{
    const char *words = key ? key->words : "its name begins with _";
    const char *fix = key && key->verdict == DS_REFUSED ? strstr(words, " Fix: ") : NULL;
    const bool of_auto = strncmp(words, "\"auto\":", strlen("\"auto\":")) == 0;
    if (fix)
        snprintf(why, 256, "no difference: %.*s", (int)(fix - words), words);
    else
        snprintf(why, 256, "%s", of_auto && !automatic ? "" : words);
}

static void explain_entry(const struct train_config *tc, const struct schedule_peer *rates,
                          size_t entry)
{
    const struct hjson_entry *e = &tc->config.hjson.entries[entry];
    char path[HJSON_PATH_BYTES], value[HJSON_VALUE_BYTES];
    const struct ds_key *key = ds_key_find(path_of(tc, e, path));
    const bool automatic = is_auto(e);
    struct row row;
    const enum part part = part_of(tc, rates, e, row.here);
    hjson_value(e, value);
    if (part == PART_OPTION || part == PART_ELSEWHERE) {
        explain_options(tc, e, path, value);
        return;
    }
    reason(key, automatic, row.why);
    if (part == PART_OVERRULED)
        snprintf(row.why, sizeof row.why, "the command line wins, which has its own");
    else if (automatic && key && key->verdict == DS_OPTION && !is_of_scheduler(key))
        snprintf(row.why, sizeof row.why, "\"auto\": left to the command line; %s", key->words);
    print_row(path, value, part == PART_RATES ? row.here : "-", row.why);
}

/* Keys that a scheduler has though the file does not say them. */
static void explain_absent_rates(const struct train_config *tc, const struct schedule_peer *rates)
{
    for (size_t i = 0; i < ds_key_count; i++) {
        char here[128] = "";
        if (tc->config.of[i] || ds_keys[i].verdict != DS_OPTION ||
            strncmp(ds_keys[i].path, "scheduler.params.", strlen("scheduler.params.")) != 0)
            continue;
        explain_rates(rates, ds_keys[i].path, here);
        if (here[0])
            print_row(ds_keys[i].path, "absent", here, "DeepSpeed's default");
    }
}

static void explain(const struct train_config *tc, const struct schedule_peer *rates)
{
    print_row("key", "in the file", "here", "why");
    for (size_t i = 1; i < tc->config.hjson.count; i++)
        if (tc->config.place[i] == DS_AT_USED || tc->config.place[i] == DS_AT_NOTED)
            explain_entry(tc, rates, i);
    for (size_t i = 0; i < tc->options.count; i++) {
        struct row row;
        if (tc->options.list[i].entry)
            continue;
        effect(tc, i, &row);
        print_row(tc->options.list[i].key->path, "absent", row.here, row.why);
    }
    explain_absent_rates(tc, rates);
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
    struct schedule_peer rates = {.kind = PEER_NONE};
    const int native = read_config(parser, options, ranks, &rates, error);
    if (!native && options->explain_config)
        explain(options->from_file, &rates);
    *done = options->explain_config;
    return native;
}

/* From here on what they say is told by its place. */
static int take_options(struct cli_parser *parser, struct train_options *options,
                        struct hst_error *error)
{
    cli_origin_of(NULL, NULL); /* that of another file of --compare */
    const int native = train_options_file_take(parser, options, error);
    if (!native && options->from_options)
        cli_origin_of(train_origin, options);
    return native;
}

int train_config_more(struct cli_parser *parser, void *context, bool *done, struct hst_error *error)
{
    struct train_options *options = context;
    struct hst_launch launch = {.ranks = 1};
    int native = take_options(parser, options, error);
    if (!native && (options->config || options->print_options))
        native = launch_read_joined(&options->launch, &launch, error);
    native = native ? native : more(parser, options, launch.ranks, done, error);
    if (native || *done || !options->print_options)
        return native;
    *done = true;
    return launch.rank == 0 ? train_options_print(options, error) : 0;
}

int train_config_more_of(struct cli_parser *parser, struct train_options *options, uint32_t ranks,
                         bool *done, struct hst_error *error)
{
    const int native = take_options(parser, options, error);
    return native ? native : more(parser, options, ranks, done, error);
}

/* ---- telling ---- */

/* It asks for nothing: it is left open, is switched off, or says what it is without it. */
static bool asks_nothing(const struct train_config *tc, const struct hjson_entry *e)
{
    char path[HJSON_PATH_BYTES];
    const struct ds_key *key = ds_key_find(path_of(tc, e, path));
    if (is_auto(e))
        return true;
    if (key->type == DS_BOOL)
        return strcmp(e->text, "false") == 0;
    if (!key->absent || e->type != JSN_NUMBER)
        return key->absent && strcmp(e->text, key->absent) == 0;
    return strtod(e->text, NULL) == strtod(key->absent, NULL);
}

/* What a message lists behind its head; one that is full goes out, and the next has the rest. */
struct list {
    char head[512 - LINE_BYTES], text[LINE_BYTES];
    size_t used;
    bool warns;
};

static void list_tell(struct list *list)
{
    if (list->used && list->warns)
        cli_warn(CLI_CONFIG, "%s%s", list->head, list->text);
    else if (list->used)
        cli_note(CLI_CONFIG, "%s%s", list->head, list->text);
    list->used = 0;
}

static void append(struct list *list, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void append(struct list *list, const char *format, ...)
{
    char item[HJSON_PATH_BYTES + 64];
    va_list args;
    va_start(args, format);
    vsnprintf(item, sizeof item, format, args);
    va_end(args);
    if (list->used + strlen(item) + 2 >= sizeof list->text)
        list_tell(list);
    list->used += (size_t)snprintf(list->text + list->used, sizeof list->text - list->used, "%s%s",
                                   list->used ? ", " : "", item);
}

/* The option of the command line to which an entry of the file has lost what it says; null: it has
 * not, or left that open. */
static const char *lost_to(const struct train_config *tc, const struct hjson_entry *e)
{
    char path[HJSON_PATH_BYTES];
    for (size_t i = 0; i < tc->options.count; i++) {
        const struct ds_option *o = &tc->options.list[i];
        if (tc->how[i] == CLI_OVERRULED && is_about(o, e) &&
            !(o->entry == e ? is_auto(e) : asks_nothing(tc, e)))
            return o->option;
    }
    return asks_nothing(tc, e) ? NULL : section_lost_to(tc, path_of(tc, e, path));
}

static void tell_options(const struct train_config *tc)
{
    struct list taken = {.used = 0}, lost = {.used = 0};
    const enum peer_kind kind = tc->options.scheduler.kind;
    char path[HJSON_PATH_BYTES];
    snprintf(taken.head, sizeof taken.head, "%s says ", tc->config.name);
    snprintf(lost.head, sizeof lost.head, "the command line wins over %s: ", tc->config.name);
    for (size_t i = 0; i < tc->options.count; i++)
        if (tc->how[i] == CLI_TAKEN)
            append(&taken, "--%s %s", tc->options.list[i].option, tc->options.list[i].value);
    if (kind != PEER_NONE)
        append(&taken, "the rates of %s", PEER_NAMES[kind - PEER_WARMUP]);
    for (size_t i = 1; i < tc->config.hjson.count; i++) {
        const struct hjson_entry *e = &tc->config.hjson.entries[i];
        const char *option = tc->config.place[i] == DS_AT_USED ? lost_to(tc, e) : NULL;
        if (option)
            append(&lost, "%s (--%s)", path_of(tc, e, path), option);
    }
    list_tell(&taken);
    list_tell(&lost);
}

/* The row of the table could have decided something, and here it decides nothing. */
static bool is_idle(const struct train_config *tc, size_t entry)
{
    const struct hjson_entry *e = &tc->config.hjson.entries[entry];
    char here[128];
    if (tc->config.place[entry] != DS_AT_USED || asks_nothing(tc, e))
        return false;
    const enum part part = part_of(tc, &tc->options.scheduler, e, here);
    return part == PART_NONE || part == PART_ELSEWHERE;
}

static void tell_noted(const struct train_config *tc)
{
    struct list noted = {.head = "of no effect here, as --explain-config tells: "};
    char path[HJSON_PATH_BYTES];
    for (size_t i = 1; i < tc->config.hjson.count; i++)
        if (tc->config.place[i] == DS_AT_NOTED || is_idle(tc, i))
            append(&noted, "%s", path_of(tc, &tc->config.hjson.entries[i], path));
    list_tell(&noted);
}

static void warn_worded(const struct train_config *tc)
{
    struct list worded = {.warns = true};
    char path[HJSON_PATH_BYTES];
    snprintf(worded.head, sizeof worded.head,
             "%s has true and false in quotes, which count without them: ", tc->config.name);
    for (size_t i = 1; i < tc->config.hjson.count; i++) {
        const struct hjson_entry *e = &tc->config.hjson.entries[i];
        if (tc->config.worded[i])
            append(&worded, "%s in line %u is \"%s\"", path_of(tc, e, path), e->line, e->text);
    }
    list_tell(&worded);
}

/* DeepSpeed shares among so many ranks, hoistway among those of a node. Which of both decides how
 * much a rank keeps, and no number. */
static void tell_secondary(const struct train_config *tc, const struct hst_launch *launch)
{
    char what[DS_ENTRY_BYTES];
    for (size_t i = 0; i < tc->options.count; i++) {
        const struct ds_option *o = &tc->options.list[i];
        if (tc->how[i] != CLI_TAKEN || strcmp(o->option, "secondary") != 0 ||
            strtod(o->entry->text, NULL) == launch->locals)
            continue;
        cli_note(
            CLI_CONFIG,
            "%s:%u:%u: %s: a node has %u rank%s, and hoistway shares what it keeps there among "
            "all of them, whatever this number is.",
            tc->config.name, o->entry->line, o->entry->column,
            ds_entry_text(&tc->config, o->entry, what), launch->locals,
            launch->locals == 1 ? "" : "s");
    }
}

void train_config_tell(const struct train_options *options)
{
    const struct train_config *tc = options->from_file;
    const struct hst_launch *launch = options->engine.launch;
    train_options_file_tell(options);
    if (!tc)
        return;
    warn_worded(tc);
    if (options->quiet)
        return;
    tell_options(tc);
    tell_noted(tc);
    if (launch && launch->ranks > 1 && launch->locals > 0)
        tell_secondary(tc, launch);
}
