/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides what the header of LLMQ's token files says, and reads their masks of bits. Such a file
 * knows no documents: all of it is one row of tokens, of which the mask leaves some out.
 */
#include "data/file/llmq.h"

#include "base/fail.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define HEADER_BYTES 1024u
#define PIECE_BYTES  4096u

struct header {
    uint32_t version, token_bytes, count, vocab, masks;
};

static int read_header(const struct token_file *file, struct header *header,
                       struct hst_error *error)
{
    uint32_t words[5] = {0}; /* a header that is cut off is one all the same */
    const uint64_t behind = file->size_bytes - LLMQ_MAGIC_BYTES;
    int rc = token_file_bytes(file, words, behind < sizeof words ? (size_t)behind : sizeof words,
                              LLMQ_MAGIC_BYTES, error);
    *header = (struct header){le32toh(words[0]), le32toh(words[1]), le32toh(words[2]),
                              le32toh(words[3]), le32toh(words[4])};
    return rc;
}

/* In version 1 anything else may stand there. */
static bool has_masks(const struct header *header)
{
    return header->masks == 1;
}

static int check_header(const struct token_file *file, const struct header *header,
                        const struct data_config *config, struct hst_error *error)
{
    if (header->version != 1 && header->version != 2)
        return fail(error, FAIL_DATA_FORMAT, -EINVAL,
                    "%s: LLMQ token file of version %" PRIu32 ", only 1 and 2 can be read",
                    file->path, header->version);
    if (header->token_bytes != 4)
        return fail(error, FAIL_DATA_FORMAT, -EINVAL,
                    "%s: LLMQ token file with %" PRIu32 " bytes a token, only 4 can be read",
                    file->path, header->token_bytes);
    if (header->version == 2 && header->masks > 1)
        return fail(error, FAIL_DATA_FORMAT, -EINVAL,
                    "%s: the LLMQ header has %" PRIu32 " where 1 says that there are masks, and 0 "
                    "that there are none",
                    file->path, header->masks);
    if (config->token_dtype == TOKEN_U16)
        return fail(
            error, FAIL_DATA_FORMAT, -EINVAL,
            "%s: --token-dtype u16, but LLMQ's tokens are u32. Fix: leave --token-dtype out",
            file->path);
    const uint64_t count = header->count,
                   expected = HEADER_BYTES + 4 * count + (has_masks(header) ? (count + 7) / 8 : 0);
    if (header->count > INT32_MAX || file->size_bytes != expected)
        return fail(error, FAIL_DATA_FORMAT, -EINVAL,
                    "%s: the LLMQ header counts %" PRIu32 " tokens%s, which makes %" PRIu64
                    " bytes, but the file has %" PRIu64,
                    file->path, header->count, has_masks(header) ? " with masks" : "", expected,
                    file->size_bytes);
    return 0;
}

int token_llmq_learned(const struct token_file *file, uint64_t first, size_t count,
                       uint8_t *learned, struct hst_error *error)
{
    unsigned char bits[PIECE_BYTES];
    for (size_t done = 0; done < count;) {
        const uint64_t token = first + done;
        const size_t skip = token % 8, room = 8 * sizeof bits - skip;
        const size_t n = count - done < room ? count - done : room;
        int rc =
            token_file_bytes(file, bits, (skip + n + 7) / 8, file->bits_offset + token / 8, error);
        if (rc)
            return rc;
        for (size_t i = 0; i < n; i++)
            learned[done + i] = bits[(skip + i) / 8] >> (skip + i) % 8 & 1;
        done += n;
    }
    return 0;
}

/* The first token is nobody's target. */
static int count_learned(const struct token_file *file, uint64_t *count, struct hst_error *error)
{
    uint8_t learned[PIECE_BYTES];
    for (uint64_t first = 1; first < file->count;) {
        const uint64_t left = file->count - first;
        const size_t n = left < sizeof learned ? (size_t)left : sizeof learned;
        int rc = token_file_stopped(file);
        rc = rc ? rc : token_llmq_learned(file, first, n, learned, error);
        if (rc)
            return rc;
        for (size_t i = 0; i < n; i++)
            *count += learned[i];
        first += n;
    }
    return 0;
}

static int look_at_mask(struct token_file *file, struct hst_error *error)
{
    struct token_documents *d = &file->documents;
    uint64_t learned = 0;
    int rc = count_learned(file, &learned, error);
    if (rc)
        return rc;
    if (learned == 0)
        return fail(error, FAIL_DATA_SHORT, -ENODATA,
                    "%s: there is nothing to learn: the mask leaves out every target. Fix: another "
                    "mask",
                    file->path);
    d->masked = true;
    d->hidden_count = d->target_count - learned;
    return 0;
}

int token_llmq_open(struct token_file *file, const struct data_config *config,
                    struct hst_error *error)
{
    struct header header = {0};
    int rc = read_header(file, &header, error);
    rc = rc ? rc : check_header(file, &header, config, error);
    if (rc)
        return rc;
    file->llmq = true;
    file->width = 4;
    file->data_offset = HEADER_BYTES;
    file->count = header.count;
    file->documents = (struct token_documents){
        .longest = file->count,
        .target_count = file->count - (file->count > 0),
    };
    if (!has_masks(&header) || file->count == 0)
        return 0;
    file->bits_offset = HEADER_BYTES + 4 * file->count;
    return look_at_mask(file, error);
}
