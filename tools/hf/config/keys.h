/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_HF_CONFIG_KEYS_H
#define HOISTWAY_TOOLS_HF_CONFIG_KEYS_H
/* Every key of config.json that transformers reads for a model that can be trained here. */
#include "hf/config/config.h"

enum config_key_kind {
    CONFIG_BUILT,    /* config.c or rope.c reads it, and refuses what it cannot be */
    CONFIG_REFUSED,  /* unless its value is one of `values`, missing or null */
    CONFIG_NO_EFFECT /* on what is computed here, because of `why` */
};
struct config_key {
    const char *name;
    enum config_key_kind kind;
    const char *values; /* of REFUSED: numbers and words, or "{}" for what is empty */
    const char *why;    /* of REFUSED: what another value means; of BUILT: null */
};
/** The i-th key by name, or null beyond the last. */
const struct config_key *config_key(size_t i);

/**
 * Refuses the first key with a value that is not built. attention_bias: the architecture has it in
 * any case, so true says nothing new. E414.
 */
int config_keys_check(const struct config_source *source, size_t size, bool attention_bias);
#endif
