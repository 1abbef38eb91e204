/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the tensors of a token file: names, types and shapes alone, no byte of them. What their
 * values have to be is tensors_check.c's.
 */
#include "data/file/tensors.h"
#include "base/fail.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Each part: its name, what it may be, and the part without which it says nothing. */
static const struct {
    const char *name, *dtypes[2];
    enum token_part with;
} parts[TOKEN_PART_COUNT] = {
    [TOKEN_PART_TOKENS] = {"tokens", {"U32", "U16"}, TOKEN_PART_TOKENS},
    [TOKEN_PART_MASK] = {"mask", {"U8"}, TOKEN_PART_TOKENS},
    [TOKEN_PART_DOCUMENTS] = {"documents", {"I64", "U64"}, TOKEN_PART_TOKENS},
    [TOKEN_PART_BYTES] = {"bytes", {"U8"}, TOKEN_PART_BYTE_OFFSETS},
    [TOKEN_PART_BYTE_OFFSETS] = {"byte_offsets", {"U64", "I64"}, TOKEN_PART_BYTES},
    [TOKEN_PART_PROMPTS] = {"prompts", {"U32"}, TOKEN_PART_PROMPT_OFFSETS},
    [TOKEN_PART_PROMPT_OFFSETS] = {"prompt_offsets", {"U64", "I64"}, TOKEN_PART_PROMPTS},
};

#define refuse(error, ...) fail(error, FAIL_DATA_FORMAT, -EBADMSG, __VA_ARGS__)

static int check_format(const char *path, const char *text, struct jsn_value metadata,
                        struct hst_error *error)
{
    static const char *const keys[] = {"format"};
    struct jsn_value format = {0};
    if (metadata.type == JSN_OBJECT)
        jsn_members(text + metadata.begin, metadata.end - metadata.begin, keys, 1, &format);
    if (format.type != JSN_STRING)
        return refuse(error,
                      "%s: no token file: its __metadata__ does not say \"format\": "
                      "\"" TOKEN_FORMAT "\". Fix: see docs/token-file.md",
                      path);
    if (!jsn_equals(text + metadata.begin, format, TOKEN_FORMAT))
        return refuse(error,
                      "%s: a token file of format \"%.*s\", only " TOKEN_FORMAT " can be read",
                      path, (int)(format.end - format.begin < 40 ? format.end - format.begin : 40),
                      text + metadata.begin + format.begin);
    return 0;
}

static int find_part(const char *path, const struct st_tensor *t, enum token_part *part,
                     struct hst_error *error)
{
    for (int i = 0; i < TOKEN_PART_COUNT; i++)
        if (strcmp(t->name, parts[i].name) == 0) {
            *part = (enum token_part)i;
            return 0;
        }
    char known[128] = "";
    for (int i = 0; i < TOKEN_PART_COUNT; i++) {
        strcat(known, i ? " " : "");
        strcat(known, parts[i].name);
    }
    return refuse(error, "%s: tensor %.60s is not known in a token file; known: %s", path, t->name,
                  known);
}

static int check_part(const char *path, const struct st_tensor *t, enum token_part part,
                      struct hst_error *error)
{
    const char *const *dtypes = parts[part].dtypes;
    if (strcmp(t->dtype->name, dtypes[0]) != 0 &&
        (!dtypes[1] || strcmp(t->dtype->name, dtypes[1]) != 0))
        return refuse(error, "%s: tensor %s is %s, want %s%s%s", path, t->name, t->dtype->name,
                      dtypes[0], dtypes[1] ? " or " : "", dtypes[1] ? dtypes[1] : "");
    if (t->dim_count != 1)
        return refuse(error, "%s: tensor %s has %" PRIu32 " dimensions, want 1", path, t->name,
                      t->dim_count);
    return 0;
}

/* Which parts are there, and how many values each has. */
static int check_counts(const char *path, const struct token_tensors *t, struct hst_error *error)
{
    const struct token_tensor *p = t->parts;
    if (p[TOKEN_PART_TOKENS].width == 0)
        return refuse(error, "%s: there is no tensor tokens", path);
    for (int i = 0; i < TOKEN_PART_COUNT; i++)
        if (p[i].width && !p[parts[i].with].width)
            return refuse(error, "%s: there is a tensor %s, and no tensor %s", path, parts[i].name,
                          parts[parts[i].with].name);
    if (p[TOKEN_PART_MASK].width && p[TOKEN_PART_MASK].count != p[TOKEN_PART_TOKENS].count)
        return refuse(error, "%s: mask has %" PRIu64 " values, and there are %" PRIu64 " tokens",
                      path, p[TOKEN_PART_MASK].count, p[TOKEN_PART_TOKENS].count);
    static const enum token_part offsets[] = {TOKEN_PART_DOCUMENTS, TOKEN_PART_BYTE_OFFSETS,
                                              TOKEN_PART_PROMPT_OFFSETS};
    for (int i = 0; i < 3; i++)
        if (p[offsets[i]].width && p[offsets[i]].count < 2)
            return refuse(error,
                          "%s: %s has %" PRIu64 " values, want one more than there are pieces, and "
                          "at least 2",
                          path, parts[offsets[i]].name, p[offsets[i]].count);
    return 0;
}

int token_tensors_find(const char *path, const char *text, const struct st_header *header,
                       uint64_t data_begin, struct token_tensors *tensors, struct hst_error *error)
{
    struct token_tensors found = {.metadata = header->metadata};
    int rc = check_format(path, text, header->metadata, error);
    for (size_t i = 0; !rc && i < header->count; i++) {
        const struct st_tensor *t = &header->tensors[i];
        enum token_part part = TOKEN_PART_COUNT;
        rc = find_part(path, t, &part, error);
        rc = rc ? rc : check_part(path, t, part, error);
        if (!rc)
            found.parts[part] =
                (struct token_tensor){data_begin + t->begin, t->dims[0], t->dtype->bits / 8};
    }
    rc = rc ? rc : check_counts(path, &found, error);
    if (!rc)
        *tensors = found;
    return rc;
}

bool token_tensors_look(const unsigned char first[9], uint64_t size_bytes)
{
    uint64_t header_bytes;
    return size_bytes > 9 && first[8] == '{' &&
           st_header_bytes("", first, size_bytes, &header_bytes, NULL) == 0;
}

/* The header's text, ended by NUL, and where the data behind it begins. */
static int read_header(const struct token_file *file, char **text, uint64_t *data_begin,
                       struct hst_error *error)
{
    unsigned char first[8] = {0};
    uint64_t bytes = 0;
    int rc = 0;
    if (file->size_bytes >= sizeof first)
        rc = token_file_bytes(file, first, sizeof first, 0, error);
    rc = rc ? rc : st_header_bytes(file->path, first, file->size_bytes, &bytes, error);
    if (rc)
        return rc;
    char *all = malloc(bytes + 1);
    if (!all)
        return fail(error, FAIL_DATA_FILE, -ENOMEM, "%s: out of memory", file->path);
    rc = token_file_bytes(file, all, bytes, sizeof first, error);
    if (rc) {
        free(all);
        return rc;
    }
    all[bytes] = '\0';
    *text = all;
    *data_begin = sizeof first + bytes;
    return 0;
}

/* To the user it is data that is malformed, not a model's weights. */
static int as_data(struct hst_error *error, int rc)
{
    if (error && rc == -EBADMSG)
        error->code = FAIL_DATA_FORMAT;
    return rc;
}

/* The header, parsed and checked; text is to be freed, also where this fails. */
static int parse_header(const struct token_file *file, char **text, uint64_t *begin,
                        struct st_header *header, struct hst_error *error)
{
    int rc = read_header(file, text, begin, error);
    return rc ? rc
              : st_parse(file->path, *text, *begin - 8, file->size_bytes - *begin, ST_MAX_TENSORS,
                         header, error);
}

bool token_tensors_named(const struct token_file *file)
{
    static const char family[] = "hoistway.tokens.", *const keys[] = {"format"};
    struct st_header header = {0};
    struct jsn_value format = {0};
    char *text = NULL;
    uint64_t begin = 0;
    const bool read = parse_header(file, &text, &begin, &header, NULL) == 0 && text;
    if (read && header.metadata.type == JSN_OBJECT) {
        const char *metadata = text + header.metadata.begin;
        jsn_members(metadata, header.metadata.end - header.metadata.begin, keys, 1, &format);
        if (format.end - format.begin < sizeof family - 1 ||
            memcmp(metadata + format.begin, family, sizeof family - 1) != 0)
            format.type = JSN_ERROR;
    }
    st_header_free(&header);
    free(text);
    return format.type == JSN_STRING;
}

int token_tensors_read(const struct token_file *file, struct token_tensors **tensors,
                       struct hst_error *error)
{
    struct st_header header = {0};
    struct token_tensors *made = calloc(1, sizeof *made);
    uint64_t begin = 0;
    if (!made)
        return fail(error, FAIL_DATA_FILE, -ENOMEM, "%s: out of memory", file->path);
    char *text = NULL;
    int rc = as_data(error, parse_header(file, &text, &begin, &header, error));
    rc = rc ? rc : token_tensors_find(file->path, text, &header, begin, made, error);
    st_header_free(&header);
    made->text = text;
    if (rc)
        token_tensors_free(&made);
    *tensors = made;
    return rc;
}

void token_tensors_free(struct token_tensors **tensors)
{
    if (*tensors)
        free((*tensors)->text);
    free(*tensors);
    *tensors = NULL;
}
