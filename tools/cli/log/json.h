/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_CLI_LOG_JSON_H
#define HOISTWAY_TOOLS_CLI_LOG_JSON_H
/*
 * Writes JSON as it comes, without a tree in memory. Keys are null inside arrays and at the top.
 * Reals have 9 significant digits, null stands for what is not finite; text that is not UTF-8 has
 * its bad bytes replaced by U+FFFD, so that the output is always JSON. Errors are the stream's
 * (ferror).
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define JSON_MAX_DEPTH 16u

struct json_writer {
    FILE *out;
    unsigned depth;
    char close[JSON_MAX_DEPTH];
    bool filled[JSON_MAX_DEPTH + 1]; /* something was written at this depth */
};

void json_put_object(struct json_writer *json, const char *key);
void json_put_array(struct json_writer *json, const char *key);
void json_put_end(struct json_writer *json); /* of the innermost object or array */
void json_put_text(struct json_writer *json, const char *key, const char *value /* null: null */);
void json_put_real(struct json_writer *json, const char *key, double value);
/** Seconds, as microseconds to the nanosecond. */
void json_put_micros(struct json_writer *json, const char *key, double seconds);
void json_put_whole(struct json_writer *json, const char *key, uint64_t value);
/** A number as it stands. */
void json_put_number(struct json_writer *json, const char *key, const char *text);
void json_put_bool(struct json_writer *json, const char *key, bool value);
/** Null where it is not known, which 0 stands for. */
void json_put_known(struct json_writer *json, const char *key, double value);
void json_put_null(struct json_writer *json, const char *key);

#endif
