/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_DATA_PACKED_H
#define HOISTWAY_TOOLS_DATA_PACKED_H
/* The documents of data files as rows. */
#include "data/file/files.h"

/** Files are packed where one of them knows documents, or its mask leaves a target out. Pure. */
bool data_is_packed(struct token_files files);

/** It tells what becomes of long documents where nobody says it: those of a file with a mask, which
 * are chats, are refused; others are split. Pure. */
enum pack_long data_long_default(struct token_files files);

/**
 * Packs the documents of files, of which one that knows none is one; leaves out rows that hold no
 * target.
 *
 * config   its seed, order, pack, longer, files
 * seq_len  T, read; where config->may_shorten, what the documents have, if that is less
 * pack     to be freed with pack_free; of row_count > 0
 *
 * Errors: E402 (T, a document that is too long), E421 (nothing to learn is left), E106, E420 (no
 * memory); -ECANCELED.
 */
int data_pack_files(struct token_files files, const struct data_config *config, uint64_t *seq_len,
                    struct pack *pack, struct data_packing *packing, struct hst_error *error);
#endif
