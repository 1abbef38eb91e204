/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides whether a DeepSpeed configuration is understood, key by key, before anything is made of
 * it. What is not in the table is refused: a key that was passed over would be a promise broken in
 * silence.
 */
#include "cli/config/ds_config.h"

#include "hf/json/input.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- refusals ---- */

const char *ds_entry_text(const struct ds_config *c, const struct hjson_entry *entry,
                          char dst[DS_ENTRY_BYTES])
{
    char path[HJSON_PATH_BYTES], value[HJSON_VALUE_BYTES];
    hjson_path(&c->hjson, (size_t)(entry - c->hjson.entries), path);
    snprintf(dst, DS_ENTRY_BYTES, "%.100s %s", path, hjson_value(entry, value));
    return dst;
}

int ds_refuse(const struct ds_config *c, const struct hjson_entry *entry, struct hst_error *error,
              const char *text)
{
    char what[DS_ENTRY_BYTES];
    if (!entry)
        return fail(error, FAIL_DS_KEY, -EINVAL, "%s: %s", c->name, text);
    return fail(error, FAIL_DS_KEY, -EINVAL, "%s:%u:%u: %s: %s", c->name, entry->line,
                entry->column, ds_entry_text(c, entry, what), text);
}

/* ---- the text ---- */

/* One character of base64, of either alphabet; -1: none. */
static int digit64(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    const char *found = c ? strchr(digits, c) : NULL;
    if (found)
        return (int)(found - digits);
    return c == '-' || c == '+' ? 62 : c == '_' || c == '/' ? 63 : -1;
}

/*
 * Whole groups of four with their padding, of a text that begins an object: most paths are base64,
 * too. The caller frees it; null: none.
 */
static char *decode64(const char *source, size_t *size)
{
    size_t length = strlen(source), n = 0;
    uint32_t bits = 0;
    char *text = length > 0 && length % 4 == 0 ? malloc(length / 4 * 3 + 1) : NULL;
    if (!text)
        return NULL;
    length -= source[length - 1] == '=';
    length -= source[length - 1] == '=';
    for (size_t i = 0; i < length; i++) {
        const int digit = digit64(source[i]);
        if (digit < 0) {
            free(text);
            return NULL;
        }
        bits = bits << 6 | (uint32_t)digit;
        if (i % 4 != 0)
            text[n++] = (char)(bits >> (6 - 2 * (i % 4)) & 0xff);
    }
    text[n] = '\0';
    *size = n;
    if (text[strspn(text, " \t\r\n")] == '{')
        return text;
    free(text);
    return NULL;
}

/* The text itself, as a log has it. */
static char *copy_text(const char *source, size_t *size)
{
    *size = strlen(source);
    return strdup(source);
}

static int read_file(struct ds_config *c, const char *source, char **text, size_t *size,
                     struct hst_error *error)
{
    struct input input;
    int native = input_open_path(source, &input);
    if (native == -ENOENT || native == -ENAMETOOLONG) {
        const bool plain = source[strspn(source, " \t\r\n")] == '{';
        *text = plain ? copy_text(source, size) : decode64(source, size);
        if (*text)
            snprintf(c->name, sizeof c->name, "the %stext of --config", plain ? "" : "base64 ");
        native = *text ? 0 : native;
    } else if (native == 0) {
        native = input_read_all(&input, HJSON_MAX_BYTES, text);
        *size = input.size_bytes;
        input_close(&input);
    }
    if (!native)
        return 0;
    return fail(error, FAIL_DS_FILE, native,
                "--config '%.150s' cannot be read (%s). Fix: name a file with a DeepSpeed "
                "configuration.",
                source,
                native == -EFBIG          ? "it has more than 1 MiB"
                : native == -ENAMETOOLONG ? "neither a file's name nor base64"
                                          : input_why(native));
}

static int read_text(struct ds_config *c, const char *source, struct hst_error *error)
{
    struct hjson_fault fault;
    char *text = NULL;
    size_t size = 0;
    int native = read_file(c, source, &text, &size, error);
    if (native)
        return native;
    native = hjson_read(text, size, &c->hjson, &fault);
    free(text);
    if (native == -EBADMSG)
        fail(error, FAIL_DS_FILE, native, "%s:%u:%u: the text has %s here. Fix: correct it there.",
             c->name, fault.line, fault.column, fault.why);
    else if (native == -EFBIG)
        fail(error, FAIL_DS_FILE, native, "%s has more than 1 MiB. Fix: name a configuration.",
             c->name);
    else if (native)
        fail(error, FAIL_BUDGET, native, "no memory for the configuration %s", c->name);
    return native;
}

/* ---- keys ---- */

static bool is_text(const struct hjson_entry *e, const char *text)
{
    return e->type == JSN_STRING && strcmp(e->text, text) == 0;
}

static bool all_numbers(const struct ds_config *c, const struct hjson_entry *array)
{
    const struct hjson *h = &c->hjson;
    for (size_t i = (size_t)(array - h->entries) + 1; i < h->count; i++)
        if (&h->entries[h->entries[i].parent] == array && h->entries[i].type != JSN_NUMBER)
            return false;
    return true;
}

static bool has_type(const struct ds_config *c, const struct hjson_entry *e, enum ds_type type)
{
    switch (type) {
    case DS_BOOL:
        return e->type == JSN_TRUE || e->type == JSN_FALSE || is_text(e, "true") ||
               is_text(e, "false");
    case DS_WHOLE:
        return e->type == JSN_NUMBER && fmod(strtod(e->text, NULL), 1) == 0;
    case DS_REAL:
        return e->type == JSN_NUMBER;
    case DS_TEXT:
        return e->type == JSN_STRING;
    case DS_REALS:
        return e->type == JSN_ARRAY && all_numbers(c, e);
    case DS_SECTION:
        return e->type == JSN_OBJECT;
    case DS_TREE:
        return true;
    }
    return false;
}

/* An object is harmless by one of its keys, or because it has not that key. */
static bool is_switched_off(const struct ds_config *c, const struct hjson_entry *e,
                            const char *harmless)
{
    const struct hjson *h = &c->hjson;
    bool named = !strstr(harmless, "no ");
    char text[64];
    for (size_t i = (size_t)(e - h->entries) + 1; i < h->count; i++) {
        const struct hjson_entry *of = &h->entries[i];
        if (&h->entries[of->parent] != e)
            continue;
        snprintf(text, sizeof text, "%.30s: %.30s", of->key, of->text);
        if (ds_among(harmless, text))
            return true;
        snprintf(text, sizeof text, "no %.30s", of->key);
        named = named || ds_among(harmless, text);
    }
    return !named;
}

/* A refused key with a value that changes nothing; of an object, one that is switched off. */
static bool is_harmless(const struct ds_config *c, const struct hjson_entry *e,
                        const struct ds_key *key)
{
    if (key->type == DS_TREE)
        return key->harmless && e->type == JSN_OBJECT && is_switched_off(c, e, key->harmless);
    if (e->type == JSN_NUMBER && key->harmless &&
        strtod(e->text, NULL) == strtod(key->harmless, NULL))
        return true;
    return ds_among(key->harmless, e->text);
}

static int refuse_unknown(const struct ds_config *c, const struct hjson_entry *e, const char *path,
                          struct hst_error *error)
{
    char text[200];
    const char *near = ds_key_nearest(path);
    if (near)
        snprintf(text, sizeof text, "DeepSpeed has no such key. Did you mean %.100s?", near);
    else
        snprintf(text, sizeof text,
                 "neither DeepSpeed 0.19.8 nor docs/deepspeed.md has such a key. Fix: leave it "
                 "out.");
    return ds_refuse(c, e, error, text);
}

/* The two names under which a key stands there. */
static int refuse_again(const struct ds_config *c, const struct hjson_entry *e,
                        const struct hjson_entry *first, struct hst_error *error)
{
    char text[200], other[HJSON_PATH_BYTES];
    hjson_path(&c->hjson, (size_t)(first - c->hjson.entries), other);
    snprintf(text, sizeof text,
             "it is another name of %.100s in line %u. Fix: leave one of them out.", other,
             first->line);
    return ds_refuse(c, e, error, text);
}

/* A number of an optimizer that hoistway has not is no matter of the number: its class is told. */
static const struct hjson_entry *class_without(const struct ds_config *c, const char *path)
{
    char other[HJSON_PATH_BYTES];
    if (strncmp(path, "optimizer.params.", strlen("optimizer.params.")) != 0)
        return NULL;
    for (size_t i = 1; i < c->hjson.count; i++) {
        const struct hjson_entry *e = &c->hjson.entries[i];
        if (e->type == JSN_STRING && !ds_has_optimizer(e->text) &&
            strcmp(hjson_path(&c->hjson, i, other), "optimizer.type") == 0)
            return e;
    }
    return NULL;
}

static int refuse_class(const struct ds_config *c, const struct hjson_entry *type,
                        const struct hjson_entry *param, struct hst_error *error)
{
    char text[300];
    snprintf(text, sizeof text,
             "hoistway has %s, and none of them has the %.60s of line %u as it is there. Fix: one "
             "of them, with its own params.",
             ds_optimizers, param->key, param->line);
    return ds_refuse(c, type, error, text);
}

static int check_value(struct ds_config *c, size_t i, const struct ds_key *key,
                       struct hst_error *error)
{
    const struct hjson_entry *e = &c->hjson.entries[i];
    char text[200];
    const bool automatic = is_text(e, "auto") && key->type != DS_SECTION;
    const bool refused = key->verdict == DS_REFUSED;
    if (!automatic && !has_type(c, e, key->type)) {
        snprintf(text, sizeof text, "want %s. Fix: correct it there.", ds_type_name(key->type));
        return ds_refuse(c, e, error, text);
    }
    if (refused && !is_harmless(c, e, key))
        return ds_refuse(c, e, error, key->words);
    if (key->type == DS_BOOL && e->type == JSN_STRING && !automatic)
        c->worded[i] = true;
    c->place[i] = key->type == DS_SECTION     ? DS_AT_SECTION
                  : key->verdict == DS_OPTION ? DS_AT_USED
                                              : DS_AT_NOTED;
    return 0;
}

/* An entry in an array, in a tree or in what is not there is a part of that. */
static bool is_part(const struct ds_config *c, const struct hjson_entry *e)
{
    return e->parent != 0 && c->place[e->parent] != DS_AT_SECTION;
}

static int check_entry(struct ds_config *c, size_t i, struct hst_error *error)
{
    const struct hjson_entry *e = &c->hjson.entries[i];
    char path[HJSON_PATH_BYTES];
    c->place[i] = e->key[0] == '_' ? DS_AT_NOTED : DS_AT_PASSED;
    if (is_part(c, e)) {
        c->place[i] = DS_AT_PASSED;
        return 0;
    }
    if (c->place[i] == DS_AT_NOTED)
        return 0;
    const struct ds_key *key = ds_key_find(hjson_path(&c->hjson, i, path));
    const bool refused =
        !key || (key->verdict == DS_REFUSED && e->type != JSN_NULL && !is_harmless(c, e, key));
    const struct hjson_entry *type = refused ? class_without(c, path) : NULL;
    if (type)
        return refuse_class(c, type, e, error);
    if (!key)
        return refuse_unknown(c, e, path, error);
    if (c->of[key - ds_keys])
        return refuse_again(c, e, c->of[key - ds_keys], error);
    if (e->type == JSN_NULL)
        return 0;
    c->of[key - ds_keys] = e;
    return check_value(c, i, key, error);
}

int ds_config_read(struct ds_config *c, const char *source, struct hst_error *error)
{
    *c = (struct ds_config){.name = ""};
    snprintf(c->name, sizeof c->name, "%s", source);
    int native = read_text(c, source, error);
    for (size_t i = 1; i < c->hjson.count && !native; i++)
        native = check_entry(c, i, error);
    return native;
}

void ds_config_close(struct ds_config *c)
{
    hjson_free(&c->hjson);
}
