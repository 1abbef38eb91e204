/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the one line that a failure is told in. */
#include "base/fail.h"

#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Names come from hostile files: no newline or escape sequence may reach a terminal or a log. */
static void copy_escaped(char *dst, size_t dst_bytes, const char *src)
{
    size_t n = 0, left = strlen(src);
    while (left && n + 5 < dst_bytes) {
        size_t shown = utf8_shown(src, left), taken = shown ? shown : 1;
        if (shown)
            memcpy(dst + n, src, shown);
        else
            snprintf(dst + n, dst_bytes - n, "\\x%02x", (unsigned char)*src);
        n += shown ? shown : 4;
        src += taken;
        left -= taken;
    }
    dst[n] = '\0';
}

int fail(struct hst_error *error, enum fail_code code, int native, const char *format, ...)
{
    if (!error)
        return native;
    char text[sizeof error->message];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    error->code = (int)code;
    error->native = native;
    copy_escaped(error->message, sizeof error->message, text);
    return native;
}

void fail_fix(struct hst_error *error, const char *fix)
{
    if (!error || !error->code || strstr(error->message, "Fix: "))
        return;
    size_t room = sizeof error->message - strlen(fix) - sizeof ". Fix: ";
    size_t n = strnlen(error->message, room); /* the fix is worth more than the tail of a path */
    bool stopped = n && strchr(".?", error->message[n - 1]);
    snprintf(error->message + n, sizeof error->message - n, "%s Fix: %s", stopped ? "" : ".", fix);
}
