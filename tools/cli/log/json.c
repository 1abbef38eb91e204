/* SPDX-License-Identifier: Apache-2.0 */
/* Decides how values look in JSON; see json.h. */
#include "cli/log/json.h"

#include "base/utf8.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

static void put_text(FILE *out, const char *text)
{
    size_t left = strlen(text);
    putc('"', out);
    while (left) {
        const unsigned char c = (unsigned char)*text;
        size_t n = utf8_length(text, left);
        if (n == 0)
            fputs("\\ufffd", out);
        else if (c == '"' || c == '\\')
            fprintf(out, "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            fprintf(out, "\\u%04x", c);
        else
            fwrite(text, 1, n, out);
        n += n == 0;
        text += n;
        left -= n;
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

void json_put_number(struct json_writer *json, const char *key, const char *text)
{
    put_key(json, key);
    fputs(text, json->out);
}

void json_put_bool(struct json_writer *json, const char *key, bool value)
{
    put_key(json, key);
    fputs(value ? "true" : "false", json->out);
}

void json_put_known(struct json_writer *json, const char *key, double value)
{
    if (value > 0)
        json_put_real(json, key, value);
    else
        json_put_null(json, key);
}

void json_put_null(struct json_writer *json, const char *key)
{
    put_key(json, key);
    fputs("null", json->out);
}
