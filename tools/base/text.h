/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_BASE_TEXT_H
#define HOISTWAY_TOOLS_BASE_TEXT_H
/* Quantities as people read them. Each returns dst. */
#include <stddef.h>
#include <stdint.h>

#define TEXT_BYTES 32u /* enough for each of these */

char *text_size(uint64_t bytes, char dst[TEXT_BYTES]); /* 0 B, 512 B, 1.5 KiB, 16.0 MiB, 2.0 GiB */
/**
 * Sizes as people type them, for a command line that is proposed: 512, 19M, 1.8T; three digits, or
 * four where that is exact. What an option reads of it is at least `bytes` (up: what is needed) or
 * at most (down: what is there), and within 1 %.
 */
char *text_typed_up(uint64_t bytes, char dst[TEXT_BYTES]);
char *text_typed_down(uint64_t bytes, char dst[TEXT_BYTES]);
char *text_count(double count, char dst[TEXT_BYTES]);  /* 950, 18.2k, 1.9M, 8.0B */
const char *text_s(uint64_t count);                    /* of a plural: "" for one, else "s" */
char *text_duration(double seconds, char dst[TEXT_BYTES]); /* 0s, 45s, 14m, 2h05m, 3d04h, ? */

#endif
