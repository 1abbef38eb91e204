/* SPDX-License-Identifier: Apache-2.0 */
#include "base/message.h"

#include <stdio.h>
#include <string.h>

#define GAP "... "

void message_write(char *text, size_t bytes, const char *format, va_list args)
{
    char whole[16384]; /* a few paths of the greatest length */
    vsnprintf(whole, sizeof whole, format, args);
    const char *fix = strstr(whole, "Fix: ");
    const size_t length = strlen(whole), most = bytes / 2;
    size_t tail = fix && length >= bytes ? strlen(fix) : 0;
    tail = tail > most ? most : tail;
    const size_t head = bytes - sizeof GAP - tail;
    if (length < bytes)
        memcpy(text, whole, length + 1);
    else
        snprintf(text, bytes, "%.*s" GAP "%s", (int)head, whole, whole + length - tail);
}
