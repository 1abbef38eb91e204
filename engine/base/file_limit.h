/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_FILE_LIMIT_H
#define HOISTWAY_ENGINE_FILE_LIMIT_H
#include <stdint.h>

#define FILE_LIMIT_BYTES 192u

/** Why a file of `bytes` is too large (EFBIG), and one fix; returns text. */
const char *file_limit(uint64_t bytes, char text[FILE_LIMIT_BYTES]);

#endif
