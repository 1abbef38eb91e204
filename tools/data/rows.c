/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the tokens of a file of JSONL again by where their numbers stand. Ids are not kept: a file
 * is read as tokens are, from the drive, and needs no copy of itself in memory or beside it.
 */
#include "data/rows.h"
#include "base/fail.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Tokens of one document that follow one another: the first one, and the byte of its number. */
struct run {
    uint64_t token, byte;
};

struct token_rows {
    struct run *runs;
    uint64_t *offsets; /* where each document begins */
    uint8_t *learned;  /* a bit for each token */
    size_t run_count, run_capacity, offset_capacity, learned_capacity;
};

/* The file's lines, one at a time. */
struct lines {
    const struct token_file *file;
    char *text;
    size_t capacity, have; /* bytes of it that are read */
    size_t at;             /* where the line begins in it */
    uint64_t begin;        /* byte of the file that text[0] is */
    uint64_t number;       /* of the line, from 1 */
};

static int grow(const struct token_file *file, void *items, size_t bytes, size_t wish,
                size_t *capacity, struct hst_error *error)
{
    if (wish <= *capacity)
        return 0;
    size_t to = *capacity ? *capacity : 1024;
    while (to < wish)
        to *= 2;
    void *grown = realloc(*(void **)items, to * bytes);
    if (!grown)
        return fail(error, FAIL_DATA_FILE, -ENOMEM, "%s: out of memory", file->path);
    *(void **)items = grown;
    *capacity = to;
    return 0;
}

/* Moves what is left of the buffer to its front and reads on. */
static int read_on(struct lines *l, uint64_t left, struct hst_error *error)
{
    if (l->have - l->at >= ROW_MOST_BYTES)
        return fail(error, FAIL_DATA_FORMAT, -EBADMSG,
                    "%s:%" PRIu64 ":1: the row is longer than %" PRIu64 " bytes", l->file->path,
                    l->number, ROW_MOST_BYTES);
    l->have -= l->at;
    l->begin += l->at;
    if (l->text && l->have)
        memmove(l->text, l->text + l->at, l->have);
    l->at = 0;
    const size_t n = left < TOKEN_BUFFER_BYTES ? (size_t)left : TOKEN_BUFFER_BYTES;
    int rc = token_file_stopped(l->file);
    rc = rc ? rc : grow(l->file, &l->text, 1, l->have + n, &l->capacity, error);
    rc = rc ? rc : token_file_bytes(l->file, l->text + l->have, n, l->begin + l->have, error);
    if (!rc)
        l->have += n;
    return rc;
}

/* Reads until the line at `at` ends; *size: without its end. */
static int read_line(struct lines *l, size_t *size, struct hst_error *error)
{
    size_t seen = 0; /* bytes of the line that have no end of it */
    for (;;) {
        const char *end = l->text && l->have > l->at + seen
                              ? memchr(l->text + l->at + seen, '\n', l->have - l->at - seen)
                              : NULL;
        const uint64_t left = l->file->size_bytes - l->begin - l->have;
        seen = l->have - l->at;
        *size = end ? (size_t)(end - l->text) - l->at : seen;
        if (end || left == 0)
            return 0;
        int rc = read_on(l, left, error);
        if (rc)
            return rc;
    }
}

static bool is_blank(const char *text, size_t size)
{
    while (size > 0 && strchr(" \t\r", text[size - 1]) && text[size - 1])
        size--;
    return size == 0;
}

/* Bits of the tokens behind those that the file has. */
static int keep_learned(struct token_file *file, const struct token_row *row,
                        struct hst_error *error)
{
    struct token_rows *rows = file->rows;
    int rc = grow(file, &rows->learned, 1, (file->count + row->count) / 8 + 1,
                  &rows->learned_capacity, error);
    for (size_t i = 0; i < row->count && !rc; i++) {
        const uint64_t token = file->count + i;
        const unsigned bit = 1u << token % 8;
        uint8_t *byte = &rows->learned[token / 8];
        *byte = (uint8_t)(token_row_learned(row, i) ? *byte | bit : *byte & ~bit);
    }
    return rc;
}

static int keep_row(struct token_file *file, const struct token_row *row, uint64_t line_begin,
                    struct hst_error *error)
{
    struct token_rows *rows = file->rows;
    struct token_documents *d = &file->documents;
    const size_t runs = (row->count + TOKEN_RUN - 1) / TOKEN_RUN;
    uint64_t targets, hidden;
    int rc = grow(file, &rows->runs, sizeof *rows->runs, rows->run_count + runs,
                  &rows->run_capacity, error);
    rc = rc ? rc
            : grow(file, &rows->offsets, sizeof *rows->offsets, d->count + 1,
                   &rows->offset_capacity, error);
    rc = rc ? rc : keep_learned(file, row, error);
    if (rc)
        return rc;
    for (size_t i = 0; i < runs; i++)
        rows->runs[rows->run_count++] =
            (struct run){file->count + i * TOKEN_RUN, line_begin + row->at[i]};
    rows->offsets[d->count++] = file->count;
    file->count += row->count;
    token_row_targets(row, &targets, &hidden);
    d->longest = row->count > d->longest ? row->count : d->longest;
    d->target_count += targets;
    d->hidden_count += hidden;
    d->masked = d->masked || row->has_mask || row->has_labels;
    return 0;
}

static int read_row(struct token_file *file, const struct lines *l, size_t size,
                    struct token_row *row, uint64_t vocab, struct hst_error *error)
{
    const char *text = l->text + l->at;
    struct row_fault fault;
    if (is_blank(text, size))
        return 0;
    int rc = token_row_parse(text, size, vocab, row, &fault);
    if (rc)
        return fail(error, (enum fail_code)fault.code, rc, "%s:%" PRIu64 ":%zu: %s", file->path,
                    l->number, fault.at + 1, fault.what);
    return keep_row(file, row, l->begin + l->at, error);
}

static int read_rows(struct token_file *file, struct lines *l, struct token_row *row,
                     uint64_t vocab, struct hst_error *error)
{
    for (;; l->number++) {
        size_t size;
        int rc = read_line(l, &size, error);
        if (rc || l->at == l->have)
            return rc;
        rc = read_row(file, l, size, row, vocab, error);
        if (rc)
            return rc;
        l->at += size + (l->at + size < l->have); /* the last line may have no end */
    }
}

int token_rows_open(struct token_file *file, uint64_t vocab, struct hst_error *error)
{
    struct lines lines = {.file = file, .number = 1};
    struct token_row row = {0};
    file->width = 4; /* of what ids can be, not of the file's bytes */
    file->rows = calloc(1, sizeof *file->rows);
    if (!file->rows)
        return fail(error, FAIL_DATA_FILE, -ENOMEM, "%s: out of memory", file->path);
    int rc = read_rows(file, &lines, &row, vocab, error);
    token_row_free(&row);
    free(lines.text);
    return rc;
}

void token_rows_free(struct token_rows **rows)
{
    if (*rows) {
        free((*rows)->runs);
        free((*rows)->offsets);
        free((*rows)->learned);
    }
    free(*rows);
    *rows = NULL;
}

void token_rows_learned(const struct token_file *file, uint64_t first, size_t count,
                        uint8_t *learned)
{
    for (size_t i = 0; i < count; i++)
        learned[i] = file->rows->learned[(first + i) / 8] >> (first + i) % 8 & 1;
}

void token_rows_offsets(const struct token_file *file, uint64_t *offsets)
{
    memcpy(offsets, file->rows->offsets, file->documents.count * sizeof *offsets);
    offsets[file->documents.count] = file->count;
}

/* ---- reading again ---- */

/* The run that holds a token of the file. */
static size_t find_run(const struct token_rows *rows, uint64_t token)
{
    size_t low = 0, high = rows->run_count;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (rows->runs[middle].token <= token)
            low = middle;
        else
            high = middle;
    }
    return low;
}

struct lexer {
    const struct token_file *file;
    unsigned char *buffer; /* TOKEN_BUFFER_BYTES */
    uint64_t next;         /* byte of the file behind the buffer */
    size_t at, have;
};

#define NO_BYTE 256 /* the file's end */

/* The next byte. Negative: an error. */
static int next_byte(struct lexer *x, struct hst_error *error)
{
    if (x->at == x->have) {
        const uint64_t left = x->file->size_bytes - x->next;
        const size_t n = left < TOKEN_BUFFER_BYTES ? (size_t)left : TOKEN_BUFFER_BYTES;
        int rc = n ? token_file_bytes(x->file, x->buffer, n, x->next, error) : NO_BYTE;
        if (rc)
            return rc;
        x->next += n;
        x->at = 0;
        x->have = n;
    }
    return x->buffer[x->at++];
}

/* A number, behind commas and blanks. It was one when the file was opened. */
static int next_number(struct lexer *x, uint32_t *number, struct hst_error *error)
{
    uint64_t value = 0;
    bool digits = false;
    for (;;) {
        const int c = next_byte(x, error);
        if (c < 0)
            return c;
        if (c >= '0' && c <= '9' && value <= UINT32_MAX) {
            value = 10 * value + (uint64_t)(c - '0');
            digits = true;
        } else if (digits && value <= UINT32_MAX) {
            *number = (uint32_t)value;
            return 0;
        } else if (digits || c == NO_BYTE || c == 0 || !strchr(", \t\r", c)) {
            return fail(error, FAIL_READ, -EIO,
                        "%s: no number at byte %" PRIu64 ": the file was changed after it was "
                        "opened",
                        x->file->path, x->next - x->have + x->at - 1);
        }
    }
}

/* Tokens of one run: those before `first` are passed over. */
static int read_run(const struct token_file *file, const struct run *run, uint64_t first,
                    size_t count, void *buffer, uint32_t *ids, struct hst_error *error)
{
    struct lexer x = {.file = file, .buffer = buffer, .next = run->byte};
    uint32_t passed;
    int rc = 0;
    for (uint64_t token = run->token; token < first + count && !rc; token++)
        rc = next_number(&x, token < first ? &passed : &ids[token - first], error);
    return rc;
}

int token_rows_read(const struct token_file *file, uint64_t first, size_t count, void *buffer,
                    uint32_t *ids, struct hst_error *error)
{
    const struct token_rows *rows = file->rows;
    for (size_t i = find_run(rows, first); count > 0; i++) {
        const uint64_t end = i + 1 < rows->run_count ? rows->runs[i + 1].token : file->count;
        const size_t n = count < end - first ? count : (size_t)(end - first);
        int rc = read_run(file, &rows->runs[i], first, n, buffer, ids, error);
        if (rc)
            return rc;
        first += n;
        ids += n;
        count -= n;
    }
    return 0;
}
