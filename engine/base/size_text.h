/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_SIZE_TEXT_H
#define HOISTWAY_ENGINE_SIZE_TEXT_H
/*
 * Sizes as people read and type them: 512 B, 1.5 KiB, 20.6 GiB; the unit of which there is at least
 * one, a tenth at most away. Pure; each returns dst.
 */
#include <stdint.h>

#define SIZE_TEXT_BYTES 16u

/** Rounded down: of what there is, and is no more than that where it is typed. */
char *size_text(uint64_t bytes, char dst[SIZE_TEXT_BYTES]);
/** Rounded up: of what is needed, a size that suffices where it is typed. */
char *size_text_up(uint64_t bytes, char dst[SIZE_TEXT_BYTES]);

#endif
