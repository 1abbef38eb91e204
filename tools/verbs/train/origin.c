/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Says of an error where in a --config, or in a file of --options, what it names comes from:
 * whoever checks a value knows the option alone, and a user who has written a file looks for a key.
 */
#include "cli/message/message.h"
#include "verbs/train/config.h"
#include "verbs/train/options_file.h"

#include <stdio.h>
#include <string.h>

#define OPTION_BYTES 64u
#define ORIGIN_BYTES 320u
#define PLACE_BYTES  140u

/* ---- what a message names ---- */

/* "--lr" is a word of its own in "--lr 0", and none in "--lr-end". */
static const char *find_word(const char *text, const char *word)
{
    static const char more[] = "abcdefghijklmnopqrstuvwxyz0123456789-";
    const size_t length = strlen(word);
    const char *at = strstr(text, word);
    while (at && at[length] && strchr(more, at[length]))
        at = strstr(at + 1, word);
    return at;
}

/* Null: it is not named. */
static const char *find_option(const char *text, const char *option)
{
    char word[OPTION_BYTES];
    snprintf(word, sizeof word, "--%s", option);
    return find_word(text, word);
}

/* ---- origins ---- */

struct origin {
    const char *option;              /* null: none */
    const char *at;                  /* where the message names it */
    const struct hjson_entry *entry; /* null: absent from its file */
    const struct ds_option *made;    /* of --config; null: of --options, whose keys are options */
};

/* What stands in a file has a place there, and goes before what is absent. */
static bool is_before(struct origin a, struct origin b)
{
    const bool said = a.entry != NULL;
    return said != (b.entry != NULL) ? said : a.at < b.at;
}

/* *first ← o, where it is named, is behind `last`, and before the first one so far. */
static void consider(struct origin *first, struct origin o, struct origin last)
{
    if (!o.at || (last.option && !is_before(last, o)))
        return;
    if (!first->option || is_before(o, *first))
        *first = o;
}

/* The first one behind `last`, of those that are named in `text`. */
static struct origin next_of(const struct train_options *from, const char *text, struct origin last)
{
    const struct train_config *tc = from->from_file;
    const struct train_options_file *own = from->from_options;
    const struct hjson_entry *e = own ? &own->file.hjson.entries[own->file.at] : NULL;
    struct origin first = {.option = NULL};
    for (size_t i = 0; tc && i < tc->options.count; i++) {
        const struct ds_option *o = &tc->options.list[i];
        if (tc->how[i] == CLI_TAKEN)
            consider(&first, (struct origin){o->option, find_option(text, o->option), o->entry, o},
                     last);
    }
    while (e && (e = options_file_next(&own->file, e)) != NULL)
        if (own->taken[e - own->file.hjson.entries])
            consider(&first, (struct origin){e->key, find_option(text, e->key), e, NULL}, last);
    return first;
}

static const char *file_of(const struct train_options *from, struct origin o)
{
    return o.made ? from->from_file->config.name : from->from_options->file.name;
}

/* dst ← "FILE:1:11: ", of what is absent "FILE: ". */
static void put_place(const struct train_options *from, struct origin o, char dst[PLACE_BYTES])
{
    char at[32] = "";
    if (o.entry)
        snprintf(at, sizeof at, ":%u:%u", o.entry->line, o.entry->column);
    snprintf(dst, PLACE_BYTES, "%.100s%s: ", file_of(from, o), at);
}

/* dst ← "bf16.enabled absent (--precision fp32)"; of --options "precision "fp32"". */
static void put_origin(const struct train_options *from, struct origin o, char dst[ORIGIN_BYTES])
{
    char entry[DS_ENTRY_BYTES], value[HJSON_VALUE_BYTES];
    if (!o.made) {
        snprintf(dst, ORIGIN_BYTES, "%s %s", o.option, hjson_value(o.entry, value));
        return;
    }
    if (o.entry)
        ds_entry_text(&from->from_file->config, o.entry, entry);
    else
        snprintf(entry, sizeof entry, "%s absent", o.made->key->path);
    snprintf(dst, ORIGIN_BYTES, "%s (--%s %.40s)", entry, o.option, o.made->value);
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Its words stay, and above all the fix; where all has no room, what is before that is cut. */
static void put_before(struct hst_error *error, const char *place)
{
    const struct hst_error told = *error;
    const char *fix = strstr(told.message, " Fix: ");
    const size_t all = strlen(told.message), kept = fix ? strlen(fix) : 0;
    const size_t room = sizeof told.message - sizeof ": " - least(kept, sizeof told.message / 2);
    const size_t placed = least(strlen(place), room);
    const size_t words = least(all - kept, room - placed);
    fail(error, (enum fail_code)told.code, told.native, "%.*s: %.*s%s", (int)placed, place,
         (int)words, told.message, fix ? fix : "");
}

/*
 * An option of a fix alone is the cause where no other one is named. That nothing fits is a matter
 * of all of them.
 */
static struct origin first_of(const struct train_options *from, const struct hst_error *error,
                              char text[sizeof error->message])
{
    char *fix;
    snprintf(text, sizeof error->message, "%s", error->message);
    fix = strstr(text, " Fix: ");
    if (!fix)
        return next_of(from, text, (struct origin){.option = NULL});
    *fix = '\0';
    const struct origin first = next_of(from, text, (struct origin){.option = NULL});
    if (first.option || strstr(text, "--") || error->code == FAIL_BUDGET)
        return first;
    *fix = ' ';
    return next_of(from, text, first);
}

/* Of two plans an error begins with the file that it is of: its place says that, too. */
static void leave_file_out(const struct train_options *from, struct hst_error *error)
{
    const char *name = from->from_options->file.name;
    const size_t length = strlen(name);
    if (strncmp(error->message, name, length) == 0 &&
        strncmp(error->message + length, ": ", 2) == 0)
        memmove(error->message, error->message + length + 2,
                strlen(error->message + length + 2) + 1);
}

/* It has a place: a --config that cannot be read gets that where it is named. */
static bool is_placed(const struct hst_error *error)
{
    return error->code == FAIL_DS_KEY ||
           (error->code == FAIL_DS_FILE &&
            strncmp(error->message, "--config ", strlen("--config ")) != 0);
}

void train_origin(const void *context, struct hst_error *error)
{
    const struct train_options *from = context;
    char text[sizeof error->message], names[2][ORIGIN_BYTES], places[2][PLACE_BYTES];
    char all[2 * (ORIGIN_BYTES + PLACE_BYTES)];
    if (is_placed(error))
        return;
    const struct origin first = first_of(from, error, text);
    if (!first.option)
        return;
    const struct origin second = next_of(from, text, first);
    put_place(from, first, places[0]);
    put_origin(from, first, names[0]);
    if (second.option) {
        put_place(from, second, places[1]);
        put_origin(from, second, names[1]);
    }
    snprintf(all, sizeof all, "%s%s%s%s%s", places[0], names[0], second.option ? ", " : "",
             second.option && !first.made != !second.made ? places[1] : "",
             second.option ? names[1] : "");
    if (!first.made || (second.option && !second.made))
        leave_file_out(from, error);
    put_before(error, all);
}
