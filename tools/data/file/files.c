/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides what a data file is and reads tokens from it. Files are hostile and may be larger than
 * memory: they are read by pread in pieces, never mapped, and only regular files are taken (a FIFO
 * would block, and /dev/zero has no end). Token files are little-endian.
 *
 * An llm.c header is recognised even where --token-dtype says that the file is raw: magic and
 * version are eight bytes that raw tokens do not begin with by accident, and to train on a header
 * would be silent.
 */
#include "data/file/files.h"

#include "base/fail.h"
#include "data/file/llmq.h"
#include "data/file/tensors.h"
#include "data/file/tokenizer.h"
#include "data/rows.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* llm.c: 256 int32 of header; magic, version, tokens. */
#define LLMC_HEADER_BYTES 1024u
#define LLMC_MAGIC_U16    20240520u
#define LLMC_VERSION_U16  1u
#define LLMC_MAGIC_U32    20240801u
#define LLMC_VERSION_U32  7u

static bool has_suffix(const char *name, const char *suffix)
{
    size_t n = strlen(name), s = strlen(suffix);
    return n > s && strcmp(name + n - s, suffix) == 0;
}

/* Text that has to be made into tokens first: as bytes it would train on brackets and marks. */
static bool is_markup(const char *path)
{
    static const char *const suffixes[] = {".json", ".md"};
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++)
        if (has_suffix(path, suffixes[i]))
            return true;
    return false;
}

static int unknown_format(const struct token_file *file, struct hst_error *error)
{
    return fail(
        error, FAIL_DATA_FORMAT, -EINVAL,
        "%s: the name ends in none of .safetensors, .jsonl, .bin and .txt, so the format is "
        "not known. Fix: %s",
        file->path,
        is_markup(file->path)
            ? "make a file of tokens of it with the model's own tokenizer"
            : "add --data-format tokens, or --data-format bytes where each byte is one");
}

/* A model that was trained on a tokenizer's ids learns nothing from bytes that stand for others. */
static int check_bytes(const struct token_file *file, const struct data_config *config,
                       struct hst_error *error)
{
    if (config->format == DATA_FORMAT_BYTES || (!config->tokenizer && config->vocab <= 256))
        return 0;
    char why[96];
    if (config->tokenizer)
        snprintf(why, sizeof why, "the model has a tokenizer (%.60s)", config->tokenizer);
    else
        snprintf(why, sizeof why, "the model has %" PRIu64 " ids", config->vocab);
    return fail(error, FAIL_DATA_FORMAT, -EINVAL,
                "%s: %s, and .txt is read as one id for each byte. Fix: make a file of tokens of "
                "it with the model's own tokenizer, or add --data-format bytes to train on bytes",
                file->path, why);
}

static int resolve_format(struct token_file *file, const struct data_config *config,
                          struct hst_error *error)
{
    static const struct {
        const char *suffix;
        enum data_format format;
    } names[] = {{".txt", DATA_FORMAT_BYTES},
                 {".bin", DATA_FORMAT_TOKENS},
                 {".safetensors", DATA_FORMAT_TOKENS},
                 {".jsonl", DATA_FORMAT_JSONL}};
    file->format = config->format;
    for (size_t i = 0; file->format == DATA_FORMAT_AUTO && i < sizeof names / sizeof *names; i++)
        if (has_suffix(file->path, names[i].suffix))
            file->format = names[i].format;
    if (file->format == DATA_FORMAT_AUTO)
        return unknown_format(file, error);
    if (file->format != DATA_FORMAT_TOKENS && config->token_dtype != TOKEN_DTYPE_NONE)
        return fail(error, FAIL_VALUE, -EINVAL,
                    "%s: --token-dtype does not go with %s. Fix: leave it out, "
                    "or add --data-format tokens",
                    file->path, file->format == DATA_FORMAT_BYTES ? "bytes" : "JSONL");
    return file->format == DATA_FORMAT_BYTES ? check_bytes(file, config, error) : 0;
}

static int open_regular(struct token_file *file, struct hst_error *error)
{
    /* O_NONBLOCK: opening a FIFO must not wait for its writer. */
    file->fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (file->fd < 0) {
        int native = errno;
        return fail(error, FAIL_DATA_FILE, -native, "%s: the data file cannot be opened: %s",
                    file->path, strerror(native));
    }
    struct stat st;
    if (fstat(file->fd, &st) < 0)
        return fail(error, FAIL_DATA_FILE, -errno, "%s: %s", file->path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return fail(
            error, FAIL_DATA_FILE, -EINVAL,
            "%s: not a regular file. Fix: give a file on disk, no directory, pipe or device",
            file->path);
    file->size_bytes = (uint64_t)st.st_size;
    return 0;
}

const struct token_file *token_files_find(struct token_files files, uint64_t *first)
{
    size_t i = 0;
    for (; *first >= files.files[i].count; i++) {
        assert(i + 1 < files.count);
        *first -= files.files[i].count;
    }
    return &files.files[i];
}

int token_file_stopped(const struct token_file *file)
{
    return file->stopped && *file->stopped ? -ECANCELED : 0;
}

int token_file_bytes(const struct token_file *file, void *dst, size_t bytes, uint64_t offset,
                     struct hst_error *error)
{
    char *at = dst;
    while (bytes > 0) {
        ssize_t got = pread(file->fd, at, bytes, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return fail(error, FAIL_READ, -errno, "%s: reading at byte %" PRIu64 " failed: %s",
                        file->path, offset, strerror(errno));
        if (got == 0)
            return fail(error, FAIL_READ, -ENODATA,
                        "%s: the file ends at byte %" PRIu64 ", it was longer when it was opened",
                        file->path, offset);
        at += got;
        offset += (uint64_t)got;
        bytes -= (size_t)got;
    }
    return 0;
}

static int check_llmc(struct token_file *file, const uint32_t *header, uint64_t size_bytes,
                      const struct data_config *config, struct hst_error *error)
{
    bool wide = header[0] == LLMC_MAGIC_U32;
    uint32_t version = wide ? LLMC_VERSION_U32 : LLMC_VERSION_U16;
    if (header[1] != version)
        return fail(error, FAIL_DATA_FORMAT, -EINVAL,
                    "%s: llm.c token file of version %" PRIu32 ", only %" PRIu32 " can be read",
                    file->path, header[1], version);
    file->width = wide ? 4 : 2;
    if (config->token_dtype != TOKEN_DTYPE_NONE && wide != (config->token_dtype == TOKEN_U32))
        return fail(
            error, FAIL_DATA_FORMAT, -EINVAL,
            "%s: --token-dtype %s, but the llm.c header says %s. Fix: leave --token-dtype out",
            file->path, wide ? "u16" : "u32", wide ? "u32" : "u16");
    uint64_t expected = LLMC_HEADER_BYTES + (uint64_t)header[2] * file->width;
    if (header[2] > INT32_MAX || size_bytes != expected)
        return fail(error, FAIL_DATA_FORMAT, -EINVAL,
                    "%s: the llm.c header counts %" PRIu32 " tokens, which makes %" PRIu64
                    " bytes, but the file has %" PRIu64,
                    file->path, header[2], expected, size_bytes);
    file->data_offset = LLMC_HEADER_BYTES;
    file->count = header[2];
    return 0;
}

/* Raw tokens: nothing in the file tells their width. */
static int check_raw(struct token_file *file, uint64_t size_bytes, const struct data_config *config,
                     struct hst_error *error)
{
    if (config->token_dtype == TOKEN_DTYPE_NONE)
        return fail(
            error, FAIL_DATA_FORMAT, -ENOTSUP,
            "%s: not an llm.c token file (no known magic number in its first 4 bytes). Fix: "
            "if it holds raw tokens, add --token-dtype u16 or u32",
            file->path);
    file->width = config->token_dtype == TOKEN_U32 ? 4 : 2;
    if (size_bytes % file->width != 0)
        return fail(error, FAIL_DATA_FORMAT, -EINVAL,
                    "%s: %" PRIu64 " bytes are not a multiple of %u, the width of --token-dtype %s",
                    file->path, size_bytes, file->width, file->width == 4 ? "u32" : "u16");
    file->raw = true;
    file->count = size_bytes / file->width;
    return 0;
}

static int check_tokens(struct token_file *file, uint64_t size_bytes,
                        const struct data_config *config, struct hst_error *error)
{
    uint32_t header[3] = {0}; /* a header that is cut off is one all the same */
    size_t bytes = size_bytes < sizeof header ? (size_t)size_bytes : sizeof header;
    int rc = token_file_bytes(file, header, bytes, 0, error);
    if (rc < 0)
        return rc;
    if (bytes >= LLMQ_MAGIC_BYTES && memcmp(header, LLMQ_MAGIC, LLMQ_MAGIC_BYTES) == 0)
        return token_llmq_open(file, config, error);
    const uint32_t swapped = be32toh(header[0]);
    for (size_t i = 0; i < 3; i++)
        header[i] = le32toh(header[i]);
    if (swapped == LLMC_MAGIC_U16 || swapped == LLMC_MAGIC_U32)
        return fail(
            error, FAIL_DATA_FORMAT, -EINVAL,
            "%s: wrong endian: an llm.c token file written on a big-endian machine. Fix: convert "
            "it to little-endian",
            file->path);
    bool raw = config->token_dtype != TOKEN_DTYPE_NONE;
    bool u16 = header[0] == LLMC_MAGIC_U16 && (!raw || header[1] == LLMC_VERSION_U16);
    bool u32 = header[0] == LLMC_MAGIC_U32 && (!raw || header[1] == LLMC_VERSION_U32);
    if (u16 || u32)
        return check_llmc(file, header, size_bytes, config, error);
    return check_raw(file, size_bytes, config, error);
}

/* A token file by its name, or by its first bytes where nobody says what they are. */
static bool is_tensors(const struct token_file *file, const struct data_config *config)
{
    unsigned char first[9] = {0};
    return file->format == DATA_FORMAT_TOKENS &&
           (has_suffix(file->path, ".safetensors") ||
            (config->token_dtype == TOKEN_DTYPE_NONE && file->size_bytes >= sizeof first &&
             token_file_bytes(file, first, sizeof first, 0, NULL) == 0 &&
             token_tensors_look(first, file->size_bytes)));
}

static int check_tensors(struct token_file *file, const struct data_config *config,
                         struct hst_error *error)
{
    if (config->token_dtype != TOKEN_DTYPE_NONE)
        return fail(error, FAIL_DATA_FORMAT, -EINVAL,
                    "%s: --token-dtype, but safetensors say their own. Fix: leave --token-dtype "
                    "out",
                    file->path);
    int rc = token_tensors_read(file, &file->tensors, error);
    rc = rc ? rc : token_file_check_tokenizer(file, config, error);
    if (rc)
        return rc;
    const struct token_tensor *tokens = &file->tensors->parts[TOKEN_PART_TOKENS];
    file->width = tokens->width;
    file->data_offset = tokens->offset;
    file->count = tokens->count;
    return file->count ? token_tensors_check(file, config->vocab, error) : 0;
}

/* It finds what the file is, which is not empty. */
static int check_file(struct token_file *file, const struct data_config *config,
                      struct hst_error *error)
{
    if (file->format == DATA_FORMAT_JSONL)
        return token_rows_open(file, config->vocab, error);
    if (is_tensors(file, config))
        return check_tensors(file, config, error);
    if (file->format == DATA_FORMAT_TOKENS)
        return check_tokens(file, file->size_bytes, config, error);
    file->width = 1;
    file->count = file->size_bytes;
    return 0;
}

int token_file_open(const char *path, const struct data_config *config, struct token_file *file,
                    struct hst_error *error)
{
    *file = (struct token_file){.fd = -1, .path = strdup(path), .stopped = config->stopped};
    if (!file->path)
        return fail(error, FAIL_DATA_FILE, -ENOMEM, "%s: out of memory", path);
    int rc = open_regular(file, error);
    if (rc == 0)
        rc = resolve_format(file, config, error);
    if (rc == 0 && file->size_bytes == 0)
        rc = fail(error, FAIL_DATA_SHORT, -ENODATA, "%s: the data file is empty", path);
    rc = rc ? rc : check_file(file, config, error);
    if (rc == 0 && file->count == 0)
        rc = fail(error, FAIL_DATA_SHORT, -ENODATA, "%s: the data file holds no token", path);
    if (rc < 0)
        token_file_close(file);
    return rc;
}

void token_file_close(struct token_file *file)
{
    if (file->fd >= 0)
        close(file->fd);
    free(file->path);
    token_tensors_free(&file->tensors);
    token_rows_free(&file->rows);
    *file = (struct token_file){.fd = -1};
}

int token_file_offsets(const struct token_file *file, uint64_t **offsets, struct hst_error *error)
{
    uint64_t *made = malloc((file->documents.count + 2) * sizeof *made);
    if (!made)
        return fail(error, FAIL_DATA_FILE, -ENOMEM, "%s: out of memory", file->path);
    int rc = 0;
    made[0] = 0;
    made[1] = file->count;
    if (file->rows)
        token_rows_offsets(file, made);
    else if (file->documents.count)
        rc = token_tensors_offsets(file, made, error);
    if (rc)
        free(made);
    else
        *offsets = made;
    return rc;
}

int token_file_learned(const struct token_file *file, uint64_t first, size_t count,
                       uint8_t *learned, struct hst_error *error)
{
    if (file->rows)
        token_rows_learned(file, first, count, learned);
    else if (file->bits_offset)
        return token_llmq_learned(file, first, count, learned, error);
    else if (file->documents.masked)
        return token_file_bytes(file, learned, count,
                                file->tensors->parts[TOKEN_PART_MASK].offset + first, error);
    else
        memset(learned, 1, count);
    return 0;
}

static uint32_t token_at(const void *bytes, unsigned width, size_t i)
{
    if (width == 1)
        return ((const uint8_t *)bytes)[i];
    if (width == 2)
        return le16toh(((const uint16_t *)bytes)[i]);
    return le32toh(((const uint32_t *)bytes)[i]);
}

/* They were all checked when the file was opened, and may have been changed since. */
static int read_rows(const struct token_file *file, uint64_t first, size_t count, uint64_t vocab,
                     void *buffer, uint32_t *ids, struct hst_error *error)
{
    int rc = token_rows_read(file, first, count, buffer, ids, error);
    for (size_t i = 0; i < count && !rc; i++)
        if (ids[i] >= vocab)
            rc = fail(error, FAIL_DATA_TOKEN, -EDOM,
                      "%s: token id %" PRIu32 " is token %" PRIu64
                      ", but the vocabulary of the model has %" PRIu64,
                      file->path, ids[i], first + i, vocab);
    return rc;
}

/* Reads one buffer's worth from `first` on, at most `count`; ids may be null where only the
 * check matters. */
static int read_piece(const struct token_file *file, uint64_t first, size_t count, uint64_t vocab,
                      void *buffer, uint32_t *ids, struct hst_error *error)
{
    if (file->rows)
        return read_rows(file, first, count, vocab, buffer, ids, error);
    uint64_t offset = file->data_offset + first * file->width;
    int rc = token_file_bytes(file, buffer, count * file->width, offset, error);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < count; i++) {
        uint32_t id = token_at(buffer, file->width, i);
        if (id >= vocab)
            return fail(error, FAIL_DATA_TOKEN, -EDOM,
                        "%s: token id %" PRIu32 " at byte %" PRIu64
                        ", but the vocabulary of the model has %" PRIu64,
                        file->path, id, offset + i * file->width, vocab);
        if (ids)
            ids[i] = id;
    }
    return 0;
}

static size_t piece_tokens(const struct token_file *file, uint64_t left)
{
    uint64_t most = TOKEN_BUFFER_BYTES / file->width;
    return (size_t)(left < most ? left : most);
}

int token_file_read(const struct token_file *file, uint64_t first, size_t count, uint64_t vocab,
                    void *buffer, uint32_t *ids, struct hst_error *error)
{
    while (count > 0) {
        size_t n = piece_tokens(file, count);
        int rc = read_piece(file, first, n, vocab, buffer, ids, error);
        if (rc < 0)
            return rc;
        first += n;
        ids += n;
        count -= n;
    }
    return 0;
}

int token_file_check(const struct token_file *file, uint64_t limit_bytes, uint64_t vocab,
                     void *buffer, struct hst_error *error)
{
    uint64_t greatest = (UINT64_C(1) << (8 * file->width)) - 1;
    if (vocab > greatest || file->rows)
        return 0; /* no token of this width can be out of range, or all were looked at */
    uint64_t left = limit_bytes / file->width;
    if (left > file->count)
        left = file->count;
    for (uint64_t first = 0; left > 0;) {
        size_t n = piece_tokens(file, left);
        int rc = token_file_stopped(file);
        rc = rc ? rc : read_piece(file, first, n, vocab, buffer, NULL, error);
        if (rc < 0)
            return rc;
        first += n;
        left -= n;
    }
    return 0;
}
