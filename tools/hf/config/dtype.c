/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An exported config.json is the source's, byte for byte, but for the type of the weights: nothing
 * that this program does not know about may be lost or reordered.
 */
#include "hf/config/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A piece of text to be put in the place of bytes [begin, end). */
struct edit {
    size_t begin, end;
    char text[256];
};

/* Both keys in front of the first one, in the file's own indentation. */
static struct edit insertion(const char *text, size_t size, const char *dtype)
{
    struct jsn_reader r = jsn_reader(text, size);
    size_t brace = jsn_next(&r).end;
    size_t space = strspn(text + brace, " \t\r\n");
    if (space > 64)
        space = 64;
    struct edit e = {.begin = brace, .end = brace};
    snprintf(e.text, sizeof e.text, "%.*s\"dtype\": \"%s\",%.*s\"torch_dtype\": \"%s\",",
             (int)space, text + brace, dtype, (int)space, text + brace, dtype);
    return e;
}

char *config_with_dtype(const char *text, size_t size, const char *dtype, size_t *out_size)
{
    static const char *const keys[] = {"dtype", "torch_dtype"};
    struct jsn_value v[2];
    struct edit edits[2];
    size_t count = 0;
    jsn_members(text, size, keys, 2, v);
    bool swapped = v[0].begin > v[1].begin; /* in the order of the text */
    for (int i = 0; i < 2; i++) {
        struct jsn_value value = v[swapped ? 1 - i : i];
        if (value.type == JSN_ERROR)
            continue;
        size_t quote = value.type == JSN_STRING;
        struct edit *e = &edits[count++];
        *e = (struct edit){.begin = value.begin - quote, .end = value.end + quote};
        snprintf(e->text, sizeof e->text, "\"%s\"", dtype);
    }
    if (!count)
        edits[count++] = insertion(text, size, dtype);
    char *out = malloc(size + count * sizeof edits[0].text);
    if (!out)
        return NULL;
    size_t at = 0, n = 0;
    for (size_t i = 0; i < count; i++) {
        memcpy(out + n, text + at, edits[i].begin - at);
        n += edits[i].begin - at;
        memcpy(out + n, edits[i].text, strlen(edits[i].text));
        n += strlen(edits[i].text);
        at = edits[i].end;
    }
    memcpy(out + n, text + at, size - at);
    *out_size = n + size - at;
    return out;
}
