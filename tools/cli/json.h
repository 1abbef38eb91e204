/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_CLI_JSON_H
#define HOISTWAY_TOOLS_CLI_JSON_H
/*
 * Writes JSON as it comes, without a tree in memory. Keys are null inside arrays and at the top.
 * Reals have 9 significant digits, null stands for what is not finite; text that is not UTF-8 has its bad
 * bytes replaced by U+FFFD, so that the output is always JSON. Errors are the stream's (ferror).
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define JSON_MAX_DEPTH 16u

struct json {
    FILE *out;
    unsigned depth;
    char close[JSON_MAX_DEPTH];
    bool filled[JSON_MAX_DEPTH + 1]; /* something was written at this depth */
};

void json_begin_object(struct json *json, const char *key);
void json_begin_array(struct json *json, const char *key);
void json_end(struct json *json); /* of the innermost object or array */
void json_text(struct json *json, const char *key, const char *value /* null: null */);
void json_real(struct json *json, const char *key, double value);
void json_whole(struct json *json, const char *key, uint64_t value);
void json_bool(struct json *json, const char *key, bool value);
void json_null(struct json *json, const char *key);

#endif
