/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides what of Hjson is read. Strings and numbers are those of the strict JSON reader; what
 * stands between them is looser. There is a flat list in place of a tree: an entry names the one
 * that it stands in, so that nothing recurses, and a text has as many as the limit lets it have.
 */
#include "cli/config/hjson.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct scan {
    const char *text;
    size_t size, at;
    size_t counted; /* line and column are those of this byte */
    uint32_t line, column;
    uint32_t container; /* the entry that is open */
    uint32_t depth;
    bool apart; /* a line end, a comma or the container's begin has gone before */
    bool comma; /* a comma may come: a value has gone before, and no comma since */
    size_t used;
    struct hjson *hjson;
    struct hjson_fault *fault;
};

/* Places are asked for in the order of the text, so that it is counted once. */
static void place(struct scan *s, size_t at, uint32_t *line, uint32_t *column)
{
    for (; s->counted < at; s->counted++) {
        const unsigned char c = (unsigned char)s->text[s->counted];
        if (c == '\n') {
            s->line++;
            s->column = 1;
        } else if ((c & 0xc0) != 0x80) {
            s->column++;
        }
    }
    *line = s->line;
    *column = s->column;
}

static int failed(struct scan *s, const char *why)
{
    snprintf(s->fault->why, sizeof s->fault->why, "%s", why);
    place(s, s->at, &s->fault->line, &s->fault->column);
    return -EBADMSG;
}

static char peek(const struct scan *s)
{
    return s->at < s->size ? s->text[s->at] : '\0';
}

static bool starts(const struct scan *s, const char *what)
{
    const size_t n = strlen(what);
    return s->size - s->at >= n && memcmp(s->text + s->at, what, n) == 0;
}

static int skip_block_comment(struct scan *s)
{
    for (size_t at = s->at + 2; at + 1 < s->size; at++) {
        if (s->text[at] == '\n')
            s->apart = true;
        if (s->text[at] == '*' && s->text[at + 1] == '/') {
            s->at = at + 2;
            return 0;
        }
    }
    return failed(s, "a comment without an end");
}

/* White space and comments. */
static int skip(struct scan *s)
{
    while (s->at < s->size) {
        const char c = s->text[s->at];
        if (starts(s, "/*")) {
            const int bad = skip_block_comment(s);
            if (bad)
                return bad;
        } else if (c == '#' || starts(s, "//")) {
            const char *end = memchr(s->text + s->at, '\n', s->size - s->at);
            s->at = end ? (size_t)(end - s->text) : s->size;
        } else if (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
            s->apart = s->apart || c == '\n';
            s->at++;
        } else {
            break;
        }
    }
    return 0;
}

/* ---- keys and values ---- */

static bool in_key(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.' || c == '$';
}

/* A string, a number or a word, read by the strict reader as if it were a text of its own. */
static int scalar(struct scan *s, struct jsn_value *value)
{
    struct jsn_reader reader = jsn_reader(s->text + s->at, s->size - s->at);
    const struct jsn_value v = jsn_next(&reader);
    const size_t begin = s->at;
    double real;
    s->at += reader.at;
    if (v.type == JSN_ERROR)
        return failed(s, s->at < s->size ? reader.why : "a value without an end");
    *value = (struct jsn_value){v.type, begin + v.begin, begin + v.end};
    if (v.type != JSN_STRING && in_key(peek(s))) {
        s->at = begin;
        return failed(s, "something that is no value");
    }
    if (v.type == JSN_NUMBER && !jsn_real(s->text, *value, &real)) {
        s->at = begin;
        return failed(s, "a number that is too great");
    }
    return 0;
}

static const char *keep(struct scan *s, struct jsn_value span)
{
    char *dst = s->hjson->bytes + s->used;
    const char *src = s->text + span.begin;
    const size_t bytes = span.end - span.begin;
    if (span.type == JSN_STRING) {
        s->used += jsn_unescape(src, bytes, dst) + 1;
    } else {
        memcpy(dst, src, bytes);
        dst[bytes] = '\0';
        s->used += bytes + 1;
    }
    return dst;
}

/* FNV-1a: of 2,048 keys each is compared with all before it, by this. */
static uint32_t hash_of(const char *key)
{
    uint32_t hash = 2166136261u;
    for (; *key; key++)
        hash = (hash ^ (unsigned char)*key) * 16777619u;
    return hash;
}

static int check_new(struct scan *s, const char *key, uint32_t hash)
{
    const struct hjson *h = s->hjson;
    for (size_t i = 1; i < h->count; i++) {
        if (h->entries[i].key_hash != hash || h->entries[i].parent != s->container ||
            strcmp(h->entries[i].key, key) != 0)
            continue;
        failed(s, "");
        snprintf(s->fault->why, sizeof s->fault->why, "'%.40s' twice (line %u has it, too)", key,
                 h->entries[i].line);
        return -EBADMSG;
    }
    return 0;
}

static int read_key(struct scan *s, struct hjson_entry *entry)
{
    const size_t begin = s->at;
    struct jsn_value span = {JSN_KEY, begin, begin};
    int bad = 0;
    if (peek(s) == '"')
        bad = scalar(s, &span);
    else
        while (in_key(peek(s)))
            span.end = ++s->at;
    if (bad)
        return bad;
    if (s->at == begin)
        return failed(s, "something where a key belongs");
    entry->key = keep(s, span);
    entry->key_hash = hash_of(entry->key);
    const size_t end = s->at;
    s->at = begin; /* where it is refused */
    bad = check_new(s, entry->key, entry->key_hash);
    if (bad)
        return bad;
    s->at = end;
    bad = skip(s);
    if (!bad && peek(s) != ':')
        bad = failed(s, "something where the colon behind a key belongs");
    s->at += !bad;
    return bad ? bad : skip(s);
}

static int open_container(struct scan *s, struct hjson_entry *entry)
{
    if (s->depth == HJSON_MAX_DEPTH)
        return failed(s, "more than 16 levels of nesting");
    s->depth++;
    s->container = (uint32_t)s->hjson->count;
    entry->type = peek(s) == '{' ? JSN_OBJECT : JSN_ARRAY;
    s->at++;
    s->apart = true;
    s->comma = false;
    return 0;
}

static int read_value(struct scan *s, struct hjson_entry *entry)
{
    struct jsn_value span;
    const char c = peek(s);
    if (c == '{' || c == '[')
        return open_container(s, entry);
    if (c == '\'')
        return failed(s, "a text in single quotes, where double ones belong");
    const int bad = scalar(s, &span);
    if (bad)
        return bad;
    entry->type = span.type;
    entry->text = keep(s, span);
    s->apart = false;
    s->comma = true;
    return 0;
}

static int read_entry(struct scan *s)
{
    struct hjson_entry entry = {.parent = s->container, .key = "", .text = ""};
    if (!s->apart)
        return failed(s, "no comma between two values of one line");
    if (s->hjson->count == HJSON_MAX_ENTRIES)
        return failed(s, "more than 2,048 values");
    place(s, s->at, &entry.line, &entry.column);
    int bad = 0;
    if (s->hjson->entries[s->container].type == JSN_OBJECT)
        bad = read_key(s, &entry);
    bad = bad ? bad : read_value(s, &entry);
    if (!bad)
        s->hjson->entries[s->hjson->count++] = entry;
    return bad;
}

/* ---- the text ---- */

static int take_comma(struct scan *s)
{
    if (!s->comma)
        return failed(s, "a comma where no value has gone before");
    s->at++;
    s->apart = true;
    s->comma = false;
    return 0;
}

static int close_container(struct scan *s)
{
    const struct hjson_entry *open = &s->hjson->entries[s->container];
    if (peek(s) != (open->type == JSN_OBJECT ? '}' : ']'))
        return failed(s, "an end that does not fit its begin");
    s->container = open->parent;
    s->depth--;
    s->at++;
    s->apart = false;
    s->comma = true;
    return 0;
}

static int next(struct scan *s)
{
    const char c = peek(s);
    if (s->at == s->size)
        return failed(s, "its end, too early");
    if (c == ',')
        return take_comma(s);
    return c == '}' || c == ']' ? close_container(s) : read_entry(s);
}

static int read_text(struct scan *s)
{
    if (starts(s, "\xef\xbb\xbf"))
        return failed(s, "a byte order mark before its begin");
    int bad = skip(s);
    if (!bad && peek(s) != '{')
        bad = failed(s, "no { at its begin");
    if (bad)
        return bad;
    struct hjson_entry root = {.key = "", .text = ""};
    place(s, s->at, &root.line, &root.column);
    open_container(s, &root);
    s->hjson->entries[s->hjson->count++] = root;
    while (!bad && s->depth > 0) {
        bad = skip(s);
        bad = bad ? bad : next(s);
    }
    bad = bad ? bad : skip(s);
    return !bad && s->at < s->size ? failed(s, "something behind the end of its object") : bad;
}

int hjson_read(const char *text, size_t size, struct hjson *hjson, struct hjson_fault *fault)
{
    struct scan s = {
        .text = text, .size = size, .line = 1, .column = 1, .hjson = hjson, .fault = fault};
    *hjson = (struct hjson){0};
    if (size > HJSON_MAX_BYTES)
        return -EFBIG;
    /* each entry keeps a key and a text, neither longer than it stands there, with a NUL each */
    hjson->bytes = malloc(size + 2 * HJSON_MAX_ENTRIES + 2);
    hjson->entries = calloc(HJSON_MAX_ENTRIES, sizeof *hjson->entries);
    const int bad = hjson->bytes && hjson->entries ? read_text(&s) : -ENOMEM;
    if (bad)
        hjson_free(hjson);
    return bad;
}

void hjson_free(struct hjson *hjson)
{
    free(hjson->entries);
    free(hjson->bytes);
    *hjson = (struct hjson){0};
}

/* ---- paths ---- */

static size_t index_in(const struct hjson *h, size_t entry)
{
    size_t index = 0;
    for (size_t i = h->entries[entry].parent + 1; i < entry; i++)
        index += h->entries[i].parent == h->entries[entry].parent;
    return index;
}

/* One component with what parts it from those before: ".key", "[0]"; of the first key no dot. */
static void component(const struct hjson *h, size_t entry, char dst[HJSON_PATH_BYTES])
{
    const struct hjson_entry *e = &h->entries[entry];
    const char *quote = !e->key[0] || strpbrk(e->key, ".[") ? "'" : "";
    if (h->entries[e->parent].type == JSN_ARRAY)
        snprintf(dst, HJSON_PATH_BYTES, "[%zu]", index_in(h, entry));
    else
        snprintf(dst, HJSON_PATH_BYTES, "%s%s%s%s", e->parent ? "." : "", quote, e->key, quote);
}

const char *hjson_path(const struct hjson *h, size_t entry, char path[HJSON_PATH_BYTES])
{
    size_t chain[HJSON_MAX_DEPTH], count = 0, n = 0;
    char part[HJSON_PATH_BYTES];
    for (size_t e = entry; e > 0; e = h->entries[e].parent) {
        assert(count < HJSON_MAX_DEPTH);
        chain[count++] = e;
    }
    path[0] = '\0';
    while (count > 0 && n < HJSON_PATH_BYTES) {
        component(h, chain[--count], part);
        n += (size_t)snprintf(path + n, HJSON_PATH_BYTES - n, "%s", part);
    }
    return path;
}

const struct hjson_entry *hjson_at(const struct hjson *h, const char *path)
{
    char found[HJSON_PATH_BYTES];
    for (size_t i = 1; i < h->count; i++)
        if (strcmp(hjson_path(h, i, found), path) == 0)
            return &h->entries[i];
    return NULL;
}

const char *hjson_value(const struct hjson_entry *e, char dst[HJSON_VALUE_BYTES])
{
    if (e->type == JSN_OBJECT || e->type == JSN_ARRAY)
        snprintf(dst, HJSON_VALUE_BYTES, "%s", e->type == JSN_OBJECT ? "{...}" : "[...]");
    else
        snprintf(dst, HJSON_VALUE_BYTES, e->type == JSN_STRING ? "\"%.40s\"" : "%.40s", e->text);
    return dst;
}
