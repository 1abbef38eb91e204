/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_DATA_FILE_FILES_H
#define HOISTWAY_TOOLS_DATA_FILE_FILES_H
/* One data file as a row of token ids. */
#include "data/data.h"

struct token_tensors; /* tensors.h */
struct token_rows;    /* rows.h */

/* It holds what a file says of its documents, and which of their tokens are learned. A document's
 * first token is nobody's target; of a file that knows no documents, its first token. */
struct token_documents {
    uint64_t count; /* 0: it knows none */
    uint64_t longest;
    uint64_t target_count;
    uint64_t hidden_count; /* targets that its mask leaves out */
    bool masked;
};

struct token_file {
    const volatile sig_atomic_t *stopped; /* of the configuration */
    char *path;                           /* owned; as the user wrote it */
    int fd;
    enum data_format format;
    bool raw;             /* tokens without a header */
    bool llmq;            /* a token file of LLMQ's */
    unsigned width;       /* bytes per token: 1, 2, 4 */
    uint64_t size_bytes;  /* of the whole file */
    uint64_t data_offset; /* bytes before the first token */
    uint64_t count;       /* tokens, > 0 */
    uint64_t bits_offset; /* bytes before a mask of bits; 0: it has none */
    struct token_documents documents;
    struct token_tensors *tensors; /* of safetensors; or null */
    struct token_rows *rows;       /* of JSONL; or null */
};

/* Several, one after another: their tokens are counted through all of them. */
struct token_files {
    const struct token_file *files;
    size_t count;
};
/** The file that token *first of all is in; *first becomes one of it. Pure. */
const struct token_file *token_files_find(struct token_files files, uint64_t *first);

/**
 * Opens one file and finds out what it is. Reads its header alone; of safetensors also offsets and
 * mask, of LLMQ its mask, of JSONL all. *file holds nothing on failure. Ids of JSONL and prompts
 * are checked, where config->vocab is not 0. Errors: E402 (token_dtype with text), E420, E421
 * (empty, a document without a target), E422, E423 (-ENOTSUP: nothing in the file says what it is,
 * and token_dtype does not either); -ECANCELED.
 */
int token_file_open(const char *path, const struct data_config *config, struct token_file *file,
                    struct hst_error *error);
void token_file_close(struct token_file *file);

/**
 * Tokens [first, first + count), inside the file, widened to u32[count]. `buffer` is scratch of
 * TOKEN_BUFFER_BYTES. Errors: E106, E422 (an id >= vocab; file and byte offset are named).
 */
int token_file_read(const struct token_file *file, uint64_t first, size_t count, uint64_t vocab,
                    void *buffer, uint32_t *ids, struct hst_error *error);
#define TOKEN_BUFFER_BYTES (UINT64_C(64) << 10)

/* It says what the first ids of a file are. Those at odd places would be the upper halves of
 * u32. */
struct token_look {
    uint64_t count, largest;
    uint64_t beyond;        /* ids that the vocabulary lacks */
    uint64_t halves_beyond; /* ids of which it lacks one half */
    uint64_t lower_set;     /* at even places: not 0 */
    uint64_t upper_beyond;  /* at odd places: greater than the vocabulary's upper halves are */
};
/** Adds ids u32[count] that follow those before. Pure, as the two below. */
void token_look_add(struct token_look *look, const uint32_t *ids, size_t count, uint64_t vocab);
/** It tells of ids read as u16 that they are u32. */
bool token_look_is_u32(const struct token_look *look);
/** It tells of ids read as u32 that they are u16. */
bool token_look_is_u16(const struct token_look *look);

/**
 * Looks at the first TOKEN_LOOK_BYTES of a token file. Errors: E106, E423 (raw tokens of another
 * width than was said; the fix names it).
 */
int token_file_look(const struct token_file *file, uint64_t vocab, void *buffer,
                    struct token_look *look, struct hst_error *error);
#define TOKEN_LOOK_BYTES (UINT64_C(1) << 20)
#define LOOK_PIECE       4096u

/**
 * It tells where documents begin: u64[documents.count + 1] from 0 to count, to be freed; of a file
 * that knows none, those of one. Errors: E106, E420 (no memory).
 */
int token_file_offsets(const struct token_file *file, uint64_t **offsets, struct hst_error *error);
/**
 * It tells whether tokens [first, first + count) are learned, where they are targets: learned
 * u8[count], 0 or not. Errors: E106.
 */
int token_file_learned(const struct token_file *file, uint64_t first, size_t count,
                       uint8_t *learned, struct hst_error *error);

/** -ECANCELED where the configuration's `stopped` says so, else 0. */
int token_file_stopped(const struct token_file *file);
/** Reads bytes [offset, offset + bytes) of the file. Errors: E106. */
int token_file_bytes(const struct token_file *file, void *dst, size_t bytes, uint64_t offset,
                     struct hst_error *error);
/**
 * The file is told from others by this: its size, and 64 parts of 4 KiB, or all of a file that has
 * no more. `buffer` is scratch of TOKEN_BUFFER_BYTES. Errors: E106; -ECANCELED.
 */
int token_file_identity(const struct token_file *file, void *buffer, uint64_t *identity,
                        struct hst_error *error);
/** Adds one more file, which follows those before. Pure. */
void data_identity_add(struct data_identity *identity, uint64_t file);

/** Looks for an id >= vocab in the first `limit_bytes` of the file. Errors: as token_file_read;
    -ECANCELED. */
int token_file_check(const struct token_file *file, uint64_t limit_bytes, uint64_t vocab,
                     void *buffer, struct hst_error *error);
#endif
