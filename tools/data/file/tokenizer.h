/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_DATA_FILE_TOKENIZER_H
#define HOISTWAY_TOOLS_DATA_FILE_TOKENIZER_H
/* True where a token file's ids are those of the model that is to learn them. */
#include "data/file/files.h"

/**
 * Compares the tokenizer that a token file names with tokenizer.json of config->model; a file that
 * names none, and a model without that file, are not looked at. Errors: E427 (another one, or one
 * that cannot be read).
 */
int token_file_check_tokenizer(const struct token_file *file, const struct data_config *config,
                               struct hst_error *error);
#endif
