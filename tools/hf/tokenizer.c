/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides when two tokenizers give a text the same ids. Each thing that they know is an item: a
 * token and its id, a merge and its place, a flag of a normaliser and where it stands. Items are
 * hashed one by one, and the hashes added, so that their order in the file does not matter and
 * nothing has to be sorted or kept.
 */
#include "hf/tokenizer.h"

#include "hf/json/json.h"

#include <endian.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEP_BYTES 24u /* of a path, beside its keys */

struct walk {
    const char *text;
    struct jsn_reader r;
    uint64_t sum[4];
    char *path; /* of the item at hand; room for all of the text */
    size_t size;
    unsigned depth;
    struct level {
        size_t begin; /* where its own step stands in the path */
        uint64_t index;
        bool array;
    } levels[JSN_MAX_DEPTH + 1];
};

static void put(struct walk *w, const void *bytes, size_t count)
{
    memcpy(w->path + w->size, bytes, count);
    w->size += count;
}

static void put_string(struct walk *w, struct jsn_value v)
{
    w->size += jsn_unescape(w->text + v.begin, v.end - v.begin, w->path + w->size);
}

static void put_span(struct walk *w, struct jsn_value v)
{
    put(w, w->text + v.begin, v.end - v.begin);
}

static void put_index(struct walk *w, uint64_t index)
{
    char text[STEP_BYTES] = {0};
    const int n = snprintf(text + 1, sizeof text - 1, "[%llu", (unsigned long long)index);
    put(w, text, (size_t)n + 1);
}

static void begin_item(struct walk *w, const char *name)
{
    w->size = 0;
    put(w, name, strlen(name));
}

static void add_item(struct walk *w)
{
    struct sha256 hash;
    union {
        unsigned char bytes[SHA256_BYTES];
        uint64_t words[4];
    } digest;
    sha256_begin(&hash);
    sha256_add(&hash, w->path, w->size);
    sha256_end(&hash, digest.bytes);
    for (int i = 0; i < 4; i++)
        w->sum[i] += le64toh(digest.words[i]);
}

static void add_leaf(struct walk *w, struct jsn_value v)
{
    if (v.type == JSN_NULL)
        return; /* as what is not there */
    put(w, "\0=\"", v.type == JSN_STRING ? 3 : 2);
    if (v.type == JSN_STRING)
        put_string(w, v);
    else
        put_span(w, v);
    add_item(w);
}

static void descend(struct walk *w, bool array)
{
    w->levels[++w->depth] = (struct level){.begin = w->size, .array = array};
}

/* The next value with all that is in it: an item for each number, string, true and false. */
static int add_value(struct walk *w, const char *name)
{
    begin_item(w, name);
    w->depth = 0;
    do {
        struct jsn_value v = jsn_next(&w->r);
        struct level *level = &w->levels[w->depth];
        const bool end = v.type == JSN_OBJECT_END || v.type == JSN_ARRAY_END;
        if (v.type == JSN_ERROR || (end && w->depth == 0))
            return -EBADMSG;
        if (w->depth > 0)
            w->size = v.type == JSN_KEY || level->array || end ? level->begin : w->size;
        if (w->depth > 0 && level->array && !end)
            put_index(w, level->index++);
        if (v.type == JSN_KEY) {
            put(w, "\0.", 2);
            put_string(w, v);
        } else if (v.type == JSN_OBJECT || v.type == JSN_ARRAY) {
            descend(w, v.type == JSN_ARRAY);
        } else if (end) {
            w->depth--;
        } else {
            add_leaf(w, v);
        }
    } while (w->depth > 0);
    return 0;
}

/* Two tokens with a blank between them, in a string or as two. */
static int add_merge(struct walk *w, struct jsn_value v)
{
    put(w, "\0=\"", 3);
    if (v.type == JSN_STRING)
        put_string(w, v);
    else if (v.type != JSN_ARRAY)
        return -EBADMSG;
    for (int i = 0; v.type == JSN_ARRAY || i > 0; i++) {
        const struct jsn_value token = jsn_next(&w->r);
        if (token.type == JSN_ARRAY_END)
            break;
        if (token.type != JSN_STRING)
            return -EBADMSG;
        if (i > 0)
            put(w, " ", 1);
        put_string(w, token);
    }
    add_item(w);
    return 0;
}

static int add_added(struct walk *w, struct jsn_value v)
{
    static const char *const keys[] = {"id",     "content",    "single_word", "lstrip",
                                       "rstrip", "normalized", "special"};
    struct jsn_value values[7];
    if (v.type != JSN_OBJECT)
        return -EBADMSG;
    jsn_members(w->text + v.begin, v.end - v.begin, keys, 7, values);
    for (int i = 0; i < 7; i++) {
        values[i].begin += v.begin;
        values[i].end += v.begin;
    }
    if (values[0].type != JSN_NUMBER || values[1].type != JSN_STRING)
        return -EBADMSG;
    begin_item(w, "added");
    put(w, "\0=", 2);
    put_span(w, values[0]);
    for (int i = 2; i < 7; i++)
        put(w, values[i].type == JSN_TRUE ? "1" : "0", 1);
    put_string(w, values[1]);
    add_item(w);
    return 0;
}

static int add_list(struct walk *w, bool merges)
{
    struct jsn_value v = jsn_next(&w->r);
    int rc = v.type == JSN_NULL || v.type == JSN_ARRAY ? 0 : -EBADMSG;
    for (uint64_t i = 0; v.type != JSN_NULL && !rc; i++) {
        v = merges ? jsn_next(&w->r) : jsn_next_value(&w->r);
        if (v.type == JSN_ARRAY_END)
            break;
        if (merges) {
            begin_item(w, "merges");
            put_index(w, i);
        }
        rc = merges ? add_merge(w, v) : add_added(w, v);
    }
    return rc;
}

static int add_member(struct walk *w, struct jsn_value key, bool of_model)
{
    static const char *const of_file[] = {"normalizer", "pre_tokenizer"};
    static const char *const of_its_model[] = {"type", "vocab"};
    for (int i = 0; i < 2; i++) {
        const char *name = of_model ? of_its_model[i] : of_file[i];
        if (jsn_equals(w->text, key, name))
            return add_value(w, name);
    }
    if (jsn_equals(w->text, key, of_model ? "merges" : "added_tokens"))
        return add_list(w, of_model);
    return jsn_next_value(&w->r).type == JSN_ERROR ? -EBADMSG : 0;
}

static int add_model(struct walk *w)
{
    struct jsn_value v = jsn_next(&w->r);
    int rc = v.type == JSN_OBJECT || v.type == JSN_NULL ? 0 : -EBADMSG;
    while (v.type != JSN_NULL && !rc && (v = jsn_next(&w->r)).type != JSN_OBJECT_END)
        rc = v.type == JSN_KEY ? add_member(w, v, true) : -EBADMSG;
    return rc;
}

static int add_file(struct walk *w)
{
    struct jsn_value v = jsn_next(&w->r);
    int rc = v.type == JSN_OBJECT ? 0 : -EBADMSG;
    while (!rc && (v = jsn_next(&w->r)).type != JSN_OBJECT_END) {
        if (v.type != JSN_KEY)
            return -EBADMSG;
        rc = jsn_equals(w->text, v, "model") ? add_model(w) : add_member(w, v, false);
    }
    return rc ? rc : jsn_next(&w->r).type == JSN_END ? 0 : -EBADMSG;
}

int tokenizer_identity(const char *text, size_t size, char hex[TOKENIZER_HEX])
{
    struct walk w = {.text = text, .r = jsn_reader(text, size)};
    uint64_t sum[4];
    w.path = malloc(size + (JSN_MAX_DEPTH + 2) * STEP_BYTES);
    if (!w.path)
        return -ENOMEM;
    const int rc = add_file(&w);
    free(w.path);
    for (int i = 0; i < 4; i++)
        sum[i] = htole64(w.sum[i]);
    if (!rc)
        sha256_hex((const unsigned char *)sum, hex);
    return rc;
}
