/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_DATA_FILE_LLMQ_H
#define HOISTWAY_TOOLS_DATA_FILE_LLMQ_H
/*
 * Token files of LLMQ: 1,024 bytes of header ("BIN.TOK\n", then i32: version, bytes of a token, how
 * many tokens, from version 2 on how many ids there are, 1 where masks follow); the tokens as u32;
 * then a bit for each, from the lowest of its byte on: 1 where this token is to be learned.
 */
#include "data/file/files.h"

#define LLMQ_MAGIC       "BIN.TOK\n"
#define LLMQ_MAGIC_BYTES 8u

/**
 * Reads the header of an open file that begins with LLMQ_MAGIC, and all of its mask. Fills width,
 * data_offset, count, bits_offset and documents. Errors: E106, E421 (nothing to learn), E423;
 * -ECANCELED.
 */
int token_llmq_open(struct token_file *file, const struct data_config *config,
                    struct hst_error *error);
/** As token_file_learned, of a file that has a mask. Errors: E106. */
int token_llmq_learned(const struct token_file *file, uint64_t first, size_t count,
                       uint8_t *learned, struct hst_error *error);
#endif
