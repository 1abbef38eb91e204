/* SPDX-License-Identifier: Apache-2.0 */
/* Counts the lines that a terminal shows, so that what is looked at first is still there at the
 * end; takes values out of JSON text. */
#include "verbs/inspect/inspect.h"

#include <limits.h>
#include <stdarg.h>
#include <string.h>

void screen_say(struct screen *screen, const char *format, ...)
{
    char text[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    size_t columns = 0;
    for (const char *at = text; *at; at++)
        columns += (*at & 0xc0) != 0x80; /* of a letter the first byte alone */
    screen->used += columns ? (unsigned)((columns - 1) / SCREEN_COLUMNS + 1) : 1;
    puts(text);
}

unsigned screen_left(const struct screen *screen, const struct inspect_options *options)
{
    if (options->all)
        return UINT_MAX;
    return screen->used < SCREEN_LINES ? SCREEN_LINES - screen->used : 0;
}

const char *screen_name(const char *name, struct hst_error *line)
{
    fail(line, FAIL_USAGE, 0, "%s", name);
    return line->message;
}
