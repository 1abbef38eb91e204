/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_HF_CONFIG_CONFIG_H
#define HOISTWAY_TOOLS_HF_CONFIG_CONFIG_H
/*
 * The text of config.json: checked and read into a llama_config, or given back with another dtype.
 * Pure.
 */
#include "base/fail.h"
#include "hf/json/json.h"
#include "hf/config/llama_config.h"

#define CONFIG_MAX_BYTES (64u << 20)

/**
 * Reads text[size], followed by a NUL. `path` is for messages. dtype: what the file says the
 * weights' type is ("float32", "bfloat16", "float16"), empty where it says nothing.
 * Errors: -EBADMSG (E412 to E414), -ENOMEM.
 */
int config_parse(const char *path, const char *text, size_t size, struct llama_config *config,
                 char dtype[16], struct hst_error *error);
/**
 * A copy of a text that config_parse accepted, with the value of `dtype` and of `torch_dtype`,
 * whichever is there, replaced; where neither is, both are put first. The caller frees it. Null
 * where there is no memory.
 */
char *config_with_dtype(const char *text, size_t size, const char *dtype, size_t *out_size);

/* Between config.c and rope.c. */
struct config_source {
    const char *path, *text;
    struct hst_error *error;
};
/** True where the key is there and its value is not null. */
bool config_has(struct jsn_value value);
int config_real(const struct config_source *source, const char *key, struct jsn_value value,
                double least, double greatest, double *out);
struct rope_keys {
    struct jsn_value theta, scaling, parameters, original;
    double theta_default; /* where no key says it; 0: that is refused */
};
int config_rope(const struct config_source *source, const struct rope_keys *keys,
                struct rope_config *rope);
#endif
