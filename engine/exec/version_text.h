/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_EXEC_VERSION_TEXT_H
#define HOISTWAY_ENGINE_EXEC_VERSION_TEXT_H
/* What stands beside a version's bytes: [length u32][settings, lines "name value"][client's
   cursor]. Pure. */
#include "store/format.h"

struct version_text {
    const char *settings; /* not terminated */
    uint32_t settings_bytes;
    const void *cursor; /* the client's */
    uint32_t cursor_bytes;
};

/** Parts of what a cursor holds. False: this engine has not written it. */
bool version_text_split(const struct store_cursor *cursor, struct version_text *text);
/** The number of a line of terminated settings: name "precision ". False: no such line. */
bool version_text_number(const char *settings, const char *name, int base, uint64_t *number);

#endif
