/* SPDX-License-Identifier: Apache-2.0 */
/* Decides how values look in JSON; see json.h. */
#include "cli/json.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

/*
 * Bytes of the UTF-8 character at s, 0 where there is none (overlong forms and surrogates are
 * none).
 */
static size_t utf8_length(const unsigned char *s)
{
    static const struct {
        unsigned char first_least, first_greatest, second_least, second_greatest;
        size_t length;
    } forms[] = {
        {0x00, 0x7f, 0x00, 0xff, 1}, {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
        {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
        {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
    };
    for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++) {
        if (s[0] < forms[f].first_least || s[0] > forms[f].first_greatest)
            continue;
        if (forms[f].length > 1 &&
            (s[1] < forms[f].second_least || s[1] > forms[f].second_greatest))
            return 0;
        for (size_t i = 2; i < forms[f].length; i++)
            if ((s[i] & 0xc0) != 0x80)
                return 0;
        return forms[f].length;
    }
    return 0;
}

static void put_text(FILE *out, const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    putc('"', out);
    while (*s) {
        size_t n = utf8_length(s);
        if (n == 0)
            fputs("\\ufffd", out);
        else if (*s == '"' || *s == '\\')
            fprintf(out, "\\%c", *s);
        else if (*s < 0x20 || *s == 0x7f)
            fprintf(out, "\\u%04x", *s);
        else
            fwrite(s, 1, n, out);
        s += n ? n : 1;
    }
    putc('"', out);
}

static void put_key(struct json_writer *json, const char *key)
{
    if (json->filled[json->depth])
        putc(',', json->out);
    json->filled[json->depth] = true;
    if (key) {
        put_text(json->out, key);
        putc(':', json->out);
    }
}

static void begin(struct json_writer *json, const char *key, char open, char close)
{
    assert(json->depth < JSON_MAX_DEPTH);
    put_key(json, key);
    putc(open, json->out);
    json->close[json->depth++] = close;
    json->filled[json->depth] = false;
}

void json_put_object(struct json_writer *json, const char *key)
{
    begin(json, key, '{', '}');
}

void json_put_array(struct json_writer *json, const char *key)
{
    begin(json, key, '[', ']');
}

void json_put_end(struct json_writer *json)
{
    assert(json->depth > 0);
    putc(json->close[--json->depth], json->out);
}

void json_put_text(struct json_writer *json, const char *key, const char *value)
{
    put_key(json, key);
    if (value)
        put_text(json->out, value);
    else
        fputs("null", json->out);
}

void json_put_real(struct json_writer *json, const char *key, double value)
{
    put_key(json, key);
    if (isfinite(value))
        fprintf(json->out, "%.9g", value);
    else
        fputs("null", json->out);
}

void json_put_micros(struct json_writer *json, const char *key, double seconds)
{
    put_key(json, key);
    fprintf(json->out, "%.3f", seconds * 1e6);
}

void json_put_whole(struct json_writer *json, const char *key, uint64_t value)
{
    put_key(json, key);
    fprintf(json->out, "%" PRIu64, value);
}

void json_put_bool(struct json_writer *json, const char *key, bool value)
{
    put_key(json, key);
    fputs(value ? "true" : "false", json->out);
}

void json_put_null(struct json_writer *json, const char *key)
{
    put_key(json, key);
    fputs("null", json->out);
}
