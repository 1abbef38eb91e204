/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Says of an error where in a --config its options come from: whoever checks a value knows the
 * option alone, and a user who has written a file looks for a key.
 */
#include "cli/message/message.h"
#include "verbs/train/config.h"

#include <stdio.h>
#include <string.h>

#define OPTION_BYTES 64u
#define ORIGIN_BYTES 320u

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
static const char *find_option(const char *text, const struct ds_option *option)
{
    char word[OPTION_BYTES];
    snprintf(word, sizeof word, "--%s", option->option);
    return find_word(text, word);
}

/* ---- origins ---- */

struct origin {
    const struct ds_option *option; /* null: none */
    const char *at;                 /* where the message names it */
};

/* What stands in the file has a place there, and goes before what is absent. */
static bool is_before(struct origin a, struct origin b)
{
    const bool said = a.option->entry != NULL;
    return said != (b.option->entry != NULL) ? said : a.at < b.at;
}

/* The first one behind `last`, of those that are named in `text`. */
static struct origin next_of(const struct train_config *tc, const char *text, struct origin last)
{
    struct origin first = {.option = NULL};
    for (size_t i = 0; i < tc->options.count; i++) {
        const struct ds_option *option = &tc->options.list[i];
        const struct origin o = {option,
                                 tc->how[i] == CLI_TAKEN ? find_option(text, option) : NULL};
        if (!o.at || (last.option && !is_before(last, o)))
            continue;
        if (!first.option || is_before(o, first))
            first = o;
    }
    return first;
}

/* dst ← "bf16.enabled absent (--precision fp32)". */
static void put_origin(const struct train_config *tc, struct origin o, char dst[ORIGIN_BYTES])
{
    char entry[DS_ENTRY_BYTES];
    if (o.option->entry)
        ds_entry_text(&tc->config, o.option->entry, entry);
    else
        snprintf(entry, sizeof entry, "%s absent", o.option->key->path);
    snprintf(dst, ORIGIN_BYTES, "%s (--%s %.40s)", entry, o.option->option, o.option->value);
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
static struct origin first_of(const struct train_config *tc, const struct hst_error *error,
                              char text[sizeof error->message])
{
    char *fix;
    snprintf(text, sizeof error->message, "%s", error->message);
    fix = strstr(text, " Fix: ");
    if (!fix)
        return next_of(tc, text, (struct origin){.option = NULL});
    *fix = '\0';
    const struct origin first = next_of(tc, text, (struct origin){.option = NULL});
    if (first.option || strstr(text, "--") || error->code == FAIL_BUDGET)
        return first;
    *fix = ' ';
    return next_of(tc, text, first);
}

void train_config_origin(const void *context, struct hst_error *error)
{
    const struct train_config *tc = context;
    char text[sizeof error->message], names[2][ORIGIN_BYTES], place[2 * ORIGIN_BYTES + 160];
    if (error->code == FAIL_DS_KEY || error->code == FAIL_DS_FILE)
        return; /* it has its place */
    const struct origin first = first_of(tc, error, text);
    if (!first.option)
        return;
    const struct origin second = next_of(tc, text, first);
    const struct hjson_entry *e = first.option->entry;
    char at[32] = "";
    put_origin(tc, first, names[0]);
    if (second.option)
        put_origin(tc, second, names[1]);
    if (e)
        snprintf(at, sizeof at, ":%u:%u", e->line, e->column);
    snprintf(place, sizeof place, "%.100s%s: %s%s%s", tc->config.name, at, names[0],
             second.option ? ", " : "", second.option ? names[1] : "");
    put_before(error, place);
}
