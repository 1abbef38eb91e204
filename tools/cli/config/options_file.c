/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides what a file of options holds. What each means is the command line's to decide: here a
 * value becomes the text that would stand there.
 */
#include "cli/config/options_file.h"

#include "hf/json/input.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOG_BEGINS "{\"kind\":\"run\"" /* as cli/log/runlog.c writes it */

/* As much of it as is read of any file; of a log, whose later lines are steps, the first line. */
static int read_begin(const char *path, char **text, size_t *size)
{
    struct input input;
    int native = input_open_path(path, &input);
    if (native)
        return native;
    *size = input.size_bytes < HJSON_MAX_BYTES ? input.size_bytes : HJSON_MAX_BYTES;
    const bool whole = *size == input.size_bytes;
    *text = malloc(*size + 1);
    native = *text ? input_read(&input, 0, *text, *size) : -ENOMEM;
    input_close(&input);
    if (native)
        return native;
    (*text)[*size] = '\0';
    const char *end = memchr(*text, '\n', *size);
    if (strncmp(*text, LOG_BEGINS, strlen(LOG_BEGINS)) != 0 || !end)
        return whole ? 0 : -EFBIG;
    *size = (size_t)(end - *text);
    (*text)[*size] = '\0';
    return 0;
}

static int read_text(struct options_file *f, const char *text, size_t size, struct hst_error *error)
{
    struct hjson_fault fault;
    const int native = hjson_read(text, size, &f->hjson, &fault);
    if (native == -EBADMSG)
        fail(error, FAIL_DS_FILE, native, "%s:%u:%u: the text has %s here. Fix: correct it there.",
             f->name, fault.line, fault.column, fault.why);
    else if (native)
        fail(error, FAIL_BUDGET, native, "no memory for the options of %s", f->name);
    return native;
}

static int find_options(struct options_file *f, const char *text, struct hst_error *error)
{
    if (strncmp(text, LOG_BEGINS, strlen(LOG_BEGINS)) != 0)
        return 0;
    const struct hjson_entry *options = hjson_at(&f->hjson, "options");
    if (!options || options->type != JSN_OBJECT)
        return fail(error, FAIL_DS_FILE, -ENOENT,
                    "%s:1:1: it is the log of a run, and has no options: a version before them "
                    "wrote it. Fix: a log of this version, or what train --print-options writes.",
                    f->name);
    f->at = (size_t)(options - f->hjson.entries);
    return 0;
}

int options_file_read(struct options_file *f, const char *path, struct hst_error *error)
{
    char *text = NULL;
    size_t size = 0;
    *f = (struct options_file){.name = ""};
    snprintf(f->name, sizeof f->name, "%s", path);
    int native = read_begin(path, &text, &size);
    if (native)
        fail(error, FAIL_DS_FILE, native,
             "--options '%.150s' cannot be read (%s). Fix: name a file that train "
             "--print-options wrote, or a run's log.",
             path, native == -EFBIG ? "it has more than 1 MiB" : input_why(native));
    native = native ? native : read_text(f, text, size, error);
    native = native ? native : find_options(f, text, error);
    free(text);
    return native;
}

void options_file_close(struct options_file *f)
{
    hjson_free(&f->hjson);
}

const struct hjson_entry *options_file_next(const struct options_file *f,
                                            const struct hjson_entry *entry)
{
    const struct hjson *h = &f->hjson;
    for (size_t i = (size_t)(entry - h->entries) + 1; i < h->count; i++)
        if (h->entries[i].parent == f->at)
            return &h->entries[i];
    return NULL;
}

const char *options_file_place(const struct options_file *f, const struct hjson_entry *entry,
                               char place[OPTIONS_PLACE_BYTES])
{
    snprintf(place, OPTIONS_PLACE_BYTES, "%s:%u:%u: ", f->name, entry->line, entry->column);
    return place;
}

int options_file_value(const struct options_file *f, const struct hjson_entry *entry,
                       const struct hst_option *option, const char **text, struct hst_error *error)
{
    const bool flag = option->type == HST_OPTION_FLAG;
    const bool plain = entry->type == JSN_STRING || entry->type == JSN_NUMBER;
    const bool truth = entry->type == JSN_TRUE || entry->type == JSN_FALSE;
    char place[OPTIONS_PLACE_BYTES];
    *text = plain ? entry->text : entry->type == JSN_TRUE ? "" : NULL;
    if (flag ? truth : plain)
        return 0;
    return fail(error, FAIL_VALUE, -EINVAL, "%s--%s: want %s. Fix: correct it, or leave it out.",
                options_file_place(f, entry, place), option->name,
                flag ? "true or false"
                : option->type == HST_OPTION_TEXTS
                    ? "a text, with ';' between several: \"a;b\""
                    : "a number, or a text as on the command line, \"0.9,0.999\"");
}
