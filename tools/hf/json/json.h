/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_HF_JSON_JSON_H
#define HOISTWAY_TOOLS_HF_JSON_JSON_H
/*
 * A strict reader of JSON text that is already in memory: one token at a time, no tree, no
 * allocation, no recursion. Values are spans of the text, so that a caller can also replace one in
 * place.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JSN_MAX_DEPTH 16u

enum jsn_type {
    JSN_ERROR = 0,
    JSN_END,
    JSN_OBJECT,
    JSN_OBJECT_END,
    JSN_ARRAY,
    JSN_ARRAY_END,
    JSN_KEY,
    JSN_STRING,
    JSN_NUMBER,
    JSN_TRUE,
    JSN_FALSE,
    JSN_NULL,
};

/**
 * A token, or a whole value. Bytes [begin, end) of the text; of keys and strings without their
 * quotes.
 */
struct jsn_value {
    enum jsn_type type; /* JSN_ERROR: not there */
    size_t begin, end;
};

struct jsn_reader {
    const char *text;
    size_t size;
    size_t at;
    uint32_t depth;
    uint32_t objects; /* bit d: the container at depth d is an object */
    int state;
    const char *why; /* of the error at `at`; static text */
};

struct jsn_reader jsn_reader(const char *text, size_t size);
/**
 * The next token. JSN_END once after a complete value and nothing but white space; JSN_ERROR is
 * final.
 */
struct jsn_value jsn_next(struct jsn_reader *reader);
/**
 * The value after a key or in an array as one span, contents checked. JSN_ARRAY_END and the like
 * pass through.
 */
struct jsn_value jsn_next_value(struct jsn_reader *reader);

/** It says what is wrong with a text, in words that follow "has". */
struct jsn_fault {
    const char *why; /* static text */
    size_t at;       /* byte of the text */
    char key[64];    /* the key that stands there twice, cut; else empty */
};
/**
 * Checks the whole text: one object, no object with the same key twice, at most max_keys keys.
 * Allocates 16 bytes per key (and as much again while sorting), and at most the text's size for
 * keys with escapes. Errors: -EBADMSG, -E2BIG too many keys, -ENOMEM.
 */
int jsn_check(const char *text, size_t size, size_t max_keys, struct jsn_fault *fault);
/** A value as it stands in the text, strings with their quotes: for messages. */
struct jsn_value jsn_shown(struct jsn_value value);
/** One pass over an object that jsn_check accepted: values[i] becomes the value of keys[i]. */
void jsn_members(const char *text, size_t size, const char *const *keys, size_t key_count,
                 struct jsn_value *values);

/**
 * Unescapes a string's bytes [0, size) into dst (at least size + 1, may be the string itself); ends
 * it with NUL. Returns its length.
 */
size_t jsn_unescape(const char *src, size_t size, char *dst);
/** plain: at most 42 bytes. */
bool jsn_equals(const char *text, struct jsn_value string, const char *plain);
/** A plain integer 0 … 2^64−1, without sign, fraction or exponent. */
bool jsn_u64(const char *text, struct jsn_value number, uint64_t *out);
/** A finite number. The byte after it must be readable. */
bool jsn_real(const char *text, struct jsn_value number, double *out);

/* *to stays as it is where the value has another type, is not there or has no room. */
void jsn_get_text(const char *text, struct jsn_value value, char *to, size_t bytes);
void jsn_get_whole(const char *text, struct jsn_value value, uint64_t *to);
void jsn_get_real(const char *text, struct jsn_value value, double *to);

#endif
