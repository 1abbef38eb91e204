/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_HF_JSON_H
#define HOISTWAY_TOOLS_HF_JSON_H
/*
 * A strict reader of JSON text that is already in memory: one token at a time, no tree, no
 * allocation, no recursion. Values are spans of the text, so that a caller can also replace one in
 * place.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JSON_MAX_DEPTH 16u

enum json_type {
    JSON_ERROR = 0,
    JSON_END,
    JSON_OBJECT,
    JSON_OBJECT_END,
    JSON_ARRAY,
    JSON_ARRAY_END,
    JSON_KEY,
    JSON_STRING,
    JSON_NUMBER,
    JSON_TRUE,
    JSON_FALSE,
    JSON_NULL,
};

/**
 * A token, or a whole value. Bytes [begin, end) of the text; of keys and strings without their
 * quotes.
 */
struct json_value {
    enum json_type type; /* JSON_ERROR: not there */
    size_t begin, end;
};

struct json_reader {
    const char *text;
    size_t size;
    size_t at;
    uint32_t depth;
    uint32_t objects; /* bit d: the container at depth d is an object */
    int state;
    const char *why; /* of the error at `at`; static text */
};

struct json_reader json_reader(const char *text, size_t size);
/**
 * The next token. JSON_END once after a complete value and nothing but white space; JSON_ERROR is
 * final.
 */
struct json_value json_next(struct json_reader *reader);
/**
 * The value after a key or in an array as one span, contents checked. JSON_ARRAY_END and the like
 * pass through.
 */
struct json_value json_next_value(struct json_reader *reader);

/**
 * Checks the whole text: one object, no object with the same key twice, at most max_keys keys. *why
 * gets static text and *at the offset. Allocates 12 bytes per key (and as much again while
 * sorting). Errors: -EBADMSG, -E2BIG too many keys, -ENOMEM.
 */
int json_check(const char *text, size_t size, size_t max_keys, const char **why, size_t *at);
/** One pass over an object that json_check accepted: values[i] becomes the value of keys[i]. */
void json_members(const char *text, size_t size, const char *const *keys, size_t key_count,
                  struct json_value *values);

/**
 * Unescapes a string's bytes [0, size) into dst (at least size + 1, may be the string itself); ends
 * it with NUL. Returns its length.
 */
size_t json_unescape(const char *src, size_t size, char *dst);
bool json_equals(const char *text, struct json_value string, const char *plain);
/** A plain integer 0 … 2^64−1, without sign, fraction or exponent. */
bool json_u64(const char *text, struct json_value number, uint64_t *out);
/** A finite number. The byte after it must be readable. */
bool json_real(const char *text, struct json_value number, double *out);
#endif
