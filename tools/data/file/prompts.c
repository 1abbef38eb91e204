/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the parts of a token file that say what to ask a model, and what it answers. They are small
 * beside its tokens, and are read whole. Offsets and ids were checked when the file was opened, and
 * are once more here: others may have changed it since.
 */
#include "data/file/prompts.h"

#include "base/fail.h"
#include "data/file/tensors.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

/* *values: `count` of a part's, from the first one on; to be freed. -ENOMEM without *error. */
static int read_part(const struct token_file *file, enum token_part part, uint64_t count,
                     void **values, struct hst_error *error)
{
    const struct token_tensor *t = &file->tensors->parts[part];
    *values = count < SIZE_MAX / 8 ? malloc((size_t)count * t->width + 1) : NULL;
    if (!*values)
        return -ENOMEM;
    return token_file_bytes(file, *values, (size_t)count * t->width, t->offset, error);
}

static int changed(const struct token_file *file, const char *what, struct hst_error *error)
{
    return fail(error, FAIL_READ, -EBADMSG, "%s: its %s are not those that it was opened with",
                file->path, what);
}

/* Offsets of a part of `end` values, the first `count` pieces of it, of which none has fewer than
 * `least`. */
static int read_starts(const struct token_file *file, enum token_part part, uint64_t count,
                       uint64_t end, uint64_t least, uint64_t **starts, struct hst_error *error)
{
    void *values = NULL;
    int rc = read_part(file, part, count + 1, &values, error);
    *starts = values;
    if (rc)
        return rc;
    for (uint64_t i = 0; i <= count && !rc; i++) {
        (*starts)[i] = le64toh((*starts)[i]);
        const uint64_t was = i ? (*starts)[i - 1] : 0, is = (*starts)[i];
        if (is > end || (i ? is < was || is - was < least : is != 0))
            rc = changed(file, "offsets", error);
    }
    return rc;
}

static const struct token_file *file_with_prompts(struct token_files files)
{
    for (size_t i = 0; i < files.count; i++)
        if (files.files[i].tensors && files.files[i].tensors->parts[TOKEN_PART_PROMPTS].width)
            return &files.files[i];
    return NULL;
}

static int read_ids(const struct token_file *file, uint64_t vocab, struct prompts *p,
                    struct hst_error *error)
{
    const struct token_tensor *parts = file->tensors->parts;
    void *ids = NULL;
    int rc = read_starts(file, TOKEN_PART_PROMPT_OFFSETS, p->count, parts[TOKEN_PART_PROMPTS].count,
                         1, &p->starts, error);
    rc = rc ? rc : read_part(file, TOKEN_PART_PROMPTS, p->starts[p->count], &ids, error);
    p->ids = ids;
    for (uint64_t i = 0; !rc && i < p->starts[p->count]; i++) {
        p->ids[i] = le32toh(p->ids[i]);
        if (vocab && p->ids[i] >= vocab)
            rc = changed(file, "prompts", error);
    }
    return rc;
}

static int read_bytes(const struct token_file *file, struct prompts *p, struct hst_error *error)
{
    const struct token_tensor *parts = file->tensors->parts;
    void *bytes = NULL;
    if (!parts[TOKEN_PART_BYTES].width)
        return 0;
    p->id_count = parts[TOKEN_PART_BYTE_OFFSETS].count - 1;
    int rc = read_starts(file, TOKEN_PART_BYTE_OFFSETS, p->id_count, parts[TOKEN_PART_BYTES].count,
                         0, &p->byte_starts, error);
    rc = rc ? rc : read_part(file, TOKEN_PART_BYTES, p->byte_starts[p->id_count], &bytes, error);
    p->bytes = bytes;
    return rc;
}

int prompts_read(struct token_files files, uint64_t vocab, uint64_t most, struct prompts *prompts,
                 struct hst_error *error)
{
    const struct token_file *file = file_with_prompts(files);
    *prompts = (struct prompts){0};
    if (!file)
        return 0;
    prompts->path = file->path;
    prompts->all = file->tensors->parts[TOKEN_PART_PROMPT_OFFSETS].count - 1;
    prompts->count = most < prompts->all ? most : prompts->all;
    int rc = read_ids(file, vocab, prompts, error);
    rc = rc ? rc : read_bytes(file, prompts, error);
    return rc == -ENOMEM ? fail(error, FAIL_DATA_FILE, rc, "%s: out of memory", file->path) : rc;
}

void prompts_free(struct prompts *prompts)
{
    free(prompts->starts);
    free(prompts->ids);
    free(prompts->byte_starts);
    free(prompts->bytes);
    *prompts = (struct prompts){0};
}

const unsigned char *prompts_bytes(const struct prompts *prompts, uint32_t id, size_t *count)
{
    *count = 0;
    if (id >= prompts->id_count)
        return NULL;
    *count = (size_t)(prompts->byte_starts[id + 1] - prompts->byte_starts[id]);
    return prompts->bytes + prompts->byte_starts[id];
}
