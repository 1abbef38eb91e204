/* SPDX-License-Identifier: Apache-2.0 */
/* Decides which folder of those that are searched has a library; see folders.h. */
#include "base/folders.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { TOLD_LETTERS = 120 }; /* of a folder */

void dev_search_tell(struct dev_search *search, const char *format, ...)
{
    size_t used = strlen(search->places);
    va_list args;
    va_start(args, format);
    vsnprintf(search->places + used, sizeof search->places - used, format, args);
    va_end(args);
}

bool dev_search_in(struct dev_search *search, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int written = vsnprintf(search->path, sizeof search->path, format, args);
    va_end(args);
    if (written <= 0 || (size_t)written >= sizeof search->path)
        return false;
    const size_t left = sizeof search->path - (size_t)written;
    written = snprintf(search->path + written, left, "/%s", search->file);
    return written > 0 && (size_t)written < left && access(search->path, F_OK) == 0;
}

bool dev_search_list(struct dev_search *search, const char *folders, bool tell)
{
    const char *folder = folders;
    for (const char *separator = "";; separator = ", ") {
        const size_t length = strcspn(folder, ":");
        const bool absolute = *folder == '/' && length < PATH_MAX;
        if (absolute && dev_search_in(search, "%.*s", (int)length, folder))
            return true;
        if (tell && length)
            dev_search_tell(search, "%s%s%.*s", separator,
                            absolute ? "" : "not absolute, ignored: ",
                            (int)(length < TOLD_LETTERS ? length : TOLD_LETTERS), folder);
        if (!folder[length])
            return false;
        folder += length + 1;
    }
}
