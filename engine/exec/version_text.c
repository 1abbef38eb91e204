/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/version_text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool version_text_split(const struct store_cursor *cursor, struct version_text *text)
{
    const unsigned char *opaque = cursor->opaque;
    uint32_t length;
    if (cursor->opaque_bytes < sizeof length)
        return false;
    memcpy(&length, opaque, sizeof length);
    if (length > cursor->opaque_bytes - sizeof length)
        return false;
    *text = (struct version_text){
        .settings = (const char *)opaque + sizeof length,
        .settings_bytes = length,
        .cursor = opaque + sizeof length + length,
        .cursor_bytes = (uint32_t)(cursor->opaque_bytes - sizeof length - length),
    };
    return true;
}

bool version_text_number(const char *settings, const char *name, int base, uint64_t *number)
{
    for (const char *line = settings; *line;
         line += strcspn(line, "\n") + (strchr(line, '\n') != 0)) {
        char *end;
        if (strncmp(line, name, strlen(name)) != 0)
            continue;
        errno = 0;
        *number = strtoull(line + strlen(name), &end, base);
        return errno == 0 && *end == '\n';
    }
    return false;
}
