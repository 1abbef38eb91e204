/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_UTF8_H
#define HOISTWAY_TOOLS_UTF8_H
#include <stdbool.h>
#include <stddef.h>

/**
 * Bytes of the well-formed UTF-8 sequence at `text`, of which `left` bytes are there (at least 1);
 * 0 where it is none. Source: Unicode 15, table 3-7. Pure.
 */
size_t utf8_length(const char *text, size_t left);

/**
 * The same, but 0 also for what a terminal would obey in place of showing it: control characters
 * (C0, DEL, C1), line separators, and what changes the direction of the text around it. Pure.
 */
size_t utf8_shown(const char *text, size_t left);

/** True where all `bytes` of `text` are shown. Pure. */
bool utf8_all_shown(const char *text, size_t bytes);

#endif
