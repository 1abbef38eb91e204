/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides which value one that was refused was meant to be. What is told is always a value that the
 * option takes.
 */
#include "cli/options/options.h"

#include <stdio.h>
#include <string.h>

static bool choice_meant(const struct hst_option *o, const char *text, char dst[CLI_MEANT_BYTES])
{
    size_t count = 0;
    while (o->choices[count])
        count++;
    const char *nearest = cli_nearest(text, o->choices, count);
    if (nearest)
        snprintf(dst, CLI_MEANT_BYTES, "%s", nearest);
    return nearest != NULL;
}

/* "4GB" was meant to be 4G; so was "4", which is too few bytes for anything, and "4000" 4000M. */
static bool size_meant(const struct hst_option *o, const char *text, char dst[CLI_MEANT_BYTES])
{
    struct hst_option size = *o;
    char why[400];
    uint64_t bytes;
    size_t length = strlen(text);
    if (length == 0 || length + 1 >= CLI_MEANT_BYTES)
        return false;
    const bool plain = strspn(text, "0123456789.") == length;
    if (!plain && !strchr("Bb", text[length - 1]))
        return false;
    size.offset = 0;
    snprintf(dst, CLI_MEANT_BYTES, "%.*s%s", (int)(plain ? length : length - 1), text,
             !plain                   ? ""
             : strcspn(text, ".") > 3 ? "M"
                                      : "G");
    return hst_option_parse(&size, dst, &bytes, why, sizeof why) == 0;
}

bool cli_value_meant(const struct hst_option *o, const char *text, char dst[CLI_MEANT_BYTES])
{
    if (o->type == HST_OPTION_CHOICE)
        return choice_meant(o, text, dst);
    return o->type == HST_OPTION_SIZE && size_meant(o, text, dst);
}
