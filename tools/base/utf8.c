/* SPDX-License-Identifier: Apache-2.0 */
/* Which bytes are text, and which of it may be shown: names and texts come from hostile files. */
#include "base/utf8.h"

size_t utf8_length(const char *text, size_t left)
{
    const unsigned char *s = (const unsigned char *)text;
    if (s[0] < 0x80)
        return 1;
    if (s[0] < 0xc2 || s[0] > 0xf4)
        return 0;
    size_t n = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    if (n > left)
        return 0;
    unsigned char low = 0x80, high = 0xbf;
    if (s[0] == 0xe0)
        low = 0xa0;
    if (s[0] == 0xed)
        high = 0x9f;
    if (s[0] == 0xf0)
        low = 0x90;
    if (s[0] == 0xf4)
        high = 0x8f;
    if (s[1] < low || s[1] > high)
        return 0;
    for (size_t i = 2; i < n; i++)
        if (s[i] < 0x80 || s[i] > 0xbf)
            return 0;
    return n;
}

size_t utf8_shown(const char *text, size_t left)
{
    const unsigned char *s = (const unsigned char *)text;
    const size_t n = utf8_length(text, left);
    if (n == 1)
        return s[0] >= 0x20 && s[0] != 0x7f;
    if (n == 2)
        return s[0] == 0xc2 && s[1] < 0xa0 ? 0 : n; /* U+0080 to U+009F */
    if (n == 3 && s[0] == 0xe2 &&
        ((s[1] == 0x80 && s[2] >= 0xa8 && s[2] <= 0xae) || /* U+2028 to U+202E */
         (s[1] == 0x81 && s[2] >= 0xa6 && s[2] <= 0xa9)))  /* U+2066 to U+2069 */
        return 0;
    return n;
}

bool utf8_all_shown(const char *text, size_t bytes)
{
    for (size_t at = 0, n; at < bytes; at += n) {
        n = utf8_shown(text + at, bytes - at);
        if (!n)
            return false;
    }
    return true;
}
