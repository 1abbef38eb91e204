/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This file does what needs more than one token: keys that stand twice in an object, and members by
 * name. Keys are compared after sorting, not hashed: no choice of keys makes it slow.
 */
#include "hf/json/json.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct key {
    const char *name; /* unescaped: in the text, or in arena */
    uint32_t size;
    uint32_t object; /* number of the object it stands in */
};

struct keys {
    struct key *items;
    size_t count, capacity, max;
    char *arena; /* room for all keys with escapes: unescaped once, not at each comparison */
    size_t arena_used;
};

static int keys_grow(struct keys *keys)
{
    if (keys->count == keys->max)
        return -E2BIG;
    if (keys->count < keys->capacity)
        return 0;
    size_t capacity = keys->capacity ? 2 * keys->capacity : 64;
    if (capacity > keys->max)
        capacity = keys->max;
    struct key *items = realloc(keys->items, capacity * sizeof *items);
    if (!items)
        return -ENOMEM;
    keys->items = items;
    keys->capacity = capacity;
    return 0;
}

static int keys_add(struct keys *keys, const struct jsn_reader *r, struct jsn_value v,
                    uint32_t object)
{
    const char *name = r->text + v.begin;
    size_t size = v.end - v.begin;
    int rc = keys_grow(keys);
    if (rc)
        return rc;
    if (memchr(name, '\\', size)) {
        if (!keys->arena)
            keys->arena = malloc(r->size - v.begin);
        if (!keys->arena)
            return -ENOMEM;
        char *plain = keys->arena + keys->arena_used;
        size = jsn_unescape(name, size, plain);
        keys->arena_used += size;
        name = plain;
    }
    keys->items[keys->count++] = (struct key){name, (uint32_t)size, object};
    return 0;
}

static int compare_keys(const void *a, const void *b)
{
    const struct key *x = a, *y = b;
    if (x->object != y->object)
        return x->object < y->object ? -1 : 1;
    int order = memcmp(x->name, y->name, x->size < y->size ? x->size : y->size);
    return order ? order : (x->size > y->size) - (x->size < y->size);
}

static int collect(struct jsn_reader *r, struct keys *keys)
{
    uint32_t open[JSN_MAX_DEPTH + 1] = {0}, objects = 0;
    for (;;) {
        struct jsn_value v = jsn_next(r);
        if (v.type == JSN_END)
            return 0;
        if (v.type == JSN_ERROR)
            return -EBADMSG;
        if (v.type == JSN_OBJECT)
            open[r->depth] = objects++;
        if (v.type != JSN_KEY)
            continue;
        int rc = keys_add(keys, r, v, open[r->depth]);
        if (rc) {
            r->why = rc == -E2BIG ? "too many keys" : "no memory for its keys";
            return rc;
        }
    }
}

static int find_twice(struct keys *keys, struct jsn_fault *fault)
{
    if (!keys->count)
        return 0;
    qsort(keys->items, keys->count, sizeof *keys->items, compare_keys);
    for (size_t i = 1; i < keys->count; i++) {
        const struct key *key = &keys->items[i];
        if (compare_keys(key - 1, key) != 0)
            continue;
        fault->why = "a key that stands there twice";
        snprintf(fault->key, sizeof fault->key, "%.*s", (int)(key->size < 63 ? key->size : 63),
                 key->name);
        return -EBADMSG;
    }
    return 0;
}

int jsn_check(const char *text, size_t size, size_t max_keys, struct jsn_fault *fault)
{
    struct keys keys = {.max = max_keys};
    struct jsn_reader r = jsn_reader(text, size);
    int rc = -EBADMSG;
    if (jsn_next(&r).type == JSN_OBJECT) {
        r = jsn_reader(text, size);
        rc = collect(&r, &keys);
    } else if (!r.why) {
        r.why = "something that is no object";
    }
    *fault = (struct jsn_fault){.why = r.why, .at = r.at};
    if (!rc)
        rc = find_twice(&keys, fault);
    free(keys.items);
    free(keys.arena);
    return rc;
}

bool jsn_equals(const char *text, struct jsn_value v, const char *plain)
{
    char out[256];
    size_t size = v.end - v.begin, n = strlen(plain);
    assert(6 * n < sizeof out);
    if (v.type != JSN_STRING && v.type != JSN_KEY)
        return false;
    if (size < n || size > 6 * n)
        return false; /* an escape has at most six bytes for one */
    return jsn_unescape(text + v.begin, size, out) == n && memcmp(out, plain, n) == 0;
}

struct jsn_value jsn_shown(struct jsn_value v)
{
    const size_t quote = v.type == JSN_STRING || v.type == JSN_KEY;
    return (struct jsn_value){v.type, v.begin - quote, v.end + quote};
}

void jsn_members(const char *text, size_t size, const char *const *keys, size_t key_count,
                 struct jsn_value *values)
{
    memset(values, 0, key_count * sizeof *values);
    struct jsn_reader r = jsn_reader(text, size);
    if (jsn_next(&r).type != JSN_OBJECT)
        return;
    for (;;) {
        struct jsn_value name = jsn_next(&r);
        if (name.type != JSN_KEY)
            return;
        struct jsn_value v = jsn_next_value(&r);
        for (size_t i = 0; i < key_count; i++)
            if (jsn_equals(text, name, keys[i]))
                values[i] = v;
    }
}

/* ---- values that may not be there ---- */

void jsn_get_text(const char *text, struct jsn_value value, char *to, size_t bytes)
{
    if (value.type == JSN_STRING && value.end - value.begin < bytes)
        jsn_unescape(text + value.begin, value.end - value.begin, to);
}

void jsn_get_whole(const char *text, struct jsn_value value, uint64_t *to)
{
    if (value.type == JSN_NUMBER)
        (void)jsn_u64(text, value, to);
}

void jsn_get_real(const char *text, struct jsn_value value, double *to)
{
    if (value.type == JSN_NUMBER)
        (void)jsn_real(text, value, to);
}
