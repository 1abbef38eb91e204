/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_CLI_OPTIONS_STORE_H
#define HOISTWAY_TOOLS_CLI_OPTIONS_STORE_H
/* This header tells whether a directory can hold the store, how its I/O will run, and the words
 * that say so. */
#include "base/fail.h"

#include <hoistway/aio.h>
#include <hoistway/hoistway.h>
#include <limits.h>
#include <stdbool.h>

/** The directories that --store names, between commas; what is longer than a path can be is cut. */
struct store_list {
    const char *rest; /* what is not visited yet; null: nothing */
    char directory[PATH_MAX];
};
/** Writes the next one; false after the last. */
bool store_next(struct store_list *list);

#define STORE_TEXT_BYTES 8192u
/**
 * For one process: the words {rank}, {local} and {node} of *store become 0, and *store `filled`.
 * Without such a word, or null, it stays. Refuses other words in braces (E402).
 */
int store_alone(const char **store, char filled[STORE_TEXT_BYTES], struct hst_error *error);
/** True where ranks have directories of their own: which, the engine knows. */
bool store_has_words(const char *store);

/**
 * Refuses a store directory on a network file system (E105); the engine refuses all others that
 * cannot be used.
 */
int store_check_local(const char *directory, struct hst_error *error);

/**
 * Checks a store directory by real I/O, without an engine, and leaves nothing behind. A directory
 * that does not exist is not created: what it will be created in is probed. Refuses (E105, E301):
 * no parent, not a directory, not writable, full, a network file system.
 */
int store_check(const char *directory, struct hst_aio_info *info, struct hst_error *error);

/** "io_uring, O_DIRECT". Pure. */
void store_rung(const struct hst_aio_info *info, char *dst, size_t dst_bytes);

#endif
