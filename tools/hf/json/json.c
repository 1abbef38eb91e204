/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads JSON as RFC 8259 has it, and refuses what a lenient reader would let pass: bad UTF-8, lone
 * surrogates, NUL, more than 16 levels. A tree would cost up to forty bytes of memory for one of a
 * hostile file (a library that builds one was measured); tokens cost none, and tell where in the
 * text a value stands.
 */
#include "hf/json/json.h"

#include "base/utf8.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum state {
    WANT_VALUE = 0,
    WANT_VALUE_OR_END,
    WANT_KEY,
    WANT_KEY_OR_END,
    WANT_COMMA,
    WANT_NOTHING,
    FAILED
};

struct jsn_reader jsn_reader(const char *text, size_t size)
{
    return (struct jsn_reader){.text = text, .size = size, .state = WANT_VALUE};
}

static struct jsn_value failed(struct jsn_reader *r, const char *why)
{
    r->state = FAILED;
    r->why = why;
    return (struct jsn_value){JSN_ERROR, r->at, r->at};
}

static void skip_space(struct jsn_reader *r)
{
    while (r->at < r->size) {
        char c = r->text[r->at];
        if (c != ' ' && c != '\n' && c != '\t' && c != '\r')
            break;
        r->at++;
    }
}

/* The four hex digits at s, or -1. */
static int hex4(const char *s, size_t left)
{
    int v = 0;
    if (left < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        char c = s[i];
        int d = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
        if (d < 0)
            return -1;
        v = v * 16 + d;
    }
    return v;
}

/* Bytes of the escape at s, which starts with a backslash; 0 and *why where it is none. */
static size_t escape_length(const char *s, size_t left, const char **why)
{
    *why = "an unknown escape in a string";
    if (left < 2)
        return 0;
    if (s[1] != 'u')
        return strchr("\"\\/bfnrt", s[1]) && s[1] ? 2 : 0;
    int unit = hex4(s + 2, left - 2);
    if (unit < 0)
        return 0;
    *why = "a NUL in a string";
    if (unit == 0)
        return 0;
    *why = "a lone surrogate in a string";
    if (unit >= 0xdc00 && unit <= 0xdfff)
        return 0;
    if (unit < 0xd800 || unit > 0xdbff)
        return 6;
    if (left < 12 || s[6] != '\\' || s[7] != 'u')
        return 0;
    int low = hex4(s + 8, left - 8);
    return low >= 0xdc00 && low <= 0xdfff ? 12 : 0;
}

static struct jsn_value string(struct jsn_reader *r, enum jsn_type type)
{
    struct jsn_value v = {type, ++r->at, 0};
    while (r->at < r->size) {
        const char *s = r->text + r->at;
        unsigned char c = (unsigned char)*s;
        size_t n = 1;
        const char *why = "a control character in a string";
        if (c == '"') {
            v.end = r->at++;
            return v;
        }
        if (c == '\\') {
            n = escape_length(s, r->size - r->at, &why);
        } else if (c >= 0x80) {
            why = "bytes that are not UTF-8";
            n = utf8_length(s, r->size - r->at);
        } else if (c < 0x20) {
            n = 0;
        }
        if (!n)
            return failed(r, why);
        r->at += n;
    }
    return failed(r, "a string without an end");
}

static size_t digits(struct jsn_reader *r)
{
    size_t start = r->at;
    while (r->at < r->size && r->text[r->at] >= '0' && r->text[r->at] <= '9')
        r->at++;
    return r->at - start;
}

static bool take(struct jsn_reader *r, const char *any)
{
    if (r->at == r->size || !r->text[r->at] || !strchr(any, r->text[r->at]))
        return false;
    r->at++;
    return true;
}

static struct jsn_value number(struct jsn_reader *r)
{
    struct jsn_value v = {JSN_NUMBER, r->at, 0};
    take(r, "-");
    if (!take(r, "0") && !digits(r))
        return failed(r, "something that is no value");
    if (take(r, ".") && !digits(r))
        return failed(r, "a number without digits after its point");
    if (take(r, "eE")) {
        take(r, "+-");
        if (!digits(r))
            return failed(r, "a number without digits in its exponent");
    }
    v.end = r->at;
    return v;
}

static struct jsn_value literal(struct jsn_reader *r, const char *word, enum jsn_type type)
{
    size_t n = strlen(word);
    if (r->size - r->at < n || memcmp(r->text + r->at, word, n) != 0)
        return failed(r, "something that is no value");
    r->at += n;
    return (struct jsn_value){type, r->at - n, r->at};
}

static struct jsn_value scalar(struct jsn_reader *r, char c)
{
    switch (c) {
    case '"':
        return string(r, JSN_STRING);
    case 't':
        return literal(r, "true", JSN_TRUE);
    case 'f':
        return literal(r, "false", JSN_FALSE);
    case 'n':
        return literal(r, "null", JSN_NULL);
    default:
        return number(r);
    }
}

static struct jsn_value container_begin(struct jsn_reader *r, char c)
{
    if (r->depth == JSN_MAX_DEPTH)
        return failed(r, "more than 16 levels of nesting");
    bool object = c == '{';
    r->objects = object ? r->objects | 1u << r->depth : r->objects & ~(1u << r->depth);
    r->depth++;
    r->state = object ? WANT_KEY_OR_END : WANT_VALUE_OR_END;
    r->at++;
    return (struct jsn_value){object ? JSN_OBJECT : JSN_ARRAY, r->at - 1, r->at};
}

static bool in_object(const struct jsn_reader *r)
{
    return r->depth && (r->objects >> (r->depth - 1) & 1u);
}

static struct jsn_value container_end(struct jsn_reader *r)
{
    struct jsn_value v = {in_object(r) ? JSN_OBJECT_END : JSN_ARRAY_END, r->at, r->at + 1};
    r->at++;
    r->depth--;
    r->state = r->depth ? WANT_COMMA : WANT_NOTHING;
    return v;
}

static struct jsn_value value(struct jsn_reader *r, char c)
{
    if (c == '{' || c == '[')
        return container_begin(r, c);
    struct jsn_value v = scalar(r, c);
    if (v.type != JSN_ERROR)
        r->state = r->depth ? WANT_COMMA : WANT_NOTHING;
    return v;
}

static struct jsn_value key(struct jsn_reader *r, char c)
{
    if (c != '"')
        return failed(r, "something where a key in quotes belongs");
    struct jsn_value v = string(r, JSN_KEY);
    if (v.type == JSN_ERROR)
        return v;
    skip_space(r);
    if (!take(r, ":"))
        return failed(r, "a key without a colon");
    r->state = WANT_VALUE;
    return v;
}

struct jsn_value jsn_next(struct jsn_reader *r)
{
    if (r->state == FAILED)
        return (struct jsn_value){JSN_ERROR, r->at, r->at};
    skip_space(r);
    if (r->state == WANT_COMMA && take(r, ",")) {
        r->state = in_object(r) ? WANT_KEY : WANT_VALUE;
        skip_space(r);
    }
    if (r->at == r->size) {
        if (r->state == WANT_NOTHING)
            return (struct jsn_value){JSN_END, r->at, r->at};
        return failed(r, "its end, too early");
    }
    char c = r->text[r->at];
    bool end = c == (in_object(r) ? '}' : ']');
    switch ((enum state)r->state) {
    case WANT_COMMA:
        return end ? container_end(r) : failed(r, "something where a comma or an end belongs");
    case WANT_KEY_OR_END:
        return end ? container_end(r) : key(r, c);
    case WANT_KEY:
        return key(r, c);
    case WANT_VALUE_OR_END:
        return end ? container_end(r) : value(r, c);
    case WANT_VALUE:
        return value(r, c);
    default:
        return failed(r, "something after the end of the value");
    }
}

struct jsn_value jsn_next_value(struct jsn_reader *r)
{
    struct jsn_value v = jsn_next(r);
    if (v.type != JSN_OBJECT && v.type != JSN_ARRAY)
        return v;
    uint32_t outside = r->depth - 1;
    while (r->depth > outside) {
        struct jsn_value inner = jsn_next(r);
        if (inner.type == JSN_ERROR)
            return inner;
        v.end = inner.end;
    }
    return v;
}

static size_t put_utf8(unsigned code, char *dst)
{
    if (code < 0x80) {
        dst[0] = (char)code;
        return 1;
    }
    size_t n = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, code >>= 6)
        dst[i] = (char)(0x80 | (code & 0x3f));
    static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    dst[0] = (char)(lead[n] | code);
    return n;
}

size_t jsn_unescape(const char *src, size_t size, char *dst)
{
    size_t n = 0;
    for (size_t i = 0; i < size;) {
        if (src[i] != '\\') {
            dst[n++] = src[i++];
        } else if (src[i + 1] == 'u') {
            unsigned code = (unsigned)hex4(src + i + 2, 4);
            i += 6;
            if (code >= 0xd800 && code <= 0xdbff) {
                code =
                    0x10000 + ((code - 0xd800) << 10) + ((unsigned)hex4(src + i + 2, 4) - 0xdc00);
                i += 6;
            }
            n += put_utf8(code, dst + n);
        } else {
            static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
            dst[n++] = to[strchr(from, src[i + 1]) - from];
            i += 2;
        }
    }
    dst[n] = '\0';
    return n;
}

bool jsn_u64(const char *text, struct jsn_value v, uint64_t *out)
{
    uint64_t value = 0;
    if (v.type != JSN_NUMBER)
        return false;
    for (size_t i = v.begin; i < v.end; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        if (__builtin_mul_overflow(value, 10u, &value) ||
            __builtin_add_overflow(value, (uint64_t)(text[i] - '0'), &value))
            return false;
    }
    *out = value;
    return true;
}

bool jsn_real(const char *text, struct jsn_value v, double *out)
{
    if (v.type != JSN_NUMBER)
        return false;
    char *end;
    double value = strtod(text + v.begin, &end);
    if (end != text + v.end || !isfinite(value))
        return false;
    *out = value;
    return true;
}
