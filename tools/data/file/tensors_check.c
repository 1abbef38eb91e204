/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looks at the values of a token file's small tensors: offsets rise from 0 to the end of what they
 * divide, a mask is 0 or 1, each document has a target that is learned. They are read in pieces, as
 * tokens are: a corpus has as many documents as it likes.
 */
#include "base/fail.h"
#include "data/file/tensors.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The values of one part, one after another. */
struct stream {
    const struct token_file *file;
    const struct token_tensor *part;
    unsigned char *buffer; /* TOKEN_BUFFER_BYTES */
    uint64_t read;         /* values that the buffer has had */
    size_t at, have;       /* values of the buffer: taken, in it */
};

static int stream_fill(struct stream *s, struct hst_error *error)
{
    const struct token_tensor *part = s->part;
    assert(part->width > 0); /* the file has it */
    const uint64_t left = part->count - s->read, most = TOKEN_BUFFER_BYTES / part->width;
    s->have = (size_t)(left < most ? left : most);
    s->at = 0;
    int rc = token_file_stopped(s->file);
    rc = rc ? rc
            : token_file_bytes(s->file, s->buffer, s->have * part->width,
                               part->offset + s->read * part->width, error);
    s->read += s->have;
    return rc;
}

/* The next value, of which there must be one. */
static int stream_next(struct stream *s, uint64_t *value, struct hst_error *error)
{
    int rc = s->at == s->have ? stream_fill(s, error) : 0;
    if (rc)
        return rc;
    uint64_t wide = 0;
    memcpy(&wide, s->buffer + s->at++ * s->part->width, s->part->width);
    *value = le64toh(wide);
    return 0;
}

static struct stream stream_of(const struct token_file *file, enum token_part part, void *buffer)
{
    return (struct stream){.file = file, .part = &file->tensors->parts[part], .buffer = buffer};
}

/* It checks offsets: from 0 to `end`, none below the one before, or, where `apart`, equal to it. */
static int check_offset(const struct token_file *file, const char *name, uint64_t i, uint64_t was,
                        uint64_t is, uint64_t end, bool apart, struct hst_error *error)
{
    if (i == 0 && is != 0)
        return fail(error, FAIL_DATA_FORMAT, -EBADMSG, "%s: %s begins with %" PRIu64 ", want 0",
                    file->path, name, is);
    if (is > end)
        return fail(error, FAIL_DATA_FORMAT, -EBADMSG,
                    "%s: %s[%" PRIu64 "] is %" PRIu64 ", beyond the last of %" PRIu64, file->path,
                    name, i, is, end);
    if (i > 0 && (is < was || (apart && is == was)))
        return fail(error, FAIL_DATA_FORMAT, -EBADMSG,
                    "%s: %s[%" PRIu64 "] is %" PRIu64 " behind %" PRIu64 ", they have to rise",
                    file->path, name, i, is, was);
    return 0;
}

static int check_offsets(const struct token_file *file, enum token_part part, const char *name,
                         enum token_part of, bool apart, void *buffer, struct hst_error *error)
{
    struct stream s = stream_of(file, part, buffer);
    const uint64_t end = file->tensors->parts[of].count;
    uint64_t was = 0, is = 0;
    int rc = 0;
    for (uint64_t i = 0; i < s.part->count && !rc; i++, was = is) {
        rc = stream_next(&s, &is, error);
        rc = rc ? rc : check_offset(file, name, i, was, is, end, apart, error);
    }
    if (!rc && s.part->count && is != end)
        rc =
            fail(error, FAIL_DATA_FORMAT, -EBADMSG,
                 "%s: %s ends with %" PRIu64 ", and there are %" PRIu64, file->path, name, is, end);
    return rc;
}

static int check_prompts(const struct token_file *file, uint64_t vocab, void *buffer,
                         struct hst_error *error)
{
    struct stream s = stream_of(file, TOKEN_PART_PROMPTS, buffer);
    uint64_t id = 0;
    int rc = 0;
    for (uint64_t i = 0; vocab && i < s.part->count && !rc; i++) {
        rc = stream_next(&s, &id, error);
        if (!rc && id >= vocab)
            rc = fail(error, FAIL_DATA_TOKEN, -EDOM,
                      "%s: prompts[%" PRIu64 "] is the id %" PRIu64
                      ", but the vocabulary of the model has %" PRIu64,
                      file->path, i, id, vocab);
    }
    return rc;
}

/* It counts those of the next `count` values of the mask that are 1. */
static int count_learned(struct stream *mask, uint64_t count, uint64_t *learned,
                         struct hst_error *error)
{
    while (count > 0) {
        int rc = mask->at == mask->have ? stream_fill(mask, error) : 0;
        if (rc)
            return rc;
        const uint64_t left = mask->have - mask->at;
        const size_t n = (size_t)(count < left ? count : left);
        const unsigned char *values = mask->buffer + mask->at;
        for (size_t i = 0; i < n; i++) {
            if (values[i] > 1)
                return fail(error, FAIL_DATA_FORMAT, -EBADMSG,
                            "%s: mask[%" PRIu64 "] is %u, want 0 or 1", mask->file->path,
                            mask->read - left + i, values[i]);
            *learned += values[i];
        }
        mask->at += n;
        count -= n;
    }
    return 0;
}

/* One document of so many tokens, or all of a file that knows none. */
static int check_document(struct token_file *file, uint64_t i, uint64_t tokens, struct stream *mask,
                          struct hst_error *error)
{
    struct token_documents *d = &file->documents;
    uint64_t first = 0, learned = 0;
    if (d->count && tokens < 2)
        return fail(error, FAIL_DATA_SHORT, -ENODATA,
                    "%s: document %" PRIu64 " has %" PRIu64 " token%s, and no target. Fix: leave "
                    "it out",
                    file->path, i, tokens, tokens == 1 ? "" : "s");
    int rc = d->masked ? count_learned(mask, tokens > 0, &first, error) : 0;
    rc = rc || !d->masked ? rc : count_learned(mask, tokens - (tokens > 0), &learned, error);
    if (rc)
        return rc;
    if (d->masked && learned == 0 && d->count)
        return fail(error, FAIL_DATA_SHORT, -ENODATA,
                    "%s: document %" PRIu64 " has no target: its mask learns none of its tokens "
                    "but perhaps the first. Fix: leave it out",
                    file->path, i);
    if (d->masked && learned == 0)
        return fail(error, FAIL_DATA_SHORT, -ENODATA,
                    "%s: there is nothing to learn: the mask leaves out every target. Fix: another "
                    "mask",
                    file->path);
    const uint64_t targets = tokens - (tokens > 0);
    d->longest = tokens > d->longest ? tokens : d->longest;
    d->target_count += targets;
    d->hidden_count += d->masked ? targets - learned : 0;
    return 0;
}

static int check_documents(struct token_file *file, void *buffer, void *mask_buffer,
                           struct hst_error *error)
{
    struct stream ends = stream_of(file, TOKEN_PART_DOCUMENTS, buffer);
    struct stream mask = stream_of(file, TOKEN_PART_MASK, mask_buffer);
    uint64_t was = 0, is = 0;
    if (!file->documents.count)
        return check_document(file, 0, file->count, &mask, error);
    int rc = stream_next(&ends, &was, error);
    for (uint64_t i = 0; i < file->documents.count && !rc; i++, was = is) {
        rc = stream_next(&ends, &is, error);
        /* Again: what was checked a moment ago may have been changed by others. */
        rc = rc ? rc : check_offset(file, "documents", i + 1, was, is, file->count, true, error);
        rc = rc ? rc : check_document(file, i, is - was, &mask, error);
    }
    return rc;
}

int token_tensors_check(struct token_file *file, uint64_t vocab, struct hst_error *error)
{
    const struct token_tensor *parts = file->tensors->parts;
    void *buffer = malloc(2 * TOKEN_BUFFER_BYTES);
    if (!buffer)
        return fail(error, FAIL_DATA_FILE, -ENOMEM, "%s: out of memory", file->path);
    int rc = check_offsets(file, TOKEN_PART_DOCUMENTS, "documents", TOKEN_PART_TOKENS, true, buffer,
                           error);
    rc = rc ? rc
            : check_offsets(file, TOKEN_PART_BYTE_OFFSETS, "byte_offsets", TOKEN_PART_BYTES, false,
                            buffer, error);
    rc = rc ? rc
            : check_offsets(file, TOKEN_PART_PROMPT_OFFSETS, "prompt_offsets", TOKEN_PART_PROMPTS,
                            true, buffer, error);
    rc = rc ? rc : check_prompts(file, vocab, buffer, error);
    file->documents = (struct token_documents){
        .count = parts[TOKEN_PART_DOCUMENTS].width ? parts[TOKEN_PART_DOCUMENTS].count - 1 : 0,
        .masked = parts[TOKEN_PART_MASK].width > 0,
    };
    rc = rc ? rc : check_documents(file, buffer, (char *)buffer + TOKEN_BUFFER_BYTES, error);
    free(buffer);
    return rc;
}

int token_tensors_offsets(const struct token_file *file, uint64_t *offsets, struct hst_error *error)
{
    const struct token_tensor *part = &file->tensors->parts[TOKEN_PART_DOCUMENTS];
    int rc = token_file_bytes(file, offsets, part->count * sizeof *offsets, part->offset, error);
    for (uint64_t i = 0; i < part->count && !rc; i++) {
        offsets[i] = le64toh(offsets[i]);
        rc = check_offset(file, "documents", i, i ? offsets[i - 1] : 0, offsets[i], file->count,
                          true, error);
    }
    return rc;
}
