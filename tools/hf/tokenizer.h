/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_HF_TOKENIZER_H
#define HOISTWAY_TOOLS_HF_TOKENIZER_H
/* This is what a tokenizer.json is told from others by, however it is written. */
#include "base/sha256.h"

#define TOKENIZER_HEX (2 * SHA256_BYTES + 1)

/**
 * The identity of what decides which ids a text has: ids and tokens, merges, added tokens,
 * normaliser, pre-tokeniser; the same as python/hoistway/model.py makes. text[size] is followed by
 * a byte that can be read. Pure but for memory. Errors: -EBADMSG (no such file), -ENOMEM.
 */
int tokenizer_identity(const char *text, size_t size, char hex[TOKENIZER_HEX]);
#endif
