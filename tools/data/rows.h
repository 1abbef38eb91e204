/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_DATA_ROWS_H
#define HOISTWAY_TOOLS_DATA_ROWS_H
/*
 * JSONL of token ids: one object a line, one document an object. All of it is read once, when it is
 * opened; what is kept is where its numbers stand, 16 bytes for each TOKEN_RUN of them and 8 for
 * each document, and a bit for each that says whether it is learned, never the ids. A line of the
 * file is in memory while it is looked at.
 */
#include "data/file/files.h"

#define TOKEN_RUN      4096u /* tokens, or a document's last ones */
#define ROW_MOST_BYTES (UINT64_C(1) << 30)

/* One row, read. */
struct token_row {
    uint32_t *ids;
    size_t *at;     /* the byte of the row that each TOKEN_RUN-th id begins with */
    size_t count, capacity, at_capacity;
    uint8_t *marks; /* of each token: is it learned? */
    size_t mark_count, mark_capacity;
    uint32_t *labels;
    size_t label_count, label_capacity;
    size_t ids_at, marks_at; /* where they begin, in the row */
    bool has_ids, has_mask, has_labels;
};

/** It says what is wrong with a row: where, and in which words. */
struct row_fault {
    size_t at; /* byte of the row */
    int native;
    int code; /* enum fail_code */
    char what[200];
};

/**
 * Reads one row, text[size] without its end of line; ids are below a vocabulary that is not 0.
 * Whatever comes of it, the row is to be freed with token_row_free, and may be read into again.
 * Pure but for memory. Errors: -EBADMSG, -EDOM, -ENODATA (no target), -ENOMEM.
 */
int token_row_parse(const char *text, size_t size, uint64_t vocab, struct token_row *row,
                    struct row_fault *fault);
void token_row_free(struct token_row *row);
/** It tells whether a token of a row is learned. */
bool token_row_learned(const struct token_row *row, size_t i);
/** Targets of a row, and those that it leaves out. */
void token_row_targets(const struct token_row *row, uint64_t *targets, uint64_t *hidden);

/** Reads all of an open file; fills count, width, documents and rows. Errors as token_file_open. */
int token_rows_open(struct token_file *file, uint64_t vocab, struct hst_error *error);
void token_rows_free(struct token_rows **rows);
/** Tokens [first, first + count) of the file. Errors: E106 (also: it has changed). */
int token_rows_read(const struct token_file *file, uint64_t first, size_t count, void *buffer,
                    uint32_t *ids, struct hst_error *error);
/** As token_file_learned. */
void token_rows_learned(const struct token_file *file, uint64_t first, size_t count,
                        uint8_t *learned);
void token_rows_offsets(const struct token_file *file, uint64_t *offsets);
#endif
