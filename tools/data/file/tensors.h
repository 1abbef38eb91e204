/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_DATA_FILE_TENSORS_H
#define HOISTWAY_TOOLS_DATA_FILE_TENSORS_H
/* A token file of docs/token-file.md: safetensors that hold tokens and what is known of them. */
#include "data/file/files.h"
#include "hf/safetensors.h"

#define TOKEN_FORMAT "hoistway.tokens.1"

enum token_part {
    TOKEN_PART_TOKENS,
    TOKEN_PART_MASK,
    TOKEN_PART_DOCUMENTS,
    TOKEN_PART_BYTES,
    TOKEN_PART_BYTE_OFFSETS,
    TOKEN_PART_PROMPTS,
    TOKEN_PART_PROMPT_OFFSETS,
    TOKEN_PART_COUNT
};

struct token_tensors {
    char *text;                /* owned: the header */
    struct jsn_value metadata; /* in it */
    struct token_tensor {
        uint64_t offset; /* bytes from the file's beginning */
        uint64_t count;
        unsigned width; /* bytes of one; 0: the file has none of it */
    } parts[TOKEN_PART_COUNT];
};

/**
 * Finds the parts of a file by its header, whose text and data begin at those bytes; takes over
 * neither. Pure. Errors: E423 (its __metadata__ names no format or another one; a tensor that is
 * not known, missing, of another type or shape; one of two that go together).
 */
int token_tensors_find(const char *path, const char *text, const struct st_header *header,
                       uint64_t data_begin, struct token_tensors *tensors,
                       struct hst_error *error);

/** A file begins like one of safetensors, by 9 of its bytes and how many it has. Pure. */
bool token_tensors_look(const unsigned char first[9], uint64_t size_bytes);
/** It tells whether safetensors say that they are a token file, of whatever version. */
bool token_tensors_named(const struct token_file *file);
/** Reads the header of an open file and finds its parts. Null on failure. E106, E423. */
int token_tensors_read(const struct token_file *file, struct token_tensors **tensors,
                       struct hst_error *error);
void token_tensors_free(struct token_tensors **tensors);

/**
 * Checks all offsets, the mask and, against a vocabulary that is not 0, the prompts. Fills
 * file->documents. Errors: E106, E421 (a document without a target), E422, E423; -ECANCELED.
 */
int token_tensors_check(struct token_file *file, uint64_t vocab, struct hst_error *error);
/** The documents' offsets of a file that has some, u64[documents.count + 1]. Errors: E106. */
int token_tensors_offsets(const struct token_file *file, uint64_t *offsets,
                          struct hst_error *error);
#endif
