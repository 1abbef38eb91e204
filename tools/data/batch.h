/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_DATA_BATCH_H
#define HOISTWAY_TOOLS_DATA_BATCH_H
/*
 * This header says what rows are to a model: which token each input is, which one it has to tell,
 * and which of the row's inputs belong to its own document. A document that was split is one for
 * each piece.
 */
#include "data/file/files.h"
#include "data/pack.h"

/** The pieces of a row, which is one of the pack's. *count > 0. Pure. */
const struct pack_piece *pack_row(const struct pack *pack, uint64_t row, size_t *count);

/**
 * Reads one row of the documents of files into row 0 of a batch. Ids are below vocab.
 *
 * files    those that were packed
 * buffer   scratch of TOKEN_BUFFER_BYTES
 * batch    of T = seq_len columns, that of the pack
 *
 * Errors: E106, E422; E420 (no memory).
 */
int data_row_read(struct token_files files, const struct pack *pack, uint64_t row, uint32_t seq_len,
                  uint64_t vocab, void *buffer, const struct data_batch *batch,
                  struct hst_error *error);
#endif
