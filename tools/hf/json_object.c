/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What needs more than one token: keys that stand twice in an object, and members by name. Keys are
 * compared after sorting, not hashed: no choice of keys makes it slow.
 */
#include "hf/json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct key {
    uint32_t object; /* number of the object it stands in */
    uint32_t begin, size;
};

struct keys {
    struct key *items;
    size_t count, capacity, max;
};

static int keys_add(struct keys *keys, struct key key)
{
    if (keys->count == keys->max) return -E2BIG;
    if (keys->count == keys->capacity) {
        size_t capacity = keys->capacity ? 2 * keys->capacity : 64;
        if (capacity > keys->max) capacity = keys->max;
        struct key *items = realloc(keys->items, capacity * sizeof *items);
        if (!items) return -ENOMEM;
        keys->items = items;
        keys->capacity = capacity;
    }
    keys->items[keys->count++] = key;
    return 0;
}

/*
 * The next byte of a string, unescaped; *i moves on. pending holds the rest of a character of
 * several bytes.
 */
struct bytes {
    const char *at, *end;
    char pending[5];
    size_t left, taken;
};

static int next_byte(struct bytes *b)
{
    if (b->taken == b->left) {
        if (b->at == b->end) return -1;
        size_t n = *b->at != '\\' ? 1 : b->at[1] != 'u' ? 2 : 6;
        if (n == 6 && (b->at[2] == 'd' || b->at[2] == 'D') && strchr("89abAB", b->at[3])) n = 12;
        char out[13];
        b->left = jsn_unescape(b->at, n, out);
        memcpy(b->pending, out, b->left);
        b->taken = 0;
        b->at += n;
    }
    return (unsigned char)b->pending[b->taken++];
}

static int compare_strings(const char *a, size_t a_size, const char *b, size_t b_size)
{
    if (!memchr(a, '\\', a_size) && !memchr(b, '\\', b_size)) {
        int order = memcmp(a, b, a_size < b_size ? a_size : b_size);
        return order ? order : (a_size > b_size) - (a_size < b_size);
    }
    struct bytes x = {.at = a, .end = a + a_size}, y = {.at = b, .end = b + b_size};
    int p, q;
    do {
        p = next_byte(&x);
        q = next_byte(&y);
    } while (p == q && p >= 0);
    return (p > q) - (p < q);
}

static int compare_keys(const void *a, const void *b, void *text)
{
    const struct key *x = a, *y = b;
    if (x->object != y->object) return x->object < y->object ? -1 : 1;
    return compare_strings((const char *)text + x->begin, x->size, (const char *)text + y->begin,
                           y->size);
}

static int collect(struct jsn_reader *r, struct keys *keys)
{
    uint32_t open[JSN_MAX_DEPTH + 1] = {0}, objects = 0;
    for (;;) {
        struct jsn_value v = jsn_next(r);
        if (v.type == JSN_END) return 0;
        if (v.type == JSN_ERROR) return -EBADMSG;
        if (v.type == JSN_OBJECT) open[r->depth] = objects++;
        if (v.type != JSN_KEY) continue;
        int rc = keys_add(
            keys, (struct key){open[r->depth], (uint32_t)v.begin, (uint32_t)(v.end - v.begin)});
        if (rc) {
            r->at = v.begin;
            r->why = rc == -E2BIG ? "too many keys" : "no memory for its keys";
            return rc;
        }
    }
}

int jsn_check(const char *text, size_t size, size_t max_keys, const char **why, size_t *at)
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
    *why = r.why;
    *at = r.at;
    if (!rc && keys.count) {
        qsort_r(keys.items, keys.count, sizeof *keys.items, compare_keys, (void *)text);
        for (size_t i = 1; i < keys.count && !rc; i++) {
            if (compare_keys(&keys.items[i - 1], &keys.items[i], (void *)text) != 0) continue;
            rc = -EBADMSG;
            *why = "a key that stands there twice";
            *at = keys.items[i].begin;
        }
    }
    free(keys.items);
    return rc;
}

bool jsn_equals(const char *text, struct jsn_value v, const char *plain)
{
    if (v.type != JSN_STRING && v.type != JSN_KEY) return false;
    return compare_strings(text + v.begin, v.end - v.begin, plain, strlen(plain)) == 0;
}

void jsn_members(const char *text, size_t size, const char *const *keys, size_t key_count,
                 struct jsn_value *values)
{
    memset(values, 0, key_count * sizeof *values);
    struct jsn_reader r = jsn_reader(text, size);
    if (jsn_next(&r).type != JSN_OBJECT) return;
    for (;;) {
        struct jsn_value name = jsn_next(&r);
        if (name.type != JSN_KEY) return;
        struct jsn_value v = jsn_next_value(&r);
        for (size_t i = 0; i < key_count; i++)
            if (jsn_equals(text, name, keys[i])) values[i] = v;
    }
}
